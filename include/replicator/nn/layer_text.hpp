// SPDX-License-Identifier: Apache-2.0
// How an error names a layer.
#pragma once

#include <source_location>
#include <string>
#include <string_view>

#include <replicator/core/location.hpp>
#include <replicator/resolve/replica_context.hpp>

namespace replicator::nn::detail {

// "replica 2: conv2d "stem" at resnet.cpp:41".
template <class = void>
std::string layer_text(const ReplicaContext& replica, std::string_view layer, std::string_view name, std::source_location where) {
  return replicator::detail::call_text(replica.id(), std::string{layer} + " \"" + std::string{name} + "\"", where);
}

}  // namespace replicator::nn::detail
