// SPDX-License-Identifier: Apache-2.0
// The kernels of transpose, slice, pad and concat on the CPU, on row-major memory. Each is a copy between two strided boxes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include <replicator/graph/kernel.hpp>
#include <replicator/ops/movement/strided_copy.hpp>

namespace replicator::detail::cpu {

namespace detail {

template <class Word>
void copy_row(const Word* in, std::int64_t in_stride, Word* out, std::int64_t out_stride, std::int64_t count) {
  if (in_stride == 1 && out_stride == 1)
    std::memcpy(out, in, static_cast<std::size_t>(count) * sizeof(Word));
  else
    for (std::int64_t i = 0; i < count; ++i) out[i * out_stride] = in[i * in_stride];
}

template <class Word>
void copy_box(const StridedCopy& c, std::size_t axis, const Word* in, Word* out) {
  const std::size_t rank = c.box.rank();
  if (rank == 0) {
    *out = *in;
  } else if (axis + 1 == rank) {
    copy_row(in, c.source[axis], out, c.destination[axis], c.box[axis]);
  } else {
    for (std::int64_t i = 0; i < c.box[axis]; ++i)
      copy_box(c, axis + 1, in + i * c.source[axis], out + i * c.destination[axis]);
  }
}

// Makes one copy per input. First fills the output with `value` where the copies leave gaps.
template <class Word>
class StridedCopies final : public Executable {
 public:
  StridedCopies(std::vector<StridedCopy> copies, std::int64_t filled, Word value) : filled_{filled}, value_{value} {
    for (const auto& copy : copies) copies_.push_back(merged(copy));
    input_layouts.resize(copies_.size());
    output_layouts.resize(1);
    in_place = {-1};
  }
  void run(const Launch& launch) const override {
    Word* const out = reinterpret_cast<Word*>(launch.outputs[0]);
    for (std::int64_t i = 0; i < filled_; ++i) out[i] = value_;
    for (std::size_t i = 0; i < copies_.size(); ++i)
      if (copies_[i].box.elements() > 0)
        copy_box(copies_[i], 0, reinterpret_cast<const Word*>(launch.inputs[i]) + copies_[i].from, out + copies_[i].to);
  }

 private:
  std::vector<StridedCopy> copies_;
  std::int64_t filled_;
  Word value_;
};

// Makes the kernel that runs the copies. With `fills`, it fills the gaps with `value`, converted to the dtype.
inline std::unique_ptr<Executable> make_copies(std::vector<StridedCopy> copies, const TensorType& output,
                                               bool fills = false, Number value = 0) {
  return visit_dtype(output.dtype, [&]<class T>() -> std::unique_ptr<Executable> {
    return std::make_unique<StridedCopies<T>>(std::move(copies), fills ? output.shape.elements() : 0,
                                              value.as<T>());
  });
}

template <class Op>
std::unique_ptr<Executable> make_movement(const KernelRequest& request) {
  return make_copies(strided_copies(*request.operation.get<Op>(), request), request.outputs[0]);
}
inline std::unique_ptr<Executable> make_pad(const KernelRequest& request) {
  const auto& op = *request.operation.get<Pad>();
  return make_copies(strided_copies(op, request), request.outputs[0], true, op.value);
}

}  // namespace detail

inline constexpr Kernel transpose_loops{"transpose loops", &detail::make_movement<Transpose>};
inline constexpr Kernel slice_loops{"slice loops", &detail::make_movement<Slice>};
inline constexpr Kernel pad_loops{"pad loops", &detail::make_pad};
inline constexpr Kernel concat_loops{"concat loops", &detail::make_movement<Concat>};

inline const bool movement_loops_registered =
    register_kernel<Transpose>(DeviceKind::cpu, KernelTier::reference, &transpose_loops) &&
    register_kernel<Slice>(DeviceKind::cpu, KernelTier::reference, &slice_loops) &&
    register_kernel<Pad>(DeviceKind::cpu, KernelTier::reference, &pad_loops) &&
    register_kernel<Concat>(DeviceKind::cpu, KernelTier::reference, &concat_loops);

}  // namespace replicator::detail::cpu
