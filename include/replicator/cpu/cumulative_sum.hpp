// SPDX-License-Identifier: Apache-2.0
// The kernel of cumulative_sum on the CPU, on row-major memory. Threads share the lines along the axis. Each line is added up in
// order, so the bits do not depend on the number of threads.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>

#include <replicator/cpu/in_float32.hpp>
#include <replicator/cpu/index.hpp>
#include <replicator/cpu/loops/add_rows.hpp>
#include <replicator/cpu/loops/parallel.hpp>
#include <replicator/ops/cumulative_sum.hpp>

namespace replicator::detail::cpu {

namespace detail {

template <class T>
class CumulativeSumLoops final : public Executable {
 public:
  CumulativeSumLoops(const CumulativeSum& op, const AroundAxis& shape, int threads)
      : op_{op}, shape_{shape}, threads_{threads} {
    input_layouts.resize(1);
    output_layouts.resize(1);
    in_place = {-1};
  }
  void run(const Launch& launch) const override {
    if (shape_.extent == 0) return;
    const T* const x = reinterpret_cast<const T*>(launch.inputs[0]);
    T* const y = reinterpret_cast<T*>(launch.outputs[0]);
    const std::int64_t inner = shape_.inner;
    parallel_for(threads_, shape_.outer * inner, [&](int, std::int64_t begin, std::int64_t end) {
      for (std::int64_t line = begin, count = 0; line < end; line += count) {
        count = std::min(end - line, inner - line % inner);
        const std::int64_t first = line / inner * shape_.extent * inner + line % inner;
        add_up(x + first, y + first, count);
      }
    });
  }

 private:
  // Adds up `count` neighbouring lines.
  void add_up(const T* x, T* y, std::int64_t count) const {
    const std::int64_t last = (shape_.extent - 1) * shape_.inner, step = op_.reverse ? -shape_.inner : shape_.inner;
    if (op_.reverse) {
      x += last;
      y += last;
    }
    if (op_.exclusive)
      std::fill(y, y + count, T{});
    else
      std::copy(x, x + count, y);
    for (std::int64_t i = 1; i < shape_.extent; ++i, x += step, y += step)
      add_rows(y + step, y, op_.exclusive ? x : x + step, count);
  }

  CumulativeSum op_;
  AroundAxis shape_;
  int threads_;
};

inline std::unique_ptr<Executable> make_cumulative_sum(const KernelRequest& request) {
  const auto& op = *request.operation.get<CumulativeSum>();
  const auto shape = around_axis(request.inputs[0].shape, static_cast<std::size_t>(op.axis));
  switch (request.inputs[0].dtype) {
    case DType::float32:
      return std::make_unique<CumulativeSumLoops<float>>(op, shape, request.threads);
    case DType::float64:
      return std::make_unique<CumulativeSumLoops<double>>(op, shape, request.threads);
    case DType::int32:
      return std::make_unique<CumulativeSumLoops<std::int32_t>>(op, shape, request.threads);
    case DType::int64:
      return std::make_unique<CumulativeSumLoops<std::int64_t>>(op, shape, request.threads);
    case DType::bfloat16:
      return in_float32(request, &make_cumulative_sum);
    default:
      return nullptr;
  }
}

}  // namespace detail

inline constexpr Kernel cumulative_sum_loops{"cumulative_sum loops", &detail::make_cumulative_sum};
inline const bool cumulative_sum_loops_registered =
    register_kernel<CumulativeSum>(DeviceKind::cpu, KernelTier::reference, &cumulative_sum_loops);

}  // namespace replicator::detail::cpu
