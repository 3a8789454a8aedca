// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch.hpp>

#include <sys/mman.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <replicator/cpu/copies/rectangle.hpp>

#include "copy_cases.hpp"

namespace test_rectangle {

using namespace replicator;
using namespace replicator::detail;
using namespace replicator::test;

namespace {

// Bytes that end where memory does: whoever reads behind them is killed.
class GuardedBytes {
 public:
  explicit GuardedBytes(std::size_t size) {
    void* const memory = ::mmap(nullptr, 2 * half, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    REQUIRE(memory != MAP_FAILED);
    pages_ = static_cast<std::byte*>(memory);
    REQUIRE(::mprotect(pages_ + half, half, PROT_NONE) == 0);
    data_ = pages_ + half - size;
    for (std::size_t i = 0; i < size; ++i) data_[i] = static_cast<std::byte>(1 + i * 37 % 251);
  }
  GuardedBytes(const GuardedBytes&) = delete;
  GuardedBytes& operator=(const GuardedBytes&) = delete;
  ~GuardedBytes() { ::munmap(pages_, 2 * half); }
  const std::byte* data() const { return data_; }

 private:
  static constexpr std::size_t half = 1 << 14;
  std::byte *pages_, *data_;
};

// Rows in no order, next to each other, of which the last ends with the memory.
bool moves(bool transposed, bool halves, int rows, int columns, cpu::InstructionLevel level) {
  const std::int64_t row_bytes = columns * (halves ? 2 : 4), other_half = halves ? rows * row_bytes : 0;
  const GuardedBytes source{static_cast<std::size_t>(rows * row_bytes * (halves ? 2 : 1))};
  std::array<std::int64_t, 16> row_at{}, result_at{};
  for (int r = 0; r < rows; ++r) row_at[static_cast<std::size_t>(r)] = (rows - 1 - r) * row_bytes;
  for (int r = 0; r < 16; ++r) result_at[static_cast<std::size_t>(r)] = 5 * r % 16 * 68;
  std::vector<std::byte> result(16 * 68, std::byte{0});
  auto expected = result;
  for (int r = 0; r < rows; ++r)
    for (int c = 0; c < columns; ++c)
      for (int b = 0; b < 4; ++b) {
        const std::int64_t to = transposed ? result_at[static_cast<std::size_t>(c)] + 4 * r : result_at[static_cast<std::size_t>(r)] + 4 * c;
        const std::int64_t from = halves ? b / 2 * other_half + 2 * c + b % 2 : 4 * c + b;
        expected[static_cast<std::size_t>(to + b)] = source.data()[row_at[static_cast<std::size_t>(r)] + from];
      }
  cpu::rectangle_move(transposed, level)(source.data(), result.data(), {row_at.data(), result_at.data(), rows, columns}, other_half);
  return result == expected;
}

}  // namespace

TEST_CASE("a rectangle of any size is moved, transposed or not, of words or of their halves; nothing beside it is read or written") {
  for (const auto level : instruction_levels())
    for (const bool transposed : {false, true})
      for (const bool halves : {false, true})
        for (int rows = 1; rows <= cpu::Rectangle::side; ++rows)
          for (int columns = 1; columns <= cpu::Rectangle::side; ++columns)
            if (!moves(transposed, halves, rows, columns, level))
              FAIL_CHECK(name_of(level) << ": " << rows << " x " << columns << (transposed ? " transposed" : "") << (halves ? ", of halves" : ""));
}

}  // namespace test_rectangle
