// SPDX-License-Identifier: Apache-2.0
// The kinds of collectives, and their names.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace replicator::detail {

enum class CollectiveKind : std::uint8_t {
  all_reduce,
  all_gather,
  reduce_scatter,
  broadcast,
  all_to_all
};

constexpr std::string_view name_of(CollectiveKind kind) {
  constexpr std::string_view names[] = {"all_reduce", "all_gather", "reduce_scatter", "broadcast", "all_to_all"};
  return names[static_cast<std::size_t>(kind)];
}

}  // namespace replicator::detail
