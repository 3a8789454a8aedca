// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch.hpp>

#include <cstddef>
#include <cstdint>
#include <vector>

#include <replicator/core/philox.hpp>
#include <replicator/cpu/loops/philox_tile.hpp>

namespace test_philox_tile {

using namespace replicator;
using namespace replicator::detail;
using namespace replicator::detail::cpu::detail;

TEST_CASE("a tile has the words of 16 blocks of the generator, at every instruction level") {
  std::vector<PhiloxTile> levels{&philox_tile_baseline, philox_tile()};
#if defined(__x86_64__)
  if (has_avx2()) levels.push_back(&avx2::philox_tile);
#endif
  const std::uint32_t first = GENERATE(0u, 1000u, 0xfffffff8u);  // the last one passes 2^32
  const PhiloxCounter rest = GENERATE(PhiloxCounter{0, 0, 0, 0}, PhiloxCounter{0, 7, 0x80000001u, 0xffffffffu});
  const PhiloxKey key = GENERATE(PhiloxKey{0, 0}, PhiloxKey{0x9abcdef0u, 0xffffffffu});
  for (const PhiloxTile tile : levels) {
    PhiloxWords words;
    tile({first, rest[1], rest[2], rest[3]}, key, words);
    for (std::size_t j = 0; j < philox_lanes; ++j) {
      const auto block = philox({first + static_cast<std::uint32_t>(j), rest[1], rest[2], rest[3]}, key);
      for (std::size_t word = 0; word < 4; ++word) CHECK(words[word][j] == block[word]);
    }
  }
}

}  // namespace test_philox_tile
