// SPDX-License-Identifier: Apache-2.0
// Makes a library's GPU kernel for given inputs, as the registry would.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include <replicator/graph/operation.hpp>

namespace replicator::test {

using namespace replicator::detail;

// The kernel for these inputs, all of one dtype. Null where the library declines.
template <class Op>
std::unique_ptr<Executable> library_kernel(const Op& op, const std::vector<Shape>& shapes, KernelChoice choice = {}, DType dtype = DType::float32) {
  constexpr auto gpu = static_cast<std::size_t>(DeviceKind::cuda), library = static_cast<std::size_t>(KernelTier::library);
  const AnyOperation operation{op};
  std::vector<TensorType> inputs;
  for (const auto& shape : shapes) inputs.push_back({dtype, shape});
  const auto outputs = operation.infer_shape(inputs);
  const std::vector<Layout> offered(inputs.size());
  return kernels<Op>::slot[gpu][library].load()->make({operation, inputs, outputs, offered, 1, choice});
}

}  // namespace replicator::test
