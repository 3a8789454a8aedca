// SPDX-License-Identifier: Apache-2.0
// EXPECT: the tokenizer of text_windows() must be callable with a std::string_view and return a std::vector<std::int32_t>
#include <cstdint>
#include <string>
#include <vector>

#include <replicator/data/files/text.hpp>

int main() {
  const auto books = replicator::data::text_windows("books", [](const std::string& text) { return std::vector<std::int32_t>(text.begin(), text.end()); });
}
