// SPDX-License-Identifier: Apache-2.0
// The kernels of transpose, slice, pad and concat on the CPU. Each is a copy between two strided boxes.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include <replicator/core/layout.hpp>
#include <replicator/cpu/copies/copy_loops.hpp>
#include <replicator/cpu/copies/copy_nest.hpp>
#include <replicator/cpu/copy.hpp>
#include <replicator/cpu/loops/tile_loops.hpp>
#include <replicator/graph/kernel.hpp>
#include <replicator/ops/movement/strided_copy.hpp>

namespace replicator::detail::cpu {

namespace detail {

// A strided copy as a nest of loops.
class BoxCopy {
 public:
  BoxCopy(const StridedCopy& copy, std::size_t element, int threads)
      : from_{copy.from * static_cast<std::int64_t>(element)},
        to_{copy.to * static_cast<std::int64_t>(element)},
        nest_{loops_of(merged(copy)), copy.box, element, threads, instruction_level()} {}

  void run(const std::byte* in, std::byte* out) const { nest_.run(in + from_, out + to_); }

 private:
  static std::vector<CopyLoop> loops_of(const StridedCopy& copy) {
    std::vector<CopyLoop> loops;  // boxes have the axes of the result, in its order
    for (std::size_t axis = 0; axis < copy.box.rank(); ++axis) loops.push_back({copy.box[axis], copy.source[axis], copy.destination[axis], axis});
    return loops;
  }

  std::int64_t from_, to_;  // bytes
  CopyNest nest_;
};

// Makes one copy per input. First fills the output with `value` where the copies leave gaps.
template <class Word>
class StridedCopies final : public Executable {
 public:
  StridedCopies(const std::vector<StridedCopy>& copies, std::int64_t filled, Word value, int threads) : filled_{filled}, value_{value} {
    for (const auto& copy : copies) copies_.emplace_back(copy, sizeof(Word), threads);
    input_layouts.resize(copies_.size());
    output_layouts.resize(1);
    in_place = {-1};
  }
  void run(const Launch& launch) const override {
    std::fill_n(reinterpret_cast<Word*>(launch.outputs[0]), filled_, value_);
    for (std::size_t i = 0; i < copies_.size(); ++i) copies_[i].run(launch.inputs[i], launch.outputs[0]);
  }

 private:
  std::vector<BoxCopy> copies_;
  std::int64_t filled_;
  Word value_;
};

// Makes the kernel that runs the copies. With `fills`, it fills the gaps with `value`, converted to the dtype.
inline std::unique_ptr<Executable> make_copies(const std::vector<StridedCopy>& copies, const KernelRequest& request, bool fills = false, Number value = 0) {
  const TensorType& output = request.outputs[0];
  return visit_dtype(output.dtype, [&]<class T>() -> std::unique_ptr<Executable> {
    return std::make_unique<StridedCopies<T>>(copies, fills ? output.shape.elements() : 0, value.as<T>(), request.threads);
  });
}

template <class Op>
std::unique_ptr<Executable> make_movement(const KernelRequest& request) {
  return make_copies(strided_copies(*request.operation.get<Op>(), request), request);
}
inline std::unique_ptr<Executable> make_pad(const KernelRequest& request) {
  const auto& op = *request.operation.get<Pad>();
  return make_copies(strided_copies(op, request), request, true, op.value);
}
// The result is the input in another order of memory, so any layout of the input will do.
inline std::unique_ptr<Executable> make_transpose(const KernelRequest& request) {
  const auto& permutation = request.operation.get<Transpose>()->permutation;
  const auto strides = request.outputs[0].shape.strides();
  Layout order;
  order.plain = false;
  order.storage = request.outputs[0].shape.elements();
  for (std::size_t i = 0; i < permutation.size(); ++i) order.strides[static_cast<std::size_t>(permutation[i])] = strides[i];
  auto copy = make_copy(request.inputs[0].shape, request.inputs[0].dtype, request.offered[0], order, request.threads);
  copy->output_layouts = {Layout{}};
  return copy;
}

}  // namespace detail

inline constexpr Kernel transpose_loops{"transpose loops", &detail::make_transpose};
inline constexpr Kernel slice_loops{"slice loops", &detail::make_movement<Slice>};
inline constexpr Kernel pad_loops{"pad loops", &detail::make_pad};
inline constexpr Kernel concat_loops{"concat loops", &detail::make_movement<Concat>};

inline const bool movement_loops_registered =
    register_kernel<Transpose>(DeviceKind::cpu, KernelTier::reference, &transpose_loops) &&
    register_kernel<Slice>(DeviceKind::cpu, KernelTier::reference, &slice_loops) &&
    register_kernel<Pad>(DeviceKind::cpu, KernelTier::reference, &pad_loops) &&
    register_kernel<Concat>(DeviceKind::cpu, KernelTier::reference, &concat_loops);

}  // namespace replicator::detail::cpu
