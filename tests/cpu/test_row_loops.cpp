// SPDX-License-Identifier: Apache-2.0
// Loops whose operands have one element for each row have the bits of loops that read the elements repeated.
#include <catch2/catch.hpp>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include <replicator/core/philox.hpp>
#include <replicator/cpu/loops/row_loops.hpp>

namespace test_row_loops {

using namespace replicator;
using namespace replicator::detail;
using cpu::tile_group;
using cpu::TileOperand;

namespace {

std::vector<float> random_values(std::int64_t count, PhiloxStream& random) {
  std::vector<float> values(static_cast<std::size_t>(count));
  for (auto& value : values) value = static_cast<float>(20.0 * random.uniform() - 10);
  return values;
}
TileOperand places(const std::vector<float>& values) { return {reinterpret_cast<const std::byte*>(values.data()), tile_group * 4}; }

// Three operands of `count` places, from `inside` places behind the beginning of a row of `run` on.
struct Operands {
  Operands(std::int64_t run, std::int64_t inside, std::int64_t count, PhiloxStream& random)
      : whole{(count + tile_group - 1) / tile_group * tile_group} {
    for (int o = 0; o < 3; ++o) {
      const auto many = (inside + count + run - 1) / run;                   // rows
      rows[o] = std::make_unique<float[]>(static_cast<std::size_t>(many));  // no element more: AddressSanitizer sees a read behind it
      const auto values = random_values(many, random);
      std::copy(values.begin(), values.end(), rows[o].get());
      full[o] = random_values(whole, random);
      for (std::int64_t i = 0; i < whole; ++i) repeated[o].push_back(values[static_cast<std::size_t>(std::min((inside + i) / run, many - 1))]);
      by_row[o] = {reinterpret_cast<const std::byte*>(rows[o].get()), 0, run, inside, count};
    }
  }
  TileOperand operand(int o, unsigned as_rows, bool are_repeated) const {
    if ((as_rows >> o & 1) == 0) return places(full[o]);
    return are_repeated ? places(repeated[o]) : by_row[o];
  }
  std::vector<float> run(cpu::TileLoop loop, unsigned as_rows, bool are_repeated) const {
    std::vector<float> out(static_cast<std::size_t>(whole));
    loop(out.data(), operand(0, as_rows, are_repeated), operand(1, as_rows, are_repeated), operand(2, as_rows, are_repeated), whole);
    return out;
  }

  std::int64_t whole;
  std::unique_ptr<float[]> rows[3];
  std::vector<float> full[3], repeated[3];
  TileOperand by_row[3];
};

}  // namespace

TEST_CASE("an operand with one element for each row gives the bits of the elements repeated, wherever a tile begins and ends") {
  PhiloxStream random{3, 4};
  for (const auto& [op, rows, loops] : cpu::detail::row_loops)
    for (const std::int64_t run : {16, 17, 31, 32, 48, 257, 1000})
      for (int i = 0; i < 12; ++i) {
        const std::int64_t inside = i == 0 ? 0 : random.below(static_cast<std::uint32_t>(run)), count = 1 + random.below(i < 6 ? 100 : 1024);
        CAPTURE(static_cast<int>(op), rows, run, inside, count);
        const Operands operands{run, inside, count, random};
        for (int level = 0; level <= static_cast<int>(cpu::instruction_level()); ++level) {
          const auto expected = operands.run(cpu::tile_loop(DType::float32, op, static_cast<cpu::InstructionLevel>(level)), rows, true);
          const auto found = operands.run(cpu::row_loop(op, rows, static_cast<cpu::InstructionLevel>(level)), rows, false);
          CHECK(std::memcmp(found.data(), expected.data(), static_cast<std::size_t>(count) * sizeof(float)) == 0);
        }
      }
}

TEST_CASE("operands for which there is no loop by rows are told apart") {
  CHECK(cpu::row_loop(cpu::TileOp::subtract_then_exponential, 1, cpu::InstructionLevel::baseline) == nullptr);
  CHECK(cpu::row_loop(cpu::TileOp::sigmoid, 1, cpu::InstructionLevel::avx2) == nullptr);
}

}  // namespace test_row_loops
