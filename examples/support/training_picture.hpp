// SPDX-License-Identifier: Apache-2.0
// A training run as one picture (SVG): the curve of the loss, and pictures with what the network takes them for.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <span>
#include <string>
#include <vector>

#include <replicator/core/array.hpp>
#include <replicator/data/pictures/jpeg.hpp>
#include <replicator/io/file.hpp>

namespace example {

namespace rp = replicator;

// One picture that the network has not been trained on.
struct Judged {
  rp::Array<std::uint8_t> pixels;  // [height, width, 3]
  std::string truth, said;         // classes
  double certainty = 0;            // what softmax gives `said`
};

struct TrainingPicture {
  std::string title;
  std::vector<double> loss;  // of steps 1, 2, ...
  std::vector<Judged> judged;
};

namespace detail {

inline std::string base64(std::span<const std::byte> bytes) {
  static constexpr char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    const std::size_t count = std::min<std::size_t>(3, bytes.size() - i);
    std::uint32_t word = 0;
    for (std::size_t k = 0; k < 3; ++k) word = word << 8 | (k < count ? std::to_integer<std::uint32_t>(bytes[i + k]) : 0);
    for (std::size_t k = 0; k < 4; ++k) text += k <= count ? letters[word >> (18 - 6 * k) & 63] : '=';
  }
  return text;
}

inline std::string escaped(const std::string& text) {
  std::string result;
  for (const char c : text) result += c == '&' ? "&amp;" : c == '<' ? "&lt;"
                                                                    : std::string{c};
  return result;
}

class TrainingSvg {
 public:
  explicit TrainingSvg(const TrainingPicture& picture) {
    const std::size_t rows = (picture.judged.size() + columns - 1) / columns;
    const int height = top + curve_height + 50 + static_cast<int>(rows) * row_height + 10;
    add("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" font-family=\"sans-serif\" font-size=\"12\">\n", width, height);
    svg_ += "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n";
    text(left, 20, picture.title, "#000", "start", 15);
    curve(picture.loss);
    if (!picture.judged.empty())
      text(left, top + curve_height + 40, "pictures it has not seen, and what it takes them for (red: mistaken)", "#000", "start", 13);
    for (std::size_t i = 0; i < picture.judged.size(); ++i) judged(picture.judged[i], i);
    svg_ += "</svg>\n";
  }
  const std::string& svg() const { return svg_; }

 private:
  static constexpr int width = 860, left = 60, top = 50, curve_height = 220, row_height = 132;
  static constexpr std::size_t columns = 8;

  template <class... A>
  void add(const char* format, A... arguments) {
    char line[512];
    svg_.append(line, static_cast<std::size_t>(std::clamp(std::snprintf(line, sizeof line, format, arguments...), 0, static_cast<int>(sizeof line) - 1)));
  }
  void text(double x, double y, const std::string& words, const char* colour, const char* anchor, int size) {
    add("<text x=\"%.1f\" y=\"%.1f\" fill=\"%s\" text-anchor=\"%s\" font-size=\"%d\">", x, y, colour, anchor, size);
    svg_ += escaped(words) + "</text>\n";
  }

  // Every step as a thin line, and its mean over a twentieth of the run as a thick one.
  void curve(const std::vector<double>& loss) {
    if (loss.empty()) return;
    double highest = 1e-9;
    for (const double value : loss) highest = std::max(highest, value);
    const double right = width - 30, bottom = top + curve_height;
    const auto x = [&](double step) { return left + (right - left) * step / static_cast<double>(std::max<std::size_t>(1, loss.size() - 1)); };
    const auto y = [&](double value) { return bottom - curve_height * value / highest; };
    for (int i = 0; i <= 4; ++i) {
      const double value = highest * i / 4;
      add("<line x1=\"%d\" x2=\"%.1f\" y1=\"%.1f\" y2=\"%.1f\" stroke=\"#ddd\"/>\n", left, right, y(value), y(value));
      char number[32];
      std::snprintf(number, sizeof number, "%.2f", value);
      text(left - 8, y(value) + 4, number, "#555", "end", 11);
      const auto step = static_cast<std::size_t>(std::lround(static_cast<double>(loss.size() - 1) * i / 4));
      text(x(static_cast<double>(step)), bottom + 16, i == 0 ? "step 1" : std::to_string(step + 1), "#555", "middle", 11);
    }
    text(left, top - 8, "loss", "#555", "middle", 11);
    line(loss, x, y, "#9bc4e2", 1);
    const std::size_t window = std::max<std::size_t>(1, loss.size() / 20);
    std::vector<double> smooth;
    double sum = 0;
    for (std::size_t i = 0; i < loss.size(); ++i) {
      sum += loss[i] - (i >= window ? loss[i - window] : 0);
      smooth.push_back(sum / static_cast<double>(std::min(i + 1, window)));
    }
    line(smooth, x, y, "#1f6fb4", 2);
  }
  template <class X, class Y>
  void line(const std::vector<double>& values, X x, Y y, const char* colour, int thickness) {
    add("<polyline fill=\"none\" stroke=\"%s\" stroke-width=\"%d\" points=\"", colour, thickness);
    for (std::size_t i = 0; i < values.size(); ++i) add("%.1f,%.1f ", x(static_cast<double>(i)), y(values[i]));
    svg_ += "\"/>\n";
  }

  void judged(const Judged& one, std::size_t i) {
    constexpr int side = 80;
    const int x = left + static_cast<int>(i % columns) * 98, y = top + curve_height + 54 + static_cast<int>(i / columns) * row_height;
    add("<image x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" image-rendering=\"pixelated\" href=\"data:image/jpeg;base64,", x, y, side, side);
    svg_ += base64(rp::data::encode_jpeg(one.pixels)) + "\"/>\n";
    char percent[16];
    std::snprintf(percent, sizeof percent, "%.0f %%", one.certainty * 100);
    const bool right = one.said == one.truth;
    const char* colour = right ? "#1a7f37" : "#c1121f";
    text(x, y + side + 13, short_name(one.said), colour, "start", 9);
    text(x, y + side + 25, right ? percent : percent + std::string{"; it is"}, colour, "start", 9);
    if (!right) text(x, y + side + 37, short_name(one.truth), "#555", "start", 9);
  }
  // "03_ring_horizontal" -> "ring horizontal": folders begin with a number so that they are sorted.
  static std::string short_name(std::string name) {
    const auto digits = name.find_first_not_of("0123456789");
    if (digits != std::string::npos && digits > 0 && name[digits] == '_') name.erase(0, digits + 1);
    std::replace(name.begin(), name.end(), '_', ' ');
    return name.size() <= 19 ? name : name.substr(0, 17) + "...";
  }

  std::string svg_;
};

}  // namespace detail

// Writes the picture as an SVG file, which every browser shows. Throws DataError where it cannot be written.
inline void write_training_picture(const std::string& path, const TrainingPicture& picture) {
  const detail::TrainingSvg drawn{picture};
  rp::io::write_file(path, std::as_bytes(std::span{drawn.svg()}));
}

}  // namespace example
