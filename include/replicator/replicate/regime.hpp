// SPDX-License-Identifier: Apache-2.0
// When the gradients of replicas meet.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include <replicator/core/error.hpp>

namespace replicator {

enum class Regime : std::uint8_t {
  synchronous,   // all replicas make the same step; placement never changes the bits
  asynchronous,  // each makes its own at its own pace, and updates variables when it has a gradient: docs/asynchronous.md
};

// Of a flag. Throws BuildError for what is neither "sync" nor "async".
inline Regime parse_regime(std::string_view flag, std::string_view value) {
  if (value == "sync") return Regime::synchronous;
  if (value == "async") return Regime::asynchronous;
  throw BuildError{std::string{flag} + " is \"" + std::string{value} + "\": it must be sync or async"};
}

}  // namespace replicator
