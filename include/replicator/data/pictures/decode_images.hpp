// SPDX-License-Identifier: Apache-2.0
// Decodes JPEG and PNG files into normalised float32 pictures. <replicator/replicator.hpp>, or image_decoder.hpp,
// brings the code; the components `jpeg` and `png` hold the decoders.
#pragma once

#include <algorithm>
#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <memory>
#include <optional>
#include <replicator/core/array.hpp>
#include <replicator/data/files/image_folder.hpp>
#include <replicator/data/index.hpp>
#include <replicator/data/pictures/read_image.hpp>
#include <replicator/data/stream.hpp>
#include <replicator/data/worker_pool.hpp>
#include <span>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>

namespace replicator::data {

struct DecodeOptions {
  // One number is both: .crop = 64.
  struct Size {
    std::int64_t height = 224;
    std::int64_t width = 224;

    constexpr Size() = default;
    template <std::integral Both>
    constexpr Size(Both both) : Size{static_cast<std::int64_t>(both), static_cast<std::int64_t>(both)} {}  // NOLINT: implicit on purpose
    constexpr Size(std::int64_t pixels_high, std::int64_t pixels_wide) : height{pixels_high}, width{pixels_wide} {}
  };
  Size crop = {};                                  // size of the resulting pictures
  bool flip = true;                                // training: mirror pictures with probability 1/2
  std::array<float, 2> scale{0.08f, 1.0f};         // training: share of the area that is kept
  std::array<float, 2> ratio{3.0f / 4, 4.0f / 3};  // training: width / height of the kept part
  // Above 0, uses CIFAR's recipe instead: the whole picture at the size `crop`, in training shifted by up to `pad`
  // pixels each way over black.
  std::int64_t pad = 0;
  // Evaluation: the length of the shorter side before the middle is cut out. 0 means 256/224 of the larger crop side.
  std::int64_t resize = 0;
  std::array<float, 3> mean{0.485f, 0.456f, 0.406f};  // of red, green, blue in [0, 1] (ImageNet's)
  std::array<float, 3> stddev{0.229f, 0.224f, 0.225f};
  bool train = true;  // false: evaluation, nothing random
  // A picture that claims more pixels is an error, before memory is taken for it. A worker takes 4 bytes for each.
  std::int64_t most_pixels = detail::most_picture_pixels;
};

namespace detail {

// Decodes, crops and resamples the pictures of a pipeline.
class ImageDecoder;
// What the random choices for a picture depend on.
struct PictureKey {
  std::uint64_t seed = 0;
  std::int64_t number = 0;  // the position in the whole job
};
// Throws BuildError for impossible options.
template <class = void>
std::shared_ptr<ImageDecoder> make_image_decoder(const DecodeOptions& options, int workers);
// Write float32 [3, height, width] to `image`. Each worker decodes a picture at a time.
template <class = void>
void decode_file(ImageDecoder& decoder, int worker, const std::string& path, const PictureKey& key, float* image);
template <class = void>
void decode_bytes(ImageDecoder& decoder, int worker, const std::string& name, std::span<const std::byte> file, const PictureKey& key, float* image);

// A source of labelled picture files by position: image_folder(), tar_pictures().
template <class S>
concept PictureSource = Indexed<S> && requires(const S& source, std::int64_t position) {
  source(position).label;
  source(position).number;
};

// The images and labels at positions 0, 1, ...: float32 [3, height, width] and a scalar int32.
template <PictureSource Source>
class DecodedImages : public Stream<DecodedImages<Source>, std::tuple<Array<float>, Array<std::int32_t>>> {
 public:
  using value_type = std::tuple<Array<float>, Array<std::int32_t>>;

  DecodedImages(Source folder, const DecodeOptions& options)
      : folder_{std::move(folder)}, size_{options.crop}, decoder_{make_image_decoder(options, pool() ? pool()->threads() : 1)} {}

  // Decodes enough pictures at once to keep the pool busy, and returns them in order.
  std::optional<value_type> next() {
    if (ahead_.empty()) decode_ahead();
    if (ahead_.empty()) return std::nullopt;
    Ahead first = std::move(ahead_.front());
    ahead_.pop_front();
    ++position_;
    if (first.error) std::rethrow_exception(first.error);
    return std::move(first.value);
  }

  // Up to `size` pictures and labels as [n, 3, height, width] and [n]; nothing at the end. The pictures are decoded in
  // parallel, directly into the batch.
  // Throws DataError that names the first unusable file.
  std::optional<value_type> read_batch(std::int64_t size) {
    ahead_.clear();
    const std::int64_t count = left(size);
    if (count == 0) return std::nullopt;
    value_type batch{Array<float>{Shape{count, 3, size_.height, size_.width}},
                     Array<std::int32_t>{Shape{count}}};
    float* const images = std::get<0>(batch).data();
    std::int32_t* const labels = std::get<1>(batch).data();
    const std::int64_t first = std::exchange(position_, position_ + count);
    for_each_index(pool(), count, [&](std::int64_t i, int worker) {
      decode(first + i, worker, images + i * image_elements(), labels[i]);
    });
    return batch;
  }

  std::int64_t limit() const { return endless_ ? -1 : folder_.index().limit(); }
  Share share() const { return folder_.index().share(); }
  void read_on() { endless_ = true; }
  std::int64_t position() const { return position_; }
  void seek(std::int64_t position) {
    ahead_.clear();
    position_ = position;
  }

 private:
  struct Ahead {
    value_type value;
    std::exception_ptr error;
  };

  WorkerPool* pool() const { return folder_.index().pool().get(); }
  std::int64_t image_elements() const { return 3 * size_.height * size_.width; }
  std::int64_t left(std::int64_t wanted) const {
    return limit() < 0 ? wanted : std::clamp<std::int64_t>(limit() - position_, 0, wanted);
  }

  void decode_ahead() {
    const std::int64_t count = left(pool() ? 2 * std::int64_t{pool()->threads()} : 1);
    ahead_.resize(static_cast<std::size_t>(count));
    for_each_index(pool(), count, [&](std::int64_t i, int worker) {
      Ahead& ahead = ahead_[static_cast<std::size_t>(i)];
      try {
        ahead.value = {Array<float>{Shape{3, size_.height, size_.width}}, Array<std::int32_t>{Shape{}}};
        decode(position_ + i, worker, std::get<0>(ahead.value).data(), *std::get<1>(ahead.value).data());
      } catch (...) {
        ahead.error = std::current_exception();
      }
    });
  }

  void decode(std::int64_t position, int worker, float* image, std::int32_t& label) {
    const auto item = folder_(position);
    label = item.label;
    const PictureKey key{folder_.index().seed(), item.number};
    if constexpr (requires { item.path; }) decode_file(*decoder_, worker, item.path, key, image);
    else decode_bytes(*decoder_, worker, item.name, item.bytes, key, image);
  }

  Source folder_;
  DecodeOptions::Size size_;
  std::shared_ptr<ImageDecoder> decoder_;
  std::deque<Ahead> ahead_;
  std::int64_t position_ = 0;
  bool endless_ = false;
};

struct DecodeStage {
  DecodeOptions options;
};

template <class S>
auto operator|(S&& source, const DecodeStage& stage) {
  using Source = std::remove_cvref_t<S>;
  static_assert(PictureSource<Source>,
                "replicator: decode_images() reads files: put it behind image_folder() or tar_pictures(), shuffle() and shard()");
  if constexpr (PictureSource<Source>) return DecodedImages<Source>{std::forward<S>(source), stage.options};
}

}  // namespace detail

// Decodes JPEG and PNG files on the pool of shard(), and turns pictures upright as their EXIF data say. The first bytes of
// a file say which format it has. Without `pad`, training takes a random crop, resizes it (bilinear, antialiased) and
// mirrors it at random; evaluation resizes, and cuts out the middle. Elements are (float32 [3, height, width], int32 label).
// Random choices depend only on the seed and on the picture's position in the whole job, never on threads.
//
// All pictures become 8-bit RGB, as PIL's convert("RGB") makes them: grey as three equal channels, palettes by their
// colours. 16 bits are rounded to 8, and PIL does otherwise. Transparency is ignored: the colour of a pixel is what is
// stored, whatever its alpha. So are colour profiles and gamma. CMYK becomes RGB as Adobe stores it.
// Throws BuildError for impossible options. Reading throws DataError that names a file that is neither JPEG nor PNG,
// damaged or cut short, and one of a format whose component the program does not link.
inline detail::DecodeStage decode_images(const DecodeOptions& options = {}) { return {options}; }

}  // namespace replicator::data
