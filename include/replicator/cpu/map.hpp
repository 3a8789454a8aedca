// SPDX-License-Identifier: Apache-2.0
// The kernel of Map on the CPU. It evaluates any scalar expression over broadcast inputs in one pass over memory.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include <replicator/core/layout.hpp>
#include <replicator/cpu/loops/parallel.hpp>
#include <replicator/cpu/loops/tile_program.hpp>
#include <replicator/graph/domain_layout.hpp>
#include <replicator/graph/kernel.hpp>
#include <replicator/graph/map.hpp>
#include <replicator/graph/operation.hpp>

namespace replicator::detail::cpu {

class MapExecutable final : public Executable {
 public:
  MapExecutable(const Map& map, const KernelRequest& request)
      : MapExecutable{map, request, domain_layout(request, map.domain)} {}

  void run(const Launch& launch) const override {
    parallel_for(threads_, program_.tiles(), [&](int part, std::int64_t first, std::int64_t last) {
      std::byte* scratch = launch.scratch + static_cast<std::size_t>(part) * program_.scratch_bytes();
      PrefetchAhead ahead;
      program_.run(
          launch.inputs, launch.outputs, scratch, first * program_.tile(),
          std::min(last * program_.tile(), program_.elements()), [](const auto&, std::int64_t) {}, ahead);
    });
  }

 private:
  MapExecutable(const Map& map, const KernelRequest& request, const Layout& layout)
      : program_{*map.expression, request.inputs, map.domain, storage_loops(map.domain, layout), map.dtypes},
        threads_{program_.tiles() < 32 ? 1 : request.threads} {
    input_layouts = demanded_layouts(request, map.domain, layout);
    output_layouts.assign(request.outputs.size(), layout);
    scratch_bytes = program_.scratch_bytes() * static_cast<std::size_t>(threads_);
    for (std::size_t o = 0; o < request.outputs.size(); ++o) in_place.push_back(find_in_place(o, request, map.domain));
  }

  // The formulas of optimizers are (variable, gradient, .., slots..) -> (variable, slots..). So the first output prefers the
  // first input that it may share, and the others prefer the last one.
  int find_in_place(std::size_t o, const KernelRequest& request, const Shape& domain) const {
    int found = -1;
    for (std::size_t i = 0; i < request.inputs.size() && (found < 0 || o > 0); ++i) {
      const auto input = static_cast<int>(i);
      const bool taken = std::find(in_place.begin(), in_place.end(), input) != in_place.end();
      if (!taken && request.inputs[i].shape == domain && program_.may_share(o, i)) found = input;
    }
    return found;
  }

  TileProgram program_;
  int threads_;
};

inline std::unique_ptr<Executable> make_map(const KernelRequest& request) {
  return std::make_unique<MapExecutable>(*request.operation.get<Map>(), request);
}
inline constexpr Kernel map_kernel{"cpu tiles", &make_map};
inline const bool map_registered = register_kernel<Map>(DeviceKind::cpu, KernelTier::reference, &map_kernel);

}  // namespace replicator::detail::cpu
