// SPDX-License-Identifier: Apache-2.0
// What errors quote cannot steer a terminal, forge lines of a log, or fill it.
#include <catch2/catch.hpp>
#include <cstddef>
#include <random>
#include <replicator/core/error.hpp>
#include <replicator/core/printable.hpp>
#include <string>

namespace test_printable {

using replicator::DataError;
using replicator::detail::printable;
using replicator::detail::utf8_length;

TEST_CASE("control characters and bytes that are not UTF-8 are escaped, other text stays") {
  CHECK(printable("plain, 100 % and \"quoted\"") == "plain, 100 % and \"quoted\"");
  CHECK(printable("stra\u00DFe \u2713 \U0001F600") == "stra\u00DFe \u2713 \U0001F600");
  CHECK(printable("\x1b[2J\n\t\r\x7f") == "\\x1b[2J\\x0a\\x09\\x0d\\x7f");
  CHECK(printable("\u009b31m") == "\\xc2\\x9b31m");  // a control sequence of one character
  CHECK(printable("a\xff\xc3") == "a\\xff\\xc3");
  CHECK(printable(std::string("\0", 1)) == "\\x00");
}

TEST_CASE("of a long text the ends are kept") {
  const std::string text = "archive.tar: " + std::string(5000, 'x') + ": pack it again";
  const auto shown = printable(text, 100);
  CHECK(shown.size() == 105);
  CHECK_THAT(shown, Catch::StartsWith("archive.tar: xxx") && Catch::Contains("x ... x") && Catch::EndsWith(": pack it again"));
  CHECK(printable(text, text.size()) == text);
}

TEST_CASE("whatever the bytes, the result is UTF-8 without control characters, at most four times as long") {
  std::mt19937 random{1};
  for (int i = 0; i < 2000; ++i) {
    std::string text(random() % 60, ' ');
    for (char& c : text) c = static_cast<char>(random() % 3 ? random() : 0xC0 + random() % 0x35);
    const std::size_t longest = random() % 40;
    const auto shown = printable(text, longest);
    CHECK(shown.size() <= 4 * longest + 5);
    for (std::size_t at = 0; at < shown.size();) {
      const auto length = utf8_length(std::string_view{shown}.substr(at));
      REQUIRE(length > 0);
      REQUIRE((length > 1 || (shown[at] >= ' ' && shown[at] != 0x7f)));
      at += length;
    }
  }
}

TEST_CASE("the lines of a DataError stay lines") { CHECK(DataError{"a.json: line 3\nIt was cut\r"}.what() == std::string{"a.json: line 3\nIt was cut\\x0d"}); }

TEST_CASE("a DataError escapes and cuts what it quotes") {
  const std::string shown = DataError{"a.safetensors: tensor \"\x1b]0;owned\x07" + std::string(100000, 'n') + "\" appears twice"}.what();
  CHECK(shown.size() < 2100);
  CHECK_THAT(shown, Catch::StartsWith("a.safetensors: tensor \"\\x1b]0;owned\\x07nnn") && Catch::EndsWith("nnn\" appears twice"));
}

}  // namespace test_printable
