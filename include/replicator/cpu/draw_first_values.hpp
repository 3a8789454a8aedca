// SPDX-License-Identifier: Apache-2.0
// The code of initialize.hpp: draws the values.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include <replicator/core/array.hpp>
#include <replicator/cpu/draw.hpp>
#include <replicator/cpu/draw_orthogonal.hpp>
#include <replicator/cpu/initialize.hpp>
#include <replicator/graph/variable.hpp>

namespace replicator::detail::cpu {

template <class>
void initialize(AnyArray& array, const Initializer& initializer, std::uint64_t seed, std::uint64_t stream) {
  constexpr std::uint32_t substream = 0x696E6974;
  visit_dtype(array.dtype(), [&]<class T>() {
    const auto values = array.as<T>();
    switch (initializer.kind) {
      case Initializer::Kind::uniform: return draw_uniform(values, seed, stream, substream, initializer.a.real(), initializer.b);
      case Initializer::Kind::normal: return draw_normal(values, seed, stream, substream, initializer.a.real(), initializer.b);
      case Initializer::Kind::truncated_normal: return draw_truncated_normal(values, seed, stream, substream, initializer.a.real(), initializer.b);
      case Initializer::Kind::orthogonal:
        return draw_orthogonal(values, static_cast<std::size_t>(array.shape()[0]), seed, stream, substream, initializer.a.real());
      default:
        if (!is_zero(initializer)) std::fill(values.begin(), values.end(), initializer.a.as<T>());
    }
  });
}

}  // namespace replicator::detail::cpu
