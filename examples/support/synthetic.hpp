// SPDX-License-Identifier: Apache-2.0
// A labelled set of JPEG pictures for trying things without real data.
#pragma once

#include <stdlib.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <replicator/core/array.hpp>
#include <replicator/core/error.hpp>
#include <replicator/core/philox.hpp>
#include <replicator/data/pictures/jpeg.hpp>
#include <replicator/data/worker_pool.hpp>
#include <replicator/io/file.hpp>
#include <span>
#include <string>
#include <system_error>
#include <vector>

namespace example {

namespace rp = replicator;

struct SyntheticOptions {
  int classes = 10;  // 2 to 20
  std::int64_t train = 5000;
  std::int64_t val = 1000;
  std::int64_t size = 32;  // pixels of a side, at least 16
  std::uint64_t seed = 0;
};

namespace detail {

inline constexpr std::array synthetic_shapes{"disc", "square", "triangle", "ring", "cross"};
inline constexpr std::array synthetic_patterns{"horizontal", "vertical", "checks", "plain"};

// "03_ring_horizontal": the number keeps labels in the order of the names.
inline std::string synthetic_class(int label) {
  const auto shapes = static_cast<int>(synthetic_shapes.size());
  return std::string{static_cast<char>('0' + label / 10), static_cast<char>('0' + label % 10)} + "_" +
         synthetic_shapes[static_cast<std::size_t>(label % shapes)] + "_" +
         synthetic_patterns[static_cast<std::size_t>(label / shapes)];
}

// One picture of a class: a shape, filled with a pattern, at a random place, size and slight turn, light on dark or
// dark on light in random colours, among a few blots, under noise. Every pixel alone says next to nothing about the
// class: only the arrangement does.
class SyntheticPicture {
 public:
  SyntheticPicture(int label, std::int64_t size, rp::PhiloxStream random)
      : size_{size},
        shape_{label % static_cast<int>(synthetic_shapes.size())},
        pattern_{label / static_cast<int>(synthetic_shapes.size())},
        random_{random} {
    const bool inverted = random_.uniform() < 0.25f;
    const auto tone = [&](float low, float high) {
      const float light = between(low, high);
      return inverted ? 1 - light : light;
    };
    background_ = colour(tone(0.1f, 0.35f));
    for (float& slope : slope_) slope = between(-0.15f, 0.15f);
    fill_[0] = colour(tone(0.7f, 0.9f));
    fill_[1] = pattern_ == 3 ? fill_[0] : colour(tone(0.35f, 0.5f));
    radius_ = between(0.34f, 0.44f);
    for (float& c : center_) c = between(0.9f * radius_, 1 - 0.9f * radius_);
    const float t = between(-0.1f, 0.1f);  // the tangent of half the angle
    cosine_ = (1 - t * t) / (1 + t * t);
    sine_ = 2 * t / (1 + t * t);
    period_ = between(0.16f, 0.22f);
    for (float& phase : phase_) phase = random_.uniform();
    for (Blot& blot : blots_)
      blot = {random_.uniform(), random_.uniform(), between(0.03f, 0.06f), colour(random_.uniform())};
  }

  // [size, size, 3]
  rp::Array<std::uint8_t> draw() {
    rp::Array<std::uint8_t> pixels{rp::Shape{size_, size_, 3}};
    std::uint8_t* to = pixels.data();
    const float step = 1 / static_cast<float>(size_);
    for (std::int64_t y = 0; y < size_; ++y)
      for (std::int64_t x = 0; x < size_; ++x) {
        const Colour pixel = at((static_cast<float>(x) + 0.5f) * step, (static_cast<float>(y) + 0.5f) * step);
        for (const float value : pixel)
          *to++ = static_cast<std::uint8_t>(std::clamp(value + noise(), 0.0f, 1.0f) * 255);
      }
    return pixels;
  }

 private:
  using Colour = std::array<float, 3>;
  struct Blot {
    float x, y, radius;
    Colour colour;
  };

  float between(float low, float high) { return low + (high - low) * random_.uniform(); }
  float noise() {  // a triangle-shaped density over +-0.1
    const std::uint32_t bits = random_.next();
    return 0.1f * (static_cast<float>(bits & 0xFFFF) - static_cast<float>(bits >> 16)) / 65536;
  }
  Colour colour(float light) {
    const float red = between(-0.15f, 0.15f), green = between(-0.15f, 0.15f);
    return {light + red, light + green, light - red - green};
  }
  static void mix(Colour& below, const Colour& above, float share) {
    for (std::size_t c = 0; c < 3; ++c) below[c] += share * (above[c] - below[c]);
  }
  static float length(float x, float y) { return std::sqrt(x * x + y * y); }
  // How much of a pixel lies inside, `distance` (in picture sides) beyond the edge.
  float inside(float distance) const { return std::clamp(0.5f - distance * static_cast<float>(size_), 0.0f, 1.0f); }

  Colour at(float x, float y) const {
    Colour result = background_;
    for (float& value : result) value += slope_[0] * (x - 0.5f) + slope_[1] * (y - 0.5f);
    for (const Blot& blot : blots_) {
      const float share = inside(length(x - blot.x, y - blot.y) - blot.radius);
      if (share > 0) mix(result, blot.colour, share);
    }
    const float dx = x - center_[0], dy = y - center_[1];
    const float u = cosine_ * dx + sine_ * dy, v = cosine_ * dy - sine_ * dx;
    const float share = inside(radius_ * edge(u / radius_, v / radius_));
    if (share == 0) return result;
    Colour fill = fill_[0];
    mix(fill, fill_[1], pattern(u, v));
    mix(result, fill, share);
    return result;
  }

  // Distance from the edge of the shape, in radii, negative inside.
  float edge(float u, float v) const {
    const float r = length(u, v), a = std::abs(u), b = std::abs(v);
    switch (shape_) {
      case 0:
        return r - 0.9f;
      case 1:
        return std::max(a, b) - 0.8f;
      case 2:
        return std::max(v - 0.6f, 0.866f * a - 0.5f * v - 0.5f);
      case 3:
        return std::abs(r - 0.7f) - 0.28f;
      default:
        return std::min(std::max(a - 0.95f, b - 0.33f), std::max(a - 0.33f, b - 0.95f));
    }
  }

  float stripe(float x, float phase) const {
    const float turns = x / period_ + phase;
    const float place = turns - std::floor(turns);
    return inside((std::abs(place - 0.5f) - 0.25f) * period_);
  }
  float pattern(float u, float v) const {
    if (pattern_ == 0) return stripe(v, phase_[0]);
    if (pattern_ == 1) return stripe(u, phase_[1]);
    const float p = stripe(v, phase_[0]), q = stripe(u, phase_[1]);
    return p + q - 2 * p * q;
  }

  std::int64_t size_;
  int shape_;
  int pattern_;
  rp::PhiloxStream random_;
  Colour background_{};
  std::array<float, 2> slope_{};
  std::array<Colour, 2> fill_{};
  float radius_ = 0;
  std::array<float, 2> center_{};
  float cosine_ = 1;
  float sine_ = 0;
  float period_ = 1;
  std::array<float, 2> phase_{};
  std::array<Blot, 2> blots_{};
};

// Pictures 0 .. count-1 of the stream `part`, the classes taking turns.
inline void write_synthetic_part(const std::string& folder, std::int64_t count, std::uint32_t part,
                                 const SyntheticOptions& options) {
  for (int label = 0; label < options.classes; ++label)
    std::filesystem::create_directories(folder + "/" + synthetic_class(label));
  rp::data::WorkerPool pool;
  pool.for_each(count, [&](std::int64_t i, int) {
    const int label = static_cast<int>(i % options.classes);
    const rp::PhiloxStream random{options.seed, static_cast<std::uint64_t>(i), part};
    const std::vector<std::byte> jpeg = rp::data::encode_jpeg(SyntheticPicture{label, options.size, random}.draw());
    std::string number = std::to_string(i);
    number.insert(0, number.size() < 6 ? 6 - number.size() : 0, '0');
    rp::io::write_file(folder + "/" + synthetic_class(label) + "/" + number + ".jpg", jpeg);
  });
}

inline std::string synthetic_note(const SyntheticOptions& options) {
  return "synthetic pictures, version 1: classes " + std::to_string(options.classes) + ", train " +
         std::to_string(options.train) + ", val " + std::to_string(options.val) + ", size " +
         std::to_string(options.size) + ", seed " + std::to_string(options.seed) + "\n";
}

// Whether `folder` holds the set that `note` describes. Throws DataError when it holds something else.
inline bool holds_synthetic(const std::string& folder, const std::string& note) {
  if (!std::filesystem::exists(folder)) return false;
  std::vector<std::byte> found;
  if (std::filesystem::exists(folder + "/synthetic.txt")) rp::io::read_file(folder + "/synthetic.txt", found);
  const std::string_view text{reinterpret_cast<const char*>(found.data()), found.size()};
  if (text == note) return true;
  throw rp::DataError{folder + ": cannot write synthetic pictures here, the folder holds " +
                      (text.empty() ? std::string{"something else"} : "others (" + std::string{text} + ")") +
                      "; remove it or name another"};
}

// A folder of its own beside `folder`, whoever else makes one there at the same time: processes of several machines may have the same
// number. It goes with this, unless it was renamed.
class PartialFolder {
 public:
  // Makes the folders above, where they are missing. Throws DataError, or std::filesystem::filesystem_error.
  explicit PartialFolder(const std::string& folder) : above_{folder.substr(0, folder.find_last_not_of('/') + 1) + ".partial.XXXXXX"} {
    if (const auto parent = std::filesystem::path{above_}.parent_path(); !parent.empty()) std::filesystem::create_directories(parent);
    if (!::mkdtemp(above_.data()))
      throw rp::DataError{folder + ": cannot make a folder beside it: " + std::generic_category().message(errno)};
  }
  PartialFolder(const PartialFolder&) = delete;
  PartialFolder& operator=(const PartialFolder&) = delete;
  ~PartialFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(above_, ignored);
  }
  // mkdtemp's own is for this user alone.
  std::string path() const { return above_ + "/set"; }

 private:
  std::string above_;
};

}  // namespace detail

// Writes train/<class>/<number>.jpg and val/<class>/<number>.jpg below `folder`, which image_folder() reads, and
// synthetic.txt, which says what they are. Does nothing when the same set is there already. The folder appears only
// when it is complete, so several processes may ask for the same one at the same time.
// The pictures depend on the options only; their bytes also on the version of libjpeg-turbo.
// Throws BuildError for options that make no sense, DataError when the folder holds something else or cannot be
// written.
inline void write_synthetic(const std::string& folder, const SyntheticOptions& options = {}) {
  if (options.classes < 2 || options.classes > 20 || options.size < 16 || options.size > 4096 ||
      options.train < options.classes || options.val < options.classes)
    throw rp::BuildError{
        "write_synthetic: needs 2 to 20 classes, a size of 16 to 4096 pixels and a picture of each class " +
        std::string{"for train and val; found "} + detail::synthetic_note(options)};
  const std::string note = detail::synthetic_note(options);
  if (detail::holds_synthetic(folder, note)) return;
  try {
    const detail::PartialFolder partial{folder};
    detail::write_synthetic_part(partial.path() + "/train", options.train, 0, options);
    detail::write_synthetic_part(partial.path() + "/val", options.val, 1, options);
    rp::io::write_file(partial.path() + "/synthetic.txt", std::as_bytes(std::span{note.data(), note.size()}));
    std::error_code failed;
    std::filesystem::rename(partial.path(), folder, failed);
    if (!failed || detail::holds_synthetic(folder, note)) return;  // or another process was faster
    throw rp::DataError{folder + ": cannot rename the finished pictures to this name: " + failed.message()};
  } catch (const std::filesystem::filesystem_error& error) {
    throw rp::DataError{folder + ": cannot write synthetic pictures: " + error.what()};
  }
}

}  // namespace example
