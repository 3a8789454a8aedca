// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <memory>
#include <ranges>
#include <replicator/data/batch.hpp>
#include <replicator/data/files/tar.hpp>
#include <replicator/data/files/tar_samples.hpp>
#include <replicator/data/pictures/decode_images.hpp>
#include <replicator/data/pictures/image_decoder.hpp>
#include <replicator/data/pictures/jpeg.hpp>
#include <replicator/data/pictures/jpeg_decoder.hpp>
#include <replicator/data/prefetch_thread.hpp>
#include <replicator/data/take.hpp>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "damaged.hpp"
#include "format_files.hpp"
#include "temporary_folder.hpp"

namespace test_jpeg {

using namespace replicator;
using namespace replicator::detail;
using Catch::Contains;

namespace {

using Batch = std::tuple<Array<float>, Array<std::int32_t>>;

// A smooth picture, which JPEG keeps nearly as it is.
Array<std::uint8_t> picture(std::int64_t height, std::int64_t width, int tint = 0) {
  Array<std::uint8_t> pixels{Shape{height, width, 3}};
  for (std::int64_t y = 0; y < height; ++y)
    for (std::int64_t x = 0; x < width; ++x) {
      pixels[3 * (y * width + x)] = static_cast<std::uint8_t>(20 + 200 * x / width);
      pixels[3 * (y * width + x) + 1] = static_cast<std::uint8_t>(20 + 200 * y / height);
      pixels[3 * (y * width + x) + 2] = static_cast<std::uint8_t>(60 + tint);
    }
  return pixels;
}

// Two classes of `count` pictures each, of different sizes.
void fill(const TemporaryFolder& folder, int count) {
  for (int i = 0; i < 2 * count; ++i)
    folder.write((i % 2 ? "dog/" : "cat/") + std::to_string(i) + ".jpg",
                 data::encode_jpeg(picture(40 + 5 * i, 60 - i, 3 * i)));
}

std::shared_ptr<data::WorkerPool> pool_of(int threads) {
  return threads == 0 ? nullptr : std::make_shared<data::WorkerPool>(threads);
}

bool same_bits(const Batch& a, const Batch& b) {
  const auto same = [](const AnyArray& x, const AnyArray& y) {
    return x.type() == y.type() && std::memcmp(x.data(), y.data(), x.size_bytes()) == 0;
  };
  return same(std::get<0>(a).any(), std::get<0>(b).any()) && same(std::get<1>(a).any(), std::get<1>(b).any());
}

constexpr data::DecodeOptions small{.crop = {24, 32}};
constexpr std::array<float, 3> zero{0, 0, 0}, one{1, 1, 1};

// The only picture of a folder, as evaluation sees it, without normalisation: [1, 3, side, side] in [0, 1].
Array<float> evaluated(const std::string& folder, std::int64_t side) {
  auto input = data::image_folder(folder) |
               data::decode_images({.crop = {side, side}, .resize = side, .mean = zero, .stddev = one, .train = false}) |
               data::batch(1);
  return std::get<0>(*input.next());
}

}  // namespace

using Decoded = decltype(data::image_folder("") | data::shuffle() | data::shard({}) | data::decode_images({}));
using Pipeline = decltype(std::declval<Decoded>() | data::batch(1) | data::prefetch(2));
static_assert(std::ranges::input_range<Decoded> && std::ranges::input_range<Pipeline>);
static_assert(data::Input<Pipeline> && data::Seekable<Pipeline>);
static_assert(std::same_as<data::InputValue<Pipeline>, Batch>);

TEST_CASE("a JPEG comes back nearly as it was written") {
  const TemporaryFolder folder;
  const auto pixels = picture(50, 70);
  const auto path = folder.write("a.jpg", data::encode_jpeg(pixels, 95));
  const auto read = data::read_image(path);
  REQUIRE(read.shape() == pixels.shape());
  int worst = 0;
  for (std::int64_t i = 0; i < read.size(); ++i) worst = std::max(worst, std::abs(int{read[i]} - int{pixels[i]}));
  CHECK(worst <= 6);
}

TEST_CASE("a grey JPEG has three equal planes") {
  const TemporaryFolder folder;
  Array<std::uint8_t> grey{Shape{20, 20}};
  for (std::int64_t i = 0; i < grey.size(); ++i) grey[i] = static_cast<std::uint8_t>(5 * (i % 20) + 50);
  folder.write("a/1.jpg", data::encode_jpeg(grey));
  const auto image = evaluated(folder.path(), 20);
  for (std::int64_t i = 0; i < 400; ++i) {
    REQUIRE(image[i] == image[400 + i]);
    REQUIRE(image[i] == image[800 + i]);
    REQUIRE(image[i] * 255 == Approx(grey[i]).margin(4));
  }
}

TEST_CASE("a CMYK JPEG becomes RGB") {
  const TemporaryFolder folder;
  // No ink is 255 in Adobe's files: red ink-free, half green, no blue, under a quarter of black.
  std::vector<unsigned char> pixels;
  for (int i = 0; i < 16 * 16; ++i) pixels.insert(pixels.end(), {255, 128, 0, 192});
  const data::detail::TurboHandle handle{tjInitCompress()};
  unsigned char* bytes = nullptr;
  unsigned long size = 0;
  REQUIRE(tjCompress2(handle.get(), pixels.data(), 16, 0, 16, TJPF_CMYK, &bytes, &size, TJSAMP_444, 95, 0) == 0);
  const auto path = folder.write("a.jpg", std::as_bytes(std::span{bytes, size}));
  tjFree(bytes);
  const auto read = data::read_image(path);
  CHECK(int{read[0]} == Approx(192).margin(3));
  CHECK(int{read[1]} == Approx(96).margin(3));
  CHECK(int{read[2]} == Approx(0).margin(3));
}

TEST_CASE("evaluation resizes and cuts out the middle") {
  const TemporaryFolder folder;
  folder.write("a/1.jpg", data::encode_jpeg(picture(90, 120), 95));
  const auto image = evaluated(folder.path(), 30);  // 3 x 3 pixels each, columns 15 .. 105
  for (std::int64_t y = 1; y < 29; ++y)
    for (std::int64_t x = 0; x < 30; ++x) {
      REQUIRE(image[30 * y + x] * 255 == Approx(20 + 200 * (15 + 3 * static_cast<double>(x) + 1) / 120).margin(4));
      REQUIRE(image[900 + 30 * y + x] * 255 == Approx(20 + 200 * (3 * static_cast<double>(y) + 1) / 90).margin(4));
    }
}

TEST_CASE("decoding at a part of the size changes little") {
  const TemporaryFolder folder;
  folder.write("a/1.jpg", data::encode_jpeg(picture(160, 160), 95));
  const auto shrunk = evaluated(folder.path(), 20);  // at 1/8
  const auto whole = evaluated(folder.path(), 160);
  for (std::int64_t y = 1; y < 19; ++y)
    for (std::int64_t x = 1; x < 19; ++x) {
      double mean = 0;
      for (std::int64_t i = 0; i < 64; ++i) mean += whole[160 * (8 * y + i / 8) + 8 * x + i % 8] / 64.0;
      REQUIRE(std::abs(shrunk[20 * y + x] - mean) < 0.02);
    }
}

TEST_CASE("pictures are normalised by the mean and deviation of each colour") {
  const TemporaryFolder folder;
  folder.write("a/1.jpg", data::encode_jpeg(picture(32, 32)));
  const auto plain = evaluated(folder.path(), 32);
  auto input =
      data::image_folder(folder.path()) |
      data::decode_images(
          {.crop = {32, 32}, .resize = 32, .mean = {0.1f, 0.2f, 0.3f}, .stddev = {2, 4, 0.5f}, .train = false});
  const auto image = std::get<0>(*input.next());
  CHECK(image.shape() == Shape{3, 32, 32});
  CHECK(image[5] == Approx((plain[5] - 0.1f) / 2));
  CHECK(image[1024 + 5] == Approx((plain[1024 + 5] - 0.2f) / 4));
  CHECK(image[2048 + 5] == Approx((plain[2048 + 5] - 0.3f) * 2));
}

TEST_CASE("batches have the same bits on any number of threads, ahead or not") {
  const TemporaryFolder folder;
  fill(folder, 4);
  const auto read = [&](int threads) {
    auto input = data::image_folder(folder.path()) | data::shuffle() |
                 data::shard({.seed = 5, .pool = pool_of(threads)}) | data::decode_images(small) | data::batch(5) |
                 data::prefetch(2);
    std::vector<Batch> batches;
    for (auto& batch : input) {
      batches.push_back(std::move(batch));
      if (batches.size() == 4) break;
    }
    return batches;
  };
  const auto expected = read(0);
  CHECK(std::get<0>(expected[0]).shape() == Shape{5, 3, 24, 32});
  for (const int threads : {1, 3})
    for (std::size_t i = 0; i < 4; ++i) CHECK(same_bits(read(threads)[i], expected[i]));
  // One by one, too: through a stage that knows nothing of decode_images.
  auto single = data::image_folder(folder.path()) | data::shuffle() | data::shard({.seed = 5, .pool = pool_of(2)}) |
                data::decode_images(small) | data::take(1000) | data::batch(5);
  for (std::size_t i = 0; i < 4; ++i) CHECK(same_bits(*single.next(), expected[i]));
}

TEST_CASE("seeking gives the bits that reading up to there gives") {
  const TemporaryFolder folder;
  fill(folder, 3);
  auto input = data::image_folder(folder.path()) | data::shuffle() |
               data::shard({.seed = 1, .replica = 1, .replicas = 2}) | data::decode_images(small) | data::batch(2) |
               data::prefetch(2);
  std::vector<Batch> batches;
  for (int i = 0; i < 9; ++i) batches.push_back(*input.next());
  for (const std::int64_t position : {7, 2, 0}) {
    input.seek(position);
    CHECK(same_bits(*input.next(), batches[static_cast<std::size_t>(position)]));
  }
}

TEST_CASE("the same picture is cut differently in every epoch, and by seed") {
  const TemporaryFolder folder;
  folder.write("a/1.jpg", data::encode_jpeg(picture(60, 60)));
  const auto read = [&](std::uint64_t seed, std::int64_t position) {
    auto input = data::image_folder(folder.path()) | data::shard({.seed = seed}) | data::decode_images(small);
    input.seek(position);
    return *input.next();
  };
  CHECK(same_bits(read(1, 0), read(1, 0)));
  CHECK_FALSE(same_bits(read(1, 0), read(1, 1)));
  CHECK_FALSE(same_bits(read(1, 0), read(2, 0)));
}

TEST_CASE("about every other picture is mirrored when training") {
  const TemporaryFolder folder;
  folder.write("a/1.jpg", data::encode_jpeg(picture(32, 32)));
  int mirrored = 0;
  auto input = data::image_folder(folder.path()) | data::decode_images({.crop = {16, 16}}) | data::take(200);
  for (auto& [image, label] : input) mirrored += image[0] > image[15];
  CHECK(mirrored > 65);
  CHECK(mirrored < 135);
  auto never =
      data::image_folder(folder.path()) | data::decode_images({.crop = {16, 16}, .flip = false}) | data::take(20);
  for (auto& [image, label] : never) CHECK(image[0] < image[15]);
}

TEST_CASE("with pad the picture moves by at most so many pixels over black") {
  const TemporaryFolder folder;
  Array<std::uint8_t> white{Shape{16, 16, 3}};
  for (auto& value : white) value = 255;
  folder.write("a/1.jpg", data::encode_jpeg(white));
  auto input = data::image_folder(folder.path()) |
               data::decode_images({.crop = {16, 16}, .flip = false, .pad = 2, .mean = zero, .stddev = one}) |
               data::take(200);
  std::vector<int> seen(25, 0);
  for (const auto& element : input) {
    const auto& image = std::get<0>(element);                        // no binding: with OpenMP clang refuses to capture one
    const auto edge = [&](std::int64_t stride, std::int64_t from) {  // black pixels before and behind the white ones
      std::int64_t before = 0, behind = 0;
      while (before < 16 && image[from + before * stride] == 0) ++before;
      while (behind < 16 && image[from + (15 - behind) * stride] == 0) ++behind;
      return before - behind;
    };
    const auto dx = edge(1, 8 * 16), dy = edge(16, 8);
    REQUIRE(std::abs(dx) <= 2);
    REQUIRE(std::abs(dy) <= 2);
    ++seen[static_cast<std::size_t>(5 * (dy + 2) + dx + 2)];
  }
  for (const int count : seen) CHECK(count > 0);
}

TEST_CASE("one pass gives every picture once, and an uneven last batch only when asked for") {
  const TemporaryFolder folder;
  fill(folder, 5);
  const auto read = [&](data::BatchOptions options) {
    auto input = data::image_folder(folder.path()) | data::shuffle() | data::shard({}) | data::epochs(1) |
                 data::decode_images(small) | data::batch(4, options) | data::prefetch(1);
    std::vector<std::int64_t> sizes;
    for (auto& [images, labels] : input) sizes.push_back(labels.size());
    return sizes;
  };
  CHECK(read({}) == std::vector<std::int64_t>{4, 4});
  CHECK(read({.last = data::Last::keep}) == std::vector<std::int64_t>{4, 4, 2});
  CHECK_THROWS_WITH(data::image_folder(folder.path()) | data::epochs(1) | data::decode_images(small) | data::batch(11),
                    Contains("batch(11)") && Contains("10 elements"));
}

TEST_CASE("a damaged JPEG is reported by name, in its place, and the input goes on behind it") {
  const TemporaryFolder folder;
  fill(folder, 4);
  const auto bytes = data::encode_jpeg(picture(300, 300), 100);
  const auto bad = [&](const std::string& name, std::span<const std::byte> content, const std::string& reason) {
    const auto path = folder.write(name, content);
    auto input = data::image_folder(folder.path()) | data::shard({.pool = pool_of(2)}) | data::decode_images(small) |
                 data::batch(2) | data::prefetch(3);
    (void)input.next();  // cat/0, cat/2
    CHECK_THROWS_AS(input.next(), DataError);
    CHECK(std::get<1>(*input.next())[1] == 1);  // cat/6, dog/1
    input.seek(1);
    CHECK_THROWS_WITH(input.next(), Contains(path) && Contains(reason));
  };
  bad("cat/3.jpg", std::span{bytes}.first(bytes.size() / 2), "damaged or cut short");
  bad("cat/3.jpg", std::span{bytes}.first(bytes.size() - 2), "damaged or cut short");
  bad("cat/3.jpg", std::span{bytes}.first(30), "not a JPEG picture");
  bad("cat/3.jpg", {}, "is neither a JPEG nor a PNG picture: it is empty");
  const std::string gif = "GIF89a and so on";
  bad("cat/3.jpg", std::as_bytes(std::span{gif.data(), gif.size()}), "is neither a JPEG nor a PNG picture: it begins with the bytes 47 49 46 38 39 61 20 61");
}

TEST_CASE("stray bytes before a marker do not make a JPEG useless") {
  const TemporaryFolder folder;
  auto bytes = data::encode_jpeg(picture(64, 64));
  bytes.insert(bytes.end() - 2, 5, std::byte{0x11});
  CHECK_NOTHROW(data::read_image(folder.write("a.jpg", bytes)));
}

TEST_CASE("a JPEG that claims a monstrous size is refused") {
  const TemporaryFolder folder;
  auto bytes = data::encode_jpeg(picture(16, 16));
  for (std::size_t i = 0; i + 9 < bytes.size(); ++i)  // the frame header: FF C0, length, precision, height, width
    if (bytes[i] == std::byte{0xFF} && bytes[i + 1] == std::byte{0xC0}) {
      std::memset(bytes.data() + i + 5, 0xFA, 4);
      break;
    }
  CHECK_THROWS_WITH(data::read_image(folder.write("a.jpg", bytes)),
                    Contains("a.jpg: claims 64250 x 64250 pixels, more than 178956970; it is damaged, or must be made smaller"));
}

TEST_CASE("most_pixels bounds what a JPEG may claim") {
  const TemporaryFolder folder;
  const auto path = folder.write("cat/0.jpg", data::encode_jpeg(picture(40, 50)));
  CHECK_NOTHROW(data::read_image(path, 2000));
  CHECK_THROWS_WITH(data::read_image(path, 1999), Contains("claims 50 x 40 pixels, more than 1999;") && Contains("most_pixels must be raised"));
  const auto input = [&](std::int64_t most) { return data::image_folder(folder.path()) | data::decode_images({.crop = {8, 8}, .most_pixels = most}) | data::batch(1); };
  CHECK(input(2000).next());
  CHECK_THROWS_WITH(input(1999).next(), Contains("claims 50 x 40 pixels, more than 1999;"));
}

namespace {

// An EXIF segment with one tag, behind another one, in either order of bytes.
std::string exif(int orientation, bool big_endian) {
  const auto number = [&](unsigned value, int bytes) {
    std::string text;
    for (int i = 0; i < bytes; ++i) text += static_cast<char>(value >> 8 * (big_endian ? bytes - 1 - i : i));
    return text;
  };
  const auto entry = [&](unsigned tag, unsigned value) { return number(tag, 2) + number(3, 2) + number(1, 4) + number(value, 2) + number(0, 2); };
  const std::string tiff = (big_endian ? "MM" : "II") + number(42, 2) + number(10, 4) + "??" + number(2, 2) + entry(256, 7) +
                           entry(274, static_cast<unsigned>(orientation)) + number(0, 4);
  const std::string content = std::string{"Exif\0\0", 6} + tiff;
  const auto length = static_cast<unsigned>(content.size() + 2);
  return std::string{"\xFF\xE1"} + static_cast<char>(length >> 8) + static_cast<char>(length & 255) + content;
}
std::vector<std::byte> with_segment(std::vector<std::byte> jpeg, const std::string& segment) {
  const auto bytes = std::as_bytes(std::span{segment});
  jpeg.insert(jpeg.begin() + 2, bytes.begin(), bytes.end());
  return jpeg;
}

enum Side {
  top,
  right,
  bottom,
  left
};
// The average of a colour along a side of the picture, 4 pixels deep.
double mean_along(const Array<std::uint8_t>& pixels, Side side, int colour) {
  const std::int64_t h = pixels.shape()[0], w = pixels.shape()[1];
  double sum = 0;
  int count = 0;
  for (std::int64_t y = 0; y < h; ++y)
    for (std::int64_t x = 0; x < w; ++x)
      if ((side == top && y < 4) || (side == bottom && y >= h - 4) || (side == left && x < 4) || (side == right && x >= w - 4)) {
        sum += pixels[3 * (y * w + x) + colour];
        ++count;
      }
  return sum / count;
}

}  // namespace

// The table is that of the tag's definition: which side of the upright picture the first stored row and column are.
TEST_CASE("a JPEG is turned upright as its EXIF orientation says") {
  struct Held {
    int orientation;
    Side first_row, first_column;
  };
  const auto held = GENERATE(Held{1, top, left}, Held{2, top, right}, Held{3, bottom, right}, Held{4, bottom, left}, Held{5, left, top},
                             Held{6, right, top}, Held{7, right, bottom}, Held{8, left, bottom});
  const bool big_endian = GENERATE(false, true);
  Array<std::uint8_t> stored{Shape{32, 64, 3}};
  for (std::int64_t y = 0; y < 32; ++y)
    for (std::int64_t x = 0; x < 64; ++x) {
      stored[3 * (64 * y + x)] = y < 8 ? 240 : 10;
      stored[3 * (64 * y + x) + 1] = x < 8 ? 240 : 10;
      stored[3 * (64 * y + x) + 2] = 10;
    }
  const TemporaryFolder folder;
  const auto path = folder.write("cat/0.jpg", with_segment(data::encode_jpeg(stored, 95), exif(held.orientation, big_endian)));
  const auto upright = data::read_image(path);
  INFO("orientation " << held.orientation);
  CHECK(upright.shape() == (held.orientation < 5 ? Shape{32, 64, 3} : Shape{64, 32, 3}));
  for (const Side side : {top, right, bottom, left}) {
    CHECK((mean_along(upright, side, 0) > 180) == (side == held.first_row));
    CHECK((mean_along(upright, side, 1) > 180) == (side == held.first_column));
  }
  const auto seen = evaluated(folder.path(), 32);  // the middle 32 x 32
  if (held.first_row == top || held.first_row == bottom) CHECK(std::max(seen[0], seen[32 * 31]) > 0.8f);
}

TEST_CASE("damaged EXIF data leave a picture as it is stored") {
  const TemporaryFolder folder;
  const auto jpeg = data::encode_jpeg(picture(40, 50));
  const std::string whole = exif(6, true);
  for (std::size_t i = 4; i < whole.size(); ++i)
    for (const int change : {1, 0x80, 0xFF}) {
      std::string damaged = whole;
      damaged[i] = static_cast<char>(damaged[i] ^ change);
      const auto shape = data::read_image(folder.write("a.jpg", with_segment(jpeg, damaged))).shape();
      CHECK((shape == Shape{40, 50, 3} || shape == Shape{50, 40, 3}));
    }
  for (const int orientation : {0, 9, 65535}) CHECK(data::read_image(folder.write("a.jpg", with_segment(jpeg, exif(orientation, true)))).shape() == Shape{40, 50, 3});
}

TEST_CASE("a progressive JPEG of thousands of scans is refused before it takes hours") {
  const std::vector<unsigned char> pixels(8 * 8 * 3, 7);
  unsigned char* bytes = nullptr;
  unsigned long size = 0;
  const data::detail::TurboHandle handle{tjInitCompress()};
  REQUIRE(tjCompress2(handle.get(), pixels.data(), 8, 0, 8, TJPF_RGB, &bytes, &size, TJSAMP_444, 90, TJFLAG_PROGRESSIVE) == 0);
  const std::string file{reinterpret_cast<const char*>(bytes), size};
  tjFree(bytes);
  const auto first = file.find("\xff\xda"), second = file.find("\xff\xda", first + 2);
  REQUIRE(second != std::string::npos);
  // The first scan of colours again and again, with the tables that lie between it and the next one.
  std::string many = file.substr(0, second);
  for (int scan = 0; scan < 3000; ++scan) many += file.substr(first, second - first);
  many += file.substr(second);
  const TemporaryFolder folder;
  const auto path = folder.write("many.jpg", many);
  CHECK_THROWS_WITH(data::read_image(path), Contains(path) && Contains("more than 500 scans"));
  CHECK(data::read_image(folder.write("few.jpg", file)).shape() == Shape{8, 8, 3});
}

TEST_CASE("damaged JPEG bytes never do worse than throw, and leave the decoder fit for the next file") {
  const TemporaryFolder folder;
  const auto good = data::encode_jpeg(picture(48, 48));
  const auto good_path = folder.write("good.jpg", good);
  data::detail::PictureReader decoder;
  data::detail::Picture result;
  int refused = 0;
  for (std::uint64_t round = 0; round < good.size() + 500; ++round) {
    const auto bytes = test::damaged(good, round);
    const auto path = folder.write("a.jpg", bytes);
    try {
      decoder.open(path);
      decoder.decode(1, result);
    } catch (const DataError&) {
      ++refused;
    }
    decoder.open(good_path);
    REQUIRE(decoder.width() == 48);
    decoder.decode(1, result);
  }
  CHECK(refused > 100);
}

TEST_CASE("options of decode_images that make no sense are refused") {
  const TemporaryFolder folder;
  fill(folder, 1);
  const auto images = data::image_folder(folder.path());
  CHECK_THROWS_WITH(images | data::decode_images({.crop = {0, 5}}), Contains("0 x 5"));
  CHECK_THROWS_WITH(images | data::decode_images({.crop = 0}), Contains("0 x 0"));
  CHECK_THROWS_WITH(images | data::decode_images({.scale = {0.5f, 0.2f}}), Contains("scale"));
  CHECK_THROWS_WITH(images | data::decode_images({.ratio = {0, 1}}), Contains("ratio"));
  CHECK_THROWS_WITH(images | data::decode_images({.pad = -1}), Contains("pad"));
  CHECK_THROWS_WITH(images | data::decode_images({.resize = 100}), Contains("resize is 100"));
  CHECK_THROWS_WITH(images | data::decode_images({.stddev = {1, 0, 1}}), Contains("stddev"));
}

TEST_CASE("pictures in a tar archive are those of the folder") {
  const TemporaryFolder folder, archive;
  fill(folder, 3);
  const auto files = data::image_folder(folder.path());
  std::string tar;
  for (std::int64_t i = 0; i < files.images(); ++i) {
    std::vector<std::byte> bytes;
    io::read_file(files(i).path, bytes);
    tar += test::tar_member(std::to_string(i) + ".jpg", {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
    tar += test::tar_member(std::to_string(i) + ".cls", std::to_string(files(i).label));
  }
  const auto pictures = data::tar_pictures(archive.write("t.tar", tar + test::tar_end()));
  const auto read = [](auto source) {
    auto input = std::move(source) | data::shuffle(5) | data::epochs(1) | data::decode_images(small) | data::batch(4, {.last = data::Last::pad});
    std::vector<float> numbers;
    for (const auto& [images, labels, weights] : input) {
      numbers.insert(numbers.end(), images.begin(), images.end());
      numbers.insert(numbers.end(), labels.begin(), labels.end());
      numbers.insert(numbers.end(), weights.begin(), weights.end());
    }
    return numbers;
  };
  CHECK(read(pictures) == read(files));
  const auto damaged = data::tar_pictures(archive.write(
      "d.tar", test::tar_member("x.jpg", "no picture") + test::tar_member("x.cls", "0") + test::tar_end()));
  CHECK_THROWS_WITH(read(damaged), Contains("d.tar: x: is neither a JPEG nor a PNG picture"));
}

}  // namespace test_jpeg
