// SPDX-License-Identifier: Apache-2.0
// AllReducePreference: the all-reduce algorithm that --schedule asks for, by name.
#pragma once

#include <array>
#include <replicator/collectives/topology.hpp>
#include <replicator/core/error.hpp>
#include <replicator/core/parse.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace replicator::detail::collectives {

// The wanted all-reduce: a name, or "auto". Auto decides by bytes and ranks, or by predicted times where a topology is
// given.
struct AllReducePreference {
  std::string name = "auto";
  std::vector<int> dimensions = {};  // of "hierarchical", innermost first; none: all ranks in one
  Topology topology = {};            // the links between the ranks, for predicted times; no dimensions: unknown

  // "hierarchical:4x2"
  std::string text() const {
    std::string result = name;
    for (const int d : dimensions) result += (result == name ? ":" : "x") + std::to_string(d);
    return result;
  }
};

// All names, in the order in which ties between predicted times are decided.
inline constexpr std::array<std::string_view, 7> all_reduce_names{
    "owner_computes", "direct", "ring", "halving_doubling", "binary_tree", "naive", "hierarchical"};

// Parses "auto", one of all_reduce_names, or "hierarchical:4x2" with dimensions. "hierarchical" alone takes `dimensions`.
// Throws BuildError for anything else.
inline AllReducePreference parse_all_reduce(std::string_view text, const std::vector<int>& dimensions) {
  const auto bad = [&] {
    std::string names;
    for (const std::string_view name : all_reduce_names) names += ", " + std::string{name};
    return BuildError{"--schedule is \"" + std::string{text} + "\": choose auto" + names +
                      ", or hierarchical:4x2 for 4 devices on each of 2 hosts"};
  };
  const auto colon = text.find(':');
  AllReducePreference result{.name = std::string{text.substr(0, colon)}};
  bool known = result.name == "auto";
  for (const std::string_view name : all_reduce_names) known = known || result.name == name;
  if (!known || (colon != std::string_view::npos && result.name != "hierarchical")) throw bad();
  if (colon == std::string_view::npos) {
    if (result.name == "hierarchical") result.dimensions = dimensions;
    return result;
  }
  for (std::string_view rest = text.substr(colon + 1);;) {
    const auto size = rest.substr(0, rest.find('x'));
    const auto dimension = whole_number<int>(size, 1);
    if (!dimension) throw bad();
    result.dimensions.push_back(*dimension);
    if (size.size() == rest.size()) return result;
    rest.remove_prefix(size.size() + 1);
  }
}

}  // namespace replicator::detail::collectives
