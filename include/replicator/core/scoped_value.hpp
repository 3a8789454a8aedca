// SPDX-License-Identifier: Apache-2.0
// A value that is another one for a while.
#pragma once

#include <utility>

namespace replicator::detail {

// While it lives, `place` holds another value; then it holds again what it held before. The innermost one counts.
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
