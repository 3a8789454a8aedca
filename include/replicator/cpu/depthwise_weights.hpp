// SPDX-License-Identifier: Apache-2.0
// The gradient of the weights of a depthwise convolution in float32, on AVX-512 and AVX2. For windows above 3 x 3 oneDNN 2.6 has a
// plain matrix product only, which takes ten times as long. Sixteen channels are one vector, or two.
//
// Each weight is a sum over the pixels of an image in order, by fused multiply-add, and then over the images in order. Threads
// share the channels and the rows of the window, so their number changes no bit, and neither does the length of vectors.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

#include <replicator/core/processor.hpp>
#include <replicator/core/vector_intrinsics.hpp>
#include <replicator/cpu/convolution.hpp>
#include <replicator/cpu/image_layout.hpp>
#include <replicator/cpu/loops/lanes.hpp>
#include <replicator/cpu/loops/parallel.hpp>
#include <replicator/cpu/loops/tile_loops.hpp>

namespace replicator::detail::cpu {

#if defined(__x86_64__)

namespace detail {

// sums[i] += dy[p] x[p + i] for `count` pixels p and i < taps. x advances by `pixel` floats per pixel, and by `tap` per i.
template <int taps>
[[REPLICATOR_AVX512]] void add_products(FloatLanes* sums, const float* x, const float* dy, std::int64_t count, std::int64_t pixel, std::int64_t tap) {
  __m512 v[8];
  for (int i = 0; i < 8; ++i) v[i] = reinterpret_cast<__m512>(sums[i < taps ? i : 0]);
  __m512 a = v[0], b = v[1], c = v[2], d = v[3], e = v[4], f = v[5], g = v[6], h = v[7];  // in registers; an array lies in memory
  for (; count > 0; --count, x += pixel, dy += tile_group) {
    const __m512 u = _mm512_loadu_ps(dy);
    a = _mm512_fmadd_ps(u, _mm512_loadu_ps(x), a);
    if constexpr (taps > 1) b = _mm512_fmadd_ps(u, _mm512_loadu_ps(x + tap), b);
    if constexpr (taps > 2) c = _mm512_fmadd_ps(u, _mm512_loadu_ps(x + 2 * tap), c);
    if constexpr (taps > 3) d = _mm512_fmadd_ps(u, _mm512_loadu_ps(x + 3 * tap), d);
    if constexpr (taps > 4) e = _mm512_fmadd_ps(u, _mm512_loadu_ps(x + 4 * tap), e);
    if constexpr (taps > 5) f = _mm512_fmadd_ps(u, _mm512_loadu_ps(x + 5 * tap), f);
    if constexpr (taps > 6) g = _mm512_fmadd_ps(u, _mm512_loadu_ps(x + 6 * tap), g);
    if constexpr (taps > 7) h = _mm512_fmadd_ps(u, _mm512_loadu_ps(x + 7 * tap), h);
  }
  const __m512 all[] = {a, b, c, d, e, f, g, h};
  for (int i = 0; i < taps; ++i) sums[i] = reinterpret_cast<FloatLanes>(all[i]);
}
// The same by vectors of eight channels, the lower ones first.
template <int taps>
[[REPLICATOR_AVX2_FMA]] void add_products_by_halves(FloatLanes* sums, const float* x, const float* dy, std::int64_t count, std::int64_t pixel, std::int64_t tap) {
  for (std::int64_t half = 0; half < tile_group; half += 8) {
    float* at[8];
    for (int i = 0; i < 8; ++i) at[i] = reinterpret_cast<float*>(sums + (i < taps ? i : 0)) + half;
    __m256 a = _mm256_loadu_ps(at[0]), b = _mm256_loadu_ps(at[1]), c = _mm256_loadu_ps(at[2]), d = _mm256_loadu_ps(at[3]);
    __m256 e = _mm256_loadu_ps(at[4]), f = _mm256_loadu_ps(at[5]), g = _mm256_loadu_ps(at[6]), h = _mm256_loadu_ps(at[7]);
    const float *x_at = x + half, *dy_at = dy + half;
    for (std::int64_t left = count; left > 0; --left, x_at += pixel, dy_at += tile_group) {
      const __m256 u = _mm256_loadu_ps(dy_at);
      a = _mm256_fmadd_ps(u, _mm256_loadu_ps(x_at), a);
      if constexpr (taps > 1) b = _mm256_fmadd_ps(u, _mm256_loadu_ps(x_at + tap), b);
      if constexpr (taps > 2) c = _mm256_fmadd_ps(u, _mm256_loadu_ps(x_at + 2 * tap), c);
      if constexpr (taps > 3) d = _mm256_fmadd_ps(u, _mm256_loadu_ps(x_at + 3 * tap), d);
      if constexpr (taps > 4) e = _mm256_fmadd_ps(u, _mm256_loadu_ps(x_at + 4 * tap), e);
      if constexpr (taps > 5) f = _mm256_fmadd_ps(u, _mm256_loadu_ps(x_at + 5 * tap), f);
      if constexpr (taps > 6) g = _mm256_fmadd_ps(u, _mm256_loadu_ps(x_at + 6 * tap), g);
      if constexpr (taps > 7) h = _mm256_fmadd_ps(u, _mm256_loadu_ps(x_at + 7 * tap), h);
    }
    const __m256 all[] = {a, b, c, d, e, f, g, h};
    for (int i = 0; i < taps; ++i) _mm256_storeu_ps(at[i], all[i]);
  }
}

class DepthwiseWeights final : public Executable {
 public:
  static constexpr std::int64_t most_taps = 8;  // of a row of the window at once

  static bool takes(const ConvolutionShapes& s, DType dtype) {
    return instruction_level() >= InstructionLevel::avx2 && dtype == DType::float32 && s.options.groups == s.x[1] && s.w[0] == s.x[1] && s.w[1] == 1 &&
           s.x[1] % tile_group == 0 && s.w[2] * s.w[3] > 9 && s.w[3] <= most_row;
  }

  DepthwiseWeights(const ConvolutionShapes& shapes, int threads) : s_{shapes}, threads_{threads} {
    kernel = "depthwise weights";
    input_layouts = {channel_blocks(s_.x, tile_group), channel_blocks(s_.y, tile_group)};
    output_layouts.resize(1);
    in_place = {-1};
    for (std::int64_t tap = 0; tap < s_.w[3]; ++tap) {
      const auto range = columns_of(tap);
      inner_.first = std::max(inner_.first, range.first), inner_.last = std::min(inner_.last, range.last);
    }
  }

  void run(const Launch& launch) const override {
    const auto* x = reinterpret_cast<const float*>(launch.inputs[0]);
    const auto* dy = reinterpret_cast<const float*>(launch.inputs[1]);
    auto* dw = reinterpret_cast<float*>(launch.outputs[0]);
    parallel_for(threads_, s_.x[1] / tile_group * s_.w[2], [&](int, std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) compute_row(x, dy, dw, i / s_.w[2], i % s_.w[2]);
    });
  }

 private:
  static constexpr std::int64_t most_row = 64;

  TapRange columns_of(std::int64_t tap) const {
    const auto& o = s_.options;
    return tap_range(s_.x[3], s_.y[3], o.stride[1], tap * o.dilation[1] - o.padding.low[1]);
  }

  // Row `kh` of the windows of 16 channels.
  void compute_row(const float* x, const float* dy, float* dw, std::int64_t block, std::int64_t kh) const {
    const std::int64_t blocks = s_.x[1] / tile_group, taps = s_.w[3];
    std::array<FloatLanes, most_row> total{}, sums;
    for (std::int64_t n = 0; n < s_.x[0]; ++n) {
      for (std::int64_t t = 0; t < taps; ++t) sums[static_cast<std::size_t>(t)] = FloatLanes{};
      const std::int64_t plane = n * blocks + block;
      add_image(sums.data(), x + plane * s_.x[2] * s_.x[3] * tile_group, dy + plane * s_.y[2] * s_.y[3] * tile_group, kh);
      for (std::int64_t t = 0; t < taps; ++t) total[static_cast<std::size_t>(t)] += sums[static_cast<std::size_t>(t)];
    }
    for (std::int64_t t = 0; t < taps; ++t)
      for (std::int64_t c = 0; c < tile_group; ++c) dw[((block * tile_group + c) * s_.w[2] + kh) * taps + t] = total[static_cast<std::size_t>(t)][static_cast<std::size_t>(c)];
  }

  void add_image(FloatLanes* sums, const float* x, const float* dy, std::int64_t kh) const {
    const auto& o = s_.options;
    const std::int64_t down = kh * o.dilation[0] - o.padding.low[0];
    const TapRange rows = tap_range(s_.x[2], s_.y[2], o.stride[0], down);
    for (std::int64_t row = rows.first; row < rows.last; ++row)
      add_row(sums, x + (row * o.stride[0] + down) * s_.x[3] * tile_group, dy + row * s_.y[3] * tile_group);
  }

  // One row of pixels. All taps read inside the image for the pixels of inner_; each has others of its own before and behind them.
  void add_row(FloatLanes* sums, const float* x, const float* dy) const {
    const auto& o = s_.options;
    const std::int64_t pixel = o.stride[1] * tile_group, tap = o.dilation[1] * tile_group, taps = s_.w[3];
    const auto add = [&](std::int64_t first_tap, std::int64_t count, std::int64_t begin, std::int64_t end) {
      if (begin >= end) return;
      const std::int64_t column = begin * o.stride[1] + first_tap * o.dilation[1] - o.padding.low[1];
      loops_[static_cast<std::size_t>(count - 1)](sums + first_tap, x + column * tile_group, dy + begin * tile_group, end - begin, pixel, tap);
    };
    const bool any_inner = inner_.first < inner_.last;
    for (std::int64_t t = 0; t < taps; ++t) {
      const auto range = columns_of(t);
      add(t, 1, range.first, any_inner ? inner_.first : range.last);
    }
    if (!any_inner) return;
    for (std::int64_t t = 0; t < taps; t += most_taps) add(t, std::min(most_taps, taps - t), inner_.first, inner_.last);
    for (std::int64_t t = 0; t < taps; ++t) add(t, 1, inner_.last, columns_of(t).last);
  }

  using Loop = void (*)(FloatLanes*, const float*, const float*, std::int64_t, std::int64_t, std::int64_t);
  using Loops = std::array<Loop, most_taps>;
  static constexpr Loops by_vectors{&add_products<1>, &add_products<2>, &add_products<3>, &add_products<4>,
                                    &add_products<5>, &add_products<6>, &add_products<7>, &add_products<8>};
  static constexpr Loops by_halves{&add_products_by_halves<1>, &add_products_by_halves<2>, &add_products_by_halves<3>, &add_products_by_halves<4>,
                                   &add_products_by_halves<5>, &add_products_by_halves<6>, &add_products_by_halves<7>, &add_products_by_halves<8>};

  const Loops& loops_ = instruction_level() == InstructionLevel::avx512 ? by_vectors : by_halves;
  ConvolutionShapes s_;
  int threads_;
  TapRange inner_{0, s_.y[3]};
};

}  // namespace detail

// Null where the convolution is not depthwise, has a window of at most nine weights, or the processor has no AVX2.
inline std::unique_ptr<Executable> make_depthwise_weights(const KernelRequest& request) {
  const auto shapes = shapes_of(*request.operation.get<ConvolutionBackwardWeights>(), request);
  if (!detail::DepthwiseWeights::takes(shapes, request.outputs[0].dtype)) return nullptr;
  return std::make_unique<detail::DepthwiseWeights>(shapes, request.threads);
}

#else

inline std::unique_ptr<Executable> make_depthwise_weights(const KernelRequest&) { return nullptr; }

#endif

}  // namespace replicator::detail::cpu
