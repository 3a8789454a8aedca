// SPDX-License-Identifier: Apache-2.0
// Turns the lines of an input into metadata ("key=value") and tensors ("+name") of a safetensors file.
#pragma once

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "safetensors_file.hpp"

namespace replicator::fuzz {

using namespace replicator::detail;

struct Metadata {
  std::map<std::string, std::string> values;
  std::vector<std::pair<std::string, TensorType>> tensors;  // a byte each
};

inline Metadata metadata_of(Bytes input) {
  Metadata result;
  std::set<std::string> names;
  for (auto rest = text_of(input); !rest.empty();) {
    const auto line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(line.size() + 1, rest.size()));
    const auto equals = line.find('=');
    if (line.starts_with('+') && names.emplace(line.substr(1)).second)
      result.tensors.push_back({std::string{line.substr(1)}, {DType::uint8, {1}}});
    else if (equals != std::string_view::npos) result.values[std::string{line.substr(0, equals)}] = line.substr(equals + 1);
  }
  std::erase_if(result.tensors, [](const auto& tensor) { return tensor.first == "__metadata__"; });
  return result;
}

}  // namespace replicator::fuzz
