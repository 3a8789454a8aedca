// SPDX-License-Identifier: Apache-2.0
// The kernel of argmax on the CPU, on row-major memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include <replicator/graph/kernel.hpp>
#include <replicator/ops/index.hpp>
#include <replicator/ops/movement/around_axis.hpp>

namespace replicator::detail::cpu {

namespace detail {

template <class T>
std::int32_t place_of_maximum(const T* x, std::int64_t extent, std::int64_t stride) {
  std::int64_t best = 0;
  for (std::int64_t i = 1; i < extent; ++i) {
    const T candidate = x[i * stride], so_far = x[best * stride];
    if (candidate > so_far || (candidate != candidate && so_far == so_far)) best = i;
  }
  return static_cast<std::int32_t>(best);
}

template <class T>
class ArgMaxLoops final : public Executable {
 public:
  explicit ArgMaxLoops(const AroundAxis& shape) : shape_{shape} {
    input_layouts.resize(1);
    output_layouts.resize(1);
    in_place = {-1};
  }
  void run(const Launch& launch) const override {
    const T* x = reinterpret_cast<const T*>(launch.inputs[0]);
    auto* places = reinterpret_cast<std::int32_t*>(launch.outputs[0]);
    for (std::int64_t o = 0; o < shape_.outer; ++o)
      for (std::int64_t i = 0; i < shape_.inner; ++i)
        *places++ = place_of_maximum(x + o * shape_.extent * shape_.inner + i, shape_.extent, shape_.inner);
  }

 private:
  AroundAxis shape_;
};

inline std::unique_ptr<Executable> make_argmax(const KernelRequest& request) {
  const auto& x = request.inputs[0];
  const auto shape = around_axis(x.shape, static_cast<std::size_t>(request.operation.get<ArgMax>()->axis));
  return visit_dtype(x.dtype,
                     [&]<class T>() -> std::unique_ptr<Executable> { return std::make_unique<ArgMaxLoops<T>>(shape); });
}

}  // namespace detail

inline constexpr Kernel argmax_loops{"argmax loops", &detail::make_argmax};
inline const bool argmax_loops_registered =
    register_kernel<ArgMax>(DeviceKind::cpu, KernelTier::reference, &argmax_loops);

}  // namespace replicator::detail::cpu
