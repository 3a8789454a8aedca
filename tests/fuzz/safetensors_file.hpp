// SPDX-License-Identifier: Apache-2.0
// The bytes of a safetensors file, as write_safetensors writes them.
#pragma once

#include <cstdint>
#include <map>
#include <replicator/io/json/json_writer.hpp>
#include <replicator/io/safetensors_header.hpp>
#include <string>
#include <utility>
#include <vector>

#include "target.hpp"

namespace replicator::fuzz {

using namespace replicator::detail;

// The tensors, in this order, all have zeros.
inline std::string safetensors_file(const std::vector<std::pair<std::string, TensorType>>& tensors,
                                    const std::map<std::string, std::string>& metadata) {
  std::string header;
  for (const auto& [key, value] : metadata) header += (header.empty() ? "" : ",") + json_string(key) + ":" + json_string(value);
  if (!metadata.empty()) header = "\"__metadata__\":{" + header + "}";
  std::uint64_t at = 0;
  for (const auto& [name, type] : tensors) {
    const io::detail::TensorEntry entry{type, at, at + type.bytes()};
    header += (header.empty() ? "" : ",") + io::detail::json_entry(name, entry);
    at = entry.end;
  }
  header = "{" + header + "}";
  return little(static_cast<std::uint64_t>(header.size())) + header + std::string(at, '\0');
}

}  // namespace replicator::fuzz
