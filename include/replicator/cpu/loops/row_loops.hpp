// SPDX-License-Identifier: Apache-2.0
// Loops over tiles in which some operands have one element for each row, as the means and scales of a layer norm have. The
// element stays in a register while the loop runs along the row, and is not repeated in memory first.
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>

#include <replicator/core/processor.hpp>
#include <replicator/cpu/loops/tile_loops.hpp>

namespace replicator::detail::cpu {

namespace detail {

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wpragmas"  // for the names of warnings that another compiler does not have
#pragma GCC diagnostic ignored "-Wunknown-warning-option"
#pragma GCC diagnostic ignored "-Wpass-failed"
// An operand with one element for each row, or with one for each place.
template <bool of_row>
struct RowOperand {
  const float* at;
  std::int64_t step;

  explicit RowOperand(const TileOperand& operand) : at{operand.floats()}, step{operand.float_step()} {}
  [[gnu::always_inline]] float operator[](std::int64_t j) const { return of_row ? *at : at[j]; }
  [[gnu::always_inline]] void next_group() {
    if constexpr (!of_row) at += step;
  }
  [[gnu::always_inline]] void next_row() {
    if constexpr (of_row) ++at;
  }
  // The first `left` places of a group are of this row, the others of the next one.
  [[gnu::always_inline]] void mix(float* to, std::int64_t left, bool another) const {
    const float value = *at, next = of_row && another ? at[1] : value;
    REPLICATOR_VECTOR_LOOP
    for (std::int64_t j = 0; j < tile_group; ++j) to[j] = of_row ? (j < left ? value : next) : at[j];
  }
};

// Bit o of `rows` says that operand o has one element for each row. All such operands have the same rows.
template <std::size_t index, unsigned rows>
struct RowBody {
  [[gnu::always_inline]] static void run(void* out, const TileOperand& a, const TileOperand& b, const TileOperand& c, std::int64_t n) {
    constexpr int operands = operands_of(static_cast<TileOp>(index));
    RowOperand<(rows & 1) != 0> x{a};
    RowOperand<(rows & 2) != 0> y{operands > 1 ? b : a};
    RowOperand<(rows & 4) != 0> z{operands > 2 ? c : a};
    const TileOperand& row = (rows & 1) != 0 ? a : (rows & 2) != 0 ? b
                                                                   : c;
    auto* o = static_cast<float*>(out);
    std::int64_t left = row.run - row.inside, count = row.count;  // elements of the row, and of all rows
    for (float* const end = o + n; o != end;) {
      const std::int64_t whole = std::min(left, end - o) & -tile_group;
      left -= whole, count -= whole;
      for (float* const stop = o + whole; o != stop; o += tile_group, x.next_group(), y.next_group(), z.next_group()) {
        REPLICATOR_VECTOR_LOOP
        for (std::int64_t j = 0; j < tile_group; ++j) o[j] = apply_op<index>(x[j], y[j], z[j]);
      }
      if (o == end) return;
      const bool another = left < count;  // row; what is behind the last one may not be read
      if (left > 0) {                     // a group of two rows
        float mixed[3][tile_group];
        x.mix(mixed[0], left, another), y.mix(mixed[1], left, another), z.mix(mixed[2], left, another);
        REPLICATOR_VECTOR_LOOP
        for (std::int64_t j = 0; j < tile_group; ++j) o[j] = apply_op<index>(mixed[0][j], mixed[1][j], mixed[2][j]);
        o += tile_group, left -= tile_group, count -= tile_group;
        x.next_group(), y.next_group(), z.next_group();
      }
      left += row.run;
      if (another) x.next_row(), y.next_row(), z.next_row();
    }
  }
};
#pragma GCC diagnostic pop

#if defined(__x86_64__)
inline void loop_row_exponential_avx2(void* out, const TileOperand& a, const TileOperand& b, const TileOperand&, std::int64_t n) {
  avx2::row_exponentials(static_cast<float*>(out), a.floats(), a.float_step(), b.floats(), b.run, b.inside, b.count, n);
}
#else
inline constexpr TileLoop loop_row_exponential_avx2 = nullptr;
#endif

struct RowLoop {
  TileOp op;
  unsigned rows;
  TileLoop loops[3];  // by InstructionLevel
};
template <auto op, unsigned rows, class Body = RowBody<static_cast<std::size_t>(op), rows>, TileLoop avx2_loop = &loop_avx2<Body>>
inline constexpr RowLoop row_loop_of{static_cast<TileOp>(op), rows, {&loop_baseline<Body>, avx2_loop, &loop_avx512<Body>}};
using RowExponentialBody = RowBody<static_cast<std::size_t>(TileOp::subtract_then_exponential), 2>;
// What normalisations, softmax and their gradients need.
inline constexpr RowLoop row_loops[] = {
    row_loop_of<ScalarOp::add, 1>,
    row_loop_of<ScalarOp::add, 2>,
    row_loop_of<ScalarOp::subtract, 2>,
    row_loop_of<ScalarOp::multiply, 2>,
    row_loop_of<ScalarOp::divide, 2>,
    row_loop_of<ScalarOp::select, 2>,
    row_loop_of<TileOp::multiply_then_add, 1>,
    row_loop_of<TileOp::multiply_then_add, 2>,
    row_loop_of<TileOp::multiply_then_add, 5>,
    row_loop_of<TileOp::subtract_then_multiply, 2>,
    row_loop_of<TileOp::subtract_then_multiply, 6>,
    row_loop_of<TileOp::add_then_add, 1>,
    row_loop_of<TileOp::multiply_then_multiply, 2>,
    row_loop_of<TileOp::multiply_then_multiply, 4>,
    row_loop_of<TileOp::subtract_then_square, 2>,
    row_loop_of<TileOp::subtract_then_exponential, 2, RowExponentialBody, loop_row_exponential_avx2>,
};

}  // namespace detail

// The loop of `op` on float32, whose operands in `rows` (bit o is operand o) are given by TileOperand::run. Null where there is none:
// repeat these operands along their rows first.
inline TileLoop row_loop(TileOp op, unsigned rows, InstructionLevel level) {
  const auto* const found = std::find_if(std::begin(detail::row_loops), std::end(detail::row_loops), [&](const auto& one) { return one.op == op && one.rows == rows; });
  return found == std::end(detail::row_loops) ? nullptr : found->loops[static_cast<std::size_t>(level)];
}

}  // namespace replicator::detail::cpu
