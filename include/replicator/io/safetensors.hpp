// SPDX-License-Identifier: Apache-2.0
// Reads and writes weights in the safetensors format (https://github.com/huggingface/safetensors), as Python does.
// <replicator/replicator.hpp>, or safetensors_file.hpp, brings the code.
#pragma once

#include <cstddef>
#include <map>
#include <replicator/core/array.hpp>
#include <span>
#include <string>
#include <vector>

namespace replicator::io {

// The content of a safetensors file.
struct Safetensors {
  std::map<std::string, AnyArray> tensors;
  std::map<std::string, std::string> metadata;
};

// A named tensor in row-major layout. It does not own its memory.
struct NamedTensor {
  std::string name;
  TensorType type;
  const std::byte* data = nullptr;
};

// Replaces the file as a whole. Throws BuildError for two equal names, and DataError if the file cannot be written.
template <class = void>
void write_safetensors(const std::string& path, std::vector<NamedTensor> tensors, const std::map<std::string, std::string>& metadata = {});
template <class = void>
void write_safetensors(const std::string& path, const std::map<std::string, AnyArray>& tensors, const std::map<std::string, std::string>& metadata = {});

// The same file as bytes in memory. `name` stands for the path in errors.
template <class = void>
std::vector<std::byte> safetensors_bytes(const std::string& name, std::vector<NamedTensor> tensors, const std::map<std::string, std::string>& metadata = {});

// Reads a whole file.
// Throws DataError that names the file if it is not a valid safetensors file, or has a dtype that this library does not
// know (such as F16).
template <class = void>
Safetensors read_safetensors(const std::string& path);
// The same for the bytes of a file in memory. `name` stands for the path in errors.
template <class = void>
Safetensors read_safetensors(const std::string& name, std::span<const std::byte> bytes);

}  // namespace replicator::io
