// SPDX-License-Identifier: Apache-2.0
// Base class of all pipeline stages: an owning, move-only input range built from a function next().
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <optional>
#include <replicator/data/input.hpp>
#include <replicator/data/shard.hpp>
#include <type_traits>
#include <utility>

namespace replicator::data {

// CRTP. Derived has `std::optional<Value> next()` (nothing at the end) and `std::int64_t position()`, the number of the
// next element. If its source can seek, it also has `void seek(std::int64_t position)`. begin() reads an element, as in
// std::ranges::istream_view: a second loop continues after the first. Moving a stage invalidates its iterators.
template <class Derived, class Value>
class Stream {
 public:
  using value_type = Value;

  class iterator {
   public:
    using iterator_concept = std::input_iterator_tag;
    using value_type = Value;
    using difference_type = std::ptrdiff_t;

    iterator() = default;
    explicit iterator(Stream* stream) : stream_{stream} {}
    // The element may be moved from.
    Value& operator*() const { return *stream_->current_; }
    Value* operator->() const { return &*stream_->current_; }
    iterator& operator++() {
      stream_->advance();
      return *this;
    }
    void operator++(int) { stream_->advance(); }
    bool operator==(std::default_sentinel_t) const { return !stream_->current_; }

   private:
    Stream* stream_ = nullptr;
  };

  Stream(Stream&&) noexcept = default;
  Stream& operator=(Stream&&) noexcept = default;

  iterator begin() {
    advance();
    return iterator{this};
  }
  std::default_sentinel_t end() const { return {}; }

 protected:
  Stream() = default;
  ~Stream() = default;

 private:
  void advance() {
    current_.reset();
    current_ = static_cast<Derived*>(this)->next();
  }

  std::optional<Value> current_;
};

namespace detail {

template <class S>
concept IsStream = requires(S& stream) {
  typename S::value_type;
  { stream.next() } -> std::same_as<std::optional<typename S::value_type>>;
  { stream.position() } -> std::same_as<std::int64_t>;
};

// A user's range as a stream. The range is on the heap, so its iterators survive a move of the stage.
template <Input R>
class RangeStream : public Stream<RangeStream<R>, InputValue<R>> {
 public:
  explicit RangeStream(R range) : range_{std::make_unique<R>(std::move(range))} {}

  std::optional<InputValue<R>> next() {
    using std::begin;
    using std::end;
    if (!at_)
      at_.emplace(begin(*range_));
    else if (*at_ != end(*range_))
      ++*at_;
    if (*at_ == end(*range_)) return std::nullopt;
    ++position_;
    return element_at(*at_);
  }
  std::int64_t position() const { return position_; }
  void seek(std::int64_t position) requires Seekable<R> {
    range_->seek(position);
    at_.reset();
    position_ = position;
  }

 private:
  std::unique_ptr<R> range_;
  std::optional<decltype(first_of(std::declval<R&>()))> at_;
  std::int64_t position_ = 0;
};

// A source with items by number, such as image_folder (not decoded yet), idx or npy.
template <class S>
concept Indexed = requires(S& source) {
  source.index();
};

// An indexed source with items that are input elements already, such as idx and npy: source(position) returns one.
template <class S>
concept IndexedElements = Indexed<S> && requires(const S& source, std::int64_t position) {
  requires InputElement<std::remove_cvref_t<decltype(source(position))>>;
};

// A source that knows its number of elements; -1: endless.
template <class S>
concept HasLimit = requires(const S& source) {
  { source.limit() } -> std::same_as<std::int64_t>;
};

// A finite source that knows its share. It can read on behind it, into the next epoch, to fill up a last batch.
template <class S>
concept HasShare = requires(S& source) {
  { source.share() } -> std::same_as<Share>;
  source.read_on();
};

template <IndexedElements S>
class IndexedStream : public Stream<IndexedStream<S>, std::remove_cvref_t<decltype(std::declval<const S&>()(std::int64_t{}))>> {
 public:
  using Value = std::remove_cvref_t<decltype(std::declval<const S&>()(std::int64_t{}))>;
  explicit IndexedStream(S source) : source_{std::move(source)}, limit_{source_.index().limit()} {}

  // An exception replaces its element.
  std::optional<Value> next() {
    if (limit_ >= 0 && position_ >= limit_) return std::nullopt;
    return source_(position_++);
  }
  std::int64_t position() const { return position_; }
  void seek(std::int64_t position) { position_ = position; }
  std::int64_t limit() const { return limit_; }
  Share share() const { return source_.index().share(); }
  void read_on() { limit_ = -1; }

 private:
  S source_;
  std::int64_t limit_;
  std::int64_t position_ = 0;
};

// Turns anything that may precede a stage into a stream.
template <class S>
auto as_stream(S&& source) {
  using R = std::remove_cvref_t<S>;
  static_assert(std::constructible_from<R, S>,
                "replicator: a pipeline owns its stages and is moved, not copied: write std::move(input) | ...");
  static_assert(!Indexed<R> || IndexedElements<R>, "replicator: these items are not decoded yet: put decode_images() before this stage");
  if constexpr (std::constructible_from<R, S> && (!Indexed<R> || IndexedElements<R>)) {
    if constexpr (IndexedElements<R>) {
      return IndexedStream<R>{R(std::forward<S>(source))};
    } else if constexpr (IsStream<R>) {
      return R(std::forward<S>(source));
    } else {
      require_input<R>();
      if constexpr (Input<R>) return RangeStream<R>{std::forward<S>(source)};
    }
  }
}

}  // namespace detail

}  // namespace replicator::data
