// SPDX-License-Identifier: Apache-2.0
// The kernel of argmax on GPUs: the place of the first element of each line, in the order of largest.cuh.
#pragma once

#include <cstdint>
#include <memory>

#include <replicator/cuda/largest.cuh>
#include <replicator/graph/kernel.hpp>
#include <replicator/ops/index.hpp>

namespace replicator::detail::cuda {

class ArgMaxExecutable final : public Executable {
 public:
  ArgMaxExecutable(const AroundAxis& around, DType dtype) : around_{around}, dtype_{dtype} {
    input_layouts.resize(1);
    output_layouts.resize(1);
    in_place = {-1};
  }
  void run(const Launch& launch) const override {
    launch_find_largest(around_, dtype_, 1, launch.inputs[0], nullptr, launch.outputs[0], stream_of(launch.stream));
  }

 private:
  AroundAxis around_;
  DType dtype_;
};

inline std::unique_ptr<Executable> make_argmax(const KernelRequest& request) {
  const auto& x = request.inputs[0];
  return std::make_unique<ArgMaxExecutable>(around_axis(x.shape, static_cast<std::size_t>(request.operation.get<ArgMax>()->axis)), x.dtype);
}
inline constexpr Kernel argmax_kernel{"cuda argmax", &make_argmax};
inline const bool argmax_registered = register_kernel<ArgMax>(DeviceKind::cuda, KernelTier::reference, &argmax_kernel);

}  // namespace replicator::detail::cuda
