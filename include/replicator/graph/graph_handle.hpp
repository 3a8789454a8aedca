// SPDX-License-Identifier: Apache-2.0
// What tensors and variables hold of their graph: it may be gone before they are.
#pragma once

#include <deque>
#include <mutex>
#include <utility>

namespace replicator {
class Graph;
}

namespace replicator::detail {

class GraphHandle;

// The part of a graph that handles find it by. They follow it when it is moved; a copy has handles of its own, and may grow.
class GraphAnchor {
 public:
  GraphAnchor() = default;
  GraphAnchor(const GraphAnchor&) {}
  GraphAnchor(GraphAnchor&& other) noexcept { take(other); }
  GraphAnchor& operator=(const GraphAnchor&) { return *this; }
  GraphAnchor& operator=(GraphAnchor&& other) noexcept {
    if (this != &other) leave(), take(other);
    return *this;
  }
  ~GraphAnchor() { leave(); }

  // A step function has built it: what its handles are used for from now on is a mistake.
  void set_complete() { complete_ = true; }
  bool complete() const { return complete_; }

 private:
  friend class GraphHandle;

  // Never freed, so that a handle on a graph that is gone finds nothing here, and not other memory.
  struct Slot {
    GraphAnchor* anchor = nullptr;
  };
  Slot* place() {
    if (!place_) place_ = new_place(), place_->anchor = this;
    return place_;
  }
  static Slot* new_place() {
    static std::mutex mutex;
    static auto& places = *new std::deque<Slot>;
    const std::lock_guard lock{mutex};
    return &places.emplace_back();
  }
  void leave() {
    if (place_) place_->anchor = nullptr;
  }
  void take(GraphAnchor& other) {
    complete_ = other.complete_;
    place_ = std::exchange(other.place_, nullptr);
    if (place_) place_->anchor = this;
  }

  Slot* place_ = nullptr;  // made with the first handle
  bool complete_ = false;
};

class GraphHandle {
 public:
  GraphHandle() = default;
  GraphHandle(Graph& graph);  // NOLINT: implicit on purpose; graph.hpp

  explicit operator bool() const { return place_ != nullptr; }
  // Throws BuildError where the graph is gone.
  Graph& operator*() const;  // graph.hpp
  Graph* operator->() const { return &**this; }
  friend bool operator==(const GraphHandle&, const GraphHandle&) = default;

 private:
  GraphAnchor::Slot* place_ = nullptr;
};

}  // namespace replicator::detail
