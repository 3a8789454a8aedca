// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdio>
#include <filesystem>
#include <replicator/io/picture_grid.hpp>
#include <replicator/io/png.hpp>
#include <vector>

namespace test_png {

using namespace replicator;

namespace {
std::vector<std::byte> png_of(const Array<std::uint8_t>& pixels) {
  const auto path =
      (std::filesystem::temp_directory_path() / ("replicator_" + std::to_string(::getpid()) + ".png")).string();
  io::write_png(path, pixels);
  std::vector<std::byte> bytes;
  io::read_file(path, bytes);
  std::filesystem::remove(path);
  return bytes;
}
}  // namespace

TEST_CASE("a 2x1 grey PNG has exactly the bytes that the standard asks for") {
  // Checksums from zlib's crc32 and adler32.
  const std::vector<int> expected{
      0x89, 'P',  'N',  'G',  '\r', '\n', 0x1A, '\n', 0, 0,   0,    13,   'I',  'H',  'D',  'R',  0,    0,
      0,    2,    0,    0,    0,    1,    8,    0,    0, 0,   0,    0xD1, 0x49, 0x20, 0x56, 0,    0,    0,
      14,   'I',  'D',  'A',  'T',  0x78, 1,    1,    3, 0,   0xFC, 0xFF, 0,    7,    255,  0x01, 0x10, 0x01,
      0x07, 0x2B, 0xC2, 0xFC, 0xF2, 0,    0,    0,    0, 'I', 'E',  'N',  'D',  0xAE, 0x42, 0x60, 0x82};
  const auto bytes = png_of({{1, 2}, {7, 255}});
  std::vector<int> found;
  for (const auto b : bytes) found.push_back(std::to_integer<int>(b));
  CHECK(found == expected);
}

TEST_CASE("a PNG of other than grey or RGB pixels is refused") {
  CHECK_THROWS_AS(io::write_png("unused", Array<std::uint8_t>{Shape{2, 2, 4}}), BuildError);
  CHECK_THROWS_AS(io::write_png("unused", Array<std::uint8_t>{Shape{4}}), BuildError);
  CHECK_THROWS_AS(io::write_png("unused", Array<std::uint8_t>{Shape{0, 4}}), BuildError);
}

TEST_CASE("a PNG larger than one stored block keeps every pixel") {
  Array<std::uint8_t> pixels{Shape{300, 250, 3}};
  for (std::int64_t i = 0; i < pixels.size(); ++i) pixels[i] = static_cast<std::uint8_t>(i * 31 + i / 251);
  const auto bytes = png_of(pixels);
  // Walks the stored blocks of the IDAT chunk, which begin behind signature, IHDR, chunk head and zlib head.
  std::vector<std::uint8_t> lines;
  std::size_t at = 8 + 25 + 8 + 2;
  for (bool last = false; !last;) {
    last = bytes.at(at) == std::byte{1};
    const auto count = std::to_integer<std::size_t>(bytes.at(at + 1)) | std::to_integer<std::size_t>(bytes.at(at + 2))
                                                                            << 8;
    for (std::size_t i = 0; i < count; ++i) lines.push_back(std::to_integer<std::uint8_t>(bytes.at(at + 5 + i)));
    at += 5 + count;
  }
  REQUIRE(lines.size() == 300 * 751);
  bool same = true;
  for (std::size_t y = 0; y < 300; ++y) {
    same = same && lines[y * 751] == 0;
    for (std::size_t x = 0; x < 750; ++x)
      same = same && lines[y * 751 + 1 + x] == pixels[static_cast<std::int64_t>(y * 750 + x)];
  }
  CHECK(same);
}

TEST_CASE("a grid of pictures has them row after row between white margins, and clips what is too bright or dark") {
  // Three pictures of 1x2 pixels, two in a row.
  const Array<float> pictures{{3, 1, 1, 2}, {-1, 1, 0, 5, -7, 0.5f}};
  const auto grid = io::picture_grid(pictures, {.columns = 2, .low = -1, .high = 1, .margin = 1});
  CHECK(grid.shape() == Shape{5, 7, 1});
  const std::vector<int> expected{255, 255, 255, 255, 255, 255, 255,  //
                                  255, 0,   255, 255, 128, 255, 255,  //
                                  255, 255, 255, 255, 255, 255, 255,  //
                                  255, 0,   191, 255, 255, 255, 255,  //
                                  255, 255, 255, 255, 255, 255, 255};
  CHECK(std::vector<int>(grid.begin(), grid.end()) == expected);
  const auto coloured = io::picture_grid(Array<float>{{1, 3, 1, 1}, {0, 0.2f, 1}}, {.columns = 1, .margin = 0});
  CHECK(std::vector<int>(coloured.begin(), coloured.end()) == std::vector<int>{0, 51, 255});
  CHECK_THROWS_AS(io::picture_grid(Array<float>{Shape{1, 2, 4, 4}}), BuildError);
  CHECK_THROWS_AS(io::picture_grid(pictures, {.columns = 0}), BuildError);
}

}  // namespace test_png
