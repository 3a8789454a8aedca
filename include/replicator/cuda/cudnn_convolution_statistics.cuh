// SPDX-License-Identifier: Apache-2.0
// ConvolutionStatistics by cuDNN's graph interface, with channels last: the sums are taken (GenStats) while the convolution's results are in
// registers. Which shapes have an engine for it, one that is deterministic above all, cuDNN decides; the others are taken by
// its plain convolution and our sums.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <replicator/core/error.hpp>
#include <replicator/cuda/cudnn_graph.cuh>
#include <replicator/cuda/launch.cuh>
#include <replicator/graph/kernel.hpp>
#include <replicator/ops/convolution_statistics.hpp>

namespace replicator::cuda::cudnn {

struct StatisticsProblem {
  ConvolutionOptions options;
  DType dtype = DType::float32;
  Shape x, w, y;
  KernelChoice choice;

  // Numbers of the tensors: inputs, then outputs, as of the operation.
  OperationGraph graph() const {
    OperationGraph graph;
    const auto image = [&](std::int64_t number, const Shape& shape) { return graph.tensor(channels_last_tensor(number, dtype, shape)); };
    const auto x_tensor = image(0, x), w_tensor = image(1, w), y_tensor = image(2, y);
    const Shape channels{1, y[1], 1, 1};
    const auto sum = graph.tensor(channels_last_tensor(3, DType::float32, channels)), squares = graph.tensor(channels_last_tensor(4, DType::float32, channels));
    graph.add(graph.keep(Descriptor{CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR})
                  .set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, convolution(graph))
                  .set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, x_tensor)
                  .set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, w_tensor)
                  .set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, y_tensor)
                  .set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, 1.0f)
                  .set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA, 0.0f));
    graph.add(graph.keep(Descriptor{CUDNN_BACKEND_OPERATION_GEN_STATS_DESCRIPTOR})
                  .set(CUDNN_ATTR_OPERATION_GENSTATS_MODE, CUDNN_GENSTATS_SUM_SQSUM)
                  .set(CUDNN_ATTR_OPERATION_GENSTATS_MATH_PREC, CUDNN_DATA_FLOAT)
                  .set(CUDNN_ATTR_OPERATION_GENSTATS_XDESC, y_tensor)
                  .set(CUDNN_ATTR_OPERATION_GENSTATS_SUMDESC, sum)
                  .set(CUDNN_ATTR_OPERATION_GENSTATS_SQSUMDESC, squares));
    return graph;
  }

 private:
  static GraphTensor channels_last_tensor(std::int64_t number, DType dtype, const Shape& s) {
    return {number, dtype, {s[0], s[1], s[2], s[3]}, {s[1] * s[2] * s[3], 1, s[3] * s[1], s[1]}};
  }
  // The groups are those that the channels of x and w make.
  cudnnBackendDescriptor_t convolution(OperationGraph& graph) const {
    const auto pair = [](const Extents2d& extents) { return std::vector<std::int64_t>(extents.begin(), extents.end()); };
    const auto dilation = pair(options.dilation), stride = pair(options.stride), low = pair(options.padding.low), high = pair(options.padding.high);
    return graph.keep(Descriptor{CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR})
        .set(CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_DATA_FLOAT)
        .set(CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_CROSS_CORRELATION)
        .set(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, std::int64_t{2})
        .set_all(CUDNN_ATTR_CONVOLUTION_DILATIONS, std::span{dilation})
        .set_all(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, std::span{stride})
        .set_all(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, std::span{low})
        .set_all(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, std::span{high})
        .finalise()
        .get();
  }
};

// Plans are of one GPU: one for each on which the executable runs, made at its first launch there, which is never captured. All GPUs of a
// job being of one kind, cuDNN ranks the same engines the same way on each.
class StatisticsExecutable final : public Executable {
 public:
  explicit StatisticsExecutable(const StatisticsProblem& problem) : problem_{problem} {
    for (const Shape* shape : {&problem.x, &problem.w}) input_layouts.push_back(layout_in(CUDNN_TENSOR_NHWC, *shape));
    output_layouts = {layout_in(CUDNN_TENSOR_NHWC, problem.y), Layout{}, Layout{}};
    in_place = {-1, -1, -1};
    scratch_bytes = plan().workspace();
  }
  // Throws DeviceError on a GPU for which cuDNN has no such plan, or one that needs more scratch.
  void run(const Launch& launch) const override {
    const auto& by = plan();
    if (by.workspace() > scratch_bytes)
      throw DeviceError{"cuDNN asks for " + std::to_string(by.workspace()) + " bytes of scratch on this GPU, but for " + std::to_string(scratch_bytes) +
                        " on that for which the step was planned first: all GPUs of a job must be of one kind"};
    const cudnnHandle_t on = handle();
    require(cudnnSetStream(on, stream_of(launch.stream)), "cudnnSetStream");
    const std::array<const std::byte*, 5> data{launch.inputs[0], launch.inputs[1], launch.outputs[0], launch.outputs[1], launch.outputs[2]};
    by.run(on, data, launch.scratch);
  }

 private:
  const ExecutionPlan& plan() const {
    int device = 0;
    REPLICATOR_CUDA_CHECK(cudaGetDevice(&device));
    const std::lock_guard lock{gate_};
    auto& plan = plans_[device];
    if (!plan) plan = make_plan(problem_.graph(), problem_.dtype, problem_.choice);
    return *plan;
  }

  StatisticsProblem problem_;
  mutable std::mutex gate_;
  mutable std::map<int, std::unique_ptr<const ExecutionPlan>> plans_;  // by GPU
};

inline std::unique_ptr<Executable> make_convolution_statistics(const KernelRequest& r) {
  const auto& x = r.inputs[0].shape;
  const auto& w = r.inputs[1].shape;
  const auto& y = r.outputs[0].shape;
  if (r.choice.row_major_images || x.elements() == 0 || w.elements() == 0 || y.elements() == 0) return nullptr;
  try {
    return std::make_unique<StatisticsExecutable>(
        StatisticsProblem{r.operation.get<ConvolutionStatistics>()->options, r.outputs[0].dtype, x, w, y, r.choice});
  } catch (const Unsupported&) {
    return nullptr;
  }
}

inline constexpr Kernel convolution_statistics{"cuDNN graph", &make_convolution_statistics};
inline const bool convolution_statistics_registered =
    register_kernel<ConvolutionStatistics>(DeviceKind::cuda, KernelTier::library, &convolution_statistics);

}  // namespace replicator::cuda::cudnn
