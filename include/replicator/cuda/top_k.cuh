// SPDX-License-Identifier: Apache-2.0
// The kernel of top_k on GPUs. For a small k, the elements are found one after the other. For a larger k all elements are sorted.
// Each element is one word: its line along the axis, 32 bits of its rank, and its place in the line.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include <replicator/cuda/largest.cuh>
#include <replicator/cuda/word_sort.cuh>
#include <replicator/cuda/words.cuh>
#include <replicator/graph/kernel.hpp>
#include <replicator/ops/top_k.hpp>

namespace replicator::detail::cuda {

// The element that comes first has the lower rank. The order is that of largest.cuh, but equal values have equal ranks: the place
// decides between them.
inline __device__ std::uint32_t rank_of(float x) {
  if (x != x) return 0;
  const std::uint32_t bits = x == 0 ? 0 : __float_as_uint(x);
  return bits >> 31 ? bits : ~bits & 0x7fffffff;
}
inline __device__ std::uint64_t rank_of(double x) {
  if (x != x) return 0;
  const std::uint64_t bits = x == 0 ? 0 : static_cast<std::uint64_t>(__double_as_longlong(x));
  return bits >> 63 ? bits : ~bits & 0x7fffffffffffffff;
}
inline __device__ std::uint32_t rank_of(std::int32_t x) { return ~(static_cast<std::uint32_t>(x) ^ 0x80000000); }
inline __device__ std::uint64_t rank_of(std::int64_t x) { return ~(static_cast<std::uint64_t>(x) ^ 0x8000000000000000); }

// An element in one word: its line, 32 bits of its rank, and its place in the line.
struct RankedWords {
  static constexpr int rank_bits = 32;
  int place_bits = 0, line_bits = 0;

  explicit RankedWords(const AroundAxis& around) : place_bits{bits_for(around.extent)}, line_bits{bits_for(around.outer * around.inner)} {}
  int bits() const { return line_bits + rank_bits + place_bits; }

  __device__ std::uint64_t word(std::int64_t line, std::uint32_t rank, std::int64_t place) const {
    return (static_cast<std::uint64_t>(line) << rank_bits | rank) << place_bits | static_cast<std::uint64_t>(place);
  }
  __device__ std::int64_t line(std::uint64_t word) const { return static_cast<std::int64_t>(word >> place_bits >> rank_bits); }
  __device__ std::int64_t place(std::uint64_t word) const { return static_cast<std::int64_t>(word & ((std::uint64_t{1} << place_bits) - 1)); }
};

// Writes words with the bits of ranks from `low` on. At first elements come line by line. Later they come in the order of the
// words, which the bits below have sorted.
template <class T, class Word>
__global__ void rank_elements(AroundAxis around, RankedWords ranked, DType dtype, const std::byte* x, int low, Word* words) {
  for (std::int64_t i = first_element(); i < around.outer * around.inner * around.extent; i += element_stride()) {
    const std::int64_t line = low == 0 ? i / around.extent : ranked.line(words[i]), place = low == 0 ? i % around.extent : ranked.place(words[i]);
    const T value = load<T>(dtype, x, (line / around.inner * around.extent + place) * around.inner + line % around.inner);
    words[i] = ranked.word(line, static_cast<std::uint32_t>(rank_of(value) >> low), place);
  }
}

template <class Element>
__global__ void take_largest(AroundAxis around, RankedWords ranked, std::int64_t k, const std::uint64_t* sorted, const Element* x, Element* values,
                             std::int32_t* places) {
  for (std::int64_t i = first_element(); i < around.outer * around.inner * k; i += element_stride()) {
    const std::int64_t line = i / k, outer = line / around.inner, inner = line % around.inner;
    const std::int64_t place = ranked.place(sorted[line * around.extent + i % k]), to = (outer * k + i % k) * around.inner + inner;
    values[to] = x[(outer * around.extent + place) * around.inner + inner];
    places[to] = static_cast<std::int32_t>(place);
  }
}

class TopKExecutable : public Executable {
 public:
  TopKExecutable(std::int64_t k, const AroundAxis& around, DType dtype) : k_{k}, around_{around}, dtype_{dtype} {
    input_layouts.resize(1);
    output_layouts.resize(2);
    in_place = {-1, -1};
  }

 protected:
  std::int64_t k_;
  AroundAxis around_;
  DType dtype_;
};

class TopKByRounds final : public TopKExecutable {
 public:
  using TopKExecutable::TopKExecutable;
  void run(const Launch& launch) const override {
    launch_find_largest(around_, dtype_, k_, launch.inputs[0], launch.outputs[0], launch.outputs[1], stream_of(launch.stream));
  }
};

class TopKBySorting final : public TopKExecutable {
 public:
  TopKBySorting(std::int64_t k, const AroundAxis& around, DType dtype)
      : TopKExecutable{k, around, dtype},
        ranked_{around},
        elements_{around.outer * around.inner * around.extent},
        sort_{elements_, ranked_.place_bits, ranked_.bits()} {
    scratch_bytes = sort_.scratch_bytes();
  }
  void run(const Launch& launch) const override {
    if (elements_ == 0) return;
    const cudaStream_t stream = stream_of(launch.stream);
    std::uint64_t* words = sort_.words(launch.scratch);
    visit_compute(compute_type(dtype_), [&]<class T>() {
      for (int low = 0; low < 8 * static_cast<int>(sizeof(T)); low += RankedWords::rank_bits) {
        rank_elements<T><<<blocks_for(elements_, block_threads), block_threads, 0, stream>>>(around_, ranked_, dtype_, launch.inputs[0], low, words);
        REPLICATOR_CUDA_CHECK(cudaGetLastError());
        words = sort_.run(launch.scratch, words, stream);
      }
    });
    visit_word(dtype_, [&]<class Element>() {
      const std::uint64_t* const sorted = words;
      take_largest<<<blocks_for(elements_ / around_.extent * k_, block_threads), block_threads, 0, stream>>>(
          around_, ranked_, k_, sorted, reinterpret_cast<const Element*>(launch.inputs[0]), reinterpret_cast<Element*>(launch.outputs[0]),
          reinterpret_cast<std::int32_t*>(launch.outputs[1]));
    });
    REPLICATOR_CUDA_CHECK(cudaGetLastError());
  }

 private:
  RankedWords ranked_;
  std::int64_t elements_;
  WordSort sort_;
};

// A round reads each element once; a sort moves it a dozen times. Rounds also take tensors with more elements than fit the words.
inline std::unique_ptr<Executable> make_top_k(const KernelRequest& request) {
  constexpr std::int64_t most_rounds = 16;
  const auto& op = *request.operation.get<TopK>();
  const auto& x = request.inputs[0];
  const auto around = around_axis(x.shape, static_cast<std::size_t>(op.axis));
  if (op.k <= most_rounds || RankedWords{around}.bits() > 64) return std::make_unique<TopKByRounds>(op.k, around, x.dtype);
  return std::make_unique<TopKBySorting>(op.k, around, x.dtype);
}
inline constexpr Kernel top_k_kernel{"cuda top_k", &make_top_k};
inline const bool top_k_registered = register_kernel<TopK>(DeviceKind::cuda, KernelTier::reference, &top_k_kernel);

}  // namespace replicator::detail::cuda
