// SPDX-License-Identifier: Apache-2.0
// Reads elements ahead of their use, on a separate thread.
// <replicator/replicator.hpp>, or prefetch_thread.hpp, brings the code.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <replicator/core/error.hpp>
#include <replicator/data/stream.hpp>
#include <string>
#include <utility>
#include <vector>

namespace replicator::data {

namespace detail {

struct PrefetchStage {
  int depth;
  std::int64_t late_ms = 10000;  // warns if stopping waits longer than this for the source's element
};

// A thread that fills a ring of `depth` places in turn, and waits while all are full. Destroying it ends the thread.
class PrefetchThread;
// `fill` reads the next element into a place, and returns false if it was the last one. The thread calls it.
template <class = void>
std::shared_ptr<PrefetchThread> make_prefetch_thread(const PrefetchStage& stage, std::function<bool(std::size_t place)> fill);
// Starts the thread unless it runs. Waits for the oldest element, and returns its place.
template <class = void>
std::size_t oldest_place(PrefetchThread& thread);
// The oldest element was taken: its place can be filled again.
template <class = void>
void free_oldest_place(PrefetchThread& thread);
// Ends the thread, and frees all places.
template <class = void>
void stop(PrefetchThread& thread);

template <class S>
class Prefetched : public Stream<Prefetched<S>, typename S::value_type> {
 public:
  using Value = typename S::value_type;

  Prefetched(S source, const PrefetchStage& stage) : state_{std::make_unique<State>(std::move(source), stage)} {}

  // An exception of the source replaces its element; the input continues with the next one.
  std::optional<Value> next() {
    State& state = *state_;
    Slot slot = std::move(state.ring[oldest_place(*state.thread)]);
    free_oldest_place(*state.thread);
    if (slot.value) {
      ++position_;
      return std::move(slot.value);
    }
    stop(*state.thread);  // it ended after this slot; the next call starts a new one
    if (slot.error) {
      ++position_;
      std::rethrow_exception(slot.error);
    }
    return std::nullopt;
  }
  std::int64_t position() const { return position_; }
  void seek(std::int64_t position) requires Seekable<S> {
    stop(*state_->thread);
    state_->source.seek(position);
    position_ = position;
  }

 private:
  // An element, an exception, or neither: the end.
  struct Slot {
    std::optional<Value> value;
    std::exception_ptr error;
  };

  struct State {
    State(S stream, const PrefetchStage& stage)
        : source{std::move(stream)}, ring(static_cast<std::size_t>(stage.depth)), thread{make_prefetch_thread(stage, [this](std::size_t place) { return fill(ring[place]); })} {}

    bool fill(Slot& slot) {
      slot = {};
      try {
        slot.value = source.next();
      } catch (...) {
        slot.error = std::current_exception();
      }
      return slot.value.has_value();
    }

    S source;
    std::vector<Slot> ring;
    std::shared_ptr<PrefetchThread> thread;  // ends before the others
  };

  std::unique_ptr<State> state_;
  std::int64_t position_ = 0;
};

template <class S>
auto operator|(S&& source, const PrefetchStage& stage) {
  auto stream = as_stream(std::forward<S>(source));
  return Prefetched<decltype(stream)>{std::move(stream), stage};
}

}  // namespace detail

// Keeps up to `depth` elements ready. One thread reads them, starting with the first request. decode_images spreads that
// thread's work over the worker pool. **Destroying the input waits for the element being read, however long the source
// takes**; after 10 s a warning appears on stderr.
// Throws BuildError if depth < 1.
inline detail::PrefetchStage prefetch(int depth) {
  if (depth < 1) throw BuildError{"prefetch(" + std::to_string(depth) + "): at least one element must be kept ready"};
  return {.depth = depth};
}

}  // namespace replicator::data
