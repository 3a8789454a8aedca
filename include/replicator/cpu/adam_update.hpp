// SPDX-License-Identifier: Apache-2.0
// The kernel of Adam's update on the CPU: one loop. The Map of its formula makes eight passes over tiles (map.hpp) and takes three
// times as long. Both do the same operations with the same roundings, so the bits are equal.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>

#include <replicator/core/processor.hpp>
#include <replicator/cpu/loops/parallel.hpp>
#include <replicator/cpu/loops/tile_loops.hpp>
#include <replicator/graph/domain_layout.hpp>
#include <replicator/graph/kernel.hpp>
#include <replicator/graph/operation.hpp>
#include <replicator/ops/adam_update.hpp>

namespace replicator::detail::cpu {

namespace detail {

inline AdamConstants<float> rounded(const AdamConstants<double>& c) {
  const auto f = [](double x) { return static_cast<float>(x); };
  return {f(c.beta1), f(c.rest1), f(c.beta2), f(c.rest2), f(c.epsilon)};
}

struct AdamTensors {
  const float *p, *gradient, *first, *second;
  float *new_p, *new_first, *new_second;
  float kept, rate, factor;

  AdamTensors from(std::int64_t at) const {
    return {p + at, gradient + at, first + at, second + at, new_p + at, new_first + at, new_second + at, kept, rate, factor};
  }
};

// n is a multiple of 16. The new values may lie where the old ones do.
template <TileLoop square_root, bool decays>
[[gnu::always_inline]] inline void adam_loop(const AdamTensors& t, const AdamConstants<float>& constants, std::int64_t n) {
  const AdamConstants<float> c = constants;
  const float kept = t.kept, rate = t.rate, factor = t.factor;
  for (std::int64_t i = 0; i < n; i += tile_group) {
    const float *p = t.p + i, *g = t.gradient + i, *old_first = t.first + i, *old_second = t.second + i;
    float *new_p = t.new_p + i, *first = t.new_first + i, *second = t.new_second + i;
    alignas(64) float root[tile_group];
    REPLICATOR_VECTOR_LOOP
    for (std::int64_t j = 0; j < tile_group; ++j) first[j] = next_first_moment(old_first[j], g[j], c);
    REPLICATOR_VECTOR_LOOP
    for (std::int64_t j = 0; j < tile_group; ++j) second[j] = next_second_moment(old_second[j], g[j], c);
    square_root(root, {reinterpret_cast<const std::byte*>(second), 0}, {}, {}, tile_group);
    REPLICATOR_VECTOR_LOOP
    for (std::int64_t j = 0; j < tile_group; ++j) new_p[j] = next_weight(decays ? p[j] * kept : p[j], first[j], root[j], rate, factor, c);
  }
}

using AdamLoop = void (*)(const AdamTensors&, const AdamConstants<float>&, std::int64_t);
template <bool decays>
void adam_baseline(const AdamTensors& t, const AdamConstants<float>& c, std::int64_t n) {
  adam_loop<loop_square_root<float, FloatVector>, decays>(t, c, n);
}
template <bool decays>
[[REPLICATOR_AVX2_FMA]] void adam_avx2(const AdamTensors& t, const AdamConstants<float>& c, std::int64_t n) {
  adam_loop<loop_square_root_avx2, decays>(t, c, n);
}
template <bool decays>
[[REPLICATOR_AVX512]] void adam_avx512(const AdamTensors& t, const AdamConstants<float>& c, std::int64_t n) {
  adam_loop<loop_square_root_avx512, decays>(t, c, n);
}
template <bool decays>
AdamLoop adam_loop_of(InstructionLevel level) {
  return level == InstructionLevel::avx512 ? &adam_avx512<decays>
         : level == InstructionLevel::avx2 ? &adam_avx2<decays>
                                           : &adam_baseline<decays>;
}

// Runs the last, incomplete group of elements, padded with zeros.
inline void adam_tail(AdamLoop loop, const AdamTensors& t, const AdamConstants<float>& c, std::int64_t count) {
  constexpr std::size_t group = tile_group;
  alignas(64) float p[group] = {}, gradient[group] = {}, first[group] = {}, second[group] = {};
  const auto bytes = static_cast<std::size_t>(count) * sizeof(float);
  std::memcpy(p, t.p, bytes);
  std::memcpy(gradient, t.gradient, bytes);
  std::memcpy(first, t.first, bytes);
  std::memcpy(second, t.second, bytes);
  loop({p, gradient, first, second, p, first, second, t.kept, t.rate, t.factor}, c, tile_group);
  std::memcpy(t.new_p, p, bytes);
  std::memcpy(t.new_first, first, bytes);
  std::memcpy(t.new_second, second, bytes);
}

}  // namespace detail

class AdamUpdateExecutable final : public Executable {
 public:
  AdamUpdateExecutable(const AdamUpdate& update, const KernelRequest& request)
      : constants_{detail::rounded(update.constants)},
        loop_{update.decays ? detail::adam_loop_of<true>(instruction_level()) : detail::adam_loop_of<false>(instruction_level())},
        elements_{request.inputs[0].shape.elements()},
        threads_{elements_ < 32 * 1024 ? 1 : request.threads} {
    const Shape& domain = request.inputs[0].shape;
    const Layout layout = domain_layout(request, domain);
    input_layouts = demanded_layouts(request, domain, layout);
    output_layouts.assign(request.outputs.size(), layout);
    in_place = {0, 5, 6};
  }

  void run(const Launch& launch) const override {
    const auto input = [&](int i) { return reinterpret_cast<const float*>(launch.inputs[i]); };
    const auto output = [&](int o) { return reinterpret_cast<float*>(launch.outputs[o]); };
    const detail::AdamTensors all{input(0), input(1), input(5), input(6), output(0), output(1), output(2), *input(2), *input(3), *input(4)};
    parallel_for(threads_, (elements_ + tile_group - 1) / tile_group, [&](int, std::int64_t first, std::int64_t last) {
      const std::int64_t begin = first * tile_group, end = std::min(last * tile_group, elements_), whole = (end - begin) / tile_group * tile_group;
      loop_(all.from(begin), constants_, whole);
      if (begin + whole < end) detail::adam_tail(loop_, all.from(begin + whole), constants_, end - begin - whole);
    });
  }

 private:
  AdamConstants<float> constants_;
  detail::AdamLoop loop_;
  std::int64_t elements_;
  int threads_;
};

inline std::unique_ptr<Executable> make_adam_update(const KernelRequest& request) {
  return std::make_unique<AdamUpdateExecutable>(*request.operation.get<AdamUpdate>(), request);
}
inline constexpr Kernel adam_update_kernel{"cpu adam", &make_adam_update};
inline const bool adam_update_registered = register_kernel<AdamUpdate>(DeviceKind::cpu, KernelTier::reference, &adam_update_kernel);

}  // namespace replicator::detail::cpu
