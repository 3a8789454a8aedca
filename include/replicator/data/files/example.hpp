// SPDX-License-Identifier: Apache-2.0
// Parses the message tf.train.Example, the usual content of TFRecord files.
// <replicator/replicator.hpp>, or parse_example.hpp, brings the code.
// Source: tensorflow/core/example/example.proto and feature.proto; protobuf.dev/programming-guides/encoding.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <replicator/core/array.hpp>
#include <span>
#include <string>
#include <vector>

namespace replicator::data {

namespace detail {

class WireReader;

}  // namespace detail

// Named features, each a list of bytes, floats or integers.
class Example {
 public:
  enum class Kind {
    none,
    bytes,
    floats,
    int64s
  };

  // Throws DataError if the bytes are no such message.
  template <class = void>
  explicit Example(std::span<const std::byte> message);

  template <class = void>
  Kind kind(const std::string& name) const;
  // bytes(): entry `i` of a list of bytes, as uint8 [bytes]. floats(), int64s(): the whole list as [count].
  // Throws DataError if there is no such feature or entry.
  template <class = void>
  Array<std::uint8_t> bytes(const std::string& name, std::size_t i = 0) const;
  template <class = void>
  Array<float> floats(const std::string& name) const;
  template <class = void>
  Array<std::int64_t> int64s(const std::string& name) const;

 private:
  struct Feature {
    Kind kind = Kind::none;
    std::vector<std::string> bytes;
    std::vector<float> floats;
    std::vector<std::int64_t> int64s;
  };

  // Calls take(reader, number) for each field with a length. Skips the fields for which it returns false.
  template <class Take>
  static void fields(detail::WireReader reader, Take take);
  template <class = void>
  void read_entry(detail::WireReader entry);
  template <class = void>
  static Feature read_feature(detail::WireReader message);
  // Numbers are stored packed or one by one.
  template <class = void>
  static void read_list(detail::WireReader list, Feature& feature);
  template <class = void>
  static void push_float(detail::WireReader& reader, Feature& feature);
  template <class = void>
  const Feature& feature(const std::string& name, Kind kind) const;

  std::map<std::string, Feature> features_;
};

// Parses a record of tfrecord(). Throws DataError if it is no Example.
template <class = void>
Example parse_example(const Array<std::uint8_t>& record);

}  // namespace replicator::data
