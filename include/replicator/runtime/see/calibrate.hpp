// SPDX-License-Identifier: Apache-2.0
// Measures the speed of a device's arithmetic and memory.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <vector>

#include <replicator/core/array.hpp>
#include <replicator/devices/device_support.hpp>
#include <replicator/ops/matmul.hpp>
#include <replicator/runtime/executable_cache.hpp>
#include <replicator/runtime/see/reports.hpp>
#include <replicator/runtime/see/trace_ring.hpp>

namespace replicator::detail {

// The shortest of five runs, in seconds, after one warm-up run.
template <class F>
double shortest(F work) {
  double best = 1e9;
  for (int i = 0; i < 6; ++i) {
    const auto began = trace_clock();
    work();
    if (i > 0) best = std::min(best, static_cast<double>(std::max<std::int64_t>(trace_clock() - began, 1)) * 1e-9);
  }
  return best;
}

template <class>
bool calibrate(ExecutableCache& cache, DeviceKind kind, MachineFigures& figures) {
  if (!support_of(kind).runs_on_host()) return false;
  constexpr std::int64_t n = 512;
  const TensorType type{DType::float32, Shape{n, n}};
  const TensorType inputs[] = {type, type};
  const Layout offered[2];
  const auto product = cache.get(kind, Matmul{}, inputs, {&type, 1}, offered, "calibration");
  AnyArray a{type}, b{type}, c{type}, scratch{TensorType{DType::uint8, Shape{static_cast<std::int64_t>(product->scratch_bytes)}}};
  const std::byte* from[] = {a.data(), b.data()};
  std::byte* to[] = {c.data()};
  const Launch launch{from, to, scratch.data(), {}, nullptr};
  figures.flops = 2.0 * n * n * n / shortest([&] { product->run(launch); });
  constexpr std::size_t bytes = 32 << 20;
  std::vector<std::byte> source(bytes, std::byte{1}), target(bytes);
  figures.memory_bytes = 2.0 * bytes / shortest([&] { std::memcpy(target.data(), source.data(), bytes); });
  return true;
}

}  // namespace replicator::detail
