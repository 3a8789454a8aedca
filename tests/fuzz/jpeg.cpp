// SPDX-License-Identifier: Apache-2.0
// covers: data/pictures/jpeg.hpp data/pictures/crop.hpp data/pictures/resample.hpp data/pictures/jpeg_decoder.hpp
// links: turbojpeg
#include <replicator/data/pictures/crop.hpp>
#include <replicator/data/pictures/jpeg.hpp>
#include <replicator/data/pictures/jpeg_decoder.hpp>

#include "target.hpp"

namespace replicator::fuzz {

using namespace replicator::detail;

void one(Bytes input) {
  static data::detail::JpegDecoder decoder;
  const std::vector<std::byte> exact{input.begin(), input.end()};
  documented<DataError>("a.jpg", [&] {
    decoder.open("a.jpg", exact);
    if (decoder.width() * decoder.height() > 1 << 16) return;  // the limit of the library is far above what is quick
    const std::uint64_t seed = exact.size();
    PhiloxStream random{seed, seed, 1};
    data::detail::Picture picture;
    data::detail::Resampler resample;
    std::vector<float> out(3 * 5 * 7);
    for (const int shrink : {1, 2, 8}) {
      decoder.decode(shrink, picture);
      for (const bool train : {false, true}) {
        auto crop = train ? data::detail::random_resized_crop(random, decoder.height(), decoder.width(), {0.08f, 1.0f}, {0.75f, 4.0f / 3})
                          : data::detail::center_crop(decoder.height(), decoder.width(), 8, 5, 7);
        crop = data::detail::shrunk(crop, shrink, picture.height, picture.width);
        crop.rows.count = 5;
        crop.columns.count = 7;
        resample(picture, crop.rows, crop.columns, train, {{1, 1, 1, 1}, {}}, out.data());
      }
    }
  });
}

std::vector<std::string> seeds() {
  const auto made = [](Shape shape, int quality) {
    Array<std::uint8_t> pixels{shape};
    for (std::int64_t i = 0; i < pixels.size(); ++i) pixels[i] = static_cast<std::uint8_t>(i * 37);
    const auto bytes = data::encode_jpeg(pixels, quality);
    return std::string{text_of(bytes)};
  };
  return {made({16, 9, 3}, 90), made({3, 40}, 10), made({1, 1, 3}, 100)};
}

}  // namespace replicator::fuzz
