// SPDX-License-Identifier: Apache-2.0
// Two replicas that train on small random images, for tests that compare ways to run the same step.
#pragma once

#include <cstdint>

#include <replicator/core/philox.hpp>
#include <replicator/data/generator.hpp>
#include <replicator/replicate/deployment.hpp>
#include <replicator/replicate/input_context.hpp>

namespace replicator::test {

inline Deployment two_replicas_on(const char* devices, bool capture) {
  const char* const arguments[] = {"--replicas", "2", "--input-threads", "1", "--devices", devices};
  auto deployment = Deployment::from(arguments);
  deployment.capture = capture;
  return deployment;
}

// float32 [2, 3, 6, 6] in [-1, 1), for each replica.
inline auto small_images(const InputContext& ctx) {
  return data::from_generator([n = ctx.replica_batch(4), ctx](std::int64_t position) {
    PhiloxStream random{ctx.seed(), static_cast<std::uint64_t>(position), static_cast<std::uint32_t>(ctx.replica())};
    Array<float> images{{n, 3, 6, 6}};
    for (auto& value : images) value = 2 * random.uniform() - 1;
    return images;
  });
}

}  // namespace replicator::test
