// SPDX-License-Identifier: Apache-2.0
// Runs an operation on bfloat16 by its float32 kernel: widens the inputs, and rounds each result once.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <replicator/core/array.hpp>
#include <replicator/core/error.hpp>
#include <replicator/core/layout.hpp>
#include <replicator/cpu/loops/convert.hpp>
#include <replicator/cpu/loops/parallel.hpp>
#include <replicator/graph/kernel.hpp>

namespace replicator::detail::cpu {

namespace detail {

class InFloat32 final : public Executable {
 public:
  // `inner` is the kernel of the same operation with float32 in place of bfloat16.
  InFloat32(const KernelRequest& request, std::unique_ptr<Executable> inner) : inner_{std::move(inner)}, threads_{request.threads} {
    if (request.inputs.size() > most || request.outputs.size() > most)
      throw BuildError{"an operation with more than " + std::to_string(most) + " inputs or outputs cannot run on bfloat16: cast them to float32"};
    input_layouts = inner_->input_layouts;
    output_layouts = inner_->output_layouts;
    in_place.assign(request.outputs.size(), -1);
    throws = inner_->throws;
    scratch_bytes = rounded_up(inner_->scratch_bytes);
    for (std::size_t i = 0; i < request.inputs.size(); ++i) inputs_.push_back(place(request.inputs[i], input_layouts[i]));
    for (std::size_t o = 0; o < request.outputs.size(); ++o) outputs_.push_back(place(request.outputs[o], output_layouts[o]));
  }

  void run(const Launch& launch) const override {
    std::array<const std::byte*, most> inputs;
    std::array<std::byte*, most> outputs;
    for (std::size_t i = 0; i < inputs_.size(); ++i) {
      inputs[i] = launch.inputs[i];
      if (!inputs_[i].converted) continue;
      inputs[i] = launch.scratch + inputs_[i].at;
      convert(widen_, launch.scratch + inputs_[i].at, sizeof(float), launch.inputs[i], sizeof(bfloat16), inputs_[i].elements);
    }
    for (std::size_t o = 0; o < outputs_.size(); ++o) outputs[o] = outputs_[o].converted ? launch.scratch + outputs_[o].at : launch.outputs[o];
    inner_->run({inputs.data(), outputs.data(), launch.scratch, launch.context, launch.stream});
    for (std::size_t o = 0; o < outputs_.size(); ++o)
      if (outputs_[o].converted) convert(round_, launch.outputs[o], sizeof(bfloat16), outputs[o], sizeof(float), outputs_[o].elements);
  }

 private:
  static constexpr std::size_t most = 4;
  struct Place {
    bool converted = false;
    std::size_t at = 0;  // in the scratch
    std::int64_t elements = 0;
  };

  static std::size_t rounded_up(std::size_t bytes) { return (bytes + buffer_alignment - 1) / buffer_alignment * buffer_alignment; }
  // Padding is converted too. It is zero and stays zero.
  Place place(const TensorType& type, const Layout& layout) {
    if (type.dtype != DType::bfloat16) return {};
    const Place result{true, scratch_bytes, storage_elements(layout, type.shape)};
    scratch_bytes += rounded_up(static_cast<std::size_t>(result.elements) * sizeof(float));
    return result;
  }
  void convert(TileLoop loop, std::byte* to, std::size_t to_size, const std::byte* from, std::size_t from_size, std::int64_t elements) const {
    constexpr std::int64_t piece = 4096;
    const std::int64_t pieces = (elements + piece - 1) / piece;
    parallel_for(pieces < 16 ? 1 : threads_, pieces, [&](int, std::int64_t first, std::int64_t last) {
      const std::int64_t begin = first * piece, end = std::min(last * piece, elements);
      convert_all(loop, to + static_cast<std::size_t>(begin) * to_size, to_size, from + static_cast<std::size_t>(begin) * from_size, from_size,
                  end - begin);
    });
  }

  std::unique_ptr<Executable> inner_;
  int threads_;
  std::vector<Place> inputs_, outputs_;
  TileLoop widen_ = conversion_loop(DType::bfloat16, DType::float32);
  TileLoop round_ = conversion_loop(DType::float32, DType::bfloat16);
};

}  // namespace detail

// Makes a bfloat16 kernel from the float32 kernel that `make` gives for the request. Returns null where `make` does. Throws
// BuildError for more than 4 inputs or outputs.
inline std::unique_ptr<Executable> in_float32(const KernelRequest& request, std::unique_ptr<Executable> (*make)(const KernelRequest&)) {
  const auto widened = [](std::span<const TensorType> types) {
    std::vector<TensorType> result{types.begin(), types.end()};
    for (auto& type : result)
      if (type.dtype == DType::bfloat16) type.dtype = DType::float32;
    return result;
  };
  const auto inputs = widened(request.inputs), outputs = widened(request.outputs);
  auto inner = make({request.operation, inputs, outputs, request.offered, request.threads, request.choice});
  return inner ? std::make_unique<detail::InFloat32>(request, std::move(inner)) : nullptr;
}

}  // namespace replicator::detail::cpu
