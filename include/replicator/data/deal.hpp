// SPDX-License-Identifier: Apache-2.0
// Deals the elements of one reader to several replicas: for sources that cannot be split.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <replicator/core/error.hpp>
#include <replicator/data/stream.hpp>
#include <string>
#include <utility>
#include <vector>

namespace replicator::data {

namespace detail {

// The source, and a queue for each hand of elements that were read but not yet asked for.
template <class S>
class Dealer {
 public:
  using Value = typename S::value_type;

  Dealer(S source, int hands) : source_{std::move(source)}, waiting_(static_cast<std::size_t>(hands)) {}

  // An exception of the source replaces its element.
  std::optional<Value> take(std::size_t hand) {
    const std::lock_guard lock{mutex_};
    auto& mine = waiting_[hand];
    while (mine.empty() && !ended_) read();
    if (mine.empty()) return std::nullopt;
    Slot slot = std::move(mine.front());
    mine.pop_front();
    if (slot.error) std::rethrow_exception(slot.error);
    return std::move(slot.value);
  }

 private:
  struct Slot {
    std::optional<Value> value;
    std::exception_ptr error;
  };

  void read() {
    Slot slot;
    try {
      slot.value = source_.next();
      ended_ = !slot.value;
    } catch (...) {
      slot.error = std::current_exception();
    }
    if (!ended_) waiting_[turn_].push_back(std::move(slot));
    turn_ = (turn_ + 1) % waiting_.size();
  }

  S source_;
  std::mutex mutex_;
  std::vector<std::deque<Slot>> waiting_;
  std::size_t turn_ = 0;
  bool ended_ = false;
};

}  // namespace detail

// One consumer of a shared source: every n-th element. Element i of the source is element i / n of hand i % n, in any
// order of requests and on any threads. It cannot seek.
template <class S>
class Hand : public Stream<Hand<S>, typename S::value_type> {
 public:
  Hand(std::shared_ptr<detail::Dealer<S>> dealer, std::size_t number) : dealer_{std::move(dealer)}, number_{number} {}

  std::optional<typename S::value_type> next() {
    try {
      auto value = dealer_->take(number_);
      position_ += value.has_value();
      return value;
    } catch (...) {
      ++position_;
      throw;
    }
  }
  std::int64_t position() const { return position_; }

 private:
  std::shared_ptr<detail::Dealer<S>> dealer_;
  std::size_t number_;
  std::int64_t position_ = 0;
};

// Deals the elements of a range in turn to `hands` hands; each hand is an input of its own. Use it for a queue, a
// simulator or a generator that gives every caller something new. **Use all hands**: elements for a hand that is not
// read pile up. In a job of one process:
//   auto hands = rp::data::deal(reader(), repl.replicas());
//   repl.replicate([&](const rp::InputContext& ctx) { return std::move(hands[ctx.replica()]) | rp::data::batch(32); }, step_fn);
// replicate() does the same for an input_fn that takes rp::HostContext. Throws BuildError for less than one hand.
template <class R>
auto deal(R&& range, int hands) {
  if (hands < 1) throw BuildError{"deal(" + std::to_string(hands) + "): there must be at least one hand to deal to"};
  auto stream = detail::as_stream(std::forward<R>(range));
  using Source = decltype(stream);
  const auto dealer = std::make_shared<detail::Dealer<Source>>(std::move(stream), hands);
  std::vector<Hand<Source>> result;
  for (int hand = 0; hand < hands; ++hand) result.emplace_back(dealer, static_cast<std::size_t>(hand));
  return result;
}

}  // namespace replicator::data
