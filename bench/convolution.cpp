// SPDX-License-Identifier: Apache-2.0
// All convolutions of ResNet-50 v1.5, forward and backward, in oneDNN: images/s of the primitives alone, and with the
// copies of the weights from row-major and of their gradients back, for 1 thread up to the number asked for.
//
//   convolution [batch = 16] [threads = 2] [image = 224]
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <vector>

#include <replicator/core/array.hpp>
#include <replicator/cpu/onednn_convolution.hpp>

namespace rp = replicator;

namespace {

struct Layer {
  std::int64_t in, out, window, stride, extent;  // extent of the image that comes in
  int times;
};

std::vector<Layer> resnet50(std::int64_t image) {
  std::vector<Layer> layers{{3, 64, 7, 2, image, 1}};
  std::int64_t in = 64, extent = image / 4;
  const int blocks[] = {3, 4, 6, 3};
  for (int stage = 0; stage < 4; ++stage) {
    const std::int64_t width = 64 << stage, out = 4 * width, stride = stage == 0 ? 1 : 2, inner = extent / stride;
    const int rest = blocks[stage] - 1;
    layers.push_back({in, width, 1, 1, extent, 1});
    layers.push_back({width, width, 3, stride, extent, 1});
    layers.push_back({width, out, 1, 1, inner, blocks[stage]});
    layers.push_back({in, out, 1, stride, extent, 1});
    layers.push_back({out, width, 1, 1, inner, rest});
    layers.push_back({width, width, 3, 1, inner, rest});
    in = out;
    extent = inner;
  }
  return layers;
}

// A kernel with memory of its own and, for the tensor that is the weights, a copy from or to row-major.
class Step {
 public:
  Step(const rp::AnyOperation& operation, std::vector<rp::TensorType> types, std::size_t weights, int threads)
      : weights_{weights} {
    const rp::Layout offered[2];
    const rp::Kernel* kernel = operation.slots()[0][static_cast<std::size_t>(rp::KernelTier::library)].load();
    executable_ = kernel->make({operation, std::span{types}.first(2), std::span{types}.last(1), offered, threads});
    for (std::size_t i = 0; i < 3; ++i) {
      const auto& layout = i < 2 ? executable_->input_layouts[i] : executable_->output_layouts[0];
      memory_.emplace_back(rp::TensorType{rp::DType::float32, {rp::storage_elements(layout, types[i].shape)}});
      if (i != weights) continue;
      plain_ = rp::AnyArray{types[i]};
      copy_ = i < 2 ? rp::cpu::onednn::make_reorder(types[i], rp::Layout{}, layout, threads)
                    : rp::cpu::onednn::make_reorder(types[i], layout, rp::Layout{}, threads);
    }
    const auto bytes = std::max(executable_->scratch_bytes, copy_->scratch_bytes);
    scratch_ = rp::AnyArray{{rp::DType::uint8, {static_cast<std::int64_t>(bytes)}}};
  }

  void run(bool with_copy) {
    if (with_copy && weights_ < 2) copy(plain_, memory_[weights_]);
    const std::byte* in[] = {memory_[0].data(), memory_[1].data()};
    std::byte* out[] = {memory_[2].data()};
    executable_->run({in, out, scratch_.data(), {}, nullptr});
    if (with_copy && weights_ == 2) copy(memory_[2], plain_);
  }

 private:
  void copy(const rp::AnyArray& from, rp::AnyArray& to) {
    const std::byte* in[] = {from.data()};
    std::byte* out[] = {to.data()};
    copy_->run({in, out, scratch_.data(), {}, nullptr});
  }

  std::size_t weights_;
  std::unique_ptr<rp::Executable> executable_, copy_;
  std::vector<rp::AnyArray> memory_;
  rp::AnyArray plain_, scratch_;
};

double seconds(Step& step, bool with_copy) {
  using Clock = std::chrono::steady_clock;
  step.run(with_copy);
  double best = 1e9, total = 0;
  for (int i = 0; i < 3 || (total < 0.1 && i < 20); ++i) {
    const auto begin = Clock::now();
    step.run(with_copy);
    const double time = std::chrono::duration<double>(Clock::now() - begin).count();
    best = std::min(best, time);
    total += time;
  }
  return best;
}

struct Times {
  double alone = 0, with_copies = 0;
};

Times measure(const Layer& layer, std::int64_t batch, int threads) {
  const std::int64_t padding = layer.window / 2;
  const rp::ConvolutionOptions options{.stride = {layer.stride, layer.stride}, .padding = {padding, padding}};
  const rp::TensorType x{rp::DType::float32, {batch, layer.in, layer.extent, layer.extent}};
  const rp::TensorType w{rp::DType::float32, {layer.out, layer.in, layer.window, layer.window}};
  const rp::TensorType y{rp::DType::float32, rp::detail::convolution_shape(x.shape, w.shape, options)};
  std::vector<Step> steps;
  steps.emplace_back(rp::Convolution{options}, std::vector{x, w, y}, 1, threads);
  if (layer.in > 3) steps.emplace_back(rp::ConvolutionBackwardData{options, x.shape}, std::vector{y, w, x}, 1, threads);
  steps.emplace_back(rp::ConvolutionBackwardWeights{options, w.shape}, std::vector{x, y, w}, 2, threads);
  Times times;
  for (auto& step : steps) {
    times.alone += seconds(step, false) * layer.times;
    times.with_copies += seconds(step, true) * layer.times;
  }
  return times;
}

}  // namespace

int main(int argc, char** argv) {
  const std::int64_t batch = argc > 1 ? std::atoi(argv[1]) : 16;
  const int most = argc > 2 ? std::atoi(argv[2]) : 2;
  const std::int64_t image = argc > 3 ? std::atoi(argv[3]) : 224;
  std::printf("%8s %20s %20s\n", "threads", "primitives images/s", "with copies images/s");
  for (int threads = 1; threads <= most; ++threads) {
    const rp::cpu::onednn::OpenMpThreads guard{threads};
    Times total;
    for (const auto& layer : resnet50(image)) {
      const Times times = measure(layer, batch, threads);
      total.alone += times.alone;
      total.with_copies += times.with_copies;
    }
    std::printf("%8d %20.1f %20.1f\n", threads, static_cast<double>(batch) / total.alone,
                static_cast<double>(batch) / total.with_copies);
  }
}
