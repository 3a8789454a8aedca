// SPDX-License-Identifier: Apache-2.0
// The JSON header of a safetensors file: a reader for exactly that grammar, and a writer.
// Source: https://github.com/huggingface/safetensors ("Format").
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <replicator/core/shape.hpp>
#include <replicator/io/json/json_reader.hpp>
#include <replicator/io/json/json_writer.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace replicator::io::detail {

// The header's entry for one tensor. Offsets count from the end of the header.
struct TensorEntry {
  TensorType type;
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
};

struct SafetensorsHeader {
  std::map<std::string, TensorEntry> tensors;
  std::map<std::string, std::string> metadata;
};

// The format's names of the element types, in the order of DType.
inline constexpr std::string_view safetensors_names[] = {"F32", "F64", "I32", "I64", "U8", "BOOL", "BF16"};

// Reads {"name": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}, ..., "__metadata__": {"k": "v"}}.
// Throws DataError that names the file and the byte for anything else. Never reads outside of `text`, never recurses.
class SafetensorsHeaderReader : JsonCursor {
 public:
  // `text`: the header of the file at `path`. It follows the 8 bytes of its length.
  SafetensorsHeaderReader(std::string_view text, const std::string& path) : JsonCursor{text, 8, path, "header of safetensors"} {}

  SafetensorsHeader read() {
    SafetensorsHeader header;
    bool metadata_seen = false;
    object([&](const std::string& name) {
      if (name == "__metadata__") {
        if (std::exchange(metadata_seen, true)) fail("__metadata__ appears twice");
        object([&](const std::string& key) {
          if (!header.metadata.emplace(key, string()).second) fail("the metadata has \"" + key + "\" twice");
        });
      } else if (!header.tensors.emplace(name, tensor(name)).second) {
        fail("tensor \"" + name + "\" appears twice");
      }
    });
    finish();
    return header;
  }

 private:
  std::vector<std::uint64_t> integers() {
    std::vector<std::uint64_t> result;
    array([&] { result.push_back(static_cast<std::uint64_t>(integer())); });
    return result;
  }

  TensorEntry tensor(const std::string& name) {
    std::string dtype;
    std::vector<std::uint64_t> shape, offsets;
    int seen = 0;
    object([&](const std::string& key) {
      const int bit = key == "dtype"          ? 1
                      : key == "shape"        ? 2
                      : key == "data_offsets" ? 4
                                              : 0;
      if (bit == 0 || (seen & bit)) fail("tensor \"" + name + "\" has an unexpected \"" + key + "\"");
      seen |= bit;
      if (bit == 1) dtype = string();
      if (bit == 2) shape = integers();
      if (bit == 4) offsets = integers();
    });
    if (seen != 7) fail("tensor \"" + name + "\" needs dtype, shape and data_offsets");
    if (offsets.size() != 2 || offsets[0] > offsets[1]) fail("tensor \"" + name + "\" has wrong data_offsets");
    TensorEntry entry{tensor_type(name, dtype, shape), offsets[0], offsets[1]};
    if (entry.end - entry.begin != entry.type.bytes())
      fail("tensor \"" + name + "\" is " + entry.type.text() + ", " + std::to_string(entry.type.bytes()) +
           " bytes, but its data_offsets span " + std::to_string(entry.end - entry.begin));
    return entry;
  }

  TensorType tensor_type(const std::string& name, const std::string& dtype, const std::vector<std::uint64_t>& shape) {
    TensorType type;
    std::size_t index = 0;
    while (index < std::size(safetensors_names) && safetensors_names[index] != dtype) ++index;
    if (index == std::size(safetensors_names))
      fail("tensor \"" + name + "\" has dtype \"" + dtype + "\"; F32, F64, BF16, I32, I64, U8 and BOOL can be read");
    type.dtype = static_cast<DType>(index);
    if (shape.size() > Shape::max_rank) fail("tensor \"" + name + "\" has more than 8 dimensions");
    for (const std::uint64_t extent : shape) type.shape.push_back(static_cast<std::int64_t>(extent));
    if (type.shape.too_large()) fail("the shape of tensor \"" + name + "\" is too large");
    return type;
  }
};

inline std::string json_entry(const std::string& name, const TensorEntry& entry) {
  std::string shape;
  for (const std::int64_t extent : entry.type.shape) shape += (shape.empty() ? "" : ",") + std::to_string(extent);
  return replicator::detail::json_string(name) + ":{\"dtype\":\"" +
         std::string{safetensors_names[static_cast<std::size_t>(entry.type.dtype)]} + "\",\"shape\":[" + shape +
         "],\"data_offsets\":[" + std::to_string(entry.begin) + "," + std::to_string(entry.end) + "]}";
}

}  // namespace replicator::io::detail
