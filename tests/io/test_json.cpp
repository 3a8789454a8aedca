// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch.hpp>

#include <clocale>
#include <cmath>
#include <cstdlib>
#include <string>
#include <vector>

#include <rapidcheck.h>
#include <nlohmann/json.hpp>

#include <replicator/io/json/json_writer.hpp>

#include "../input/temporary_folder.hpp"

namespace test_json {

using namespace replicator;
using namespace replicator::detail;

namespace {

std::string text_of(double number) {
  JsonWriter json;
  json.value(number);
  return json.text();
}

// A locale that writes 0,5: one that is installed, or made here of the sources of the C library's. False where there is neither.
bool enter_comma_locale(const std::string& folder) {
  for (const char* name : {"de_DE.UTF-8", "fr_FR.UTF-8", "ru_RU.UTF-8"})
    if (std::setlocale(LC_NUMERIC, name)) return true;
  if (std::system(("localedef -i de_DE -f UTF-8 '" + folder + "/de_DE.UTF-8' > /dev/null 2>&1").c_str()) != 0) return false;
  ::setenv("LOCPATH", folder.c_str(), 1);
  const bool entered = std::setlocale(LC_NUMERIC, "de_DE.UTF-8") != nullptr;
  ::unsetenv("LOCPATH");
  return entered;
}

}  // namespace

TEST_CASE("numbers are JSON whatever the program's locale") {
  const TemporaryFolder folder;
  if (!enter_comma_locale(folder.path())) {
    WARN("skipped: no locale with a decimal comma is installed, and localedef cannot make one (Debian: locales)");
    return;
  }
  const auto text = text_of(0.5);
  std::setlocale(LC_NUMERIC, "C");
  CHECK(text == "0.5");
}

TEST_CASE("whatever the bytes of a text, what is written is JSON: characters stay, other bytes become U+FFFD") {
  const auto read = [](const std::string& text) { return nlohmann::json::parse(json_string(text)).get<std::string>(); };  // throws where it is not UTF-8
  const std::string replaced = "\xEF\xBF\xBD";
  CHECK(rc::check([&] {
    std::string text;
    for (const int choice : *rc::gen::container<std::vector<int>>(rc::gen::inRange(0, 12))) {
      static constexpr const char* pieces[] = {"a", "\"", "\\", "\n", "\xC3\xA9", "\xE2\x82\xAC", "\xF0\x9F\x98\x80", "\x80", "\xC3", "\xED", "\xF0\x9F", "\xFF"};
      text += pieces[choice];
    }
    const auto expected = nlohmann::json::parse(nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace)).get<std::string>();
    const auto without = [&](std::string all) {
      for (auto at = all.find(replaced); at != std::string::npos; at = all.find(replaced)) all.erase(at, replaced.size());
      return all;
    };
    RC_ASSERT(without(read(text)) == without(expected));  // how many stand for a row of such bytes is not said
  }));
  for (const auto* valid : {"", "caf\xC3\xA9", "\xEF\xBF\xBF", "\xF4\x8F\xBF\xBF", "\xED\x9F\xBF", "\xE0\xA0\x80"}) CHECK(read(valid) == valid);
  CHECK(read("a\xC3") == "a" + replaced);
  for (const auto* bytes : {"\xC0\xAF", "\xE0\x9F\xBF", "\xED\xA0\x80", "\xF4\x90\x80\x80", "\xF5\x80\x80\x80"}) CHECK(read(bytes).find(replaced) == 0);
}

TEST_CASE("what is written of a number is read as that number to 10 digits; what is not finite is null") {
  CHECK(rc::check([] {
    const auto number = *rc::gen::arbitrary<double>();
    RC_PRE(std::isfinite(number));
    const auto read = nlohmann::json::parse(text_of(number)).get<double>();
    RC_ASSERT(std::abs(read - number) <= 1e-9 * std::abs(number));
  }));
  CHECK(text_of(INFINITY) == "null");
  CHECK(text_of(-NAN) == "null");
  CHECK(text_of(1e300) == "1e+300");
  CHECK(text_of(-0.000125) == "-0.000125");
}

}  // namespace test_json
