// SPDX-License-Identifier: Apache-2.0
// The clock and the rings of traces. Memory for the records is allocated before the steps.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <replicator/runtime/see/trace_window.hpp>

namespace replicator::detail {

// Nanoseconds of the clock with which steps are timed.
inline std::int64_t trace_clock() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// A ring of the latest records. A full ring drops its oldest record.
template <class T>
class TraceRing {
 public:
  explicit TraceRing(std::size_t capacity) : records_(std::max<std::size_t>(capacity, 1)) {}
  void push(const T& record) { records_[count_++ % records_.size()] = record; }
  std::size_t size() const { return std::min(count_, records_.size()); }
  // Oldest first.
  template <class F>
  void for_each(F f) const {
    for (std::size_t i = count_ - size(); i < count_; ++i) f(records_[i % records_.size()]);
  }

 private:
  std::vector<T> records_;
  std::size_t count_ = 0;
};

// When the elements of this process's replicas were read, in the calling thread. `step` is the step that uses the
// element.
class InputTrace {
 public:
  struct Span {
    std::int64_t begin = 0, end = 0;
    std::uint64_t step = 0;
    int replica = 0;
  };
  InputTrace(std::size_t replicas, TraceWindow window) : window_{window}, spans_(window.steps() * replicas) {}
  void record(int replica, std::uint64_t step, std::int64_t begin, std::int64_t end) {
    if (window_.contains(step)) spans_.push({begin, end, step, replica});
  }
  const TraceRing<Span>& spans() const { return spans_; }

 private:
  TraceWindow window_;
  TraceRing<Span> spans_;
};

}  // namespace replicator::detail
