// SPDX-License-Identifier: Apache-2.0
// Reads elements ahead of their use, on a separate thread.
// <replicator/replicator.hpp>, or prefetch_thread.hpp, brings the code.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <replicator/core/error.hpp>
#include <replicator/data/stream.hpp>
#include <string>
#include <utility>

namespace replicator::data {

namespace detail {

struct PrefetchStage {
  int depth;
  std::int64_t late_ms = 10000;  // warns if stopping waits longer than this for the source's element
};

// What a source has given: an element, an exception, or the end. The thread reads on only after an element.
struct Prefetch {
  bool element = false;
  std::exception_ptr error;
  virtual ~Prefetch() = default;
};

// A thread that reads up to `depth` elements ahead. Destroying it ends the thread.
class PrefetchThread;
// The thread calls `read`.
template <class = void>
std::shared_ptr<PrefetchThread> make_prefetch_thread(const PrefetchStage& stage, std::function<std::unique_ptr<Prefetch>()> read);
// Takes the oldest of what was read. Starts the thread unless it runs, and waits.
template <class = void>
std::unique_ptr<Prefetch> take_oldest(PrefetchThread& thread);
// Ends the thread, and drops what it has read.
template <class = void>
void stop(PrefetchThread& thread);

template <class S>
class Prefetched : public Stream<Prefetched<S>, typename S::value_type> {
 public:
  using Value = typename S::value_type;

  Prefetched(S source, const PrefetchStage& stage) : state_{std::make_unique<State>(std::move(source), stage)} {}

  // An exception of the source replaces its element; the input continues with the next one.
  std::optional<Value> next() {
    const auto oldest = take_oldest(*state_->thread);
    if (oldest->element) {
      ++position_;
      return std::move(static_cast<Element&>(*oldest).value);
    }
    stop(*state_->thread);  // it ended after this one; the next call starts a new one
    if (oldest->error) {
      ++position_;
      std::rethrow_exception(oldest->error);
    }
    return std::nullopt;
  }
  std::int64_t position() const { return position_; }
  void seek(std::int64_t position) requires Seekable<S> {
    stop(*state_->thread);
    state_->source.seek(position);
    position_ = position;
  }
  Share share() const requires HasShare<S> { return state_->source.share(); }
  void read_on() requires HasShare<S> {
    stop(*state_->thread);
    state_->source.read_on();
  }

 private:
  struct Element : Prefetch {
    std::optional<Value> value;
  };

  struct State {
    State(S stream, const PrefetchStage& stage) : source{std::move(stream)}, thread{make_prefetch_thread(stage, [this] { return read(); })} {}

    std::unique_ptr<Prefetch> read() {
      auto result = std::make_unique<Element>();
      try {
        result->value = source.next();
      } catch (...) {
        result->error = std::current_exception();
      }
      result->element = result->value.has_value();
      return result;
    }

    S source;
    std::shared_ptr<PrefetchThread> thread;  // ends before the source
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
