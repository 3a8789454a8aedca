// SPDX-License-Identifier: Apache-2.0
// Shared by the tests of sorting kernels on cuda:0. The reference is the CPU's loops, bit for bit.
#pragma once

#include "device_run.hpp"

namespace replicator::test {

using namespace replicator::detail;

inline constexpr DType every_dtype[] = {DType::float32, DType::float64, DType::int32, DType::int64, DType::uint8, DType::boolean, DType::bfloat16};
inline constexpr DType summed_dtypes[] = {DType::float32, DType::float64, DType::int32, DType::int64, DType::bfloat16};

// The same bits, but for those that tell one NaN from another.
inline bool same(const AnyArray& a, const AnyArray& b) {
  return visit_dtype(a.dtype(), [&]<class T>() {
    const auto equal = [](T x, T y) { return (x != x && y != y) || std::memcmp(&x, &y, sizeof x) == 0; };
    return a.type() == b.type() && std::ranges::equal(a.as<T>(), b.as<T>(), equal);
  });
}

template <class Op>
bool gives_the_cpus_bits(const Op& op, const std::vector<AnyArray>& inputs) {
  return std::ranges::equal(run_kernel_on(DeviceKind::cuda, op, inputs), run_kernel_on(DeviceKind::cpu, op, inputs), &same);
}

inline AnyArray random_indices(DType dtype, const Shape& shape, std::int64_t extent, std::uint64_t seed) {
  AnyArray indices{{dtype, shape}};
  PhiloxStream random{seed, 7};
  visit_dtype(dtype, [&]<class I>() {
    for (auto& value : indices.as<I>()) value = static_cast<I>(static_cast<std::int64_t>(random.below(static_cast<std::uint32_t>(extent))));
  });
  return indices;
}

// With infinities, NaN and zeros of both signs; few different ones, so that many are equal, or whole numbers of all bits.
inline AnyArray random_lines(const TensorType& type, std::uint64_t seed, bool few) {
  AnyArray x = random_values(type, seed, true);
  visit_dtype(type.dtype, [&]<class T>() {
    for (auto& value : x.as<T>())
      if (few) value = static_cast<T>(std::floor(static_cast<float>(value) / 4));
      else if constexpr (std::is_integral_v<T>) value = static_cast<T>(static_cast<std::uint64_t>(value) * 0x9e3779b97f4a7c15);
  });
  return x;
}

}  // namespace replicator::test
