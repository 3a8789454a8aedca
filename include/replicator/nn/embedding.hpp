// SPDX-License-Identifier: Apache-2.0
// An embedding layer: a table of learned rows.
#pragma once

#include <cstdint>
#include <optional>
#include <source_location>
#include <string_view>

#include <replicator/nn/spectral_norm.hpp>
#include <replicator/ops/gather.hpp>
#include <replicator/resolve/replica_context.hpp>

namespace replicator::nn {

struct EmbeddingOptions {
  std::int64_t entries = 0;                               // rows of the table; must be given
  std::int64_t features = 0;                              // columns; must be given
  std::optional<Initializer> initializer = {};            // of the weight; default: normal with standard deviation 1
  std::optional<SpectralNormOptions> spectral_norm = {};  // if set, the weight is <name>.weight_orig and <name>.weight_u
};

// Looks up rows of the table by indices: int32 or int64 [I...] -> [I..., features].
// Variable: <name>.weight [entries, features]; float32 for bfloat16.
// Throws BuildError unless entries and features are at least 1. An index outside of [0, entries) throws DataError in
// the step, which names this layer.
template <FloatingElement T = float, Element I>
Tensor<T> embedding(ReplicaContext& replica, Tensor<I> indices, std::string_view name, const EmbeddingOptions& options,
                    std::source_location where = std::source_location::current()) {
  static_assert(IndexElement<I>, "replicator: nn::embedding takes indices of int32 or int64: rp::cast<std::int32_t>(indices)");
  const std::string title = "embedding \"" + replica.graph().scope() + std::string{name} + "\"";
  if (options.entries < 1 || options.features < 1)
    throw BuildError{replicator::detail::call_text(replica.id(), title, where) + ": entries and features must be at least 1, found " +
                     std::to_string(options.entries) + " and " + std::to_string(options.features)};
  const auto scope = replica.scope(name);
  const auto weight = detail::layer_weight<T>(replica, {options.entries, options.features},
                                              options.initializer.value_or(Initializer::normal(0, 1)), options.spectral_norm, 0, where);
  return Tensor<T>{compute(weight.graph(), Gather{0, {}, title}, {weight, indices}, where)};
}

}  // namespace replicator::nn
