// SPDX-License-Identifier: Apache-2.0
// Loops of a copy that form one contiguous run of words on one side. The words may lie anywhere on the other side. A
// transposition takes such a run as its rows or as its columns. For example, the input channels and the positions of a 3x3 kernel
// are such a run in plain weights, but not in blocked ones.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

#include <replicator/cpu/copies/copy_loops.hpp>
#include <replicator/cpu/copies/rectangle.hpp>

namespace replicator::detail::cpu::detail {

class CopyRun {
 public:
  using Stride = std::int64_t CopyLoop::*;

  // The run is contiguous on the side `near`, in words of `word` bytes. Strides of loops are in bytes.
  CopyRun(Stride near, Stride far, std::int64_t word) : near_{near}, far_{far}, word_{word} {}

  // Takes the loop that begins or continues the run out of `loops`. Returns false where there is none, or the table would be too long.
  bool take_from(std::vector<CopyLoop>& loops) {
    if (words_ > longest_period || period_of(words_) > longest_period || (!taken_.empty() && taken_.back().cut)) return false;
    const auto next = std::find_if(loops.begin(), loops.end(), [&](const auto& loop) { return loop.*near_ == word_ * words_ && (!loop.cut || loop.ends); });
    if (next == loops.end()) return false;
    words_ *= next->extent;
    taken_.push_back(*next);
    loops.erase(next);
    return true;
  }
  // The number of words where no axis ends within the run. Otherwise there are fewer.
  std::int64_t words() const { return words_; }

  // Distance in bytes from the first word to the second on the other side.
  std::int64_t far_stride() const { return taken_.front().*far_; }

  // Call this once all loops are taken.
  void tabulate() {
    inner_ = words_ / taken_.back().extent;
    const std::int64_t period = period_of(inner_);
    period_stride_ = period / inner_ * (taken_.back().*far_);
    for (std::int64_t word = 0; word < period; ++word) {
      std::int64_t rest = word, at = 0;
      for (const auto& loop : taken_) {
        at += rest % loop.extent * (loop.*far_);
        rest /= loop.extent;
      }
      offsets_.push_back(at);
    }
  }

  std::int64_t words(const Shape& shape, const CopyPosition& at) const { return inner_ * turns(taken_.back(), shape, at); }

  // Where words lie on the other side, from `word` on. `word` is a multiple of the rectangle's side.
  struct Far {
    std::int64_t base;
    const std::int64_t* offsets;
  };
  Far far(std::int64_t word) const {
    const auto period = static_cast<std::int64_t>(offsets_.size());
    return {word / period * period_stride_, offsets_.data() + word % period};
  }

 private:
  static constexpr std::int64_t longest_period = 256;

  // After this many words, a multiple of the rectangle's side, the pattern of offsets repeats.
  static std::int64_t period_of(std::int64_t inner) { return std::lcm(inner, std::int64_t{Rectangle::side}); }

  Stride near_, far_;
  std::int64_t word_;
  std::int64_t words_ = 1;
  std::vector<CopyLoop> taken_;
  std::int64_t inner_ = 1;  // words in a turn of the last loop
  std::vector<std::int64_t> offsets_;
  std::int64_t period_stride_ = 0;
};

}  // namespace replicator::detail::cpu::detail
