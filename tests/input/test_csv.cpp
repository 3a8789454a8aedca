// SPDX-License-Identifier: Apache-2.0
// Numbers and labels of CSV files, and errors that say the line.
#include <rapidcheck.h>

#include <catch2/catch.hpp>
#include <cmath>
#include <cstdint>
#include <replicator/data/batch.hpp>
#include <replicator/data/files/csv.hpp>
#include <replicator/data/files/csv_file.hpp>
#include <string>
#include <tuple>
#include <vector>

#include "temporary_folder.hpp"

namespace test_csv {

using namespace replicator;
using namespace replicator::detail;
using Catch::Contains;

namespace {

template <class T>
std::vector<T> values(const Array<T>& array) {
  return {array.begin(), array.end()};
}
template <class Source>
auto all(const Source& source) {
  auto result = values(source(0));
  for (std::int64_t i = 1; i < source.size(); ++i)
    for (const auto value : source(i)) result.push_back(value);
  return result;
}

const std::string houses =
    "area,rooms,\"city, or town\",price\n"
    "81.5,3,Ulm,250000\n"
    "40,1,\"the \"\"old\"\" one,\nby the river\", -3e5 \n"
    "\n"
    "+7,2,,1\n";

}  // namespace

TEST_CASE("the columns of a CSV file are chosen by name or by number, in any order") {
  const TemporaryFolder folder;
  const auto path = folder.write("h.csv", houses);
  const auto x = data::csv<float>(path, {"rooms", 0});
  REQUIRE(x.size() == 3);
  CHECK(x(0).shape() == Shape{2});
  CHECK(all(x) == std::vector<float>{3, 81.5f, 1, 40, 2, 7});
  CHECK(data::csv_column<double>(path, "price")(1).shape() == Shape{});
  CHECK(all(data::csv_column<double>(path, 3)) == std::vector<double>{250000, -3e5, 1});
  CHECK(all(data::csv_column<std::int64_t>(path, "rooms")) == std::vector<std::int64_t>{3, 1, 2});
  CHECK(all(data::csv<std::uint8_t>(folder.write("all.csv", "a,b\n1,2\n3,4"))) == std::vector<std::uint8_t>{1, 2, 3, 4});  // without the last line end
}

TEST_CASE("line ends of Windows, UTF-8's mark, other separators and files without a header are read") {
  const TemporaryFolder folder;
  const std::vector<float> expected{1, 2, 3, 4};
  CHECK(all(data::csv<float>(folder.write("a.csv", "\xEF\xBB\xBFx,y\r\n1,2\r\n3,4\r\n"), {"x", "y"})) == expected);
  CHECK(all(data::csv<float>(folder.write("a.csv", "\"x\";\"y\"\n\"1\";2\n3;\" 4\""), {"x", "y"}, {.separator = ';'})) == expected);
  CHECK(all(data::csv<float>(folder.write("a.csv", "1\t2\n3\t4\n"), {}, {.header = false, .separator = '\t'})) == expected);
  CHECK(all(data::csv<float>(folder.write("a.csv", "1\r2\r3\r4"), {}, {.header = false})) == expected);
  CHECK(all(data::csv<float>(folder.write("a.csv", "x, y\n1, 2\n3, 4\n"), {"x", "y"})) == expected);  // blanks count nowhere
}

TEST_CASE("numbers are read exactly as they were written") {
  const TemporaryFolder folder;
  REQUIRE(rc::check([&] {
    const auto numbers = *rc::gen::container<std::vector<double>>(5, rc::gen::arbitrary<double>());
    std::string text = "x\n";
    char digits[64];
    for (const double each : numbers) {
      std::snprintf(digits, sizeof digits, "%.17g\n", each);
      text += digits;
    }
    RC_ASSERT(all(data::csv_column<double>(folder.write("a.csv", text), "x")) == numbers);
  }));
  // The nearest float, also where it is 0.
  CHECK(all(data::csv_column<float>(folder.write("a.csv", "0.1\n1e-300\n-1e-300\n1e-42\n"), 0, {.header = false})) == std::vector<float>{0.1f, 0, 0, 1e-42f});
  CHECK(all(data::csv_column<double>(folder.write("a.csv", "1e-400\n1e-9999\n"), 0, {.header = false})) == std::vector<double>{0, 0});
}

TEST_CASE("rows of a CSV file and their labels are shuffled, dealt and sought as other sources are") {
  const TemporaryFolder folder;
  std::string text = "x,kind\n";
  for (int i = 0; i < 20; ++i) text += std::to_string(i) + (i % 3 == 0 ? ",three\n" : ",other\n");
  const auto path = folder.write("a.csv", text);
  const auto source = data::zip(data::csv<float>(path, {"x"}), data::csv_labels(path, "kind", {"other", "three"}));
  auto input = source | data::shuffle() | data::shard({.seed = 2, .replica = 1, .replicas = 2}) | data::batch(4);
  (void)input.next();
  const auto [x, labels] = *input.next();
  CHECK(x.shape() == Shape{4, 1});
  CHECK(labels.shape() == Shape{4});
  for (std::int64_t i = 0; i < 4; ++i) CHECK(labels[i] == (static_cast<int>(x[i]) % 3 == 0));
  input.seek(1);
  CHECK(values(std::get<0>(*input.next())) == values(x));
}

TEST_CASE("an empty field is an error, or the number that it stands for") {
  const TemporaryFolder folder;
  const auto path = folder.write("a.csv", "x,y\n1,2\n, \n");
  CHECK_THROWS_AS(data::csv<float>(path), DataError);
  CHECK_THROWS_WITH(data::csv<float>(path), path + ":3: column \"x\" is empty: fill it in, or say with {.missing = 0} what it stands for");
  CHECK(all(data::csv<std::int32_t>(path, {}, {.missing = -1})) == std::vector<std::int32_t>{1, 2, -1, -1});
  CHECK(std::isnan(data::csv<float>(path, {}, {.missing = std::nan("")})(1)[0]));
  CHECK_THROWS_WITH(data::csv<std::int32_t>(path, {}, {.missing = 0.5}), path + ": .missing is 0.5, which is no int32");
  CHECK_THROWS_AS(data::csv<std::uint8_t>(path, {}, {.missing = 256}), BuildError);
  // In a file of one column, too: a line with nothing is no row, but one with quotes is.
  CHECK(all(data::csv<float>(folder.write("one.csv", "x\n1\n\"\"\n\n3\n"), {}, {.missing = -1})) == std::vector<float>{1, -1, 3});
  CHECK_THROWS_AS(data::csv<std::int64_t>(path, {}, {.missing = std::nan("")}), BuildError);
}

TEST_CASE("what is wrong in a CSV file is said with the line") {
  const TemporaryFolder folder;
  const auto refused = [&](const std::string& text, const std::string& message, const data::CsvOptions& options = {}) {
    const auto path = folder.write("a.csv", text);
    CHECK_THROWS_AS(data::csv<std::int32_t>(path, {0}, options), DataError);
    CHECK_THROWS_WITH(data::csv<std::int32_t>(path, {0}, options), path + ":" + message);
  };
  refused("x,y\n1,2\n3\n", "3: 1 fields; the first line has 2");
  refused("x,y\n1,2,3\n", "2: 3 fields; the first line has 2");
  refused("x\n1\n\"2\n\n\"\nA\n", "3: column \"x\" is \"2\\x0a\\x0a\", which is no int32");
  refused("x,y\n1,\"\n\n\"\nA,\n", "5: column \"x\" is \"A\", which is no int32");  // lines within quotes count
  refused("1\n1.5\n", "2: column 0 is \"1.5\", which is no int32", {.header = false});
  refused("x\n+-1\n", "2: column \"x\" is \"+-1\", which is no int32");
  refused("x\n2147483648\n", "2: column \"x\" is \"2147483648\", which does not fit into int32");
  refused("x\n\"1\" 2\n", "2: text stands behind the quote that ends \"1\"");
  refused("x\n1\n\"2\n", "3: a quote begins here, and none ends it");
  refused("", " the file is empty; its first line would name the columns");
  refused("", " the file is empty; an input needs at least one line", {.header = false});
  refused("x\n", " it has no elements; an input needs at least one");
  CHECK_THROWS_WITH(data::csv<float>(folder.write("a.csv", "1\n"), {}, {.separator = '"'}), Contains("a.csv: the separator cannot be a quote or the end of a line"));
  const auto path = folder.write("a.csv", "x,y,x\n1e999,word,2\n");
  CHECK_THROWS_WITH(data::csv_column<float>(path, 0), path + ":2: column \"x\" is \"1e999\", which does not fit into float32");
  CHECK_THROWS_WITH(data::csv_column<float>(path, "y"), path + ":2: column \"y\" is \"word\", which is no number");
  CHECK_THROWS_WITH(data::csv_labels(path, "y", {"verb", "noun"}), path + ":2: column \"y\" is \"word\"; the words are \"verb\", \"noun\"");
  CHECK_THROWS_WITH(data::csv<float>(path, {"z"}), path + ": there is no column \"z\": the first line names \"x\", \"y\", \"x\"");
  CHECK_THROWS_WITH(data::csv<float>(path, {"x"}), path + ": two columns are named \"x\": ask for a number");
  CHECK_THROWS_WITH(data::csv<float>(path, {3}), path + ": there is no column 3: the first line has 3 columns, counted from 0");
  CHECK_THROWS_WITH(data::csv<float>(path, {-1}), Contains("there is no column -1"));
  const std::string empty = ": a column was asked for by an empty name: give its name, or its number from 0, which also finds a column without a name";
  CHECK_THROWS_WITH(data::csv<float>(path, {""}), path + empty);
  CHECK_THROWS_WITH(data::csv_column<float>(path, "", {.header = false}), path + empty);
  CHECK_THROWS_WITH(data::csv<float>(path, {"x"}, {.header = false}), Contains("has a name, but .header = false says that the file names none"));
}

TEST_CASE("many names are cut short in an error") {
  const TemporaryFolder folder;
  std::string text = "c0";
  for (int i = 1; i < 100; ++i) text += ",c" + std::to_string(i);
  CHECK_THROWS_WITH(data::csv<float>(folder.write("a.csv", text + "\n"), {"z"}), Contains("\"c19\", ...") && !Contains("c20"));
}

}  // namespace test_csv
