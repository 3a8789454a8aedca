// SPDX-License-Identifier: Apache-2.0
// Map on GPUs, whoever evaluates the expression: one, or several in one launch, whose table says what each block of threads computes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include <replicator/cuda/expression_plan.hpp>
#include <replicator/cuda/rtc/map.cuh>
#include <replicator/graph/kernel.hpp>
#include <replicator/graph/map.hpp>

namespace replicator::cuda {

class MapExecutable : public Executable {
 public:
  MapExecutable(const Map& map, const KernelRequest& request, const MapPlan& plan) : elements_{map.domain.elements()} {
    input_layouts = plan.inputs;
    output_layouts.assign(request.outputs.size(), plan.layout);
    find_in_place(map, request);
  }

  std::int64_t elements() const { return elements_; }
  // What its kernel is given: the expression's operands, with the addresses of a launch. As many bytes for all of a family, and a multiple of 8.
  virtual std::size_t program_bytes() const = 0;
  virtual void write_program(std::byte* to, const std::byte* const* inputs, std::byte* const* outputs) const = 0;

 private:
  // A thread reads all that its elements need before it writes them: an input of the domain's shape may be written over.
  void find_in_place(const Map& map, const KernelRequest& request) {
    std::vector<bool> taken(request.inputs.size());
    for (const auto& output : request.outputs) {
      in_place.push_back(-1);
      for (std::size_t i = 0; i < request.inputs.size() && in_place.back() < 0; ++i)
        if (!taken[i] && request.inputs[i].dtype == output.dtype && request.inputs[i].shape == map.domain) {
          taken[i] = true;
          in_place.back() = static_cast<int>(i);
        }
    }
  }

  std::int64_t elements_;
};

// Its table: the programs of the parts, then the tiles, one for each block.
class MergedMap : public Executable {
 public:
  // MapExecutables of one family.
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
  // None where no part has elements.
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

}  // namespace replicator::cuda
