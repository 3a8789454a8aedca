// SPDX-License-Identifier: Apache-2.0
// The kernel of gather on GPUs: one thread per element of the result.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include <replicator/cuda/divider_of.cuh>
#include <replicator/cuda/indexed.cuh>
#include <replicator/cuda/words.cuh>

namespace replicator::detail::cuda {

// Elements are numbered in type I.
template <class I, class Word>
__global__ void gather_words(AroundAxis around, Indices indices, Divider by_inner, Divider by_count, const Word* x, Word* y) {
  const std::int64_t elements = around.outer * indices.count * around.inner;
  for (std::int64_t i = first_element(); i < elements; i += element_stride()) {
    const I row = quotient_by(by_inner, static_cast<I>(i)), outer = quotient_by(by_count, row);
    const std::int64_t inside = i - row * around.inner, index = indices[row - outer * indices.count];
    y[i] = x[(outer * around.extent + index) * around.inner + inside];
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
    const cudaStream_t stream = stream_of(launch.stream);
    const unsigned blocks = blocks_for(elements, block_threads);
    const auto* const x = reinterpret_cast<const Word*>(launch.inputs[0]);
    auto* const y = reinterpret_cast<Word*>(launch.outputs[0]);
    const Divider by_inner = divider_of(around_.inner), by_count = divider_of(count_);
    if (fits_32_bits(elements)) gather_words<std::int32_t><<<blocks, block_threads, 0, stream>>>(around_, indices(launch), by_inner, by_count, x, y);
    else gather_words<std::int64_t><<<blocks, block_threads, 0, stream>>>(around_, indices(launch), by_inner, by_count, x, y);
    REPLICATOR_CUDA_CHECK(cudaGetLastError());
  }
};

inline std::unique_ptr<Executable> make_gather(const KernelRequest& request) {
  const auto& x = request.inputs[0];
  return visit_word(x.dtype, [&]<class Word>() -> std::unique_ptr<Executable> {
    const auto& op = *request.operation.get<Gather>();
    return std::make_unique<GatherExecutable<Word>>(request.inputs[1], x, op.axis, op.origin);
  });
}

inline constexpr Kernel gather_kernel{"cuda gather", &make_gather};
inline const bool gather_registered = register_kernel<Gather>(DeviceKind::cuda, KernelTier::reference, &gather_kernel);

}  // namespace replicator::detail::cuda
