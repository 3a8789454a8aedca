// SPDX-License-Identifier: Apache-2.0
// Reads PNG pictures of every kind of colour, and refuses damaged ones.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdint>
#include <replicator/data/batch.hpp>
#include <replicator/data/pictures/decode_images.hpp>
#include <replicator/data/pictures/image_decoder.hpp>
#include <replicator/data/pictures/png.hpp>
#include <replicator/io/pictures/png.hpp>
#include <span>
#include <string>
#include <vector>

#include "damaged.hpp"
#include "temporary_folder.hpp"

namespace test_png {

using namespace replicator;
using namespace replicator::detail;
using Catch::Contains;

namespace {

using Bytes = std::vector<std::uint8_t>;

enum Colour : std::uint32_t {
  grey = 0,
  rgb = 2,
  palette = 3,
  grey_alpha = 4,
  rgb_alpha = 6
};
struct Header {
  std::uint32_t width, height, depth;
  Colour colour;
  bool interlaced = false;
};
struct Chunk {
  std::string type;
  Bytes content;
};

// A PNG file of these rows; each begins with its filter, 0.
std::vector<std::byte> png_file(const Header& header, const Bytes& rows, const std::vector<Chunk>& chunks = {}) {
  io::detail::PngBytes head, file;
  head.big_endian(header.width);
  head.big_endian(header.height);
  for (const std::uint32_t value : {header.depth, std::uint32_t{header.colour}, 0u, 0u, header.interlaced ? 1u : 0u}) head.byte(value);
  for (const std::uint32_t value : {0x89u, 0x50u, 0x4Eu, 0x47u, 0x0Du, 0x0Au, 0x1Au, 0x0Au}) file.byte(value);
  file.chunk("IHDR", head.view());
  for (const Chunk& chunk : chunks) file.chunk(chunk.type, std::as_bytes(std::span{chunk.content}));
  file.chunk("IDAT", io::detail::zlib_stored(std::as_bytes(std::span{rows})));
  file.chunk("IEND", {});
  return std::move(file).bytes();
}

Array<std::uint8_t> read(const std::vector<std::byte>& file) {
  const TemporaryFolder folder;
  return data::read_image(folder.write("a.png", file));
}
Bytes values(const Array<std::uint8_t>& array) { return {array.begin(), array.end()}; }

Array<std::uint8_t> picture(std::int64_t height, std::int64_t width) {
  Array<std::uint8_t> pixels{Shape{height, width, 3}};
  for (std::int64_t i = 0; i < pixels.size(); ++i) pixels[i] = static_cast<std::uint8_t>(i * 37 + i / 7);
  return pixels;
}

}  // namespace

TEST_CASE("a PNG comes back as it was written") {
  const TemporaryFolder folder;
  for (const auto& [height, width] : {std::pair{1, 1}, {5, 3}, {40, 57}}) {
    const auto pixels = picture(height, width);
    const auto path = folder.write("a.png", io::encode_png(pixels));
    const auto found = data::read_image(path);
    CHECK(found.shape() == pixels.shape());
    CHECK(values(found) == values(pixels));
  }
}

TEST_CASE("all kinds of PNG become 8-bit RGB") {
  CHECK(values(read(png_file({3, 1, 8, grey}, {0, 7, 0, 255}))) == Bytes{7, 7, 7, 0, 0, 0, 255, 255, 255});
  CHECK(values(read(png_file({3, 1, 1, grey}, {0, 0b10100000}))) == Bytes{255, 255, 255, 0, 0, 0, 255, 255, 255});
  CHECK(values(read(png_file({2, 1, 2, grey}, {0, 0b01100000}))) == Bytes{85, 85, 85, 170, 170, 170});
  CHECK(values(read(png_file({2, 1, 4, palette}, {0, 0x10}, {{"PLTE", {1, 2, 3, 4, 5, 6}}}))) == Bytes{4, 5, 6, 1, 2, 3});
}

TEST_CASE("16 bits are rounded to 8") {
  // v * 255 / 65535: 0x0080 gives 0.498, 0x0081 gives 0.502, 0xFF00 gives 254.01
  CHECK(values(read(png_file({1, 1, 16, rgb}, {0, 0x00, 0x80, 0x00, 0x81, 0xFF, 0x00}))) == Bytes{0, 1, 254});
  CHECK(values(read(png_file({2, 1, 16, grey}, {0, 0xFF, 0xFF, 0x12, 0x34}))) == Bytes{255, 255, 255, 18, 18, 18});
}

TEST_CASE("transparency is ignored: the colour is what is stored") {
  CHECK(values(read(png_file({2, 1, 8, rgb_alpha}, {0, 9, 8, 7, 0, 6, 5, 4, 128}))) == Bytes{9, 8, 7, 6, 5, 4});
  CHECK(values(read(png_file({2, 1, 8, grey_alpha}, {0, 9, 0, 8, 255}))) == Bytes{9, 9, 9, 8, 8, 8});
  CHECK(values(read(png_file({1, 1, 16, rgb_alpha}, {0, 1, 0, 2, 0, 3, 0, 0, 0}))) == Bytes{1, 2, 3});
  CHECK(values(read(png_file({2, 1, 8, palette}, {0, 1, 0}, {{"PLTE", {1, 2, 3, 4, 5, 6}}, {"tRNS", {0, 7}}}))) == Bytes{4, 5, 6, 1, 2, 3});
  CHECK(values(read(png_file({1, 1, 8, rgb}, {0, 4, 5, 6}, {{"tRNS", {0, 4, 0, 5, 0, 6}}}))) == Bytes{4, 5, 6});
}

TEST_CASE("gamma of a PNG is ignored: numbers stay as they are stored") {
  const auto file = png_file({1, 1, 8, rgb}, {0, 40, 50, 60}, {{"gAMA", {0, 1, 0x86, 0xA0}}});  // 1.0
  CHECK(values(read(file)) == Bytes{40, 50, 60});
}

TEST_CASE("an interlaced PNG is the same picture") {
  const std::int64_t height = 11, width = 13;
  const auto pixels = picture(height, width);
  struct Pass {
    std::int64_t y, x, down, along;
  };
  Bytes rows;  // the seven passes of Adam7
  for (const Pass& p : {Pass{0, 0, 8, 8}, {0, 4, 8, 8}, {4, 0, 8, 4}, {0, 2, 4, 4}, {2, 0, 4, 2}, {0, 1, 2, 2}, {1, 0, 2, 1}})
    for (std::int64_t y = p.y; y < height; y += p.down) {
      rows.push_back(0);
      for (std::int64_t x = p.x; x < width; x += p.along) rows.insert(rows.end(), pixels.data() + 3 * (y * width + x), pixels.data() + 3 * (y * width + x) + 3);
    }
  CHECK(values(read(png_file({13, 11, 8, rgb, true}, rows))) == values(pixels));
}

TEST_CASE("a PNG is turned upright as its EXIF orientation says") {
  // 90 degrees to the right, in either order of bytes. The rows are (1 2) and (3 4).
  for (const Bytes& exif : {Bytes{'M', 'M', 0, 42, 0, 0, 0, 8, 0, 1, 1, 18, 0, 3, 0, 0, 0, 1, 0, 6, 0, 0, 0, 0, 0, 0},
                            Bytes{'I', 'I', 42, 0, 8, 0, 0, 0, 1, 0, 18, 1, 3, 0, 1, 0, 0, 0, 6, 0, 0, 0, 0, 0, 0, 0}}) {
    const auto upright = read(png_file({2, 1, 8, grey}, {0, 1, 2}, {{"eXIf", exif}}));
    CHECK(upright.shape() == Shape{2, 1, 3});
    CHECK(values(read(png_file({2, 2, 8, grey}, {0, 1, 2, 0, 3, 4}, {{"eXIf", exif}}))) == Bytes{3, 3, 3, 1, 1, 1, 4, 4, 4, 2, 2, 2});
  }
}

TEST_CASE("a folder of PNG files is decoded as the pictures that it holds") {
  const TemporaryFolder folder;
  folder.write("a/0.png", io::encode_png(picture(24, 24)));
  folder.write("b/1.PNG", png_file({1, 1, 8, grey}, {0, 51}));
  const auto images = data::image_folder(folder.path());
  CHECK(images.images() == 2);
  auto input = images | data::shard({.pool = std::make_shared<data::WorkerPool>(2)}) |
               data::decode_images({.crop = {24, 24}, .resize = 24, .mean = {0, 0, 0}, .stddev = {1, 1, 1}, .train = false}) | data::batch(2);
  const auto [x, labels] = *input.next();
  CHECK(labels[1] == 1);
  const auto pixels = picture(24, 24);
  for (std::int64_t c = 0; c < 3; ++c)
    for (std::int64_t i = 0; i < 24 * 24; ++i) {
      REQUIRE(x[c * 24 * 24 + i] * 255 == Approx(pixels[3 * i + c]).margin(1e-3));
      REQUIRE(x[(3 + c) * 24 * 24 + i] == Approx(0.2));
    }
}

TEST_CASE("a PNG of a format that the program has no decoder for is refused with the component to link") {
  const auto registered = data::detail::picture_decoder_slot[data::detail::png_format].exchange(nullptr);
  CHECK_THROWS_WITH(read(io::encode_png(picture(2, 2))), Contains("/a.png: is a PNG picture, and this program has no decoder for it: link replicator::png"));
  data::detail::picture_decoder_slot[data::detail::png_format] = registered;
}

TEST_CASE("a PNG that claims a monstrous size is refused before memory is taken") {
  const TemporaryFolder folder;
  const auto claims = [&](std::uint32_t width, std::uint32_t height) { return folder.write("a.png", png_file({width, height, 8, grey}, {0, 0})); };
  CHECK_THROWS_WITH(data::read_image(claims(999'999, 999'999)),
                    Contains("a.png: claims 999999 x 999999 pixels, more than 178956970; it is damaged, or must be made smaller, or most_pixels must be raised"));
  CHECK_THROWS_WITH(data::read_image(claims(1, 1'000'001)), Contains("a.png: is not a PNG picture that can be read: claims 1 x 1000001 pixels; each side can have 1 to 1000000"));
  CHECK_THROWS_WITH(data::read_image(claims(0, 1)), Contains("claims 0 x 1 pixels"));
  const auto path = folder.write("a.png", io::encode_png(picture(40, 50)));
  CHECK_NOTHROW(data::read_image(path, 2000));
  CHECK_THROWS_WITH(data::read_image(path, 1999), Contains("claims 50 x 40 pixels, more than 1999;"));
}

TEST_CASE("a damaged PNG is refused in a sentence that names the file") {
  const TemporaryFolder folder;
  const auto good = io::encode_png(picture(9, 9));
  const auto refused = [&](std::vector<std::byte> file, const std::string& reason) {
    const auto path = folder.write("a.png", file);
    CHECK_THROWS_AS(data::read_image(path), DataError);
    CHECK_THROWS_WITH(data::read_image(path), Contains(path + ": ") && Contains(reason));
  };
  refused({good.begin(), good.begin() + 20}, "is not a PNG picture that can be read: it ends before its header, or begins with something else");
  refused({good.begin(), good.begin() + 60}, "is damaged or cut short: it ends too early");
  refused({good.begin(), good.end() - 1}, "is damaged or cut short: it ends too early");
  auto flipped = good;
  flipped[100] ^= std::byte{1};
  refused(flipped, "is damaged or cut short: IDAT: incorrect data check");
  refused(png_file({4, 4, 8, rgb}, {0, 1, 2, 3}), "is damaged or cut short: Not enough image data");
  refused(png_file({1, 1, 3, rgb}, {0, 1, 2, 3}), "is damaged or cut short: Invalid IHDR data");
  refused(png_file({1, 1, 8, palette}, {0, 1}), "is damaged or cut short: ");  // without a palette
}

TEST_CASE("damaged PNG bytes never do worse than throw, and leave the reader fit for the next file") {
  const auto good = png_file({16, 16, 8, rgb_alpha}, Bytes(16 * 65, 0), {{"eXIf", Bytes(30, 'M')}, {"tEXt", {'a', 0, 'b'}}});
  data::detail::PictureReader reader;
  data::detail::Picture result;
  int refused = 0;
  for (std::uint64_t round = 0; round < good.size() + 500; ++round) {
    const auto bytes = test::damaged(good, round);
    try {
      reader.open("a.png", bytes);
      if (reader.width() * reader.height() < 1 << 20) reader.decode(1, result);
    } catch (const DataError&) {
      ++refused;
    }
    reader.open("good.png", good);
    reader.decode(1, result);
    REQUIRE(result.width == 16);
  }
  CHECK(refused > 1000);
}

}  // namespace test_png
