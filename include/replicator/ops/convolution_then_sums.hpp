// SPDX-License-Identifier: Apache-2.0
// ConvolutionStatistics of any kind of device by its kernels of Convolution and of Reduce, one after the other.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include <replicator/graph/layout_copy.hpp>
#include <replicator/graph/make_executable.hpp>
#include <replicator/graph/map.hpp>
#include <replicator/ops/convolution_statistics.hpp>

namespace replicator {

class ConvolutionThenSums final : public Executable {
 public:
  // `copy`: of the convolution's result into the layout in which it is summed, `copied` bytes; null where it lies so.
  ConvolutionThenSums(std::unique_ptr<Executable> convolution, std::unique_ptr<Executable> copy, std::size_t copied, std::unique_ptr<Executable> sums)
      : convolution_{std::move(convolution)}, copy_{std::move(copy)}, sums_{std::move(sums)}, copied_{(copied + 63) / 64 * 64} {
    input_layouts = convolution_->input_layouts;
    output_layouts = {convolution_->output_layouts[0], sums_->output_layouts[0], sums_->output_layouts[1]};
    in_place = {-1, -1, -1};
    for (const auto* part : {convolution_.get(), copy_.get(), sums_.get()}) {
      if (!part) continue;
      scratch_bytes = std::max(scratch_bytes, part->scratch_bytes);
      needs_host = needs_host || part->needs_host;
      reads_step = reads_step || part->reads_step;
    }
    scratch_bytes += copied_;
  }
  void run(const Launch& launch) const override {
    Launch part = launch;
    part.scratch = launch.scratch + copied_;
    convolution_->run(part);
    const std::byte* summed = launch.outputs[0];
    if (copy_) {
      part.inputs = &summed;
      part.outputs = &launch.scratch;
      copy_->run(part);
      summed = launch.scratch;
    }
    part.inputs = &summed;
    part.outputs = launch.outputs + 1;
    sums_->run(part);
  }

 private:
  std::unique_ptr<Executable> convolution_, copy_, sums_;
  std::size_t copied_;
};

// Of the values and of the squares of what has this shape, for each channel.
inline Reduce channel_sums(const Shape& shape) {
  Expression e;
  e.inputs = 1;
  e.outputs = {e.input(0), e.apply(ScalarOp::multiply, e.input(0), e.input(0))};
  return {ReduceKind::sum, std::make_shared<const Expression>(std::move(e)), {0, 2, 3}, shape, {DType::float32, DType::float32}};
}

// Null where a part has no kernel.
template <DeviceKind kind>
std::unique_ptr<Executable> make_convolution_then_sums(const KernelRequest& r) {
  const auto y = r.outputs.first(1);
  const AnyOperation plain{Convolution{r.operation.get<ConvolutionStatistics>()->options}}, summed{channel_sums(y[0].shape)};
  auto convolution = make_executable(kind, {plain, r.inputs, y, r.offered, r.threads, r.choice});
  if (!convolution) return nullptr;
  const std::vector<Layout> given{convolution->output_layouts[0]};
  auto sums = make_executable(kind, {summed, y, r.outputs.subspan(1), given, r.threads, r.choice});
  if (!sums || sums->input_layouts == given) return sums ? std::make_unique<ConvolutionThenSums>(std::move(convolution), nullptr, 0, std::move(sums)) : nullptr;
  const Layout& wanted = sums->input_layouts[0];
  auto copy = make_executable(kind, {LayoutCopy{wanted}, y, y, given, r.threads, r.choice});
  const auto bytes = static_cast<std::size_t>(storage_elements(wanted, y[0].shape)) * size_of(y[0].dtype);
  return copy ? std::make_unique<ConvolutionThenSums>(std::move(convolution), std::move(copy), bytes, std::move(sums)) : nullptr;
}

template <DeviceKind kind>
inline constexpr Kernel convolution_then_sums{"convolution, then sums", &make_convolution_then_sums<kind>};

}  // namespace replicator
