// SPDX-License-Identifier: Apache-2.0
// Finds convolutions, and the elementwise nodes around them, that passes can fuse.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include <replicator/graph/map.hpp>
#include <replicator/graph/rewrite.hpp>
#include <replicator/ops/fusion/fused_convolution.hpp>

namespace replicator::detail::passes::detail {

// The convolution with everything that is fused with it so far. Empty for other nodes.
inline std::optional<FusedConvolution> fusible_convolution(const Node& node) {
  if (const auto* plain = operation_of<Convolution>(node)) return FusedConvolution{plain->options};
  if (const auto* fused = operation_of<FusedConvolution>(node)) return *fused;
  return std::nullopt;
}

// Whether an operand is read element for element, or has one number for each channel of such images.
inline bool is_image_or_channels(const TensorType& type, const Shape& image) {
  if (!FusedConvolution::takes(type.dtype)) return false;
  const auto& shape = type.shape;
  return shape == image || (shape.rank() >= 3 && shape[shape.rank() - 3] == image[1] && shape.elements() == image[1]);
}

// The node's Map, if it makes images of this type by arithmetic that a convolution can include. Otherwise null.
inline const Map* fusible_arithmetic(const Graph& graph, const Node& node, const TensorType& image) {
  const auto* map = operation_of<Map>(node);
  if (!map || !FusedConvolution::takes(image.dtype) || map->dtypes != std::vector{image.dtype} || !(map->domain == image.shape) ||
      !FusedConvolution::takes(*map->expression))
    return nullptr;
  const auto fits = [&](Value input) { return is_image_or_channels(graph.type(input), image.shape); };
  const auto large = [&](Value input) { return graph.type(input).shape == image.shape; };
  return std::all_of(node.inputs.begin(), node.inputs.end(), fits) && std::any_of(node.inputs.begin(), node.inputs.end(), large) ? map : nullptr;
}

// Finds nodes that are used once: one other node reads one output, and the graph does not return any.
class OnlyUser {
 public:
  explicit OnlyUser(const Graph& graph) : users_{users_of(graph)} {
    for (const auto result : graph.results()) users_[result.node].push_back(result.node);
  }
  bool of(std::uint32_t node) const { return users_[node].size() == 1; }

 private:
  std::vector<std::vector<std::uint32_t>> users_;
};

}  // namespace replicator::detail::passes::detail
