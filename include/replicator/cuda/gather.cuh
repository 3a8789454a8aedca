// SPDX-License-Identifier: Apache-2.0
// The kernel of gather on GPUs: one thread per element of the result.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include <replicator/cuda/indexed.cuh>
#include <replicator/cuda/words.cuh>

namespace replicator::detail::cuda {

template <class Word>
__global__ void gather_words(AroundAxis around, Indices indices, const Word* x, Word* y) {
  const std::int64_t elements = around.outer * indices.count * around.inner;
  for (std::int64_t i = first_element(); i < elements; i += element_stride()) {
    const std::int64_t row = i / around.inner;
    y[i] = x[(row / indices.count * around.extent + indices[row % indices.count]) * around.inner + i % around.inner];
  }
}

template <class Word>
class GatherExecutable final : public IndexedExecutable {
 public:
  using IndexedExecutable::IndexedExecutable;
  void run(const Launch& launch) const override {
    note_outside(launch);
    const std::int64_t elements = around_.outer * count_ * around_.inner;
    if (elements == 0 || around_.extent == 0) return;
    gather_words<<<blocks_for(elements, block_threads), block_threads, 0, stream_of(launch.stream)>>>(
        around_, indices(launch), reinterpret_cast<const Word*>(launch.inputs[0]), reinterpret_cast<Word*>(launch.outputs[0]));
    REPLICATOR_CUDA_CHECK(cudaGetLastError());
  }
};

inline std::unique_ptr<Executable> make_gather(const KernelRequest& request) {
  const auto& x = request.inputs[0];
  return visit_word(x.dtype, [&]<class Word>() -> std::unique_ptr<Executable> {
    return std::make_unique<GatherExecutable<Word>>(request.inputs[1], x, request.operation.get<Gather>()->axis);
  });
}

inline constexpr Kernel gather_kernel{"cuda gather", &make_gather};
inline const bool gather_registered = register_kernel<Gather>(DeviceKind::cuda, KernelTier::reference, &gather_kernel);

}  // namespace replicator::detail::cuda
