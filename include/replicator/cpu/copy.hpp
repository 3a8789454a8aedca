// SPDX-License-Identifier: Apache-2.0
// The kernel of LayoutCopy on the CPU: copies a tensor from one layout to another. Padding is written as zero.
#pragma once

#include <cstddef>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>

#include <replicator/core/layout.hpp>
#include <replicator/cpu/copies/copy_loops.hpp>
#include <replicator/cpu/copies/copy_nest.hpp>
#include <replicator/cpu/copies/rectangle_copy.hpp>
#include <replicator/cpu/loops/tile_loops.hpp>
#include <replicator/graph/kernel.hpp>
#include <replicator/graph/layout_copy.hpp>
#include <replicator/graph/operation.hpp>

namespace replicator::detail::cpu {

class CopyExecutable final : public Executable {
 public:
  CopyExecutable(const Shape& shape, DType dtype, const Layout& from, const Layout& to, int threads, InstructionLevel level) {
    input_layouts = {from};
    output_layouts = {to};
    in_place = {-1};
    bytes_ = static_cast<std::size_t>(storage_elements(to, shape)) * size_of(dtype);
    clear_ = !is_dense(to, shape);
    if (auto loops = detail::copy_loops(shape, from, to)) {
      nest_.emplace(std::move(*loops), shape, size_of(dtype), threads, level);
      return;
    }
    // The blocks of the two layouts do not divide each other, so the copy goes through the plain layout in scratch memory.
    first_ = std::make_unique<CopyExecutable>(shape, dtype, from, Layout{}, threads, level);
    second_ = std::make_unique<CopyExecutable>(shape, dtype, Layout{}, to, threads, level);
    scratch_bytes = static_cast<std::size_t>(shape.elements()) * size_of(dtype);
  }

  void run(const Launch& launch) const override {
    if (first_) {
      std::byte* plain = launch.scratch;
      first_->run({launch.inputs, &plain, nullptr, launch.context, launch.stream});
      const std::byte* read = plain;
      second_->run({&read, launch.outputs, nullptr, launch.context, launch.stream});
      return;
    }
    if (clear_) std::memset(launch.outputs[0], 0, bytes_);
    nest_->run(launch.inputs[0], launch.outputs[0]);
  }

 private:
  std::size_t bytes_ = 0;  // of the result
  bool clear_ = false;
  std::optional<detail::CopyNest> nest_;
  std::unique_ptr<CopyExecutable> first_, second_;
};

// Whether such a copy moves rectangles through registers (RectangleCopy).
inline bool copies_rectangles(const Shape& shape, DType dtype, const Layout& from, const Layout& to) {
  const auto loops = detail::copy_loops(shape, from, to);
  return loops && detail::RectangleCopy::of(*loops, shape, size_of(dtype), instruction_level());
}

// Makes the executable that copies a tensor of this shape from one layout to another. The two may be equal.
inline std::unique_ptr<Executable> make_copy(const Shape& shape, DType dtype, const Layout& from, const Layout& to, int threads = 1,
                                             InstructionLevel level = instruction_level()) {
  return std::make_unique<CopyExecutable>(shape, dtype, from, to, threads, level);
}

inline std::unique_ptr<Executable> make_layout_copy(const KernelRequest& request) {
  return make_copy(request.inputs[0].shape, request.inputs[0].dtype, request.offered[0], request.operation.get<LayoutCopy>()->to,
                   request.threads);
}
inline constexpr Kernel copy_kernel{"cpu loops", &make_layout_copy};
inline const bool copy_registered = register_kernel<LayoutCopy>(DeviceKind::cpu, KernelTier::reference, &copy_kernel);

}  // namespace replicator::detail::cpu
