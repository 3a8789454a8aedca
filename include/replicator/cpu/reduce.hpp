// SPDX-License-Identifier: Apache-2.0
// The kernel of Reduce on the CPU. It computes all outputs of the expression in one pass over the inputs.
//
// The order of combination depends on the shape, the axes and the layout only, never on the number of threads. The domain is a
// nest of loops in storage order, each reduced or kept (reduction_nest.hpp). The innermost reduced loop is cut into blocks of
// 4,096 turns. Turn t of a block goes to lane t mod P, and a balanced tree folds the lanes. A binary counter's tree combines the
// blocks, and the turns of each outer reduced loop (reduction_plan.hpp).
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <replicator/cpu/loops/accumulate.hpp>
#include <replicator/cpu/loops/parallel.hpp>
#include <replicator/cpu/loops/reduction_plan.hpp>
#include <replicator/cpu/loops/reduction_worker.hpp>
#include <replicator/cpu/loops/tile_program.hpp>
#include <replicator/cpu/map.hpp>

namespace replicator::detail::cpu {

class ReduceExecutable final : public Executable {
 public:
  ReduceExecutable(const Reduce& reduce, const KernelRequest& request)
      : ReduceExecutable{reduce, request, domain_layout(request, reduce.domain)} {}

  void run(const Launch& launch) const override {
    if (program_.elements() == 0) return clear(launch);
    const auto& nest = plan_.nest();
    parallel_for(threads_, nest.outer_turns(), [&](int part, std::int64_t first, std::int64_t last) {
      ReductionWorker worker{plan_, launch.scratch, part, first};
      std::byte* const tiles = launch.scratch + plan_.scratch_bytes() + program_.scratch_bytes() * static_cast<std::size_t>(part);
      PrefetchAhead ahead;
      program_.run(
          launch.inputs, nullptr, tiles, first * nest.outer_elements(), std::min(last * nest.outer_elements(), program_.elements()),
          [&](const TileProgram::ResultTiles& results, std::int64_t count) { worker.take(results, count); }, ahead);
    });
    if (plan_.gathers()) plan_.combine_gathered(launch.scratch);
    for (std::size_t o = 0; o < stored_.size(); ++o) store(launch, o);
  }

 private:
  ReduceExecutable(const Reduce& reduce, const KernelRequest& request, const Layout& layout)
      : loops_{storage_loops(reduce.domain, layout)},
        compute_{reduce.expression->compute},
        accumulate_{accumulate_loops(compute_, reduce.kind, instruction_level())},
        program_{*reduce.expression, request.inputs, reduce.domain, loops_, {}, accumulate_.accumulate_stored != nullptr, ReductionNest{loops_, reduce.axes}.row()},
        stored_{reduce.dtypes},
        threads_{program_.tiles() < 32 ? 1 : request.threads},
        plan_{ReductionNest{loops_, reduce.axes}, accumulate_, size_of(compute_), widest(), stored_.size(), threads_} {
    input_layouts = demanded_layouts(request, reduce.domain, layout);
    output_layouts.assign(request.outputs.size(), Layout{});
    in_place.assign(request.outputs.size(), -1);
    scratch_bytes = plan_.scratch_bytes() + program_.scratch_bytes() * static_cast<std::size_t>(threads_);
    find_order(reduce);
  }

  // Bytes of the largest element that is computed or stored.
  std::size_t widest() const {
    std::size_t widest = size_of(compute_);
    for (const auto dtype : stored_) widest = std::max(widest, size_of(dtype));
    return widest;
  }

  // Finds where the kept elements lie in a plain output. They are computed in storage order.
  void find_order(const Reduce& reduce) {
    std::int64_t stride = 1;
    std::array<std::int64_t, Shape::max_rank> strides{};
    for (std::size_t axis = reduce.domain.rank(); axis-- > 0;) {
      if (std::find(reduce.axes.begin(), reduce.axes.end(), static_cast<std::int64_t>(axis)) != reduce.axes.end()) continue;
      strides[axis] = stride;
      stride *= reduce.domain[axis];
    }
    for (const auto& loop : loops_)
      if (strides[loop.axis] != 0) order_.push_back({loop.extent, strides[loop.axis] * loop.step});
    std::int64_t inside = 1;
    for (std::size_t l = order_.size(); l-- > 0;) {
      in_order_ &= order_[l].stride == inside;
      inside *= order_[l].extent;
    }
  }

  std::int64_t kept() const { return plan_.nest().kept; }
  void store(const Launch& launch, std::size_t o) const {
    std::byte* from = plan_.result(launch.scratch, o);
    std::byte* spare = plan_.spare(launch.scratch, o);
    if (!in_order_) {
      permute(from, spare);
      std::swap(from, spare);
    }
    if (stored_[o] != compute_) {
      const TileOperand operand{from, static_cast<std::int64_t>(plan_.bytes(tile_group))};
      conversion_loop(compute_, stored_[o])(spare, operand, operand, operand, (kept() + tile_group - 1) / tile_group * tile_group);
      from = spare;
    }
    std::memcpy(launch.outputs[o], from, static_cast<std::size_t>(kept()) * size_of(stored_[o]));
  }

  void permute(const std::byte* from, std::byte* to) const {
    std::array<std::int64_t, Shape::max_rank + Layout::max_blocks> index{};
    std::int64_t offset = 0;
    for (std::int64_t i = 0; i < kept(); ++i) {
      std::memcpy(to + plan_.bytes(offset), from + plan_.bytes(i), plan_.bytes(1));
      for (std::size_t l = order_.size(); l-- > 0;) {
        offset += order_[l].stride;
        if (++index[l] < order_[l].extent) break;
        offset -= order_[l].stride * order_[l].extent;
        index[l] = 0;
      }
    }
  }

  // The sum of no elements is zero. A minimum or maximum of no elements is refused when the graph is built.
  void clear(const Launch& launch) const {
    for (std::size_t o = 0; o < stored_.size(); ++o)
      if (kept() > 0) std::memset(launch.outputs[o], 0, static_cast<std::size_t>(kept()) * size_of(stored_[o]));
  }

  std::vector<StorageLoop> loops_;
  DType compute_;
  AccumulateLoops accumulate_;
  TileProgram program_;
  std::vector<DType> stored_;
  int threads_;
  ReductionPlan plan_;
  std::vector<OperandLoop> order_;  // kept loops in storage order with the strides of a plain output
  bool in_order_ = true;
};

inline std::unique_ptr<Executable> make_reduce(const KernelRequest& request) {
  return std::make_unique<ReduceExecutable>(*request.operation.get<Reduce>(), request);
}
inline constexpr Kernel reduce_kernel{"cpu tiles", &make_reduce};
inline const bool reduce_registered = register_kernel<Reduce>(DeviceKind::cpu, KernelTier::library, &reduce_kernel);

}  // namespace replicator::detail::cpu
