// SPDX-License-Identifier: Apache-2.0
// The code of safetensors.hpp: reads and writes the files.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <replicator/core/array.hpp>
#include <replicator/io/file.hpp>
#include <replicator/io/number_encoding.hpp>
#include <replicator/io/safetensors.hpp>
#include <replicator/io/safetensors_header.hpp>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace replicator::io {

namespace detail {

// Sorts the tensors and returns the bytes before their data: the length and the header. Larger elements come first,
// then the order is by name. Python's writer uses the same order; it keeps every tensor aligned.
inline std::string begin_safetensors(const std::string& path, std::vector<NamedTensor>& tensors, const std::map<std::string, std::string>& metadata) {
  std::sort(tensors.begin(), tensors.end(), [](const NamedTensor& a, const NamedTensor& b) {
    const std::size_t x = size_of(a.type.dtype), y = size_of(b.type.dtype);
    return x != y ? x > y : a.name < b.name;
  });
  std::set<std::string> names;
  std::string header = "{";
  for (const auto& [key, value] : metadata)
    header +=
        (header.size() == 1 ? "\"__metadata__\":{" : ",") + replicator::detail::json_string(key) + ":" + replicator::detail::json_string(value);
  if (!metadata.empty()) header += "}";
  std::uint64_t offset = 0;
  for (const NamedTensor& tensor : tensors) {
    if (tensor.name == "__metadata__")
      throw BuildError{path + ": a tensor cannot be called \"__metadata__\", which the format keeps for itself: give it another name"};
    if (!names.insert(tensor.name).second)
      throw BuildError{path + ": two tensors to be saved are called \"" + tensor.name + "\""};
    const detail::TensorEntry entry{tensor.type, offset, offset + tensor.type.bytes()};
    header += (header.size() == 1 ? "" : ",") + detail::json_entry(tensor.name, entry);
    offset = entry.end;
  }
  header += "}";
  header.resize((header.size() + 7) / 8 * 8, ' ');  // the data begin at a multiple of 8 bytes

  std::string length(8, '\0');
  for (std::size_t i = 0; i < 8; ++i) length[i] = static_cast<char>(header.size() >> (8 * i));
  return length + header;
}

}  // namespace detail

template <class>
void write_safetensors(const std::string& path, std::vector<NamedTensor> tensors, const std::map<std::string, std::string>& metadata) {
  const std::string begin = detail::begin_safetensors(path, tensors, metadata);
  FileReplacement file{path};
  file.write(std::as_bytes(std::span{begin}));
  for (const NamedTensor& tensor : tensors) file.write({tensor.data, tensor.type.bytes()});
  file.commit();
}

template <class>
std::vector<std::byte> safetensors_bytes(const std::string& name, std::vector<NamedTensor> tensors, const std::map<std::string, std::string>& metadata) {
  const std::string begin = detail::begin_safetensors(name, tensors, metadata);
  std::size_t size = begin.size();
  for (const NamedTensor& tensor : tensors) size += tensor.type.bytes();
  std::vector<std::byte> bytes;
  bytes.reserve(size);
  const auto add = [&](std::span<const std::byte> more) { bytes.insert(bytes.end(), more.begin(), more.end()); };
  add(std::as_bytes(std::span{begin}));
  for (const NamedTensor& tensor : tensors) add({tensor.data, tensor.type.bytes()});
  return bytes;
}

template <class>
void write_safetensors(const std::string& path, const std::map<std::string, AnyArray>& tensors, const std::map<std::string, std::string>& metadata) {
  std::vector<NamedTensor> list;
  for (const auto& [name, array] : tensors) list.push_back({name, array.type(), array.data()});
  write_safetensors(path, std::move(list), metadata);
}

namespace detail {

// Checks that the tensors cover the data without overlaps or holes. Returns them in the order of the data.
inline std::vector<std::pair<TensorEntry, std::string>> checked_order(const std::string& path,
                                                                      const SafetensorsHeader& header,
                                                                      std::uint64_t data_bytes) {
  std::vector<std::pair<TensorEntry, std::string>> order;
  for (const auto& [name, entry] : header.tensors) order.emplace_back(entry, name);
  std::sort(order.begin(), order.end(), [](const auto& a, const auto& b) {
    return std::pair{a.first.begin, a.first.end} < std::pair{b.first.begin, b.first.end};
  });
  std::uint64_t at = 0;
  for (const auto& [entry, name] : order) {
    if (entry.begin != at)
      throw DataError{path + ": tensor \"" + name + "\" begins at byte " + std::to_string(entry.begin) +
                      " of the data" + (entry.begin < at ? ", inside of another tensor" : ", behind a hole") +
                      "; the tensor before it ends at " + std::to_string(at)};
    at = entry.end;
  }
  if (at != data_bytes)
    throw DataError{path + ": the header describes " + std::to_string(at) + " bytes of tensors, but the file holds " +
                    std::to_string(data_bytes) + (at > data_bytes ? ": it was cut short" : "")};
  return order;
}

// Parses a file of `size` bytes. Each call of read(span) fills the span with the next bytes.
template <class Read>
Safetensors parse_safetensors(const std::string& path, std::uint64_t size, Read read) {
  static constexpr std::uint64_t max_header = 100'000'000;  // the limit of the reference implementation
  if (size < 8)
    throw DataError{path + ": not a safetensors file: it has " + std::to_string(size) + " bytes, the shortest has 10"};
  std::byte length_bytes[8];
  read(std::span<std::byte>{length_bytes});
  const auto length = detail::load_little<std::uint64_t>(length_bytes);
  if (length > max_header && length <= size - 8)
    throw DataError{path + ": its header claims " + std::to_string(length) + " bytes, and at most " + std::to_string(max_header) +
                    " can be read: it is damaged, or no safetensors file"};
  if (length > size - 8)
    throw DataError{path + ": not a safetensors file, or cut short: its header claims " + std::to_string(length) +
                    " bytes, and " + std::to_string(size - 8) + " follow"};
  std::string text(length, '\0');
  read(std::as_writable_bytes(std::span{text}));
  SafetensorsHeader header = SafetensorsHeaderReader{text, path}.read();

  Safetensors result;
  for (const auto& [entry, name] : checked_order(path, header, size - 8 - length)) {
    AnyArray array{entry.type};
    read(std::span<std::byte>{array.data(), array.size_bytes()});
    if (entry.type.dtype == DType::boolean &&
        std::any_of(array.data(), array.data() + array.size_bytes(), [](std::byte b) { return b > std::byte{1}; }))
      throw DataError{path + ": tensor \"" + name + "\" is BOOL but has bytes other than 0 and 1"};
    result.tensors.emplace(name, std::move(array));
  }
  result.metadata = std::move(header.metadata);
  return result;
}

}  // namespace detail

template <class>
Safetensors read_safetensors(const std::string& path) {
  const detail::InputFile file{path};
  return detail::parse_safetensors(path, file.size(), [&](std::span<std::byte> into) { detail::read_exactly(path, file.fd(), into); });
}

template <class>
Safetensors read_safetensors(const std::string& name, std::span<const std::byte> bytes) {
  return detail::parse_safetensors(name, bytes.size(), [&](std::span<std::byte> into) {
    std::copy_n(bytes.begin(), into.size(), into.begin());
    bytes = bytes.subspan(into.size());
  });
}

}  // namespace replicator::io
