// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch.hpp>

#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include <replicator/core/philox.hpp>
#include <replicator/cpu/loops/bfloat16_loops.hpp>
#include <replicator/cpu/loops/convert.hpp>

namespace test_bfloat16_loops {

using namespace replicator;
using namespace replicator::detail;
using namespace replicator::detail::cpu;

namespace {

constexpr std::int64_t elements = 64;
using Floats = std::array<float, elements>;
using Halves = std::array<std::uint16_t, elements>;

template <class Values>
TileOperand operand(const Values& values, bool one_group = false) {
  const auto* data = reinterpret_cast<const std::byte*>(values.data());
  return {data, one_group ? 0 : static_cast<std::int64_t>(tile_group * sizeof(values[0]))};
}

// Numbers of all magnitudes, with zeros, infinities, NaN and subnormal numbers among them.
Halves random_halves(PhiloxStream& random) {
  constexpr std::uint16_t special[] = {0x0000, 0x8000, 0x7f80, 0xff80, 0x7fc0, 0x0001, 0x807f, 0x3f80};
  Halves halves;
  for (auto& half : halves) half = random.below(4) == 0 ? special[random.below(std::size(special))] : static_cast<std::uint16_t>(random.below(1 << 16));
  return halves;
}
Floats widened(const Halves& halves) {
  Floats floats;
  for (std::size_t i = 0; i < elements; ++i) floats[i] = bfloat16_value(halves[i]);
  return floats;
}
bool is_nan(std::uint16_t half) { return (half & 0x7fff) > 0x7f80; }

struct Operand {
  explicit Operand(PhiloxStream& random) : halves{random_halves(random)}, floats{widened(halves)} {}
  TileOperand as(bool stored, bool one_group) const { return stored ? operand(halves, one_group) : operand(floats, one_group); }
  Halves halves;
  Floats floats;
};

// What a loop gives, rounded to bfloat16 where it does not do that itself.
Halves result_of(TileLoop loop, bool rounds, const TileOperand& a, const TileOperand& b, const TileOperand& c) {
  Halves rounded;
  Floats floats;
  loop(rounds ? static_cast<void*>(rounded.data()) : floats.data(), a, b, c, elements);
  if (!rounds)
    for (std::size_t i = 0; i < elements; ++i) rounded[i] = bfloat16_bits(floats[i]);
  return rounded;
}

bool same(const Halves& a, const Halves& b) {
  for (std::size_t i = 0; i < elements; ++i)
    if (a[i] != b[i] && !(is_nan(a[i]) && is_nan(b[i]))) return false;
  return true;
}

}  // namespace

TEST_CASE("floats are rounded to bfloat16 with one set of bits, however that is done") {
  constexpr std::uint32_t lower[] = {0, 1, 0x3fff, 0x7fff, 0x8000, 0x8001, 0xc000, 0xffff};
  std::vector<float> values;
  for (std::uint32_t upper = 0; upper < 1 << 16; ++upper)
    for (const auto bits : lower) values.push_back(std::bit_cast<float>(upper << 16 | bits));
  const auto rounds_all = [&](TileLoop loop) {
    std::vector<std::uint16_t> rounded(values.size());
    const auto from = operand(values);
    loop(rounded.data(), from, from, from, static_cast<std::int64_t>(values.size()));
    for (std::size_t i = 0; i < values.size(); ++i)
      if (rounded[i] != bfloat16_bits(values[i])) FAIL(std::hex << std::bit_cast<std::uint32_t>(values[i]) << " is rounded to " << rounded[i]);
  };
  rounds_all(&cpu::detail::convert_loop<float, bfloat16>);
  if (instruction_level() != InstructionLevel::avx512) return;
  rounds_all(&cpu::detail::convert_loop_avx512<float, bfloat16>);
  if (cpu::detail::rounds_by_instruction()) rounds_all(&cpu::detail::convert_loop_avx512<float, cpu::detail::RoundedByInstruction>);
}

TEST_CASE("a loop on stored bfloat16 gives the bits of the loop on floats between conversions") {
  if (instruction_level() != InstructionLevel::avx512) {
    WARN("skipped: this processor has no AVX-512");
    return;
  }
  PhiloxStream random{11, 3};
  for (std::size_t index = 0; index < tile_ops; ++index) {
    const auto op = static_cast<TileOp>(index);
    for (unsigned storage = 1; storage < 16; ++storage) {
      const StoredOperands stored{(storage & 1) != 0, (storage & 2) != 0, (storage & 4) != 0, (storage & 8) != 0};
      const TileLoop loop = bfloat16_loop(op, stored, InstructionLevel::avx512);
      CHECK((loop != nullptr) == cpu::detail::has_lanes(op, stored));
      if (!loop) continue;
      for (int repeat = 0; repeat < 50; ++repeat) {
        const Operand a{random}, b{random}, c{random};
        const bool one_group = repeat % 2 != 0;  // of the second operand, for all of the others
        const auto plain = tile_loop(DType::float32, op, InstructionLevel::baseline);
        const auto want = result_of(plain, false, a.as(false, false), b.as(false, one_group), c.as(false, false));
        const auto got = result_of(loop, stored.out, a.as(stored.a, false), b.as(stored.b, one_group), c.as(stored.c, false));
        if (!same(got, want)) FAIL("operation " << index << ", storage " << storage);
      }
    }
  }
}

TEST_CASE("only AVX-512 has loops on stored bfloat16") {
  CHECK(bfloat16_loop(TileOp::rectify_by, {true, true}, InstructionLevel::avx2) == nullptr);
  CHECK(bfloat16_loop(TileOp::rectify_by, {true, true}, InstructionLevel::baseline) == nullptr);
  CHECK(bfloat16_loop(TileOp::rectify_by, {true, true}, InstructionLevel::avx512) != nullptr);
  CHECK(bfloat16_loop(TileOp::less_then_multiply, {true}, InstructionLevel::avx512) == nullptr);
  CHECK(bfloat16_loop(TileOp::rectify_by, {}, InstructionLevel::avx512) == nullptr);
}

}  // namespace test_bfloat16_loops
