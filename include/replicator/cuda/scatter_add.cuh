// SPDX-License-Identifier: Apache-2.0
// The kernel of scatter_add on GPUs. It sorts the indices, each in one word with its place behind it. Equal indices are then
// neighbours, in the order in which the CPU adds. Each element of the result is one sum in that order, so it has the CPU's bits,
// whichever thread computes it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include <replicator/cuda/indexed.cuh>
#include <replicator/cuda/word_sort.cuh>

namespace replicator::detail::cuda {

// An index and its place among the indices, in one word.
struct PlacedIndices {
  std::int64_t count = 0;
  int place_bits = 0;

  __device__ std::uint64_t word(std::int64_t index, std::int64_t place) const {
    return static_cast<std::uint64_t>(index) << place_bits | static_cast<std::uint64_t>(place);
  }
  __device__ std::int64_t index(std::uint64_t word) const { return static_cast<std::int64_t>(word >> place_bits); }
  __device__ std::int64_t place(std::uint64_t word) const { return static_cast<std::int64_t>(word & ((std::uint64_t{1} << place_bits) - 1)); }
};

template <class Word>
__global__ void place_indices(PlacedIndices placed, Indices indices, Word* words) {
  for (std::int64_t i = first_element(); i < placed.count; i += element_stride()) words[i] = placed.word(indices[i], i);
}

// One thread per element of x, in the order of the sorted words. The first thread of a run of equal indices adds up the run.
template <class Stored>
__global__ void add_runs(AroundAxis around, PlacedIndices placed, const std::uint64_t* sorted, const Stored* x, Stored* y) {
  constexpr int together = 8;  // terms that are loaded at the same time
  const std::int64_t count = placed.count, elements = around.outer * count * around.inner;
  for (std::int64_t i = first_element(); i < elements; i += element_stride()) {
    const std::int64_t inner = i % around.inner, first = i / around.inner % count, outer = i / around.inner / count;
    const std::int64_t own = placed.index(sorted[first]);
    if (first > 0 && placed.index(sorted[first - 1]) == own) continue;
    compute_of<Stored> sum{};
    bool more = true;
    for (std::int64_t k = first; more; k += together) {
      compute_of<Stored> terms[together] = {};
      bool taken[together];
      for (int t = 0; t < together; ++t) {
        const std::uint64_t word = sorted[k + t < count ? k + t : first];
        taken[t] = k + t < count && placed.index(word) == own;
        if (taken[t]) terms[t] = value_of(x[(outer * count + placed.place(word)) * around.inner + inner]);
      }
      for (int t = 0; t < together; ++t)
        if (taken[t]) sum = plus(sum, terms[t]);
      more = taken[together - 1];
    }
    y[(outer * around.extent + own) * around.inner + inner] = stored<Stored>(sum);
  }
}

template <class Stored>
class ScatterAddExecutable final : public IndexedExecutable {
 public:
  ScatterAddExecutable(const TensorType& indices, const TensorType& whole, std::int64_t axis)
      : IndexedExecutable{indices, whole, axis},
        placed_{count_, bits_for(count_)},
        sort_{count_, placed_.place_bits, placed_.place_bits + bits_for(around_.extent)} {
    scratch_bytes = sort_.scratch_bytes();
  }

  void run(const Launch& launch) const override {
    note_outside(launch);
    const cudaStream_t stream = stream_of(launch.stream);
    const std::int64_t slices = around_.outer * around_.inner, sums = slices * around_.extent, terms = slices * count_;
    if (sums == 0) return;
    REPLICATOR_CUDA_CHECK(cudaMemsetAsync(launch.outputs[0], 0, static_cast<std::size_t>(sums) * sizeof(Stored), stream));
    if (terms == 0) return;
    std::uint64_t* const words = sort_.words(launch.scratch);
    place_indices<<<blocks_for(count_, block_threads), block_threads, 0, stream>>>(placed_, indices(launch), words);
    REPLICATOR_CUDA_CHECK(cudaGetLastError());
    const std::uint64_t* const sorted = sort_.run(launch.scratch, words, stream);
    add_runs<<<blocks_for(terms, block_threads), block_threads, 0, stream>>>(
        around_, placed_, sorted, reinterpret_cast<const Stored*>(launch.inputs[0]), reinterpret_cast<Stored*>(launch.outputs[0]));
    REPLICATOR_CUDA_CHECK(cudaGetLastError());
  }

 private:
  PlacedIndices placed_;
  WordSort sort_;
};

// Null where an index and its place do not fit into a word. No GPU's memory holds so many.
inline std::unique_ptr<Executable> make_scatter_add(const KernelRequest& request) {
  const auto axis = request.operation.get<ScatterAdd>()->axis;
  const auto& y = request.outputs[0];
  if (bits_for(request.inputs[1].shape.elements()) + bits_for(y.shape[static_cast<std::size_t>(axis)]) > 64) return nullptr;
  const auto make = [&]<class Stored>() -> std::unique_ptr<Executable> {
    return std::make_unique<ScatterAddExecutable<Stored>>(request.inputs[1], y, axis);
  };
  switch (y.dtype) {
    case DType::float32: return make.template operator()<float>();
    case DType::float64: return make.template operator()<double>();
    case DType::int32: return make.template operator()<std::int32_t>();
    case DType::int64: return make.template operator()<std::int64_t>();
    case DType::bfloat16: return make.template operator()<Bfloat16Word>();
    default: return nullptr;
  }
}

inline constexpr Kernel scatter_add_kernel{"cuda scatter_add", &make_scatter_add};
inline const bool scatter_add_registered = register_kernel<ScatterAdd>(DeviceKind::cuda, KernelTier::reference, &scatter_add_kernel);

}  // namespace replicator::detail::cuda
