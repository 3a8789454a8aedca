// SPDX-License-Identifier: Apache-2.0
// A handle on a graph, for tensors and variables. It detects that its graph is gone.
#pragma once

#include <deque>
#include <mutex>
#include <utility>

namespace replicator {
class Graph;
}

namespace replicator::detail {

class GraphHandle;

// The base of a graph through which handles find it. Handles follow a graph that is moved. A copied graph has no handles
// yet, and may grow.
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

  // The step function has finished building this graph. Later use of its handles is a mistake.
  void set_complete() { complete_ = true; }
  bool complete() const { return complete_; }

 private:
  friend class GraphHandle;

  // Never freed: a handle on a destroyed graph finds a null pointer here, and not foreign memory.
  struct Slot {
    GraphAnchor* anchor = nullptr;
  };
  Slot* place() {
    if (!place_) place_ = new_place(), place_->anchor = this;
    return place_;
  }
  template <class = void>
  static Slot* new_place();
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

template <class>
GraphAnchor::Slot* GraphAnchor::new_place() {
  static std::mutex mutex;
  static auto& places = *new std::deque<Slot>;
  const std::lock_guard lock{mutex};
  return &places.emplace_back();
}

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
