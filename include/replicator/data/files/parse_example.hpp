// SPDX-License-Identifier: Apache-2.0
// The code of example.hpp: parses the message tf.train.Example.
// Source: protobuf.dev/programming-guides/encoding.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <replicator/core/array.hpp>
#include <replicator/core/error.hpp>
#include <replicator/data/files/example.hpp>
#include <replicator/data/files/files.hpp>
#include <replicator/io/number_encoding.hpp>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace replicator::data {

namespace detail {

// Reads the fields of one protobuf message. Throws DataError; never reads outside of its bytes.
class WireReader {
 public:
  enum Type {
    varint_type = 0,
    eight_bytes = 1,
    length_delimited = 2,
    four_bytes = 5
  };

  WireReader(std::span<const std::byte> message, std::size_t offset) : message_{message}, offset_{offset} {}

  bool done() const { return at_ == message_.size(); }
  // Number and type of the next field.
  std::pair<std::uint64_t, int> tag() {
    const std::uint64_t value = varint();
    return {value >> 3, static_cast<int>(value & 7)};
  }
  std::uint64_t varint() {
    std::uint64_t value = 0;
    for (unsigned shift = 0; shift < 70; shift += 7) {
      if (done()) fail("it ends within a number");
      const auto byte = std::to_integer<std::uint64_t>(message_[at_++]);
      if (shift < 64) value |= (byte & 127) << shift;
      if (byte < 128) return value;
    }
    fail("a number of more than 10 bytes");
  }
  WireReader message() {
    const std::uint64_t size = varint();
    if (size > message_.size() - at_) fail("a field of " + std::to_string(size) + " bytes, and " + std::to_string(message_.size() - at_) + " follow");
    const std::size_t begin = at_;
    at_ += size;
    return {message_.subspan(begin, size), offset_ + begin};
  }
  std::uint32_t fixed32() {
    skip_bytes(4);
    return io::detail::load_little<std::uint32_t>(message_.data() + at_ - 4);
  }
  void skip(int type) {
    if (type == varint_type) varint();
    else if (type == eight_bytes) skip_bytes(8);
    else if (type == four_bytes) skip_bytes(4);
    else if (type == length_delimited) message();
    else fail("the wire type " + std::to_string(type) + " does not exist here");
  }
  std::span<const std::byte> bytes() const { return message_; }
  [[noreturn]] void fail(const std::string& what) const {
    throw DataError{"tf.train.Example: byte " + std::to_string(offset_ + at_) + ": " + what};
  }

 private:
  void skip_bytes(std::size_t count) {
    if (message_.size() - at_ < count) fail("it ends within a field");
    at_ += count;
  }

  std::span<const std::byte> message_;
  std::size_t offset_;
  std::size_t at_ = 0;
};

inline std::string text_of(const WireReader& reader) {
  return {reinterpret_cast<const char*>(reader.bytes().data()), reader.bytes().size()};
}
template <class T>
Array<T> array_of_list(const std::vector<T>& values) {
  return {Shape{static_cast<std::int64_t>(values.size())}, std::span<const T>{values}};
}

}  // namespace detail

template <class Take>
void Example::fields(detail::WireReader reader, Take take) {
  while (!reader.done()) {
    const auto [number, type] = reader.tag();
    if (type != detail::WireReader::length_delimited || !take(reader, number)) reader.skip(type);
  }
}

template <class>
void Example::read_entry(detail::WireReader entry) {
  std::string name;
  Feature feature;
  fields(entry, [&](detail::WireReader& reader, std::uint64_t number) {
    if (number == 1) name = detail::text_of(reader.message());
    if (number == 2) feature = read_feature(reader.message());
    return number == 1 || number == 2;
  });
  features_[name] = std::move(feature);
}

template <class>
Example::Feature Example::read_feature(detail::WireReader message) {
  Feature feature;
  fields(message, [&](detail::WireReader& reader, std::uint64_t number) {
    if (number < 1 || number > 3) return false;
    feature.kind = static_cast<Kind>(number);
    read_list(reader.message(), feature);
    return true;
  });
  return feature;
}

template <class>
void Example::read_list(detail::WireReader list, Feature& feature) {
  using Wire = detail::WireReader;
  while (!list.done()) {
    const auto [number, type] = list.tag();
    if (number != 1) list.skip(type);
    else if (feature.kind == Kind::bytes && type == Wire::length_delimited) feature.bytes.push_back(detail::text_of(list.message()));
    else if (feature.kind == Kind::floats && type == Wire::four_bytes) push_float(list, feature);
    else if (feature.kind == Kind::int64s && type == Wire::varint_type) feature.int64s.push_back(static_cast<std::int64_t>(list.varint()));
    else if (feature.kind != Kind::bytes && type == Wire::length_delimited) {
      for (Wire packed = list.message(); !packed.done();)
        if (feature.kind == Kind::floats) push_float(packed, feature);
        else feature.int64s.push_back(static_cast<std::int64_t>(packed.varint()));
    } else {
      list.fail("a list with entries of another type than its own");
    }
  }
}

template <class>
void Example::push_float(detail::WireReader& reader, Feature& feature) {
  const std::uint32_t bits = reader.fixed32();
  float value;
  std::memcpy(&value, &bits, sizeof value);
  feature.floats.push_back(value);
}

template <class>
const Example::Feature& Example::feature(const std::string& name, Kind kind) const {
  static constexpr const char* kinds[] = {"an empty feature", "bytes", "floats", "int64s"};
  const auto found = features_.find(name);
  if (found != features_.end() && found->second.kind == kind) return found->second;
  std::string has;
  for (const auto& [each, value] : features_) has += (has.empty() ? "" : ", ") + each + " (" + kinds[static_cast<std::size_t>(value.kind)] + ")";
  throw DataError{"tf.train.Example: \"" + name + "\" was asked for as " + kinds[static_cast<std::size_t>(kind)] +
                  "; the example has " + (has.empty() ? "nothing" : has)};
}

template <class>
Example::Example(std::span<const std::byte> message) {
  fields(detail::WireReader{message, 0}, [&](detail::WireReader& example, std::uint64_t number) {
    if (number != 1) return false;
    fields(example.message(), [&](detail::WireReader& features, std::uint64_t entry) {
      if (entry == 1) read_entry(features.message());
      return entry == 1;
    });
    return true;
  });
}

template <class>
Example::Kind Example::kind(const std::string& name) const {
  const auto found = features_.find(name);
  return found == features_.end() ? Kind::none : found->second.kind;
}

template <class>
Array<std::uint8_t> Example::bytes(const std::string& name, std::size_t i) const {
  const auto& list = feature(name, Kind::bytes).bytes;
  if (i >= list.size())
    throw DataError{"tf.train.Example: \"" + name + "\" has " + std::to_string(list.size()) + " entries; entry " +
                    std::to_string(i) + " was asked for"};
  return detail::array_of_bytes(std::as_bytes(std::span{list[i]}));
}

template <class>
Array<float> Example::floats(const std::string& name) const { return detail::array_of_list(feature(name, Kind::floats).floats); }

template <class>
Array<std::int64_t> Example::int64s(const std::string& name) const { return detail::array_of_list(feature(name, Kind::int64s).int64s); }

template <class>
Example parse_example(const Array<std::uint8_t>& record) {
  return Example{std::as_bytes(std::span{record.data(), static_cast<std::size_t>(record.size())})};
}

}  // namespace replicator::data
