// SPDX-License-Identifier: Apache-2.0
// Describes transpose, slice, pad and concat of row-major memory as copies between two strided boxes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <replicator/graph/kernel.hpp>
#include <replicator/graph/operation.hpp>
#include <replicator/ops/movement/concat.hpp>
#include <replicator/ops/movement/slice.hpp>
#include <replicator/ops/movement/transpose.hpp>

namespace replicator::detail {

// A box of elements that is read and written with strides (in elements). It begins at `from` of the source and `to` of the destination.
struct StridedCopy {
  Shape box;
  std::array<std::int64_t, Shape::max_rank> source{}, destination{};
  std::int64_t from = 0, to = 0;
};

// Merges neighbouring axes that are one axis in both memories, so that rows are as long as possible.
inline StridedCopy merged(const StridedCopy& c) {
  StridedCopy result{{}, {}, {}, c.from, c.to};
  std::size_t axis = 0, axes = 0;  // of the box, and of the result
  for (const std::int64_t extent : c.box) {
    const std::int64_t source = c.source[axis], destination = c.destination[axis];
    ++axis;
    if (extent == 1) continue;
    if (axes > 0 && result.source[axes - 1] == source * extent && result.destination[axes - 1] == destination * extent) {
      result.box[-1] *= extent;
      --axes;
    } else {
      result.box.push_back(extent);
    }
    result.source[axes] = source;
    result.destination[axes] = destination;
    ++axes;
  }
  return result;
}

// The copies that make the result of a node of these operations, one for each input. Pad's copies leave gaps.
inline std::vector<StridedCopy> strided_copies(const Transpose& op, const KernelRequest& request) {
  const Shape& y = request.outputs[0].shape;
  StridedCopy copy{y, {}, y.strides()};
  const auto strides = request.inputs[0].shape.strides();
  for (std::size_t i = 0; i < y.rank(); ++i) copy.source[i] = strides[static_cast<std::size_t>(op.permutation[i])];
  return {copy};
}

inline std::vector<StridedCopy> strided_copies(const Slice& op, const KernelRequest& request) {
  const Shape& y = request.outputs[0].shape;
  StridedCopy copy{y, request.inputs[0].shape.strides(), y.strides()};
  for (std::size_t i = 0; i < y.rank(); ++i) {
    copy.from += op.begin[i] * copy.source[i];
    copy.source[i] *= op.step[i];
  }
  return {copy};
}

inline std::vector<StridedCopy> strided_copies(const Pad& op, const KernelRequest& request) {
  const Shape& x = request.inputs[0].shape;
  StridedCopy copy{x, x.strides(), request.outputs[0].shape.strides()};
  for (std::size_t i = 0; i < x.rank(); ++i) {
    copy.to += op.low[i] * copy.destination[i];
    copy.destination[i] *= op.inner[i] + 1;
  }
  return {copy};
}

inline std::vector<StridedCopy> strided_copies(const Concat& op, const KernelRequest& request) {
  const auto axis = static_cast<std::size_t>(op.axis);
  std::vector<StridedCopy> copies;
  std::int64_t to = 0;
  for (const auto& input : request.inputs) {
    copies.push_back({input.shape, input.shape.strides(), request.outputs[0].shape.strides(), 0, to});
    to += input.shape[axis] * copies.back().destination[axis];
  }
  return copies;
}

}  // namespace replicator::detail
