// SPDX-License-Identifier: Apache-2.0
// Fuzzes the protobuf message tf.train.Example.
// covers: data/files/example.hpp data/files/parse_example.hpp
#include <replicator/data/files/example.hpp>
#include <replicator/data/files/parse_example.hpp>

#include "target.hpp"

namespace replicator::fuzz {

using namespace replicator::detail;

void one(Bytes input) {
  documented<DataError>("tf.train.Example: ", [&] {
    const data::Example example{input};
    for (const char* name : {"a", "b", "", "label"}) {
      const auto kind = example.kind(name);
      const auto ask = [&](auto want, const auto& value) {
        const bool has = documented<DataError>("tf.train.Example: ", [&] { static_cast<void>(value()); });
        require(!has || kind == want, "a feature that is of another kind");
      };
      ask(data::Example::Kind::bytes, [&] { return example.bytes(name); });
      ask(data::Example::Kind::bytes, [&] { return example.bytes(name, 1); });
      ask(data::Example::Kind::floats, [&] { return example.floats(name); });
      ask(data::Example::Kind::int64s, [&] { return example.int64s(name); });
    }
  });
}

std::vector<std::string> seeds() {
  const auto field = [](char number, const std::string& content) {
    return std::string{static_cast<char>(number << 3 | 2)} + static_cast<char>(content.size()) + content;
  };
  const auto entry = [&](const std::string& name, char kind, const std::string& list) {
    return field(1, field(1, name) + field(2, field(kind, list)));
  };
  const auto bytes = entry("a", 1, field(1, "hello") + field(1, ""));
  const auto floats = entry("b", 2, field(1, std::string(8, 'x')));
  const auto loose = entry("b", 2,
                           "\x0d"
                           "abcd");
  const auto integers = entry("label", 3, field(1, "\x07\x96\x01"));
  return {field(1, bytes + floats + integers), field(1, loose + entry("label", 3, "\x08\x05")), field(1, bytes) + field(1, integers),
          field(5, "unknown") + "\x10\x01"};
}

}  // namespace replicator::fuzz
