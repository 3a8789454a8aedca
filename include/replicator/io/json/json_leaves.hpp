// SPDX-License-Identifier: Apache-2.0
// The strings, numbers and words of a JSON text, each with its path, for answers whose form is not known exactly.
#pragma once

#include <cstddef>
#include <replicator/io/json/json_reader.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace replicator::io::detail {

// {"a": [{"b": 1}, "x"]} gives "/a/0/b" = "1" and "/a/1" = "x". Throws DataError for text that is not JSON, or is nested
// deeper than `deepest`.
class JsonLeaves {
 public:
  JsonLeaves(std::string_view text, const std::string& source) {
    JsonCursor cursor{text, 0, source, "JSON"};
    read(cursor, "", 0);
    cursor.space();
    if (!cursor.at_end()) cursor.fail("something follows the value");
  }

  // The first leaf whose path ends with `path`; null where there is none. No leaf is a null of JSON.
  const std::string* find(std::string_view path) const {
    for (const auto& [where, text] : leaves_)
      if (where.ends_with(path)) return &text;
    return nullptr;
  }

 private:
  static constexpr int deepest = 16;

  void read(JsonCursor& cursor, const std::string& path, int depth) {
    if (depth > deepest) cursor.fail("nested too deeply");
    cursor.space();
    const auto begin = cursor.rest();
    const char first = begin.empty() ? '\0' : begin[0];
    std::size_t index = 0;
    if (first == '{') return cursor.object([&](const std::string& key) { read(cursor, path + "/" + key, depth + 1); });
    if (first == '[') return cursor.array([&] { read(cursor, path + "/" + std::to_string(index++), depth + 1); });
    if (first == '"') return leaves_.emplace_back(path, cursor.string()), void();
    if (begin.starts_with("null")) return cursor.take(4), void();
    if (begin.starts_with("true")) cursor.take(4);
    else if (begin.starts_with("false")) cursor.take(5);
    else cursor.number();
    leaves_.emplace_back(path, begin.substr(0, begin.size() - cursor.rest().size()));
  }

  std::vector<std::pair<std::string, std::string>> leaves_;
};

}  // namespace replicator::io::detail
