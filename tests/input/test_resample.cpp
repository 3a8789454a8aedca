// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch.hpp>
#include <cstdint>
#include <replicator/data/pictures/crop.hpp>
#include <replicator/data/pictures/resample.hpp>
#include <vector>

namespace test_resample {

using namespace replicator;
using namespace replicator::data::detail;

namespace {

// Red is 10 * y + x, green 100, blue 255 - red.
Picture picture_of(std::int64_t height, std::int64_t width) {
  Picture picture;
  picture.resize(height, width);
  for (std::int64_t y = 0; y < height; ++y)
    for (std::int64_t x = 0; x < width; ++x) {
      std::uint8_t* pixel = picture.bytes.data() + 4 * (y * width + x);
      pixel[0] = static_cast<std::uint8_t>(10 * y + x);
      pixel[1] = 100;
      pixel[2] = static_cast<std::uint8_t>(255 - pixel[0]);
    }
  return picture;
}

const Normalisation plain{{1, 1, 1, 1}, {0, 0, 0, 0}};

std::vector<float> resampled(const Picture& picture, Crop crop, std::int64_t height, std::int64_t width,
                             bool mirror = false, const Normalisation& normalisation = plain) {
  crop.rows.count = height;
  crop.columns.count = width;
  std::vector<float> out(static_cast<std::size_t>(3 * height * width), -1);
  Resampler{}(picture, crop.rows, crop.columns, mirror, normalisation, out.data());
  return out;
}
std::vector<float> first_plane(std::vector<float> planes) {
  planes.resize(planes.size() / 3);
  return planes;
}
using Floats = std::vector<float>;

}  // namespace

TEST_CASE("resampling to the same size changes nothing") {
  const auto out = resampled(picture_of(2, 3), crop_at(0, 0, 2, 3), 2, 3);
  CHECK(out == Floats{0, 1, 2, 10, 11, 12, 100, 100, 100, 100, 100, 100, 255, 254, 253, 245, 244, 243});
}

TEST_CASE("a mirrored picture has left and right exchanged") {
  CHECK(first_plane(resampled(picture_of(2, 3), crop_at(0, 0, 2, 3), 2, 3, true)) == Floats{2, 1, 0, 12, 11, 10});
}

TEST_CASE("a crop does not look outside of itself") {
  // Halving a 2x2 crop gives its mean; with antialiasing, a neighbour outside would count too.
  CHECK(first_plane(resampled(picture_of(6, 6), crop_at(1, 2, 2, 2), 1, 1)) == Floats{17.5f});
}

TEST_CASE("enlarging interpolates between the centres of pixels") {
  // Positions -0.25, 0.25, 0.75, 1.25 of pixels 0 and 1.
  CHECK(first_plane(resampled(picture_of(1, 2), crop_at(0, 0, 1, 2), 1, 4)) == Floats{0, 0.25f, 0.75f, 1});
}

TEST_CASE("shrinking averages with a triangle") {
  // The centre of sample 0 is 1.5, its triangle 3 wide each way: pixels 0..3 weigh 2, 3, 2, 1. PIL gives 1.25, 3.75
  // too.
  const auto row = first_plane(resampled(picture_of(1, 6), crop_at(0, 0, 1, 6), 1, 2));
  CHECK(row[0] == Approx((2 * 0 + 3 * 1 + 2 * 2 + 1 * 3) / 8.0));
  CHECK(row[1] == Approx(3.75));
}

TEST_CASE("a moved picture is black where it has left") {
  Crop crop = crop_at(0, 0, 2, 3);
  crop.rows.shift = 1;
  crop.columns.shift = -1;
  const Normalisation half{{0.5f, 1, 1, 1}, {-3, 0, 7, 0}};
  const auto out = resampled(picture_of(2, 3), crop, 2, 3, false, half);
  CHECK(Floats(out.begin(), out.begin() + 6) == Floats{-3, 2, 2.5f, -3, -3, -3});
  CHECK(out[12] == 7);
}

TEST_CASE("a random resized crop keeps to its share of the area and its ratio") {
  int whole = 0;
  for (std::uint64_t i = 0; i < 2000; ++i) {
    PhiloxStream random{1, i};
    const Crop crop = random_resized_crop(random, 300, 400, {0.08f, 1.0f}, {0.75f, 4.0f / 3});
    const double h = crop.rows.length, w = crop.columns.length;
    REQUIRE(crop.rows.begin >= 0);
    REQUIRE(crop.rows.begin + h <= 300);
    REQUIRE(crop.columns.begin >= 0);
    REQUIRE(crop.columns.begin + w <= 400);
    REQUIRE(h * w >= 0.078 * 300 * 400);
    REQUIRE(w / h > 0.74);
    REQUIRE(w / h < 1.35);
    whole += h * w > 0.54 * 300 * 400;
  }
  CHECK(whole > 600);  // half of the shares lie above 0.54; some of those do not fit and are drawn again
  CHECK(whole < 1000);
}

TEST_CASE("a picture too long for every ratio gives its middle") {
  PhiloxStream random{1, 1};
  const Crop crop = random_resized_crop(random, 10, 1000, {0.9f, 1.0f}, {0.75f, 4.0f / 3});
  CHECK(crop.rows.length == 10);
  CHECK(crop.columns.length == 13);
  CHECK(crop.columns.begin == 493);
}

TEST_CASE("log_uniform is uniform in the logarithm") {
  int below_one = 0;
  for (std::uint64_t i = 0; i < 4000; ++i) {
    PhiloxStream random{2, i};
    const double value = log_uniform(random, 0.25, 4);
    REQUIRE(value >= 0.25);
    REQUIRE(value < 4);
    below_one += value < 1;
  }
  CHECK(std::abs(below_one - 2000) < 160);
}

TEST_CASE("the evaluation crop is the middle of the resized picture") {
  const Crop crop = center_crop(100, 200, 50, 40, 40);
  CHECK(crop.rows.begin == Approx(10));
  CHECK(crop.rows.length == Approx(80));
  CHECK(crop.columns.begin == Approx(60));
  CHECK(crop.columns.length == Approx(80));
  CHECK(crop.columns.high == 200);
}

}  // namespace test_resample
