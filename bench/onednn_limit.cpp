// SPDX-License-Identifier: Apache-2.0
// The lower bound of a training step of ResNet-50 v1.5 with oneDNN: all its convolutions forward and backward, alone
// and together with its batch norms (with fused ReLU where one follows). Uses oneDNN's preferred layouts and pages that
// stay mapped.
//   onednn_limit [--batch 16] [--image-size 224] [--precision float32] [--threads 1] [--devices 1] [--steps 5] [--winograd yes] [--turns yes]
// --devices: number of threads that do this at once, each with its own batch. --turns: see turns.hpp. Prints images/s
// of all devices together, as medians.
#include <algorithm>
#include <array>
#include <barrier>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <replicator/cpu/onednn/onednn_convolution.hpp>
#include <replicator/devices/pages.hpp>

#include "resnet_layers.hpp"
#include "turns.hpp"

namespace rp = replicator;
namespace dnn = replicator::detail::cpu::onednn;

namespace {

struct Options {
  std::int64_t batch = 16;  // of each device
  std::int64_t image_size = 224;
  rp::DType dtype = rp::DType::float32;
  int threads = 1, devices = 1, steps = 5;
  rp::KernelChoice choice;
  bool turns = false;
};

// Zero-filled; grows to the largest requested size.
class Buffer {
 public:
  void reserve(std::size_t bytes) {
    if (bytes <= bytes_) return;
    pages_ = rp::detail::map_pages(bytes_ = bytes);
    if (!pages_) throw rp::DeviceError{"there is no memory for " + std::to_string(bytes) + " bytes"};
  }
  std::byte* data() const { return pages_.get(); }

 private:
  rp::detail::Pages pages_;
  std::size_t bytes_ = 0;
};

// A convolution in one direction, on the buffers of its layer.
class Convolution {
 public:
  // `types`, `buffers`: of the two inputs and of the output.
  Convolution(const rp::AnyOperation& operation, const std::array<rp::TensorType, 3>& types, const std::array<Buffer*, 3>& buffers, const Options& options)
      : buffers_{buffers} {
    const rp::Layout offered[2];
    const rp::Kernel* kernel = operation.slots()[0][static_cast<std::size_t>(rp::KernelTier::library)].load();
    executable_ = kernel->make({operation, std::span{types}.first(2), std::span{types}.last(1), offered, options.threads, options.choice});
    for (std::size_t i = 0; i < 3; ++i) buffers_[i]->reserve(bytes_of(types[i], i < 2 ? executable_->input_layouts[i] : output_layout()));
    scratch_.reserve(executable_->scratch_bytes + 1);
  }
  const rp::Layout& output_layout() const { return executable_->output_layouts[0]; }

  void run() const {
    const std::byte* in[] = {buffers_[0]->data(), buffers_[1]->data()};
    std::byte* out[] = {buffers_[2]->data()};
    executable_->run({in, out, scratch_.data(), {}, nullptr});
  }

 private:
  static std::size_t bytes_of(const rp::TensorType& type, const rp::Layout& layout) {
    return static_cast<std::size_t>(rp::storage_elements(layout, type.shape)) * rp::size_of(type.dtype);
  }
  std::array<Buffer*, 3> buffers_;
  std::unique_ptr<rp::Executable> executable_;
  Buffer scratch_;
};

#if DNNL_VERSION_MAJOR == 2
dnnl_status_t dnnl_batch_normalization_forward_primitive_desc_create(dnnl_primitive_desc_t* made, dnnl_engine_t engine, dnnl_prop_kind_t kind,
                                                                     dnn::ConstMemoryPointer src, dnn::ConstMemoryPointer, float epsilon,
                                                                     unsigned flags, const_dnnl_primitive_attr_t attributes) {
  dnnl_batch_normalization_desc_t operation;
  return dnn::describe_operation(dnnl_batch_normalization_forward_desc_init(&operation, kind, src, epsilon, flags), &operation, made, engine,
                                 attributes);
}
dnnl_status_t dnnl_batch_normalization_backward_primitive_desc_create(dnnl_primitive_desc_t* made, dnnl_engine_t engine, dnnl_prop_kind_t kind,
                                                                      dnn::ConstMemoryPointer diff_src, dnn::ConstMemoryPointer,
                                                                      dnn::ConstMemoryPointer src, float epsilon, unsigned flags,
                                                                      const_dnnl_primitive_desc_t forward,
                                                                      const_dnnl_primitive_attr_t attributes) {
  dnnl_batch_normalization_desc_t operation;
  return dnn::describe_operation(dnnl_batch_normalization_backward_desc_init(&operation, kind, diff_src, src, epsilon, flags), &operation, made,
                                 engine, attributes, forward);
}
#endif

// oneDNN's batch norm for training, in both directions. The library itself uses elementwise passes instead.
class BatchNorm {
 public:
  BatchNorm(const dnn::MemoryDescription& data, const Buffer& from, bool rectified) {
    unsigned flags = dnnl_use_scale | dnnl_use_shift;
    if (rectified) flags |= dnnl_fuse_norm_relu;
    forward_ = dnn::describe(&dnnl_batch_normalization_forward_primitive_desc_create, "batch norm", dnn::engine(), dnnl_forward_training, data.get(),
                             data.get(), 1e-5f, flags);
    backward_ = dnn::describe(&dnnl_batch_normalization_backward_primitive_desc_create, "batch norm backward", dnn::engine(), dnnl_backward,
                              data.get(), data.get(), data.get(), 1e-5f, flags, forward_.get());
    dnn::require(dnnl_primitive_create(run_forward_.out(), forward_.get()), "dnnl_primitive_create");
    dnn::require(dnnl_primitive_create(run_backward_.out(), backward_.get()), "dnnl_primitive_create");
    give(both, DNNL_ARG_SRC, data, from.data());
    to_.reserve(data.bytes());
    give(forward, DNNL_ARG_DST, data, to_.data());
    give(backward, DNNL_ARG_DIFF_DST, data, to_.data());
    give(backward, DNNL_ARG_DIFF_SRC, data, to_.data());
    const auto each = dnn::strided(data.extents().subspan(1, 1), dnnl_f32);
    for (const int argument : {DNNL_ARG_MEAN, DNNL_ARG_VARIANCE, DNNL_ARG_SCALE}) give(both, argument, each);
    give(DNNL_VERSION_MAJOR == 2 ? both : forward, DNNL_ARG_SHIFT, each);  // oneDNN 3 refuses it backward
    for (const int argument : {DNNL_ARG_DIFF_SCALE, DNNL_ARG_DIFF_SHIFT}) give(backward, argument, each);
    if (rectified) give(both, DNNL_ARG_WORKSPACE, dnn::memory_of(forward_, dnnl_query_workspace_md));
    give(forward, DNNL_ARG_SCRATCHPAD, dnn::memory_of(forward_, dnnl_query_scratchpad_md));
    give(backward, DNNL_ARG_SCRATCHPAD, dnn::memory_of(backward_, dnnl_query_scratchpad_md));
  }

  void run_forward() const { run(run_forward_.get(), arguments_[0]); }
  void run_backward() const { run(run_backward_.get(), arguments_[1]); }

 private:
  using Primitive = dnn::Handle<dnnl_primitive_t, dnnl_primitive_destroy>;
  enum Direction : unsigned {
    forward = 1,
    backward = 2,
    both = 3
  };

  void give(Direction direction, int argument, const dnn::MemoryDescription& description, std::byte* data = nullptr) {
    if (!data) {
      own_.emplace_back().reserve(description.bytes() + 1);
      data = own_.back().data();
    }
    auto& memory = memory_.emplace_back();
    dnn::require(dnnl_memory_create(memory.out(), description.get(), dnn::engine(), data), "dnnl_memory_create");
    for (unsigned d = 0; d < 2; ++d)
      if (direction >> d & 1) arguments_[d].push_back({argument, memory.get()});
  }
  static void run(dnnl_primitive_t primitive, const std::vector<dnnl_exec_arg_t>& arguments) {
    dnn::require(dnnl_primitive_execute(primitive, dnn::stream(), static_cast<int>(arguments.size()), arguments.data()), "dnnl_primitive_execute");
  }

  dnn::PrimitiveDescription forward_, backward_;
  Primitive run_forward_, run_backward_;
  Buffer to_;
  std::vector<Buffer> own_;
  std::vector<dnn::Memory> memory_;
  std::vector<dnnl_exec_arg_t> arguments_[2];  // forward, backward
};

// All kernels of one layer. A tensor and its gradient share a buffer, since the values do not matter.
class LayerKernels {
 public:
  LayerKernels(const bench::Layer& layer, const Options& options) : times_{layer.times} {
    for (const auto& [operation, types, tensors] : bench::directions_of(layer, options.batch, options.dtype))
      convolutions_.push_back(std::make_unique<Convolution>(
          operation, types, std::array{&tensors_[tensors[0]], &tensors_[tensors[1]], &tensors_[tensors[2]]}, options));
    const auto y = bench::directions_of(layer, options.batch, options.dtype).front().types[2];
    const auto memory = dnn::described(y.shape, *dnn::data_type(options.dtype), convolutions_[0]->output_layout());
    norm_ = std::make_unique<BatchNorm>(memory, tensors_[2], layer.rectified);
  }

  void run(bool with_norm) const {
    for (int i = 0; i < times_; ++i) {
      convolutions_[0]->run();
      if (with_norm) norm_->run_forward();
      if (with_norm) norm_->run_backward();
      for (std::size_t backward = 1; backward < convolutions_.size(); ++backward) convolutions_[backward]->run();
    }
  }

 private:
  int times_;
  std::array<Buffer, 3> tensors_;                           // x, w, y
  std::vector<std::unique_ptr<Convolution>> convolutions_;  // forward, then backward
  std::unique_ptr<BatchNorm> norm_;
};

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// One thread per device, each with all layers.
class Devices {
 public:
  explicit Devices(const Options& options) : together_{options.devices + 1} {
    for (int device = 0; device < options.devices; ++device) threads_.emplace_back([this, &options] { work(options); });
  }
  ~Devices() {
    ended_ = true;
    together_.arrive_and_wait();
    for (auto& thread : threads_) thread.join();
  }

  // Seconds of one pass over all layers by all devices at once.
  double pass(bool with_norm) {
    with_norm_ = with_norm;
    together_.arrive_and_wait();
    const auto begin = std::chrono::steady_clock::now();
    together_.arrive_and_wait();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  }

 private:
  void work(const Options& options) {
    const dnn::OpenMpThreads guard{options.threads};
    std::vector<std::unique_ptr<LayerKernels>> layers;
    for (const auto& layer : bench::resnet50_layers(options.image_size)) layers.push_back(std::make_unique<LayerKernels>(layer, options));
    for (;;) {
      together_.arrive_and_wait();
      if (ended_) return;
      for (const auto& layer : layers) layer->run(with_norm_);
      together_.arrive_and_wait();
    }
  }

  std::barrier<> together_;
  bool ended_ = false, with_norm_ = false;
  std::vector<std::thread> threads_;
};

void measure(Devices& devices, const Options& options) {
  std::vector<double> convolutions, with_norm;
  for (int step = 0; step < options.steps; ++step) {
    convolutions.push_back(devices.pass(false));
    with_norm.push_back(devices.pass(true));
  }
  const auto images = static_cast<double>(options.batch * options.devices);
  std::printf("convolutions %.2f images/s, with batch norm %.2f images/s\n", images / median(convolutions), images / median(with_norm));
}

Options parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string flag = argv[i], word = argv[i + 1];
    const int value = std::atoi(argv[i + 1]);
    if (flag == "--batch" && value > 0) options.batch = value;
    else if (flag == "--image-size" && value > 0) options.image_size = value;
    else if (flag == "--threads" && value > 0) options.threads = value;
    else if (flag == "--devices" && value > 0) options.devices = value;
    else if (flag == "--steps" && value > 0) options.steps = value;
    else if (flag == "--winograd" && word == "yes") options.choice.winograd = true;
    else if (flag == "--turns" && word == "yes") options.turns = true;
    else if (flag == "--precision" && word == "bfloat16") options.dtype = rp::DType::bfloat16;
    else if (flag == "--precision" && word == "float32") options.dtype = rp::DType::float32;
    else throw rp::BuildError{"onednn_limit knows no flag " + flag + " " + word};
  }
  return options;
}

}  // namespace

int main(int argc, char** argv) try {
  const Options options = parse(argc, argv);
  Devices devices{options};
  devices.pass(true);
  bench::take_turns(options.turns, [&] { measure(devices, options); });
} catch (const rp::Error& error) {
  std::fprintf(stderr, "onednn_limit: %s\n", error.what());
  return 1;
}
