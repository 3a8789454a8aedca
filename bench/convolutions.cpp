// SPDX-License-Identifier: Apache-2.0
// Times the convolutions of a training step of ResNet-50 v1.5 alone on a device, with the kernels that a step would choose. Also
// times how fast the device copies its own memory. No step can be faster than these convolutions and the copying of what its other
// kernels read and write. scripts/kernel_bytes.py counts those bytes.
//
//   convolutions [--device cpu:0] [--batch 16] [--image-size 224] [--precision float32] [--tf32 yes] [--fastest-kernels yes] [--steps 5]
//
// It prints the median time in seconds, the names of the kernels, and how many bytes are read and written in a second.
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <replicator/cpu/environment.hpp>
#include <replicator/devices/device_support.hpp>
#include <replicator/devices/kernel_choice.hpp>
#include <replicator/graph/choose_kernel.hpp>
#include <replicator/graph/kernel.hpp>
#include <replicator/replicate/parse_devices.hpp>
#include <replicator/replicator.hpp>
#include <replicator/runtime/arena.hpp>
#include <replicator/runtime/queue.hpp>

#include "resnet_layers.hpp"

namespace rp = replicator;

namespace {

struct Options {
  rp::DeviceName device;
  std::int64_t batch = 16, image_size = 224;
  rp::DType dtype = rp::DType::float32;
  rp::KernelChoice choice;
  int steps = 5;
};

class Device {
 public:
  explicit Device(const rp::DeviceName& name) : index_{name.index}, support_{rp::detail::support_of(name.kind)} {
    support_.require(index_);
    queue_ = rp::detail::Queue{support_, index_};
    queue_.enter();
  }
  const rp::detail::Queue& queue() const { return queue_; }

  // Filled with small numbers: on zeros a processor may draw less power and run faster.
  rp::detail::Arena allocate(std::size_t bytes) const {
    rp::detail::Arena memory{support_, index_, bytes};
    const std::vector<std::byte> numbers(bytes, std::byte{0x3c});
    queue_.copy(memory.data(), numbers.data(), bytes);
    queue_.synchronise();
    return memory;
  }

 private:
  int index_;
  const rp::detail::DeviceSupport& support_;
  rp::detail::Queue queue_;
};

// Grows to the largest requested size.
class Buffer {
 public:
  void reserve(const Device& device, std::size_t bytes) {
    if (bytes > memory_.bytes()) memory_ = device.allocate(bytes);
  }
  std::byte* data() const { return memory_.data(); }

 private:
  rp::detail::Arena memory_;
};

std::unique_ptr<rp::Executable> make(const bench::Direction& direction, const Options& options) {
  const rp::Layout offered[2];
  const auto inputs = std::span{direction.types}.first(2), outputs = std::span{direction.types}.last(1);
  if (auto executable = rp::detail::make_executable(options.device.kind, {direction.operation, inputs, outputs, offered, 1, options.choice})) return executable;
  throw rp::BuildError{"this program has no kernel of " + std::string{direction.operation.name()} + " for " + options.device.text()};
}

// One layer in all directions. Outputs go to `result`, which is never read: values that were fed back would soon be
// infinite.
class Convolutions {
 public:
  Convolutions(const bench::Layer& layer, const Options& options, const Device& device, Buffer& result, std::map<std::string_view, int>& kernels)
      : times_{layer.times}, result_{result} {
    for (auto& direction : bench::directions_of(layer, options.batch, options.dtype)) {
      auto executable = make(direction, options);
      kernels[executable->kernel] += times_;
      for (std::size_t i = 0; i < 3; ++i) {
        const auto& layout = i < 2 ? executable->input_layouts[i] : executable->output_layouts[0];
        const auto elements = rp::storage_elements(layout, direction.types[i].shape);
        auto& buffer = i < 2 ? tensors_[direction.tensors[i]] : result;
        buffer.reserve(device, static_cast<std::size_t>(elements) * rp::size_of(options.dtype));
      }
      scratch_.reserve(device, executable->scratch_bytes + 1);
      runs_.push_back({std::move(executable), direction.tensors});
    }
  }
  void run(const rp::detail::Queue& queue) const {
    for (int i = 0; i < times_; ++i)
      for (const auto& [executable, tensors] : runs_) {
        const std::byte* in[] = {tensors_[tensors[0]].data(), tensors_[tensors[1]].data()};
        std::byte* out[] = {result_.data()};
        executable->run({in, out, scratch_.data(), {}, queue.handle()});
      }
  }

 private:
  int times_;
  std::array<Buffer, 3> tensors_;
  Buffer scratch_;
  const Buffer& result_;
  std::vector<std::pair<std::unique_ptr<rp::Executable>, std::array<std::size_t, 3>>> runs_;
};

// The median seconds of work(), after one uncounted call.
template <class Work>
double seconds_of(const rp::detail::Queue& queue, int times, Work work) {
  std::vector<double> seconds;
  for (int i = -1; i < times; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    work();
    queue.synchronise();
    if (i >= 0) seconds.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  }
  std::sort(seconds.begin(), seconds.end());
  return seconds[seconds.size() / 2];
}

double bytes_per_second(const Device& device, int times) {
  constexpr std::size_t bytes = std::size_t{256} << 20;
  const auto from = device.allocate(bytes), to = device.allocate(bytes);
  return 2 * static_cast<double>(bytes) / seconds_of(device.queue(), times, [&] { device.queue().copy(to.data(), from.data(), bytes); });
}

Options parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; i += 2) {
    const std::string flag = argv[i], word = i + 1 < argc ? argv[i + 1] : "";
    const int value = std::atoi(word.c_str());
    if (flag == "--device") options.device = rp::parse_devices(word).front();
    else if (flag == "--batch" && value > 0) options.batch = value;
    else if (flag == "--image-size" && value > 0) options.image_size = value;
    else if (flag == "--steps" && value > 0) options.steps = value;
    else if (flag == "--precision" && word == "bfloat16") options.dtype = rp::DType::bfloat16;
    else if (flag == "--precision" && word == "float32") options.dtype = rp::DType::float32;
    else if (flag == "--tf32" && word == "yes") options.choice.tf32 = true;
    else if (flag == "--fastest-kernels" && word == "yes") options.choice.fastest = true;
    else throw rp::BuildError{"convolutions knows no flag " + flag + " " + word};
  }
  return options;
}

}  // namespace

int main(int argc, char** argv) try {
  const Options options = parse(argc, argv);
  const Device device{options.device};
  const rp::detail::cpu::KernelEnvironment environment{1};
  Buffer result;
  std::map<std::string_view, int> kernels;  // how often each kernel runs
  std::vector<std::unique_ptr<Convolutions>> layers;
  for (const auto& layer : bench::resnet50_layers(options.image_size)) layers.push_back(std::make_unique<Convolutions>(layer, options, device, result, kernels));
  const double seconds = seconds_of(device.queue(), options.steps, [&] {
    for (const auto& layer : layers) layer->run(device.queue());
  });
  std::printf("convolutions %.6f s by", seconds);
  for (const auto& [kernel, times] : kernels) std::printf(" %s (%d),", std::string{kernel}.c_str(), times);
  std::printf(" memory %.4g B/s\n", bytes_per_second(device, options.steps));
} catch (const rp::Error& error) {
  std::fprintf(stderr, "convolutions: %s\n", error.what());
  return 1;
}
