// SPDX-License-Identifier: Apache-2.0
// The kernels of attention and its gradient on the CPU, in float32 on AVX2 and AVX-512, with the same bits. Tiles of 64 queries and
// 64 keys stay in the cache, and the weights are never stored as a whole. Tiles behind the diagonal of causal attention are left
// out, and so are tiles that a mask hides.
//
// Key tiles are taken in ascending order, and so are heads and query blocks where they add to the same keys. Threads share the blocks
// of the forward pass, and the heads of keys of the backward pass. So their number changes no bit.
//
// Sources: Milakov and Gimelshein, "Online normalizer calculation for softmax", 2018; Rabe and Staats, "Self-attention does not need
// O(n^2) memory", 2021; Dao et al., "FlashAttention", 2022.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <span>
#include <vector>

#include <replicator/core/processor.hpp>
#include <replicator/cpu/attention/attention_avx2.hpp>
#include <replicator/cpu/attention/attention_avx512.hpp>
#include <replicator/cpu/copies/rectangle.hpp>
#include <replicator/cpu/loops/parallel.hpp>
#include <replicator/cpu/loops/vector_math.hpp>
#include <replicator/cpu/random.hpp>
#include <replicator/graph/kernel.hpp>
#include <replicator/ops/attention.hpp>
#include <replicator/ops/matmul.hpp>

#if defined(__x86_64__)

namespace replicator::detail::cpu {

namespace detail {

// What both passes have in common: the extents, and a walk through the tiles.
struct AttentionWalk {
  std::int64_t queries, keys, depth, features;
  Attention op;
  std::vector<std::int64_t> key_heads = {};             // of each head: that of its keys and values
  std::vector<std::vector<std::int64_t>> sharers = {};  // of each head of keys: its heads, in ascending order
  std::vector<std::int64_t> masks = {};                 // of each head: where its mask begins; empty without one
  std::int64_t mask_row = 0;                            // bytes between rows of a mask
  bool one_key = false;                                 // a row of a mask has one element for all keys
  const AttentionLoops* loops = instruction_level() == InstructionLevel::avx512 ? &attention_avx512 : &attention_avx2;

  // `mask` is the mask's type, or nothing.
  AttentionWalk(std::span<const TensorType> inputs, std::span<const TensorType> mask, const Attention& op)
      : queries{inputs[0].shape[-2]}, keys{inputs[1].shape[-2]}, depth{inputs[0].shape[-1]}, features{inputs[2].shape[-1]}, op{op} {
    const Shape &q = inputs[0].shape, &k = inputs[1].shape;
    const MatmulBatch by_keys = matmul_batch({}, q, k);
    const std::int64_t count = q.elements() / (queries * depth);
    sharers.resize(static_cast<std::size_t>(k.elements() / (keys * depth)));
    for (std::int64_t head = 0; head < count; ++head) {
      key_heads.push_back(by_keys.of(head).b);
      sharers[static_cast<std::size_t>(key_heads.back())].push_back(head);
    }
    if (mask.empty()) return;
    Shape shape = mask[0].shape;
    while (shape.rank() < 2) shape = Shape{1, shape.elements()};
    one_key = shape[-1] == 1;
    mask_row = shape[-2] == 1 ? 0 : shape[-1];
    const MatmulBatch by_masks = matmul_batch({}, q, shape);
    for (std::int64_t head = 0; head < count; ++head) masks.push_back(by_masks.of(head).b * shape[-2] * shape[-1]);
  }

  std::int64_t heads() const { return static_cast<std::int64_t>(key_heads.size()); }
  std::int64_t blocks() const { return (queries + attention_tile - 1) / attention_tile; }
  std::int64_t rows(std::int64_t first) const { return std::min(attention_tile, queries - first); }
  static std::int64_t vectors(std::int64_t rows) { return (rows + tile_group - 1) / tile_group; }
  float scale() const { return static_cast<float>(op.scale); }

  // Calls `visit` for the parts that a head's block of queries from `first` on sees, in ascending order of the keys. `mask` is the input
  // with that number.
  template <class Visit>
  void parts(const Launch& launch, std::size_t mask, std::int64_t head, std::int64_t first, const Visit& visit) const {
    const std::byte* const own_mask = masks.empty() ? nullptr : launch.inputs[mask] + masks[static_cast<std::size_t>(head)];
    const AttentionDropout dropout{first_block(launch.context, launch.context.replica, op.trace_index), philox_key(launch.context),
                                   AttentionDropout::threshold_of(op.dropout), static_cast<float>(1 / (1 - op.dropout))};
    const std::int64_t numbers = numbers_for_keys(keys);
    AttentionBits seen, kept;
    const auto draw = [&](std::int64_t first_key) {
      if (op.dropout > 0) draw_kept(dropout, (head * queries + first) * numbers + first_key, numbers, vectors(rows(first)), kept);
    };
    const auto see = [&](AttentionPart part, bool diagonal) {
      const std::int64_t query = first + part.first_vector * tile_group, left = first + rows(first) - query;
      if (diagonal) part.seen = diagonal_bits.data();
      if (own_mask) {
        if (!read_mask(own_mask + query * mask_row + (one_key ? 0 : part.first_key), mask_row, one_key, left, part.keys, seen)) return;
        for (std::size_t i = 0; diagonal && i < seen.size(); ++i) seen[i] = static_cast<std::uint16_t>(seen[i] & diagonal_bits[i]);
        part.seen = seen.data();
      }
      if (!diagonal) draw(part.first_key);
      if (op.dropout > 0) {
        part.kept = kept.data() + part.first_vector * (attention_tile + tile_group);  // parts of the diagonal share a tile
        part.kept_factor = dropout.factor;
      }
      visit(part);
    };
    const std::int64_t whole = op.causal ? first : keys;
    for (std::int64_t key = 0; key < whole; key += attention_tile) see({key, std::min(attention_tile, whole - key), 0}, false);
    if (!op.causal) return;
    draw(first);
    for (std::int64_t v = 0; v < vectors(rows(first)); ++v) see({first + v * tile_group, std::min(tile_group, rows(first) - v * tile_group), v}, true);
  }

  // Stores `rows` rows of `columns` floats as columns of 64. What is left of the last vector becomes 0.
  static void transpose(const float* from, std::int64_t rows, std::int64_t columns, float* to) {
    static const RectangleMove move = rectangle_move(true, instruction_level());
    std::int64_t row_at[Rectangle::side], result_at[Rectangle::side];
    for (std::int64_t i = 0; i < Rectangle::side; ++i) row_at[i] = i * columns * 4, result_at[i] = i * attention_tile * 4;
    if (rows % tile_group != 0) std::memset(to, 0, static_cast<std::size_t>(columns * attention_tile) * sizeof(float));
    for (std::int64_t r = 0; r < rows; r += Rectangle::side)
      for (std::int64_t c = 0; c < columns; c += Rectangle::side)
        move(reinterpret_cast<const std::byte*>(from + r * columns + c), reinterpret_cast<std::byte*>(to + c * attention_tile + r),
             {row_at, result_at, static_cast<int>(std::min<std::int64_t>(Rectangle::side, rows - r)), static_cast<int>(std::min<std::int64_t>(Rectangle::side, columns - c))}, 0);
  }
};

inline constexpr std::int64_t attention_weights = attention_tile * attention_tile;  // of a tile

class AttentionTiles final : public Executable {
 public:
  AttentionTiles(const AttentionWalk& walk, int threads) : w_{walk}, threads_{threads} {
    input_layouts.resize(walk.masks.empty() ? 3 : 4);
    output_layouts.resize(2);
    in_place = {-1, -1};
    scratch_bytes = static_cast<std::size_t>(threads * own_floats()) * sizeof(float);
  }
  void run(const Launch& launch) const override {
    parallel_for(threads_, w_.heads() * w_.blocks(), [&](int thread, std::int64_t begin, std::int64_t end) {
      float* const own = reinterpret_cast<float*>(launch.scratch) + thread * own_floats();
      for (std::int64_t i = begin; i < end; ++i) {
        const std::int64_t turn = i % w_.blocks(), block = turn % 2 == 0 ? turn / 2 : w_.blocks() - 1 - turn / 2;  // causal ones: short, long, short, ..
        run_block(launch, i / w_.blocks(), block * attention_tile, own);
      }
    });
  }

 private:
  std::int64_t own_floats() const { return w_.depth * attention_tile + attention_weights + 3 * attention_tile; }

  void run_block(const Launch& launch, std::int64_t head, std::int64_t first, float* own) const {
    const float* const q = reinterpret_cast<const float*>(launch.inputs[0]) + (head * w_.queries + first) * w_.depth;
    const std::int64_t first_key = w_.key_heads[static_cast<std::size_t>(head)] * w_.keys;
    const float* const k = reinterpret_cast<const float*>(launch.inputs[1]) + first_key * w_.depth;
    const float* const v = reinterpret_cast<const float*>(launch.inputs[2]) + first_key * w_.features;
    float* const y = reinterpret_cast<float*>(launch.outputs[0]) + (head * w_.queries + first) * w_.features;
    float* const log_sums = reinterpret_cast<float*>(launch.outputs[1]) + head * w_.queries + first;
    float *const turned = own, *const fits = turned + w_.depth * attention_tile, *const largest = fits + attention_weights, *const sums = largest + attention_tile,
                 *const factors = sums + attention_tile;
    const std::int64_t rows = w_.rows(first), vectors = w_.vectors(rows);
    w_.transpose(q, rows, w_.depth, turned);
    std::fill(largest, largest + attention_tile, -std::numeric_limits<float>::infinity());
    std::fill(sums, sums + attention_tile, 0.0f);
    std::fill_n(y, rows * w_.features, 0.0f);
    w_.parts(launch, 3, head, first, [&](const AttentionPart& part) {
      const std::int64_t skipped = part.first_vector * tile_group, width = vectors * tile_group - skipped;
      w_.loops->multiply({part.keys, w_.depth, width}, {k + part.first_key * w_.depth, w_.depth}, {turned + skipped, attention_tile}, {fits + skipped, attention_tile}, false);
      w_.loops->weigh(fits, part, vectors, w_.scale(), largest, sums, factors);
      if (part.first_key > 0) w_.loops->scale_rows(y + skipped * w_.features, factors + skipped, rows - skipped, w_.features);
      w_.loops->multiply({rows - skipped, part.keys, w_.features}, {fits + skipped, 1, attention_tile}, {v + part.first_key * w_.features, w_.features},
                         {y + skipped * w_.features, w_.features}, true);
    });
    if (!w_.masks.empty()) std::replace(sums, sums + rows, 0.0f, 1.0f);  // of queries that see no key
    w_.loops->divide_rows(y, sums, rows, w_.features);
    for (std::int64_t i = 0; i < rows; ++i) log_sums[i] = largest[i] + vector_math::log(sums[i]);
  }

  AttentionWalk w_;
  int threads_;
};

class AttentionGradientTiles final : public Executable {
 public:
  AttentionGradientTiles(const AttentionWalk& walk, int threads) : w_{walk}, threads_{threads} {
    input_layouts.resize(walk.masks.empty() ? 6 : 7);
    output_layouts.resize(3);
    in_place = {-1, -1, -1};
    scratch_bytes = static_cast<std::size_t>(threads * own_floats()) * sizeof(float);
  }
  void run(const Launch& launch) const override {
    parallel_for(threads_, static_cast<std::int64_t>(w_.sharers.size()), [&](int thread, std::int64_t begin, std::int64_t end) {
      float* const own = reinterpret_cast<float*>(launch.scratch) + thread * own_floats();
      for (std::int64_t key_head = begin; key_head < end; ++key_head) {
        std::fill_n(reinterpret_cast<float*>(launch.outputs[1]) + key_head * w_.keys * w_.depth, w_.keys * w_.depth, 0.0f);
        std::fill_n(reinterpret_cast<float*>(launch.outputs[2]) + key_head * w_.keys * w_.features, w_.keys * w_.features, 0.0f);
        for (const std::int64_t head : w_.sharers[static_cast<std::size_t>(key_head)])
          for (std::int64_t first = 0; first < w_.queries; first += attention_tile) run_block(launch, head, first, own);
      }
    });
  }

 private:
  std::int64_t own_floats() const { return (w_.depth + w_.features) * attention_tile + 2 * attention_weights + 2 * attention_tile; }

  void run_block(const Launch& launch, std::int64_t head, std::int64_t first, float* own) const {
    const auto in = [&](std::size_t i, std::int64_t at) { return reinterpret_cast<const float*>(launch.inputs[i]) + at; };
    const auto out = [&](std::size_t i, std::int64_t at) { return reinterpret_cast<float*>(launch.outputs[i]) + at; };
    const std::int64_t d = w_.depth, e = w_.features, query = head * w_.queries + first, key = w_.key_heads[static_cast<std::size_t>(head)] * w_.keys;
    const float *const q = in(0, query * d), *const k = in(1, key * d), *const v = in(2, key * e), *const y = in(3, query * e), *const dy = in(5, query * e);
    float *const dq = out(0, query * d), *const dk = out(1, key * d), *const dv = out(2, key * e);
    float *const turned = own, *const turned_dy = turned + d * attention_tile, *const fits = turned_dy + e * attention_tile, *const slopes = fits + attention_weights,
                 *const log_sums = slopes + attention_weights, *const means = log_sums + attention_tile;
    const std::int64_t rows = w_.rows(first), vectors = w_.vectors(rows);
    w_.transpose(q, rows, d, turned);
    w_.transpose(dy, rows, e, turned_dy);
    std::fill(log_sums, log_sums + 2 * attention_tile, 0.0f);
    std::copy_n(in(4, query), rows, log_sums);
    for (std::int64_t i = 0; i < rows; ++i) means[i] = w_.loops->dot(y + i * e, dy + i * e, e);
    std::fill_n(dq, rows * d, 0.0f);
    w_.parts(launch, 6, head, first, [&](const AttentionPart& part) {
      const std::int64_t skipped = part.first_vector * tile_group, width = vectors * tile_group - skipped, seeing = rows - skipped;
      const float *const keys = k + part.first_key * d, *const values = v + part.first_key * e;
      w_.loops->multiply({part.keys, d, width}, {keys, d}, {turned + skipped, attention_tile}, {fits + skipped, attention_tile}, false);
      w_.loops->multiply({part.keys, e, width}, {values, e}, {turned_dy + skipped, attention_tile}, {slopes + skipped, attention_tile}, false);
      w_.loops->weigh_back(fits, slopes, part, vectors, log_sums, means, w_.scale());
      w_.loops->multiply({part.keys, seeing, e}, {fits + skipped, attention_tile}, {dy + skipped * e, e}, {dv + part.first_key * e, e}, true);
      w_.loops->multiply({part.keys, seeing, d}, {slopes + skipped, attention_tile}, {q + skipped * d, d}, {dk + part.first_key * d, d}, true);
      w_.loops->multiply({seeing, part.keys, d}, {slopes + skipped, 1, attention_tile}, {keys, d}, {dq + skipped * d, d}, true);
    });
  }

  AttentionWalk w_;
  int threads_;
};

inline std::unique_ptr<Executable> make_attention(const KernelRequest& request) {
  return std::make_unique<AttentionTiles>(AttentionWalk{request.inputs, request.inputs.subspan(3), *request.operation.get<Attention>()}, request.threads);
}
inline std::unique_ptr<Executable> make_attention_gradient(const KernelRequest& request) {
  return std::make_unique<AttentionGradientTiles>(AttentionWalk{request.inputs, request.inputs.subspan(6), request.operation.get<AttentionGradient>()->of}, request.threads);
}

}  // namespace detail

inline constexpr Kernel attention_tiles{"attention tiles", &detail::make_attention};
inline constexpr Kernel attention_gradient_tiles{"attention gradient tiles", &detail::make_attention_gradient};
// Without AVX2 both operations are expanded.
inline const bool attention_registered = instruction_level() != InstructionLevel::baseline &&
                                         register_kernel<Attention>(DeviceKind::cpu, KernelTier::reference, &attention_tiles) &&
                                         register_kernel<AttentionGradient>(DeviceKind::cpu, KernelTier::reference, &attention_gradient_tiles);

}  // namespace replicator::detail::cpu

#endif
