// SPDX-License-Identifier: Apache-2.0
// Changes a variable for the duration of a scope.
#pragma once

#include <utility>

namespace replicator::detail {

// Assigns `value` to `place`, and restores the old value in the destructor. Scopes nest.
template <class T>
class [[nodiscard]] ScopedValue {
 public:
  ScopedValue(T& place, T value) : place_{place}, outer_{std::exchange(place, std::move(value))} {}
  ScopedValue(const ScopedValue&) = delete;
  ScopedValue& operator=(const ScopedValue&) = delete;
  ~ScopedValue() { place_ = std::move(outer_); }

 private:
  T& place_;
  T outer_;
};

}  // namespace replicator::detail
