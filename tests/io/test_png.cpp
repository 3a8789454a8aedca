// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdio>
#include <filesystem>
#include <replicator/io/pictures/png.hpp>
#include <span>
#include <string>
#include <vector>

#include "../../examples/support/picture_grid.hpp"

namespace test_png {

using namespace replicator;
using namespace replicator::detail;

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

// The lines of a picture as zlib reads them from its one IDAT chunk, which begins behind signature and IHDR and ends 16 bytes before the end.
std::vector<std::byte> pixels_of(const std::vector<std::byte>& png, std::size_t size) {
  const auto stream = std::span{png}.subspan(8 + 25 + 8, png.size() - (8 + 25 + 8) - 16);
  std::vector<std::byte> lines(size + 1);
  auto found = static_cast<uLongf>(lines.size());
  REQUIRE(::uncompress(reinterpret_cast<Bytef*>(lines.data()), &found, reinterpret_cast<const Bytef*>(stream.data()), stream.size()) == Z_OK);
  REQUIRE(found == size);
  lines.resize(size);
  return lines;
}
}  // namespace

TEST_CASE("a 2x1 grey PNG has exactly the bytes that the standard asks for, its checksums are zlib's") {
  const auto bytes = png_of({{1, 2}, {7, 255}});
  const std::vector<int> head{0x89, 'P', 'N', 'G', '\r', '\n', 0x1A, '\n', 0, 0, 0, 13, 'I', 'H', 'D', 'R', 0, 0,
                              0, 2, 0, 0, 0, 1, 8, 0, 0, 0, 0, 0xD1, 0x49, 0x20, 0x56, 0, 0, 0};
  const std::vector<int> tail{0, 0, 0, 0, 'I', 'E', 'N', 'D', 0xAE, 0x42, 0x60, 0x82};
  std::vector<int> found;
  for (const auto b : bytes) found.push_back(std::to_integer<int>(b));
  CHECK(std::vector<int>(found.begin(), found.begin() + 36) == head);
  CHECK(std::vector<int>(found.end() - 12, found.end()) == tail);
  const auto length = found[36];
  REQUIRE(bytes.size() == static_cast<std::size_t>(37 + 4 + length + 4 + 12));
  const auto* content = reinterpret_cast<const Bytef*>(bytes.data()) + 37;
  CHECK(std::string(content, content + 4) == "IDAT");
  const auto crc = ::crc32(0, content, static_cast<uInt>(4 + length));
  for (int i = 0; i < 4; ++i) CHECK(static_cast<uLong>(found[static_cast<std::size_t>(41 + length + i)]) == (crc >> (24 - 8 * i) & 255));
  CHECK(pixels_of(bytes, 3) == std::vector<std::byte>{std::byte{0}, std::byte{7}, std::byte{255}});
}

TEST_CASE("a PNG of other than grey or RGB pixels is refused") {
  CHECK_THROWS_AS(io::write_png("unused", Array<std::uint8_t>{Shape{2, 2, 4}}), BuildError);
  CHECK_THROWS_AS(io::write_png("unused", Array<std::uint8_t>{Shape{4}}), BuildError);
  CHECK_THROWS_AS(io::write_png("unused", Array<std::uint8_t>{Shape{0, 4}}), BuildError);
}

TEST_CASE("a PNG keeps every pixel, each line behind the number of its filter") {
  Array<std::uint8_t> pixels{Shape{300, 250, 3}};
  for (std::int64_t i = 0; i < pixels.size(); ++i) pixels[i] = static_cast<std::uint8_t>(i * 31 + i / 251);
  const auto lines = pixels_of(png_of(pixels), 300 * 751);
  bool same = true;
  for (std::size_t y = 0; y < 300; ++y) {
    same = same && lines[y * 751] == std::byte{0};
    for (std::size_t x = 0; x < 750; ++x)
      same = same && lines[y * 751 + 1 + x] == static_cast<std::byte>(pixels[static_cast<std::int64_t>(y * 750 + x)]);
  }
  CHECK(same);
}

TEST_CASE("a PNG keeps lines that fill the blocks of its stream, or go on by one byte") {
  for (const std::int64_t width : {65533, 65534, 65535, 131069, 131070}) {
    Array<std::uint8_t> pixels{Shape{1, width}};
    for (std::int64_t i = 0; i < width; ++i) pixels[i] = static_cast<std::uint8_t>(i * 31 + i / 251);
    const auto lines = pixels_of(png_of(pixels), static_cast<std::size_t>(width) + 1);
    CHECK(std::equal(lines.begin() + 1, lines.end(), reinterpret_cast<const std::byte*>(pixels.data())));
  }
}

TEST_CASE("a grid of pictures has them row after row between white margins, and clips what is too bright or dark") {
  // Three pictures of 1x2 pixels, two in a row.
  const Array<float> pictures{{3, 1, 1, 2}, {-1, 1, 0, 5, -7, 0.5f}};
  const auto grid = example::picture_grid(pictures, {.columns = 2, .low = -1, .high = 1, .margin = 1});
  CHECK(grid.shape() == Shape{5, 7, 1});
  const std::vector<int> expected{255, 255, 255, 255, 255, 255, 255,  //
                                  255, 0, 255, 255, 128, 255, 255,    //
                                  255, 255, 255, 255, 255, 255, 255,  //
                                  255, 0, 191, 255, 255, 255, 255,    //
                                  255, 255, 255, 255, 255, 255, 255};
  CHECK(std::vector<int>(grid.begin(), grid.end()) == expected);
  const auto coloured = example::picture_grid(Array<float>{{1, 3, 1, 1}, {0, 0.2f, 1}}, {.columns = 1, .margin = 0});
  CHECK(std::vector<int>(coloured.begin(), coloured.end()) == std::vector<int>{0, 51, 255});
  CHECK_THROWS_AS(example::picture_grid(Array<float>{Shape{1, 2, 4, 4}}), BuildError);
  CHECK_THROWS_AS(example::picture_grid(pictures, {.columns = 0}), BuildError);
}

}  // namespace test_png
