// SPDX-License-Identifier: Apache-2.0
// The kernels of resizing and its transpose on the CPU. Both are one loop over images in the layouts of cpu/image_layout.hpp.
// Each pixel of the result is a sum over taps, row taps times column taps. The transpose has the same taps, sorted by the other
// end. Threads share the rows of the result, so the bits do not depend on the number of threads.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include <replicator/core/processor.hpp>
#include <replicator/cpu/image_layout.hpp>
#include <replicator/cpu/in_float32.hpp>
#include <replicator/cpu/loops/parallel.hpp>
#include <replicator/cpu/loops/tile_loops.hpp>
#include <replicator/graph/kernel.hpp>
#include <replicator/ops/resize.hpp>

namespace replicator::detail::cpu {

namespace detail {

// The taps along one axis: out[i] = sum of weight * in[at] over the taps from begin[i] to before begin[i + 1].
struct AxisTaps {
  struct Tap {
    std::int64_t at;
    double weight;
  };
  std::vector<std::int64_t> begin{0};
  std::vector<Tap> taps;

  std::int64_t extent() const { return static_cast<std::int64_t>(begin.size()) - 1; }
  void close() { begin.push_back(static_cast<std::int64_t>(taps.size())); }
};

// The taps that make `out` pixels of `in`. A centre of the result lies at (i + 0.5) in / out - 0.5 of the input.
inline AxisTaps resizing_taps(std::int64_t in, std::int64_t out, Interpolation interpolation) {
  AxisTaps result;
  for (std::int64_t i = 0; i < out; ++i) {
    const double centre = std::max(0.0, (static_cast<double>(i) + 0.5) * static_cast<double>(in) / static_cast<double>(out) - 0.5);
    const bool nearest = interpolation == Interpolation::nearest;
    const std::int64_t low = nearest ? i * in / out : static_cast<std::int64_t>(centre);
    const double share = nearest ? 0 : centre - static_cast<double>(low);
    if (share == 0 || low + 1 == in) {
      result.taps.push_back({low, 1});
    } else {
      result.taps.push_back({low, 1 - share});
      result.taps.push_back({low + 1, share});
    }
    result.close();
  }
  return result;
}

// The taps of the transpose: for each of `extent` inputs, its outputs in ascending order.
inline AxisTaps transposed(const AxisTaps& taps, std::int64_t extent) {
  std::vector<std::vector<AxisTaps::Tap>> by_input(static_cast<std::size_t>(extent));
  for (std::int64_t i = 0; i < taps.extent(); ++i)
    for (std::int64_t t = taps.begin[static_cast<std::size_t>(i)]; t < taps.begin[static_cast<std::size_t>(i) + 1];
         ++t) {
      const auto& tap = taps.taps[static_cast<std::size_t>(t)];
      by_input[static_cast<std::size_t>(tap.at)].push_back({i, tap.weight});
    }
  AxisTaps result;
  for (const auto& outputs : by_input) {
    result.taps.insert(result.taps.end(), outputs.begin(), outputs.end());
    result.close();
  }
  return result;
}

struct TapView {
  const AxisTaps* rows;
  const AxisTaps* columns;
  std::int64_t pixel = 1;
  Extents2d in{};
};

// Computes row r of the plane, `lanes` channels of a pixel at a time.
template <std::int64_t lanes, class T>
[[gnu::always_inline]] inline void tap_row(const TapView& v, std::int64_t r, const T* plane, T* out) {
  const auto* const row_begin = v.rows->taps.data() + v.rows->begin[static_cast<std::size_t>(r)];
  const auto* const row_end = v.rows->taps.data() + v.rows->begin[static_cast<std::size_t>(r) + 1];
  const auto* column = v.columns->taps.data();
  const std::int64_t columns = v.columns->extent();
  for (std::int64_t c = 0; c < columns; ++c, out += v.pixel) {
    const auto* const column_end = v.columns->taps.data() + v.columns->begin[static_cast<std::size_t>(c) + 1];
    // Minus zero leaves every number as it is. A pixel of the transpose that no other was made from is plus zero.
    const T nothing = row_begin == row_end || column == column_end ? T{} : -T{};
    for (std::int64_t lane = 0; lane < v.pixel; lane += lanes) {
      T sum[lanes];
      for (std::int64_t j = 0; j < lanes; ++j) sum[j] = nothing;
      for (const auto* row = row_begin; row < row_end; ++row) {
        const T* const from = plane + row->at * v.in[1] * v.pixel + lane;
        T part[lanes];
        for (std::int64_t j = 0; j < lanes; ++j) part[j] = nothing;
        for (const auto* tap = column; tap < column_end; ++tap)
          for (std::int64_t j = 0; j < lanes; ++j) part[j] += static_cast<T>(tap->weight) * from[tap->at * v.pixel + j];
        for (std::int64_t j = 0; j < lanes; ++j) sum[j] += static_cast<T>(row->weight) * part[j];
      }
      for (std::int64_t j = 0; j < lanes; ++j) out[lane + j] = sum[j];
    }
    column = column_end;
  }
}

template <class T>
using TapLoop = void (*)(const TapView&, std::int64_t, const T*, T*);

template <std::int64_t lanes, class T>
[[gnu::flatten]] void tap_row_baseline(const TapView& v, std::int64_t r, const T* plane, T* out) {
  tap_row<lanes>(v, r, plane, out);
}
template <std::int64_t lanes, class T>
[[gnu::flatten, REPLICATOR_AVX2]] void tap_row_avx2(const TapView& v, std::int64_t r, const T* plane, T* out) {
  tap_row<lanes>(v, r, plane, out);
}

template <class T>
TapLoop<T> tap_loop(std::int64_t pixel) {
  if (pixel % 8 != 0) return &tap_row_baseline<1, T>;
  return instruction_level() == InstructionLevel::baseline ? &tap_row_baseline<8, T> : &tap_row_avx2<8, T>;
}

template <class T>
class TapLoops final : public Executable {
 public:
  TapLoops(AxisTaps rows, AxisTaps columns, const Extents2d& in, const ImageLayout& layout, const Shape& x, int threads)
      : rows_{std::move(rows)},
        columns_{std::move(columns)},
        in_{in},
        planes_{layout.planes(x)},
        pixel_{layout.pixel(x)},
        loop_{tap_loop<T>(pixel_)},
        threads_{threads} {}
  void run(const Launch& launch) const override {
    const TapView view{&rows_, &columns_, pixel_, in_};
    const T* const x = reinterpret_cast<const T*>(launch.inputs[0]);
    T* const y = reinterpret_cast<T*>(launch.outputs[0]);
    const std::int64_t rows = rows_.extent(), row = columns_.extent() * pixel_, plane = in_[0] * in_[1] * pixel_;
    parallel_for(threads_, planes_ * rows, [&](int, std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) loop_(view, i % rows, x + i / rows * plane, y + i * row);
    });
  }

 private:
  AxisTaps rows_, columns_;
  Extents2d in_;
  std::int64_t planes_, pixel_;
  TapLoop<T> loop_;
  int threads_;
};

// `x` before resizing and `y` after it; the transpose takes y and gives x.
template <bool transpose>
std::unique_ptr<Executable> make_taps(Interpolation interpolation, const Shape& x, const Shape& y, const KernelRequest& request) {
  const Shape& in = request.inputs[0].shape;
  const ImageLayout layout = image_layout(request.offered[0], in);
  const auto taps = [&](std::size_t axis) {
    auto forward = resizing_taps(x[axis], y[axis], interpolation);
    return transpose ? transposed(forward, x[axis]) : forward;
  };
  const auto make = [&]<class T>() -> std::unique_ptr<Executable> {
    return std::make_unique<TapLoops<T>>(taps(2), taps(3), Extents2d{in[2], in[3]}, layout, in, request.threads);
  };
  std::unique_ptr<Executable> result;
  if (request.inputs[0].dtype == DType::float32) result = make.template operator()<float>();
  if (request.inputs[0].dtype == DType::float64) result = make.template operator()<double>();
  if (!result) return nullptr;
  result->input_layouts = {layout.of(in)};
  result->output_layouts = {layout.of(request.outputs[0].shape)};
  result->in_place = {-1};
  return result;
}

inline std::unique_ptr<Executable> make_resize(const KernelRequest& r) {
  if (r.inputs[0].dtype == DType::bfloat16) return in_float32(r, &make_resize);
  return make_taps<false>(r.operation.get<Resize>()->interpolation, r.inputs[0].shape, r.outputs[0].shape, r);
}
inline std::unique_ptr<Executable> make_resize_transpose(const KernelRequest& r) {
  if (r.inputs[0].dtype == DType::bfloat16) return in_float32(r, &make_resize_transpose);
  return make_taps<true>(r.operation.get<ResizeTranspose>()->interpolation, r.outputs[0].shape, r.inputs[0].shape, r);
}

}  // namespace detail

inline constexpr Kernel resize_loops{"resize loops", &detail::make_resize};
inline constexpr Kernel resize_transpose_loops{"resize transpose loops", &detail::make_resize_transpose};

inline const bool resize_loops_registered = register_kernel<Resize>(DeviceKind::cpu, KernelTier::reference, &resize_loops) &&
                                            register_kernel<ResizeTranspose>(DeviceKind::cpu, KernelTier::reference, &resize_transpose_loops);

}  // namespace replicator::detail::cpu
