// SPDX-License-Identifier: Apache-2.0
// The kernel of FusedConvolution for any kind of device. It runs the device's kernels of Map, Convolution and Reduce one after the other.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include <replicator/graph/choose_kernel.hpp>
#include <replicator/graph/layout_copy.hpp>
#include <replicator/graph/map.hpp>
#include <replicator/ops/fusion/fused_convolution.hpp>

namespace replicator::detail {

class ConvolutionInParts final : public Executable {
 public:
  // Where an operand of a part lies: in an input or output of the whole operation, or in its scratch memory.
  struct Place {
    enum class In : std::uint8_t {
      inputs,
      outputs,
      scratch
    } in;
    std::size_t at;  // number of the input or output, or byte of the scratch
  };
  struct Part {
    std::unique_ptr<Executable> executable;
    std::vector<Place> inputs, outputs;
  };

  // `kept` is the size in bytes of the scratch that holds values between parts.
  ConvolutionInParts(std::vector<Part> parts, std::size_t kept) : parts_{std::move(parts)}, kept_{kept} {
    for (const auto& part : parts_) {
      scratch_bytes = std::max(scratch_bytes, part.executable->scratch_bytes);
      needs_host = needs_host || part.executable->needs_host;
      reads_step = reads_step || part.executable->reads_step;
      refuses = refuses || part.executable->refuses;
      throws = throws || part.executable->throws;
    }
    scratch_bytes += kept_;
  }
  void run(const Launch& launch) const override {
    std::array<const std::byte*, FusedConvolution::most_inputs> inputs;
    std::array<std::byte*, 2> outputs;
    Launch part = launch;
    part.scratch = launch.scratch + kept_;
    part.inputs = inputs.data();
    part.outputs = outputs.data();
    for (const auto& each : parts_) {
      for (std::size_t i = 0; i < each.inputs.size(); ++i)
        inputs[i] = each.inputs[i].in == Place::In::inputs ? launch.inputs[each.inputs[i].at] : written(launch, each.inputs[i]);
      for (std::size_t o = 0; o < each.outputs.size(); ++o) outputs[o] = written(launch, each.outputs[o]);
      each.executable->run(part);
    }
  }

 private:
  static std::byte* written(const Launch& launch, const Place& place) {
    return place.in == Place::In::outputs ? launch.outputs[place.at] : launch.scratch + place.at;
  }

  std::vector<Part> parts_;
  std::size_t kept_;
};

// Reduces an image of this shape to two sums for each channel: of the values and of their squares.
inline Reduce channel_sums(const Shape& shape) {
  Expression e;
  e.inputs = 1;
  e.outputs = {e.input(0), e.apply(ScalarOp::multiply, e.input(0), e.input(0))};
  return {ReduceKind::sum, std::make_shared<const Expression>(std::move(e)), {0, 2, 3}, shape, {DType::float32, DType::float32}};
}

template <DeviceKind kind>
class PartsOfConvolution {
 public:
  explicit PartsOfConvolution(const KernelRequest& r)
      : r_{r}, operation_{*r.operation.get<FusedConvolution>()}, input_layouts_(r.inputs.size()), output_layouts_(r.outputs.size()) {}

  // Null where a part has no kernel.
  std::unique_ptr<Executable> make() && {
    const auto n = operation_.image_inputs();
    const auto image = operation_.image(r_.inputs), result = operation_.result(r_.inputs);
    const auto map = [](const Expression& e, const TensorType& type) { return Map{std::make_shared<const Expression>(e), type.shape, {type.dtype}}; };

    const auto x = operation_.has_prologue() ? add(map(operation_.prologue, image), inputs(0, n), {&image, 1}) : inputs(0, 1);
    const bool last = !operation_.has_epilogue();
    const auto y = add(Convolution{operation_.options}, {x[0], inputs(n, n + 1)[0]}, {&result, 1}, last ? 0 : in_scratch);
    if (!last) {
      auto operands = inputs(n + 1, r_.inputs.size());
      operands.insert(operands.begin(), y[0]);
      add(map(operation_.epilogue, result), std::move(operands), {&result, 1}, 0);
    }
    if (operation_.statistics) add(channel_sums(result.shape), y, r_.outputs.subspan(1), 1);
    if (incomplete_) return nullptr;
    auto whole = std::make_unique<ConvolutionInParts>(std::move(parts_), kept_);
    whole->input_layouts = std::move(input_layouts_);
    whole->output_layouts = std::move(output_layouts_);
    whole->in_place.assign(r_.outputs.size(), -1);
    return whole;
  }

 private:
  using Place = ConvolutionInParts::Place;
  struct Operand {
    Place place;
    TensorType type;
    Layout layout;
  };

  std::vector<Operand> inputs(std::size_t first, std::size_t end) const {
    std::vector<Operand> result;
    for (auto i = first; i < end; ++i) result.push_back({{Place::In::inputs, i}, r_.inputs[i], r_.offered[i]});
    return result;
  }
  Place set_aside(const TensorType& type, const Layout& layout) {
    const auto at = kept_;
    kept_ += (static_cast<std::size_t>(storage_elements(layout, type.shape)) * size_of(type.dtype) + 63) / 64 * 64;
    return {Place::In::scratch, at};
  }

  static constexpr std::size_t in_scratch = static_cast<std::size_t>(-1);
  // Adds a part. Its results are outputs of the whole operation from number `output` on, or lie in its scratch.
  std::vector<Operand> add(const AnyOperation& operation, const std::vector<Operand>& operands, std::span<const TensorType> results,
                           std::size_t output = in_scratch) {
    std::vector<Operand> made(results.size());
    std::vector<TensorType> types;
    std::vector<Layout> offered;
    for (const auto& operand : operands) {
      types.push_back(operand.type);
      offered.push_back(operand.layout);
    }
    auto executable = incomplete_ ? nullptr : make_executable(kind, {operation, types, results, offered, r_.threads, r_.choice});
    incomplete_ = !executable;
    if (incomplete_) return made;
    ConvolutionInParts::Part part;
    for (std::size_t i = 0; i < operands.size(); ++i) part.inputs.push_back(in_layout(operands[i], executable->input_layouts[i]));
    for (std::size_t o = 0; o < results.size(); ++o) {
      const auto& layout = executable->output_layouts[o];
      const Place place = output == in_scratch ? set_aside(results[o], layout) : Place{Place::In::outputs, output + o};
      made[o] = {place, results[o], layout};
      if (output != in_scratch) output_layouts_[output + o] = layout;
      part.outputs.push_back(place);
    }
    part.executable = std::move(executable);
    parts_.push_back(std::move(part));
    return made;
  }
  // The place of an operand in the wanted layout. An input of the whole operation is demanded in it. The result of a part is
  // copied where its layout differs.
  Place in_layout(const Operand& operand, const Layout& wanted) {
    if (operand.place.in == Place::In::inputs) input_layouts_[operand.place.at] = wanted;
    if (operand.place.in == Place::In::inputs || operand.layout == wanted) return operand.place;
    auto copy = make_executable(kind, {LayoutCopy{wanted}, {&operand.type, 1}, {&operand.type, 1}, {&operand.layout, 1}, r_.threads, r_.choice});
    incomplete_ = incomplete_ || !copy;
    const auto to = set_aside(operand.type, wanted);
    if (copy) parts_.push_back({std::move(copy), {operand.place}, {to}});
    return to;
  }

  const KernelRequest& r_;
  const FusedConvolution& operation_;
  std::vector<ConvolutionInParts::Part> parts_;
  std::vector<Layout> input_layouts_, output_layouts_;
  std::size_t kept_ = 0;
  bool incomplete_ = false;
};

template <DeviceKind kind>
std::unique_ptr<Executable> make_convolution_in_parts(const KernelRequest& r) {
  return detail::PartsOfConvolution<kind>{r}.make();
}

template <DeviceKind kind>
inline constexpr Kernel convolution_in_parts{"convolution in parts", &make_convolution_in_parts<kind>};

}  // namespace replicator::detail
