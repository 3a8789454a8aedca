// SPDX-License-Identifier: Apache-2.0
// Ready-made data for hello.cpp: points in the plane, each with a number to learn.
#pragma once

#include <cstdint>
#include <tuple>

#include <replicator/core/array.hpp>
#include <replicator/core/philox.hpp>
#include <replicator/data/generator.hpp>
#include <replicator/data/input.hpp>

namespace example {

// Elements (x [n, 2] in [-1, 1), y [n, 1] = 0.75 x0 - 0.5 x1), where n is this replica's share of `batch`. They depend on
// the seed, the step and the replica alone, so every placement sees the same points.
inline auto points(const replicator::InputContext& ctx, std::int64_t batch) {
  namespace rp = replicator;
  return rp::data::from_generator([n = ctx.replica_batch(batch), ctx](std::int64_t position) {
    rp::PhiloxStream random{ctx.seed(), static_cast<std::uint64_t>(position), static_cast<std::uint32_t>(ctx.replica())};
    rp::Array<float> x{{n, 2}}, y{{n, 1}};
    for (auto& value : x) value = 2 * random.uniform() - 1;
    for (std::int64_t i = 0; i < n; ++i) y[i] = 0.75f * x[2 * i] - 0.5f * x[2 * i + 1];
    return std::tuple{x, y};
  });
}

}  // namespace example
