// SPDX-License-Identifier: Apache-2.0
// The kernel of top_k on the CPU, on row-major memory. Threads share the lines along the axis. The order is total, so the result
// depends on neither the algorithm nor the number of threads.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <numeric>

#include <replicator/cpu/index.hpp>
#include <replicator/cpu/loops/parallel.hpp>
#include <replicator/ops/top_k.hpp>

namespace replicator::detail::cpu {

namespace detail {

// Whether the element at i ranks before the one at j: NaN first, then descending values, then ascending places.
template <class T>
struct RankedBefore {
  const T* x;
  std::int64_t stride;

  bool operator()(std::int32_t i, std::int32_t j) const {
    const T a = x[i * stride], b = x[j * stride];
    const bool a_is_nan = a != a, b_is_nan = b != b;
    if (a_is_nan != b_is_nan) return a_is_nan;
    if (!a_is_nan && a != b) return a > b;
    return i < j;
  }
};

template <class T>
class TopKLoops final : public Executable {
 public:
  TopKLoops(std::int64_t k, const AroundAxis& shape, int threads) : k_{k}, shape_{shape}, threads_{threads} {
    input_layouts.resize(1);
    output_layouts.resize(2);
    in_place = {-1, -1};
    scratch_bytes = static_cast<std::size_t>(threads * shape.extent) * sizeof(std::int32_t);
  }
  void run(const Launch& launch) const override {
    const T* const x = reinterpret_cast<const T*>(launch.inputs[0]);
    T* const values = reinterpret_cast<T*>(launch.outputs[0]);
    auto* const places = reinterpret_cast<std::int32_t*>(launch.outputs[1]);
    const std::int64_t inner = shape_.inner;
    parallel_for(threads_, shape_.outer * inner, [&](int part, std::int64_t begin, std::int64_t end) {
      std::int32_t* const order = reinterpret_cast<std::int32_t*>(launch.scratch) + part * shape_.extent;
      for (std::int64_t line = begin; line < end; ++line) {
        const T* const from = x + line / inner * shape_.extent * inner + line % inner;
        std::iota(order, order + shape_.extent, 0);
        std::partial_sort(order, order + k_, order + shape_.extent, RankedBefore<T>{from, inner});
        const std::int64_t to = line / inner * k_ * inner + line % inner;
        for (std::int64_t i = 0; i < k_; ++i) {
          places[to + i * inner] = order[i];
          values[to + i * inner] = from[order[i] * inner];
        }
      }
    });
  }

 private:
  std::int64_t k_;
  AroundAxis shape_;
  int threads_;
};

inline std::unique_ptr<Executable> make_top_k(const KernelRequest& request) {
  const auto& op = *request.operation.get<TopK>();
  const auto& x = request.inputs[0];
  const auto shape = around_axis(x.shape, static_cast<std::size_t>(op.axis));
  return visit_dtype(x.dtype, [&]<class T>() -> std::unique_ptr<Executable> {
    return std::make_unique<TopKLoops<T>>(op.k, shape, request.threads);
  });
}

}  // namespace detail

inline constexpr Kernel top_k_loops{"top_k loops", &detail::make_top_k};
inline const bool top_k_loops_registered = register_kernel<TopK>(DeviceKind::cpu, KernelTier::reference, &top_k_loops);

}  // namespace replicator::detail::cpu
