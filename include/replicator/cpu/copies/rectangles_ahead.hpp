// SPDX-License-Identifier: Apache-2.0
// A queue that prefetches rectangles before they are moved. The processor does not foresee rows in so many places: without
// prefetching, copies of gradients of weights out of blocks take three times as long.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include <replicator/cpu/copies/rectangle.hpp>

namespace replicator::detail::cpu::detail {

// Prefetches each rectangle when it is added, and moves it after some others have been added.
class RectanglesAhead {
 public:
  RectanglesAhead(RectangleMove move, std::int64_t other_half) : move_{move}, other_half_{other_half} {}

  void add(const std::byte* from, std::byte* to, const Rectangle& rectangle) {
    for (int r = 0; r < rectangle.rows; ++r) {
      const std::byte* const row = from + rectangle.row_at[r];
      __builtin_prefetch(row);
      if (other_half_ != 0) __builtin_prefetch(row + other_half_);
    }
    move_oldest();
    waiting_[oldest_] = {from, to, rectangle};
    oldest_ = (oldest_ + 1) % ahead;
  }
  void move_rest() {
    for (std::size_t i = 0; i < ahead; ++i, oldest_ = (oldest_ + 1) % ahead) move_oldest();
  }

 private:
  static constexpr std::size_t ahead = 8;
  struct Waiting {
    const std::byte* from = nullptr;
    std::byte* to = nullptr;
    Rectangle rectangle{};
  };

  void move_oldest() {
    auto& [from, to, rectangle] = waiting_[oldest_];
    if (rectangle.rows != 0) move_(from, to, rectangle, other_half_);
    rectangle.rows = 0;
  }

  RectangleMove move_;
  std::int64_t other_half_;
  std::array<Waiting, ahead> waiting_;
  std::size_t oldest_ = 0;
};

}  // namespace replicator::detail::cpu::detail
