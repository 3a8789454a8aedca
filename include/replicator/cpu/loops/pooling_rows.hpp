// SPDX-License-Identifier: Apache-2.0
// Gives pooling loops the rows of images in the type of computation, as windows slide over them. Rows that are stored in this
// type are used where they lie. bfloat16 rows are converted in a ring that stays in the cache. The ring holds as many rows as a
// window covers. Each row is widened once, or rounded once when all is added to it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include <replicator/core/dtype.hpp>
#include <replicator/cpu/loops/convert.hpp>
#include <replicator/cpu/loops/pooling_loops.hpp>

namespace replicator::detail::cpu::detail {

// How a loop gets the rows of an image that has the extents of x or of y.
struct ImageRows {
  bool of_x = false;
  DType stored = DType::float32, compute = DType::float32;
  std::int64_t rows = 0, row = 0;  // of a plane; elements of a row
  std::int64_t slots = 0;          // rows that are held at a time: all where nothing is converted
  std::size_t ring = 0;            // where the slots begin in the scratch memory

  ImageRows(const PooledPlanes& p, bool is_x, DType in_memory, DType computed)
      : of_x{is_x},
        stored{in_memory},
        compute{computed},
        rows{is_x ? p.x[0] : p.y[0]},
        row{(is_x ? p.x[1] : p.y[1]) * p.pixel},
        slots{!converted() ? rows
              : is_x       ? std::min(p.options.window[0], rows)
                           : 1} {}

  bool converted() const { return stored != compute; }
  std::size_t bytes(std::int64_t count, DType dtype) const { return static_cast<std::size_t>(count * row) * size_of(dtype); }
  std::size_t ring_bytes() const { return converted() ? (bytes(slots, compute) + 63) / 64 * 64 : 0; }
  // Offset of a row from slot 0, in bytes.
  std::size_t offset(std::int64_t index) const { return bytes(index % slots, compute); }
  // Offset of the rows from `begin` on, as a loop wants it. For y that is the row. For x it is slot 0, because a loop gets all slots.
  std::size_t wanted(std::int64_t begin) const { return of_x ? 0 : offset(begin); }
};

// Reads a plane. Ask for spans of rows in ascending order.
class RowReader {
 public:
  RowReader(const ImageRows& how, const std::byte* plane, std::byte* scratch) : how_{how}, plane_{plane}, ring_{scratch + how.ring} {}

  // The memory of these rows, for a loop. Converts rows that are new.
  const std::byte* read(const PoolingSpan& rows) {
    if (!how_.converted()) return plane_ + how_.wanted(rows.begin);
    for (next_ = std::max(next_, rows.begin); next_ < rows.end; ++next_)
      convert_all(conversion_loop(how_.stored, how_.compute), ring_ + how_.offset(next_), size_of(how_.compute), plane_ + how_.bytes(next_, how_.stored),
                  size_of(how_.stored), how_.row);
    return ring_ + how_.wanted(rows.begin);
  }

 private:
  const ImageRows& how_;
  const std::byte* plane_;
  std::byte* ring_;
  std::int64_t next_ = 0;
};

// Writes a plane. Ask for spans of rows in ascending order.
class RowWriter {
 public:
  RowWriter(const ImageRows& how, std::byte* plane, std::byte* scratch)
      : how_{how}, plane_{plane}, slots_{how.converted() ? scratch + how.ring : plane} {}

  // The memory for these rows, for a loop. It is zero at first. The rows before them are finished.
  std::byte* write(const PoolingSpan& rows) {
    finish(rows.begin);
    for (; cleared_ < rows.end; ++cleared_) clear(cleared_);
    return slots_ + how_.wanted(rows.begin);
  }
  // Stores the rows before `end`.
  void finish(std::int64_t end) {
    for (; finished_ < end; ++finished_) {
      if (cleared_ == finished_) clear(cleared_++);
      if (how_.converted())
        convert_all(conversion_loop(how_.compute, how_.stored), plane_ + how_.bytes(finished_, how_.stored), size_of(how_.stored),
                    slots_ + how_.offset(finished_), size_of(how_.compute), how_.row);
    }
  }

 private:
  void clear(std::int64_t index) { std::memset(slots_ + how_.offset(index), 0, how_.bytes(1, how_.compute)); }

  const ImageRows& how_;
  std::byte *plane_, *slots_;
  std::int64_t cleared_ = 0, finished_ = 0;
};

}  // namespace replicator::detail::cpu::detail
