// SPDX-License-Identifier: Apache-2.0
// What the kernels of attention do with a tile of weights. Each instruction set has its own loops, which give the same bits.
//
// A tile is stored with the queries innermost. Groups of 16 queries are one vector, or two, and each lane has its own maximum and sum.
#pragma once

#include <cstdint>

#include <replicator/cpu/attention/attention_bits.hpp>
#include <replicator/cpu/attention/small_product.hpp>

namespace replicator::detail::cpu {

// Part of a tile: rows of `keys` keys by the vectors of queries from `first_vector` on.
struct AttentionPart {
  std::int64_t first_key, keys, first_vector;
  // Words of AttentionBits for `first_vector` and the later ones. Null: all keys are seen, and all weights are kept.
  const std::uint16_t *seen = nullptr, *kept = nullptr;
  float kept_factor = 1;
};

struct AttentionLoops {
  MultiplySmall multiply;
  // Turns products into weights that add up to `sums`, where the largest scaled product so far is `largest`. What was weighed before
  // is to be multiplied by `factors`. Then drops weights.
  void (*weigh)(float* fits, const AttentionPart& part, std::int64_t vectors, float scale, float* largest, float* sums, float* factors);
  // Turns products into weights, and the gradients of weights into the gradients of the unscaled products.
  void (*weigh_back)(float* fits, float* slopes, const AttentionPart& part, std::int64_t vectors, const float* log_sums, const float* means, float scale);
  void (*scale_rows)(float* rows, const float* factors, std::int64_t count, std::int64_t columns);   // rows[i] *= factors[i]
  void (*divide_rows)(float* rows, const float* factors, std::int64_t count, std::int64_t columns);  // rows[i] *= 1 / factors[i]
  float (*dot)(const float* a, const float* b, std::int64_t count);                                  // the sum of a[i] b[i]
};

}  // namespace replicator::detail::cpu
