// SPDX-License-Identifier: Apache-2.0
// The code of decode_images.hpp: decodes, crops and resamples pictures.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <replicator/core/error.hpp>
#include <replicator/core/number_text.hpp>
#include <replicator/core/philox.hpp>
#include <replicator/data/files/scan_image_folder.hpp>
#include <replicator/data/index_stages.hpp>
#include <replicator/data/pictures/crop.hpp>
#include <replicator/data/pictures/decode_images.hpp>
#include <replicator/data/pictures/picture_decoder.hpp>
#include <replicator/data/pictures/resample.hpp>
#include <replicator/data/worker_threads.hpp>
#include <span>
#include <string>
#include <vector>

namespace replicator::data::detail {

class ImageDecoder {
 public:
  ImageDecoder(const DecodeOptions& options, int workers) : options_{checked(options)} {
    for (int worker = 0; worker < workers; ++worker)
      workers_.push_back({PictureReader{options_.most_pixels}, {}, {}});
    for (std::size_t c = 0; c < 3; ++c) {
      normalisation_.gain[c] = 1.0f / (255.0f * options_.stddev[c]);
      normalisation_.offset[c] = -options_.mean[c] / options_.stddev[c];
    }
  }

  // As PictureReader::open(): a path, or a name and the bytes of a file in memory.
  template <class... File>
  void operator()(int worker_number, const PictureKey& key, float* image, const File&... file) {
    Worker& worker = workers_[static_cast<std::size_t>(worker_number)];
    worker.reader.open(file...);
    decode(worker, key, image);
  }

 private:
  // The state that a worker reuses between pictures.
  struct Worker {
    PictureReader reader;
    Picture picture;
    Resampler resample;
  };
  static DecodeOptions checked(DecodeOptions options) {
    const auto refuse = [](const std::string& what) { throw BuildError{"decode_images: " + what}; };
    using replicator::detail::number_text;
    const auto [height, width] = options.crop;
    if (height < 1 || width < 1 || height > 65500 || width > 65500)
      refuse("the crop has the size " + std::to_string(height) + " x " + std::to_string(width) +
             "; 1 to 65500 is possible");
    if (!(options.scale[0] > 0 && options.scale[0] <= options.scale[1] && options.scale[1] <= 1))
      refuse("scale is {" + number_text(options.scale[0]) + ", " + number_text(options.scale[1]) + "}; it is the {smallest, largest} share of the area, 0 < smallest <= largest <= 1");
    if (!(options.ratio[0] > 0 && options.ratio[0] <= options.ratio[1]))
      refuse("ratio is {" + number_text(options.ratio[0]) + ", " + number_text(options.ratio[1]) + "}; it is the {smallest, largest} width / height, 0 < smallest <= largest");
    for (const float deviation : options.stddev)
      if (!(deviation > 0)) refuse("stddev has " + number_text(deviation) + "; it must be above 0");
    if (options.pad < 0) refuse("pad is " + std::to_string(options.pad) + "; it cannot be negative");
    if (options.most_pixels < 1) refuse("most_pixels is " + std::to_string(options.most_pixels) + "; it must be above 0");
    const std::int64_t larger = std::max(height, width);
    if (options.resize == 0) options.resize = (larger * 256 + 112) / 224;
    if (options.resize < larger)
      refuse("resize is " + std::to_string(options.resize) + ", but the crop to be cut from it has a side of " +
             std::to_string(larger));
    return options;
  }

  void decode(Worker& worker, const PictureKey& key, float* image) const {
    // Substream "jpeg" of the picture's number in the whole job; no other user of the seed shares it.
    PhiloxStream random{key.seed, static_cast<std::uint64_t>(key.number), 0x6A706567u};
    Crop crop = choose(random, worker.reader.height(), worker.reader.width());
    const bool mirror = options_.train && options_.flip && (random.next() >> 31);
    const int shrink = worker.reader.decode(largest_shrink(crop), worker.picture);
    crop = shrunk(crop, shrink, worker.picture.height, worker.picture.width);
    crop.rows.count = options_.crop.height;
    crop.columns.count = options_.crop.width;
    worker.resample(worker.picture, crop.rows, crop.columns, mirror, normalisation_, image);
  }

  Crop choose(PhiloxStream& random, std::int64_t height, std::int64_t width) const {
    if (options_.pad == 0)
      return options_.train ? random_resized_crop(random, height, width, options_.scale, options_.ratio)
                            : center_crop(height, width, options_.resize, options_.crop.height, options_.crop.width);
    Crop crop = crop_at(0, 0, height, width);
    if (options_.train) {
      crop.rows.shift = below(random, 2 * options_.pad + 1) - options_.pad;
      crop.columns.shift = below(random, 2 * options_.pad + 1) - options_.pad;
    }
    return crop;
  }

  // JPEG is decoded faster at a reduced size. The largest reduction that leaves at least as many pixels as the result
  // has.
  int largest_shrink(const Crop& crop) const {
    int shrink = 8;
    while (shrink > 1 && (crop.rows.length < static_cast<double>(shrink * options_.crop.height) ||
                          crop.columns.length < static_cast<double>(shrink * options_.crop.width)))
      shrink /= 2;
    return shrink;
  }

  DecodeOptions options_;
  Normalisation normalisation_{};
  std::vector<Worker> workers_;
};

template <class>
std::shared_ptr<ImageDecoder> make_image_decoder(const DecodeOptions& options, int workers) {
  return std::make_shared<ImageDecoder>(options, workers);
}
template <class>
void decode_file(ImageDecoder& decoder, int worker, const std::string& path, const PictureKey& key, float* image) {
  decoder(worker, key, image, path);
}
template <class>
void decode_bytes(ImageDecoder& decoder, int worker, const std::string& name, std::span<const std::byte> file, const PictureKey& key, float* image) {
  decoder(worker, key, image, name, file);
}

}  // namespace replicator::data::detail
