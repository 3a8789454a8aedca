// SPDX-License-Identifier: Apache-2.0
// Random input: different elements for each replica and position.
#pragma once

#include <cstdint>

#include <replicator/core/philox.hpp>
#include <replicator/data/generator.hpp>
#include <replicator/replicate/input_context.hpp>

namespace replicator::test {

using namespace replicator::detail;

inline auto random_rows(const Shape& shape) {
  return [shape](const InputContext& ctx) {
    return data::from_generator([shape, ctx](std::int64_t position) {
      PhiloxStream random{ctx.seed(), static_cast<std::uint64_t>(position), static_cast<std::uint32_t>(ctx.replica())};
      Array<float> x{shape};
      for (auto& value : x) value = random.uniform();
      return x;
    });
  };
}

}  // namespace replicator::test
