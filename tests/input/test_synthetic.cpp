// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch.hpp>
#include <cmath>
#include <exception>
#include <filesystem>
#include <replicator/data/batch.hpp>
#include <replicator/data/pictures/decode_images.hpp>
#include <replicator/data/pictures/image_decoder.hpp>
#include <replicator/data/pictures/jpeg_decoder.hpp>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "../../examples/support/synthetic.hpp"
#include "temporary_folder.hpp"

namespace test_synthetic {

using namespace replicator;
using namespace replicator::detail;
using Catch::Contains;

namespace {

// All pictures of a folder as they are, one batch.
std::tuple<Array<float>, Array<std::int32_t>> all_of(const std::string& folder) {
  const auto images = data::image_folder(folder);
  auto input = images | data::shuffle() | data::decode_images({.crop = {32, 32}, .resize = 32, .train = false}) |
               data::batch(images.images());
  return *input.next();
}

// Logistic regression on raw pixels by stochastic gradient descent.
class Linear {
 public:
  static constexpr std::int64_t pixels = 3 * 32 * 32, classes = 10;

  void train(const float* image, std::int32_t label, float rate) {
    float p[classes];
    scores(image, p);
    float sum = 0;
    for (float& value : p) sum += value = std::exp(value);
    for (std::int64_t k = 0; k < classes; ++k) {
      const float step = rate * (p[k] / sum - static_cast<float>(k == label));
      float* w = weights_.data() + k * pixels;
      for (std::int64_t i = 0; i < pixels; ++i) w[i] -= step * image[i];
    }
  }
  std::int32_t guess(const float* image) const {
    float p[classes];
    scores(image, p);
    return static_cast<std::int32_t>(std::max_element(p, p + classes) - p);
  }

 private:
  void scores(const float* image, float* p) const {
    for (std::int64_t k = 0; k < classes; ++k) {
      float lanes[16]{};
      for (std::int64_t i = 0; i < pixels; i += 16)
        for (std::int64_t j = 0; j < 16; ++j)
          lanes[j] += weights_[static_cast<std::size_t>(k * pixels + i + j)] * image[i + j];
      p[k] = 0;
      for (const float lane : lanes) p[k] += lane;
    }
  }
  std::vector<float> weights_ = std::vector<float>(classes * pixels, 0.0f);
};

}  // namespace

TEST_CASE("synthetic pictures are an image folder with all classes, equally often") {
  const TemporaryFolder folder;
  const auto path = folder.path() + "/set";
  example::write_synthetic(path, {.classes = 4, .train = 12, .val = 8, .size = 24});
  const auto train = data::image_folder(path + "/train"), val = data::image_folder(path + "/val");
  CHECK(train.classes() == std::vector<std::string>{"00_disc_horizontal", "01_square_horizontal",
                                                    "02_triangle_horizontal", "03_ring_horizontal"});
  CHECK(train.classes() == val.classes());
  CHECK(train.images() == 12);
  CHECK(val.images() == 8);
  std::multiset<std::int32_t> labels;
  for (std::int64_t i = 0; i < 12; ++i) labels.insert(train(i).label);
  for (std::int32_t label = 0; label < 4; ++label) CHECK(labels.count(label) == 3);
  CHECK(data::read_image(train(0).path).shape() == Shape{24, 24, 3});
}

TEST_CASE("synthetic pictures depend on the seed, not on the run") {
  const auto draw = [](std::uint64_t seed, std::uint64_t number) {
    const auto pixels = example::detail::SyntheticPicture{3, 32, PhiloxStream{seed, number}}.draw();
    return std::vector<int>(pixels.begin(), pixels.end());
  };
  CHECK(draw(1, 1) == draw(1, 1));
  CHECK(draw(1, 1) != draw(1, 2));
  CHECK(draw(1, 1) != draw(2, 1));
}

TEST_CASE("a set that is there already is kept, and another one is not overwritten") {
  const TemporaryFolder folder;
  const auto path = folder.path() + "/set";
  const example::SyntheticOptions options{.classes = 2, .train = 2, .val = 2, .size = 16};
  example::write_synthetic(path, options);
  const auto file = path + "/train/00_disc_horizontal/000000.jpg";
  const auto before = std::filesystem::last_write_time(file);
  example::write_synthetic(path, options);
  CHECK(std::filesystem::last_write_time(file) == before);
  CHECK(std::distance(std::filesystem::directory_iterator{folder.path()}, {}) == 1);  // nothing partial is left
  CHECK_THROWS_WITH(example::write_synthetic(path, {.classes = 2, .train = 4, .val = 2, .size = 16}),
                    Contains(path) && Contains("train 2"));
  CHECK_THROWS_WITH(example::write_synthetic(folder.path(), options), Contains("something else"));
  CHECK_THROWS_WITH(example::write_synthetic(path, {.classes = 21}), Contains("2 to 20 classes"));
}

TEST_CASE("who asks for the same set at the same time, from one process or from machines that share the folder, has it whole") {
  const TemporaryFolder folder;
  const auto path = folder.path() + "/sets/one/";  // the folder above is made too, and a slash at the end is none
  const example::SyntheticOptions options{.classes = 2, .train = 40, .val = 2, .size = 16};
  std::vector<std::string> errors(4);
  {
    std::vector<std::jthread> threads;
    for (auto& error : errors)
      threads.emplace_back([&] {
        try {
          example::write_synthetic(path, options);
        } catch (const std::exception& caught) {
          error = caught.what();
        }
      });
  }
  CHECK(errors == std::vector<std::string>(4));
  CHECK(data::image_folder(path + "train").images() == 40);
  CHECK(std::distance(std::filesystem::directory_iterator{folder.path() + "/sets"}, {}) == 1);  // nothing partial is left
}

TEST_CASE("a linear classifier on the pixels of synthetic pictures stays below 40 %") {
  const TemporaryFolder folder;
  example::write_synthetic(folder.path() + "/set", {.train = 3000, .val = 500});
  const auto [images, labels] = all_of(folder.path() + "/set/train");
  const auto [val_images, val_labels] = all_of(folder.path() + "/set/val");
  Linear linear;
  double best = 0;
  for (int epoch = 0; epoch < 6; ++epoch) {
    for (std::int64_t i = 0; i < labels.size(); ++i)
      linear.train(images.data() + i * Linear::pixels, labels[i], 2e-4f / static_cast<float>(1 + epoch));
    int right = 0;
    for (std::int64_t i = 0; i < val_labels.size(); ++i)
      right += linear.guess(val_images.data() + i * Linear::pixels) == val_labels[i];
    best = std::max(best, right / static_cast<double>(val_labels.size()));
  }
  INFO("best accuracy " << best);
  CHECK(best <= 0.4);
  CHECK(best >= 0.1);  // it does learn what there is
}

}  // namespace test_synthetic
