// SPDX-License-Identifier: Apache-2.0
// Regime: whether replicas make their steps together or each at its own pace.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include <replicator/core/error.hpp>

namespace replicator {

enum class Regime : std::uint8_t {
  synchronous,   // all replicas make the same step together; placement never changes the bits
  asynchronous,  // each replica makes steps at its own pace and applies its gradients to the variables as they come: docs/asynchronous.md
};

// Parses the value of a flag. Throws BuildError for anything but "sync" and "async".
inline Regime parse_regime(std::string_view flag, std::string_view value) {
  if (value == "sync") return Regime::synchronous;
  if (value == "async") return Regime::asynchronous;
  throw BuildError{std::string{flag} + " is \"" + std::string{value} + "\": it must be sync or async"};
}

}  // namespace replicator
