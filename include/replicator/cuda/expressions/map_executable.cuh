// SPDX-License-Identifier: Apache-2.0
// Base classes of Map on GPUs, for compiled and for interpreted expressions. They run one Map, or several in one launch. The
// table of a merged launch says what each block of threads computes.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include <replicator/cuda/expressions/expression_plan.hpp>
#include <replicator/cuda/rtc/map.cuh>
#include <replicator/graph/kernel.hpp>
#include <replicator/graph/map.hpp>

namespace replicator::detail::cuda {

class MapExecutable : public Executable {
 public:
  MapExecutable(const Map& map, const KernelRequest& request, const MapPlan& plan) : elements_{map.domain.elements()} {
    input_layouts = plan.inputs;
    output_layouts.assign(request.outputs.size(), plan.layout);
    for (std::size_t o = 0; o < request.outputs.size(); ++o) in_place.push_back(find_in_place(o, request, map.domain));
  }

  std::int64_t elements() const { return elements_; }
  // The kernel's argument: the expression's operands, with the addresses of a launch. Its size is equal in a family, and a multiple of 8.
  virtual std::size_t program_bytes() const = 0;
  virtual void write_program(std::byte* to, const std::byte* const* inputs, std::byte* const* outputs) const = 0;

 private:
  // A thread reads all that its elements need before it writes them, so an input of the domain's shape may be overwritten. The
  // formulas of optimizers are (variable, gradient, .., slots..) -> (variable, slots..). So the first output prefers the first
  // input. Every other output prefers the input at the same distance from the last one.
  int find_in_place(std::size_t o, const KernelRequest& request, const Shape& domain) const {
    const auto may_share = [&](std::size_t i) {
      return i < request.inputs.size() && request.inputs[i].dtype == request.outputs[o].dtype && request.inputs[i].shape == domain &&
             std::find(in_place.begin(), in_place.end(), static_cast<int>(i)) == in_place.end();
    };
    if (const std::size_t slot = request.inputs.size() + o - request.outputs.size(); o > 0 && may_share(slot)) return static_cast<int>(slot);
    for (std::size_t i = 0; i < request.inputs.size(); ++i)
      if (may_share(i)) return static_cast<int>(i);
    return -1;
  }

  std::int64_t elements_;
};

// Several Maps in one launch. Its table holds the programs of the parts, then the tiles, one for each block of threads.
class MergedMap : public Executable {
 public:
  // `parts` are MapExecutables of one family.
  explicit MergedMap(std::span<const Executable* const> parts) {
    for (const auto* part : parts) add(static_cast<const MapExecutable&>(*part));
    table_bytes = programs_bytes() + tiles_.size() * sizeof(MapTile);
  }

  std::vector<std::byte> table(const std::byte* const* inputs, std::byte* const* outputs) const override {
    std::vector<std::byte> table(table_bytes);
    auto* to = table.data();
    for (const auto* part : parts_) {
      part->write_program(to, inputs, outputs);
      to += part->program_bytes();
      inputs += part->input_layouts.size();
      outputs += part->output_layouts.size();
    }
    if (!tiles_.empty()) std::memcpy(to, tiles_.data(), tiles_.size() * sizeof(MapTile));
    return table;
  }

 protected:
  // Zero where no part has elements.
  unsigned blocks() const { return static_cast<unsigned>(tiles_.size()); }
  const MapTile* tiles(const Launch& launch) const { return reinterpret_cast<const MapTile*>(launch.table + programs_bytes()); }

 private:
  void add(const MapExecutable& part) {
    for (std::int64_t begin = 0; begin < part.elements(); begin += MapTile::elements)
      tiles_.push_back({static_cast<unsigned>(parts_.size()), static_cast<unsigned>(begin / MapTile::elements)});
    for (const auto input : part.in_place) in_place.push_back(input < 0 ? -1 : input + static_cast<int>(input_layouts.size()));
    input_layouts.insert(input_layouts.end(), part.input_layouts.begin(), part.input_layouts.end());
    output_layouts.insert(output_layouts.end(), part.output_layouts.begin(), part.output_layouts.end());
    parts_.push_back(&part);
  }
  std::size_t programs_bytes() const { return parts_.size() * parts_.front()->program_bytes(); }

  std::vector<const MapExecutable*> parts_;
  std::vector<MapTile> tiles_;
};

}  // namespace replicator::detail::cuda
