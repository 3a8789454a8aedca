// SPDX-License-Identifier: Apache-2.0
// The kernels of transpose, slice, pad, concat and layout copies on GPUs: copies between strided boxes, one thread per element.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include <replicator/cuda/check.cuh>
#include <replicator/cuda/divider_of.cuh>
#include <replicator/cuda/launch.cuh>
#include <replicator/cuda/words.cuh>
#include <replicator/graph/kernel.hpp>
#include <replicator/graph/layout_copy.hpp>
#include <replicator/ops/movement/strided_copy.hpp>

namespace replicator::detail::cuda {

// A StridedCopy as an argument of kernels.
struct StridedBox {
  std::int64_t extents[Shape::max_rank], source[Shape::max_rank], destination[Shape::max_rank];
  Divider by[Shape::max_rank];  // the extents
  std::int64_t from, to, elements;
  int rank;
};

inline StridedBox strided_box(const StridedCopy& copy) {
  const StridedCopy whole = merged(copy);
  StridedBox box{};
  box.rank = static_cast<int>(whole.box.rank());
  for (std::size_t axis = 0; axis < whole.box.rank(); ++axis) {
    box.extents[axis] = whole.box[axis];
    box.by[axis] = divider_of(whole.box[axis]);
    box.source[axis] = whole.source[axis];
    box.destination[axis] = whole.destination[axis];
  }
  box.from = whole.from;
  box.to = whole.to;
  box.elements = whole.box.elements();
  return box;
}

// Elements are numbered in type I.
template <class I, class Word>
__global__ void copy_box(const __grid_constant__ StridedBox box, const Word* in, Word* out) {
  for (std::int64_t i = first_element(); i < box.elements; i += element_stride()) {
    I rest = static_cast<I>(i);
    std::int64_t from = box.from, to = box.to;
    for (int axis = box.rank; axis-- > 0;) {
      const I outer = quotient_by(box.by[axis], rest), at = rest - outer * static_cast<I>(box.extents[axis]);
      from += at * box.source[axis];
      to += at * box.destination[axis];
      rest = outer;
    }
    out[to] = in[from];
  }
}

template <class Word>
__global__ void fill_words(Word* out, Word value, std::int64_t elements) {
  for (std::int64_t i = first_element(); i < elements; i += element_stride()) out[i] = value;
}

// Makes one copy per input. First fills the output with `value` where the copies leave gaps.
template <class Word>
class StridedCopies final : public Executable {
 public:
  StridedCopies(const std::vector<StridedCopy>& copies, std::int64_t filled, Word value) : filled_{filled}, value_{value} {
    for (const auto& copy : copies) boxes_.push_back(strided_box(copy));
    input_layouts.resize(copies.size());
    output_layouts.resize(1);
    in_place = {-1};
  }
  void run(const Launch& launch) const override {
    const cudaStream_t stream = stream_of(launch.stream);
    auto* const out = reinterpret_cast<Word*>(launch.outputs[0]);
    if (filled_ > 0) fill_words<<<blocks_for(filled_, block_threads), block_threads, 0, stream>>>(out, value_, filled_);
    for (std::size_t i = 0; i < boxes_.size(); ++i)
      if (const auto& box = boxes_[i]; box.elements > 0) {
        const auto* const in = reinterpret_cast<const Word*>(launch.inputs[i]);
        const unsigned blocks = blocks_for(box.elements, block_threads);
        if (fits_32_bits(box.elements)) copy_box<std::int32_t><<<blocks, block_threads, 0, stream>>>(box, in, out);
        else copy_box<std::int64_t><<<blocks, block_threads, 0, stream>>>(box, in, out);
      }
    REPLICATOR_CUDA_CHECK(cudaGetLastError());
  }

 private:
  std::vector<StridedBox> boxes_;
  std::int64_t filled_;
  Word value_;
};

template <class Op>
std::unique_ptr<Executable> make_movement(const KernelRequest& request) {
  const auto copies = strided_copies(*request.operation.get<Op>(), request);
  return visit_word(request.outputs[0].dtype, [&]<class Word>() -> std::unique_ptr<Executable> {
    return std::make_unique<StridedCopies<Word>>(copies, 0, Word{});
  });
}

inline std::unique_ptr<Executable> make_pad(const KernelRequest& request) {
  const auto& op = *request.operation.get<Pad>();
  const auto copies = strided_copies(op, request);
  const TensorType& y = request.outputs[0];
  return visit_dtype(y.dtype, [&]<class T>() -> std::unique_ptr<Executable> {
    const T value = op.value.as<T>();
    return visit_word(y.dtype, [&]<class Word>() -> std::unique_ptr<Executable> {
      Word word{};
      std::memcpy(&word, &value, std::min(sizeof word, sizeof value));
      return std::make_unique<StridedCopies<Word>>(copies, y.shape.elements(), word);
    });
  });
}

// Takes layouts without blocks and padding. Kernels of this kind of device ask for no others.
inline std::unique_ptr<Executable> make_layout_copy(const KernelRequest& request) {
  const TensorType& type = request.inputs[0];
  const Layout &from = request.offered[0], &to = request.operation.get<LayoutCopy>()->to;
  if (from.blocks > 0 || to.blocks > 0 || !is_dense(from, type.shape) || !is_dense(to, type.shape)) return nullptr;
  return visit_word(type.dtype, [&]<class Word>() -> std::unique_ptr<Executable> {
    const StridedCopy whole{type.shape, strides_of(from, type.shape), strides_of(to, type.shape)};
    auto copy = std::make_unique<StridedCopies<Word>>(std::vector{whole}, 0, Word{});
    copy->input_layouts = {from};
    copy->output_layouts = {to};
    return copy;
  });
}

inline constexpr Kernel transpose_kernel{"cuda transpose", &make_movement<Transpose>};
inline constexpr Kernel slice_kernel{"cuda slice", &make_movement<Slice>};
inline constexpr Kernel pad_kernel{"cuda pad", &make_pad};
inline constexpr Kernel concat_kernel{"cuda concat", &make_movement<Concat>};
inline constexpr Kernel layout_copy_kernel{"cuda layout copy", &make_layout_copy};

inline const bool movement_registered = register_kernel<Transpose>(DeviceKind::cuda, KernelTier::reference, &transpose_kernel) &&
                                        register_kernel<Slice>(DeviceKind::cuda, KernelTier::reference, &slice_kernel) &&
                                        register_kernel<Pad>(DeviceKind::cuda, KernelTier::reference, &pad_kernel) &&
                                        register_kernel<Concat>(DeviceKind::cuda, KernelTier::reference, &concat_kernel) &&
                                        register_kernel<LayoutCopy>(DeviceKind::cuda, KernelTier::reference, &layout_copy_kernel);

}  // namespace replicator::detail::cuda
