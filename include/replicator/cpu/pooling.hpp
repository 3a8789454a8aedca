// SPDX-License-Identifier: Apache-2.0
// The kernels of pooling on the CPU. They take images in the layouts of cpu/image_layout.hpp, one row of windows at a time.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include <replicator/cpu/image_layout.hpp>
#include <replicator/cpu/loops/parallel.hpp>
#include <replicator/cpu/loops/pooling_loops.hpp>
#include <replicator/cpu/loops/pooling_rows.hpp>
#include <replicator/graph/kernel.hpp>
#include <replicator/ops/pooling.hpp>

namespace replicator::detail::cpu {

namespace detail {

class PoolingLoops final : public Executable {
 public:
  PoolingLoops(const PooledPlanes& planes, std::int64_t count, PoolingLoop loop, std::vector<ImageRows> inputs, const ImageRows& output, int threads)
      : planes_{planes}, count_{count}, loop_{loop}, inputs_{std::move(inputs)}, output_{output}, threads_{threads} {
    scratch_of_thread_ = (static_cast<std::size_t>(std::min(planes_.options.window[0], planes_.x[0])) * sizeof(std::int64_t) + 63) / 64 * 64;  // CoveredRows::begin
    for (auto& input : inputs_) place(input);
    place(output_);
    scratch_bytes = scratch_of_thread_ * static_cast<std::size_t>(threads);
    in_place = {-1};
  }

  void run(const Launch& launch) const override {
    parallel_for(threads_, count_, [&](int thread, std::int64_t first, std::int64_t last) {
      std::byte* const scratch = launch.scratch + scratch_of_thread_ * static_cast<std::size_t>(thread);
      for (std::int64_t plane = first; plane < last; ++plane) run_plane(launch, plane, scratch);
    });
  }

 private:
  void place(ImageRows& rows) {
    rows.ring = scratch_of_thread_;
    scratch_of_thread_ += rows.ring_bytes();
  }

  void run_plane(const Launch& launch, std::int64_t plane, std::byte* scratch) const {
    const auto reader = [&](std::size_t i) {
      return RowReader{inputs_[i], launch.inputs[i] + inputs_[i].bytes(plane * inputs_[i].rows, inputs_[i].stored), scratch};
    };
    const bool pair = inputs_.size() > 1;
    RowReader a = reader(0), b = reader(pair ? 1 : 0);
    RowWriter out{output_, launch.outputs[0] + output_.bytes(plane * output_.rows, output_.stored), scratch};
    const ImageRows& x = output_.of_x ? output_ : inputs_[0];
    auto* const begin = reinterpret_cast<std::int64_t*>(scratch);
    for (std::int64_t r = 0; r < planes_.y[0]; ++r) {
      const PoolingSpan of_x = planes_.window(0, r), of_y{r, r + 1};
      const auto rows = [&](const ImageRows& image) -> const PoolingSpan& { return image.of_x ? of_x : of_y; };
      for (std::int64_t i = of_x.begin; i < of_x.end; ++i) begin[i - of_x.begin] = i % x.slots * x.row;
      loop_(planes_, {begin, of_x.size()}, a.read(rows(inputs_[0])), pair ? b.read(rows(inputs_[1])) : nullptr, out.write(rows(output_)));
    }
    out.finish(output_.rows);
  }

  PooledPlanes planes_;
  std::int64_t count_;  // planes
  PoolingLoop loop_;
  std::vector<ImageRows> inputs_;
  ImageRows output_;
  int threads_;
  std::size_t scratch_of_thread_ = 0;
};

// All images have the layout in which input 0 is offered. `x` is the larger image and `y` the pooled one.
template <class Op, class Loop>
std::unique_ptr<Executable> make_pooling(const KernelRequest& request) {
  const DType dtype = request.outputs[0].dtype, compute = compute_type(dtype);
  const Shape& x = Loop::a_is_x ? request.inputs[0].shape : request.outputs[0].shape;
  const Shape& y = !Loop::out_is_x ? request.outputs[0].shape : request.inputs.back().shape;
  const ImageLayout layout = image_layout(request.offered[0], request.inputs[0].shape);
  const PooledPlanes planes{request.operation.get<Op>()->options, {x[2], x[3]}, {y[2], y[3]}, layout.pixel(x)};
  const PoolingLoop loop = compute == DType::float64 ? pooling_loop<Loop, double>(planes.pixel) : pooling_loop<Loop, float>(planes.pixel);
  std::vector<ImageRows> inputs;
  for (const auto& input : request.inputs) inputs.push_back({planes, inputs.empty() ? Loop::a_is_x : Loop::b_is_x, input.dtype, compute});
  auto result = std::make_unique<PoolingLoops>(planes, layout.planes(x), loop, std::move(inputs), ImageRows{planes, Loop::out_is_x, dtype, compute},
                                               request.threads);
  for (const auto& input : request.inputs) result->input_layouts.push_back(layout.of(input.shape));
  result->output_layouts = {layout.of(request.outputs[0].shape)};
  return result;
}

}  // namespace detail

inline constexpr Kernel max_pool_loops{"max pool loops", &detail::make_pooling<MaxPool, detail::MaxPoolLoop>};
inline constexpr Kernel max_pool_spread_loops{"max pool spread loops", &detail::make_pooling<MaxPoolSpread, detail::MaxPoolSpreadLoop>};
inline constexpr Kernel max_pool_pick_loops{"max pool pick loops", &detail::make_pooling<MaxPoolPick, detail::MaxPoolPickLoop>};
inline constexpr Kernel average_pool_loops{"average pool loops", &detail::make_pooling<AveragePool, detail::AveragePoolLoop>};
inline constexpr Kernel average_pool_transpose_loops{"average pool transpose loops",
                                                     &detail::make_pooling<AveragePoolTranspose, detail::AveragePoolTransposeLoop>};

inline const bool pooling_loops_registered =
    register_kernel<MaxPool>(DeviceKind::cpu, KernelTier::reference, &max_pool_loops) &&
    register_kernel<MaxPoolSpread>(DeviceKind::cpu, KernelTier::reference, &max_pool_spread_loops) &&
    register_kernel<MaxPoolPick>(DeviceKind::cpu, KernelTier::reference, &max_pool_pick_loops) &&
    register_kernel<AveragePool>(DeviceKind::cpu, KernelTier::reference, &average_pool_loops) &&
    register_kernel<AveragePoolTranspose>(DeviceKind::cpu, KernelTier::reference, &average_pool_transpose_loops);

}  // namespace replicator::detail::cpu
