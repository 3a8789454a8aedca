// SPDX-License-Identifier: Apache-2.0
// Runs one kernel on cuda:0 through the registry and the device's support only. nvcc compiles no file that includes
// this.
#pragma once

#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <replicator/core/array.hpp>
#include <replicator/core/philox.hpp>
#include <replicator/devices/device_support.hpp>
#include <replicator/graph/operation.hpp>
#include <replicator/runtime/queue.hpp>

namespace replicator::test {

using namespace replicator::detail;

// False, and the reason on the screen, where no GPU can be used.
inline bool gpu_is_here() {
  try {
    support_of(DeviceKind::cuda).require(0);
    return true;
  } catch (const DeviceError& error) {
    WARN("skipped: it needs a GPU: " << error.what());
    return false;
  }
}

// A buffer of the GPU.
class DeviceBuffer {
 public:
  explicit DeviceBuffer(std::size_t bytes) : bytes_{std::max<std::size_t>(bytes, 1)}, data_{support_of(DeviceKind::cuda).allocate(0, bytes_)} {}
  DeviceBuffer(DeviceBuffer&& other) noexcept : bytes_{other.bytes_}, data_{std::exchange(other.data_, nullptr)} {}
  DeviceBuffer& operator=(DeviceBuffer&&) = delete;
  ~DeviceBuffer() {
    if (data_) support_of(DeviceKind::cuda).release(0, data_, bytes_);
  }
  std::byte* data() const { return data_; }

 private:
  std::size_t bytes_;
  std::byte* data_;
};

inline Queue device_queue() { return {support_of(DeviceKind::cuda), 0}; }

// Captured, a launch that has run before writes the same bits whenever it is replayed.
inline void check_replay(const Executable& executable, Launch launch, const Queue& queue, const std::vector<AnyArray>& expected) {
  launch.context.step = ~launch.context.step;  // the number must come from the device's memory
  const CapturedWork captured = queue.capture([&] { executable.run(launch); });
  for (int times = 0; times < 2; ++times) {
    std::vector<AnyArray> got;
    for (std::size_t o = 0; o < expected.size(); ++o) {
      std::memset(got.emplace_back(expected[o].type()).data(), 0x5A, expected[o].size_bytes());
      queue.copy(launch.outputs[o], got[o].data(), got[o].size_bytes());
    }
    queue.replay(captured);
    for (std::size_t o = 0; o < expected.size(); ++o) queue.copy(got[o].data(), launch.outputs[o], got[o].size_bytes());
    queue.synchronise();
    for (std::size_t o = 0; o < expected.size(); ++o) REQUIRE(std::memcmp(got[o].data(), expected[o].data(), got[o].size_bytes()) == 0);
  }
}

struct RunOptions {
  bool in_place = false;                                                  // where the kernel allows it
  KernelTier highest = KernelTier::user, lowest = KernelTier::reference;  // of the tiers asked, one of which must make the kernel
  bool channels_last = false;                                             // so are all inputs of rank 4 offered
};
inline constexpr StepContext context{.seed = 0x123456789abcdef, .step = (std::uint64_t{3} << 32) + 7, .replica = 5};

// The same elements in another layout; neither has blocks.
inline AnyArray relaid(const AnyArray& array, const Layout& from, const Layout& to) {
  if (from == to) return array;
  AnyArray result{array.type()};
  const Shape& shape = array.shape();
  const auto own = strides_of(from, shape), other = strides_of(to, shape);
  const std::size_t bytes = size_of(array.dtype());
  for (std::int64_t i = 0; i < shape.elements(); ++i) {
    std::int64_t rest = i, source = 0, destination = 0;
    for (std::size_t axis = shape.rank(); axis-- > 0; rest /= shape[axis]) {
      source += rest % shape[axis] * own[axis];
      destination += rest % shape[axis] * other[axis];
    }
    std::memcpy(result.data() + static_cast<std::size_t>(destination) * bytes, array.data() + static_cast<std::size_t>(source) * bytes, bytes);
  }
  return result;
}

// The outputs, row-major, of the kernel that is registered for this kind of device.
template <class Op>
std::vector<AnyArray> run_kernel_on(DeviceKind kind, const Op& op, const std::vector<AnyArray>& inputs, const RunOptions& options = {}) {
  const AnyOperation operation{op};
  std::vector<TensorType> types;
  for (const auto& input : inputs) types.push_back(input.type());
  const auto outputs = operation.infer_shape(types);
  std::vector<Layout> offered(inputs.size());
  for (std::size_t i = 0; options.channels_last && i < inputs.size(); ++i)
    if (const Shape& shape = inputs[i].shape(); shape.rank() == 4) offered[i] = simplest(channels_last(shape), shape);
  std::unique_ptr<Executable> executable;
  for (std::size_t tier = static_cast<std::size_t>(options.highest) + 1; tier-- > static_cast<std::size_t>(options.lowest) && !executable;)
    if (const Kernel* kernel = operation.slots()[static_cast<std::size_t>(kind)][tier].load())
      executable = kernel->make({operation, types, outputs, offered, 1});
  REQUIRE(executable);
  std::vector<AnyArray> result;
  for (const auto& output : outputs) result.emplace_back(output);
  std::vector<const std::byte*> in;
  std::vector<std::byte*> out;
  if (kind == DeviceKind::cpu) {
    std::vector<std::byte> scratch(executable->scratch_bytes + 64);
    const auto misaligned = reinterpret_cast<std::uintptr_t>(scratch.data()) % 64;
    for (const auto& input : inputs) in.push_back(input.data());
    for (auto& array : result) out.push_back(array.data());
    executable->run({in.data(), out.data(), scratch.data() + (64 - misaligned) % 64, context, nullptr});
    return result;
  }
  const Queue queue = device_queue();
  queue.enter();
  std::vector<DeviceBuffer> buffers;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const AnyArray input = relaid(inputs[i], Layout{}, executable->input_layouts[i]);
    buffers.emplace_back(input.size_bytes());
    queue.copy(buffers.back().data(), input.data(), input.size_bytes());
    in.push_back(buffers.back().data());
  }
  for (std::size_t o = 0; o < outputs.size(); ++o) {
    if (options.in_place && executable->in_place[o] >= 0) {
      out.push_back(buffers[static_cast<std::size_t>(executable->in_place[o])].data());
      continue;
    }
    buffers.emplace_back(outputs[o].bytes());
    out.push_back(buffers.back().data());
  }
  Refusal refusal;
  const DeviceBuffer scratch{executable->scratch_bytes}, step{sizeof context.step}, refused{sizeof refusal};
  queue.copy(step.data(), reinterpret_cast<const std::byte*>(&context.step), sizeof context.step);
  queue.copy(refused.data(), reinterpret_cast<const std::byte*>(&refusal), sizeof refusal);
  const auto table = executable->table(in.data(), out.data());
  REQUIRE(table.size() == executable->table_bytes);
  const DeviceBuffer table_on_device{table.size()};
  queue.copy(table_on_device.data(), table.data(), table.size());
  const Launch launch{in.data(), out.data(), scratch.data(), context, queue.handle(), reinterpret_cast<const std::uint64_t*>(step.data()),
                      table_on_device.data(), reinterpret_cast<Refusal*>(refused.data())};
  executable->run(launch);
  queue.copy(reinterpret_cast<std::byte*>(&refusal), refused.data(), sizeof refusal);
  for (std::size_t o = 0; o < outputs.size(); ++o) queue.copy(result[o].data(), out[o], result[o].size_bytes());
  queue.synchronise();
  if (refusal.number != Refusal::none) executable->refuse(refusal);
  if (!options.in_place && !executable->needs_host) check_replay(*executable, launch, queue, result);
  for (std::size_t o = 0; o < outputs.size(); ++o) result[o] = relaid(result[o], executable->output_layouts[o], Layout{});
  return result;
}

// Small whole numbers; for floating types also fractions, and sometimes an odd value (zeros, infinities, a NaN).
inline AnyArray random_values(TensorType type, std::uint64_t seed, bool odd = false) {
  AnyArray array{type};
  PhiloxStream random{seed, 3};
  visit_dtype(type.dtype, [&]<class T>() {
    for (auto& value : array.as<T>()) {
      if constexpr (std::is_same_v<T, bool>) value = random.below(2) != 0;
      else if constexpr (std::is_integral_v<T>) value = static_cast<T>(static_cast<int>(random.below(40)) - (std::is_signed_v<T> ? 10 : 0));
      else {
        value = static_cast<T>(random.uniform() * 8 - 4);
        constexpr T infinity = std::numeric_limits<T>::infinity();
        const T odd_values[] = {0, -T(0), infinity, -infinity, std::numeric_limits<T>::denorm_min() * 5, std::numeric_limits<T>::quiet_NaN()};
        if (odd && random.below(10) == 0) value = odd_values[random.below(6)];
      }
    }
  });
  return array;
}

// Element for element: the same bits, or two NaNs, or nearly the same.
inline void check_close(const AnyArray& got, const AnyArray& want, double tolerance, const std::string& what) {
  REQUIRE(got.type() == want.type());
  if (tolerance == 0 && std::memcmp(got.data(), want.data(), got.size_bytes()) == 0) return;
  visit_dtype(got.dtype(), [&]<class T>() {
    const auto a = got.as<T>(), b = want.as<T>();
    for (std::size_t i = 0; i < a.size(); ++i) {
      const auto x = static_cast<double>(a[i]), y = static_cast<double>(b[i]);
      const bool same = (x == y && (tolerance > 0 || std::signbit(x) == std::signbit(y))) || (std::isnan(x) && std::isnan(y)) ||
                        (std::isfinite(y) && std::abs(x - y) <= tolerance * (1 + std::abs(y)));
      if (!same) {
        INFO(what << ": element " << i << " is " << x << " instead of " << y);
        FAIL();
      }
    }
  });
}

}  // namespace replicator::test
