// SPDX-License-Identifier: Apache-2.0
// Describes how the elements of a domain lie in the operands of an expression, for kernels of GPUs. All functions are pure.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <replicator/core/layout.hpp>
#include <replicator/core/shape.hpp>

namespace replicator::detail::cuda {

enum class OperandKind : std::uint8_t {
  linear,  // element i of the domain is element i of the operand
  scalar,  // all elements of the domain read the same element
  strided,
};

struct Operand {
  DType dtype = DType::float32;
  OperandKind kind = OperandKind::linear;
  std::vector<std::int64_t> strides;  // in elements, along the domain's axes; 0 where it is broadcast
};

struct Operands {
  std::int64_t elements = 0;
  std::vector<std::int64_t> extents;  // of the domain's axes; none is 1
  std::vector<Operand> inputs;
};

namespace detail {
inline OperandKind kind_of(const std::vector<std::int64_t>& strides, const std::vector<std::int64_t>& extents) {
  bool linear = true, scalar = true;
  std::int64_t inside = 1;
  for (std::size_t axis = extents.size(); axis-- > 0; inside *= extents[axis]) {
    linear = linear && strides[axis] == inside;
    scalar = scalar && strides[axis] == 0;
  }
  return scalar   ? OperandKind::scalar
         : linear ? OperandKind::linear
                  : OperandKind::strided;
}
}  // namespace detail

// Describes inputs that are broadcast to the domain. The domain's elements are numbered along `axes`, the last one fastest. The
// inputs lie in `layouts`, which have no blocks. Neighbouring axes are merged where they are one axis in all inputs.
inline Operands place_operands(std::span<const TensorType> inputs, std::span<const Layout> layouts, const Shape& domain,
                               std::span<const std::size_t> axes) {
  Operands result{domain.elements(), {}, {}};
  std::vector<std::vector<std::int64_t>> along;  // strides by input and axis
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const auto& input = inputs[i];
    const auto own = strides_of(layouts[i], input.shape);
    const std::size_t missing = domain.rank() - input.shape.rank();
    auto& strides = along.emplace_back();
    for (const auto axis : axes) strides.push_back(axis < missing || input.shape[axis - missing] == 1 ? 0 : own[axis - missing]);
    result.inputs.push_back({input.dtype, OperandKind::linear, {}});
  }
  for (std::size_t k = 0; k < axes.size(); ++k) {
    const std::int64_t extent = domain[axes[k]];
    if (extent == 1) continue;
    bool joins = !result.extents.empty();
    for (std::size_t i = 0; i < inputs.size() && joins; ++i) joins = result.inputs[i].strides.back() == along[i][k] * extent;
    if (!joins) {
      result.extents.push_back(1);
      for (auto& input : result.inputs) input.strides.push_back(0);
    }
    result.extents.back() *= extent;
    for (std::size_t i = 0; i < inputs.size(); ++i) result.inputs[i].strides.back() = along[i][k];
  }
  for (auto& input : result.inputs) input.kind = detail::kind_of(input.strides, result.extents);
  return result;
}

// How many neighbouring elements of the domain a thread can load and store at once: at most 16 bytes of the narrowest operand. The
// domain then consists of whole groups, and in no operand a group begins in the middle of one.
//
// **It rests on where operands begin**, because an address must be a multiple of an access's size:
// - values in the arena, variables, constants and inputs at multiples of 64 bytes;
// - members of a bucket at multiples of 16 elements (resolve/buckets.hpp);
// - values in a collective's buffer one after the other, all of one size. This size consists of whole groups, too.
inline int lanes_of(const Operands& operands, std::span<const DType> outputs) {
  const auto fits = [&](const Operand& input, int lanes) {
    if (input.kind != OperandKind::strided || input.strides.back() == 0) return true;
    const auto is_whole = [&](std::int64_t stride) { return stride % lanes == 0; };
    return input.strides.back() == 1 && std::all_of(input.strides.begin(), input.strides.end() - 1, is_whole);
  };
  std::size_t narrowest = 8;
  for (const auto dtype : outputs) narrowest = std::min(narrowest, size_of(dtype));
  for (const auto& input : operands.inputs) narrowest = std::min(narrowest, size_of(input.dtype));
  for (int lanes = static_cast<int>(std::min<std::size_t>(8, 16 / narrowest)); lanes > 1; lanes /= 2)
    if (!operands.extents.empty() && operands.extents.back() % lanes == 0 &&
        std::all_of(operands.inputs.begin(), operands.inputs.end(), [&](const auto& input) { return fits(input, lanes); }))
      return lanes;
  return 1;
}

// The words of a Divider (rtc/divider.cuh). Extents are at least 1.
inline std::array<std::uint64_t, 2> divider_words(std::int64_t extent) {
  const auto divisor = static_cast<std::uint64_t>(extent);
  if (extent >= std::int64_t{1} << 31) return {0, divisor};  // larger than any number that is divided this way
  const int bits = static_cast<int>(std::bit_width(divisor - 1)), shift = 31 + bits;
  const std::uint64_t multiplier = (std::uint64_t{1} << shift) / divisor + 1;
  return {multiplier | static_cast<std::uint64_t>(shift) << 32, divisor};
}

}  // namespace replicator::detail::cuda
