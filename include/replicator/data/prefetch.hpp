// SPDX-License-Identifier: Apache-2.0
// Reads elements ahead of their use, on a separate thread.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <replicator/core/deadline_wait.hpp>
#include <replicator/core/error.hpp>
#include <replicator/data/stream.hpp>
#include <string>
#include <thread>
#include <utility>

namespace replicator::data {

namespace detail {

struct PrefetchStage {
  int depth;
  std::chrono::milliseconds late{10000};  // warns if stopping waits longer than this for the source's element
};

template <class S>
class Prefetched : public Stream<Prefetched<S>, typename S::value_type> {
 public:
  using Value = typename S::value_type;

  Prefetched(S source, const PrefetchStage& stage) : state_{std::make_unique<State>(std::move(source), stage)} {}

  // An exception of the source replaces its element; the input continues with the next one.
  std::optional<Value> next() {
    State& state = *state_;
    std::unique_lock lock{state.mutex};
    if (!state.thread.joinable()) {
      state.stop = false;
      state.producing = true;
      state.thread = std::thread{[&state] { state.produce(); }};
    }
    state.changed.wait(lock, [&] { return !state.ready.empty(); });
    Slot slot = std::move(state.ready.front());
    state.ready.pop_front();
    lock.unlock();
    state.changed.notify_all();
    if (slot.value) {
      ++position_;
      return std::move(slot.value);
    }
    state.halt();  // the thread ended after this slot; the next call starts a new one
    if (slot.error) {
      ++position_;
      std::rethrow_exception(slot.error);
    }
    return std::nullopt;
  }
  std::int64_t position() const { return position_; }
  void seek(std::int64_t position) requires Seekable<S> {
    state_->halt();
    state_->ready.clear();
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
    State(S stream, const PrefetchStage& stage) : source{std::move(stream)}, depth{static_cast<std::size_t>(stage.depth)}, late{stage.late} {}
    ~State() { halt(); }

    void halt() {
      if (!thread.joinable()) return;
      {
        std::unique_lock lock{mutex};
        stop = true;
        changed.notify_all();
        replicator::detail::DeadlineWait{{.late = late}}.wait(
            changed, lock, [&] { return !producing; }, [] { std::fputs("replicator: a prefetch() that ends or seeks waits until its source has read the current element\n", stderr); });
      }
      thread.join();
    }

    void produce() {
      make_elements();
      {
        const std::lock_guard lock{mutex};
        producing = false;
      }
      changed.notify_all();
    }
    void make_elements() {
      for (bool going = true; going;) {
        {
          std::unique_lock lock{mutex};
          changed.wait(lock, [&] { return stop || ready.size() < depth; });
          if (stop) return;
        }
        Slot slot;
        try {
          slot.value = source.next();
        } catch (...) {
          slot.error = std::current_exception();
        }
        going = slot.value.has_value();
        {
          const std::lock_guard lock{mutex};
          ready.push_back(std::move(slot));
        }
        changed.notify_all();
      }
    }

    S source;
    std::size_t depth;
    std::chrono::milliseconds late;
    std::mutex mutex;
    std::condition_variable changed;
    std::deque<Slot> ready;
    bool stop = false;
    bool producing = false;
    std::thread thread;
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
