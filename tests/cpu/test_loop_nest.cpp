// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch.hpp>

#include <replicator/cpu/loops/loop_nest.hpp>

#include "elementwise_cases.hpp"

namespace test_loop_nest {

using namespace replicator;
using namespace replicator::detail;
using namespace replicator::test;

TEST_CASE("a blocked layout is more loops: nChw16c is N, C/16, H, W, 16") {
  const Shape shape{2, 32, 5, 7};
  const auto loops = cpu::storage_loops(shape, blocked(shape, 1, 16));
  REQUIRE(loops.size() == 5);
  const std::int64_t extents[] = {2, 2, 5, 7, 16};
  const std::size_t axes[] = {0, 1, 2, 3, 1};
  const std::int64_t steps[] = {1, 16, 1, 1, 1};
  for (std::size_t i = 0; i < 5; ++i) {
    CHECK(loops[i].extent == extents[i]);
    CHECK(loops[i].axis == axes[i]);
    CHECK(loops[i].step == steps[i]);
  }
}

TEST_CASE("neighbouring loops of an operand are merged where they are one") {
  const Shape shape{2, 32, 5, 7};
  const auto plain = cpu::storage_loops(shape, {});
  CHECK(cpu::is_linear(cpu::operand_loops(plain, shape, shape)));
  CHECK(cpu::operand_loops(plain, shape, {}).size() == 1);
  CHECK(cpu::operand_loops(plain, shape, {32, 1, 1}).size() == 3);  // images, channels, pixels
  CHECK(cpu::operand_loops(cpu::storage_loops(shape, blocked(shape, 1, 16)), shape, {32, 1, 1}).size() == 4);
  CHECK(cpu::is_linear(cpu::operand_loops(cpu::storage_loops({1, 9}, {}), {1, 9}, {9})));
}

TEST_CASE("a broadcast operand is presented as its elements, from any position") {
  CHECK(rc::check([] {
    static const Shape shapes[] = {{6, 16, 5, 7}, {3, 32, 4, 4}, {40, 10}, {5, 64}, {2, 3, 100}, {200, 3}};
    for (int repeat = 0; repeat < 10; ++repeat) {
      const Shape& domain = shapes[draw(0, static_cast<int>(std::size(shapes)))];
      const Layout layout = domain.rank() == 4 && draw(0, 2) ? blocked(domain, 1, 16) : Layout{};
      Shape operand;
      for (std::size_t a = 0; a < domain.rank(); ++a) operand.push_back(draw(0, 2) ? domain[a] : 1);
      const auto loops = cpu::storage_loops(domain, layout);
      const cpu::BroadcastOperand broadcast{cpu::operand_loops(loops, domain, operand), 4};
      std::vector<std::int32_t> values(static_cast<std::size_t>(operand.elements())), expected(static_cast<std::size_t>(domain.elements()));
      for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<std::int32_t>(i);
      for_each_index(domain, [&](const Index& index) {
        expected[static_cast<std::size_t>(offset_in(layout, domain, index))] =
            values[static_cast<std::size_t>(broadcast_offset(operand, domain, index))];
      });
      std::vector<std::int32_t> buffer(256);
      cpu::BroadcastOperand::State state;
      const std::int64_t tile = 16 * draw(1, 8);
      for (std::int64_t position = draw(0, 40); position < domain.elements(); position += tile) {
        const std::int64_t count = std::min(tile, domain.elements() - position);
        const auto seen = broadcast.present(reinterpret_cast<const std::byte*>(values.data()),
                                            reinterpret_cast<std::byte*>(buffer.data()), position, count, state);
        for (std::int64_t i = 0; i < count; ++i) {
          std::int32_t value;
          std::memcpy(&value, seen.data + i / 16 * seen.step + i % 16 * 4, 4);
          RC_ASSERT(value == expected[static_cast<std::size_t>(position + i)]);
        }
      }
    }
  }));
}

}  // namespace test_loop_nest
