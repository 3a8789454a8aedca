// SPDX-License-Identifier: Apache-2.0
// A scope guard for settings of the stand-ins that a test changes.
#pragma once

namespace replicator::test {

// Gives a variable the value back that it had when this was made.
template <class T>
class Restored {
 public:
  explicit Restored(T& value) : value_{value}, before_{value} {}
  Restored(const Restored&) = delete;
  Restored& operator=(const Restored&) = delete;
  ~Restored() { value_ = before_; }

 private:
  T& value_;
  T before_;
};

}  // namespace replicator::test
