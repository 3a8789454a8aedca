// SPDX-License-Identifier: Apache-2.0
// Compares the cursor of all JSON headers with a complete JSON library. If the cursor accepts an object of strings,
// numbers and lists of whole numbers, the library must accept it with the same values.
// covers: io/json/json_reader.hpp io/text_cursor.hpp
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <replicator/io/json/json_reader.hpp>

#include "target.hpp"

namespace replicator::fuzz {

using namespace replicator::detail;

namespace {

struct Read {
  std::map<std::string, std::string> strings;
  std::map<std::string, double> numbers;
  std::map<std::string, std::vector<std::int64_t>> lists;
  std::size_t members = 0;
};

class Reader : io::detail::JsonCursor {
 public:
  explicit Reader(std::string_view text) : JsonCursor{text, 0, "a.json", "object"} {}
  Read read() {
    Read result;
    object([&](const std::string& key) {
      ++result.members;
      space();
      if (rest().starts_with('"')) result.strings[key] = string();
      else if (rest().starts_with('[')) array([&] { result.lists[key].push_back(integer()); });
      else result.numbers[key] = number();
    });
    finish();
    return result;
  }
};

bool plain(const std::string& text) {
  for (const char c : text)
    if (static_cast<unsigned char>(c) > 126) return false;
  return true;
}

}  // namespace

void one(Bytes input) {
  const std::string text{text_of(input)};
  Read read;
  const bool taken = documented<DataError>("a.json: byte ", [&] { read = Reader{text}.read(); });
  if (!plain(text)) return;  // bytes above 127 are the user's own affair
  const auto other = nlohmann::json::parse(text, nullptr, false);
  if (!taken) return;
  require(other.is_object(), "the cursor takes what is no object of JSON");
  if (read.members != other.size()) return;  // a name twice
  for (const auto& [key, value] : read.strings) require(other.at(key) == value, "another string at " + key);
  for (const auto& [key, value] : read.numbers)
    require(other.at(key).is_number() && other.at(key).get<double>() == value, "another number at " + key);
  for (const auto& [key, value] : read.lists) require(other.at(key) == value, "another list at " + key);
}

std::vector<std::string> seeds() {
  return {R"({"a": "b", "c": 1.5e-3, "d": [1, 2, 3]})", R"({"\u00e9\ud83d\ude00\\\/\"\b\f\n\r\t": "x", "": -0.0})",
          R"({ "n" : 9223372036854775807 , "l":[]})"};
}

}  // namespace replicator::fuzz
