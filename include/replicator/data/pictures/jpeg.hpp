// SPDX-License-Identifier: Apache-2.0
// Reads and writes JPEG files by libjpeg-turbo: component `jpeg` (link turbojpeg).
#pragma once

#include <turbojpeg.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <replicator/core/array.hpp>
#include <replicator/core/error.hpp>
#include <replicator/data/pictures/exif.hpp>
#include <replicator/data/pictures/resample.hpp>
#include <replicator/io/file.hpp>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace replicator::data {

namespace detail {

struct TurboDelete {
  void operator()(void* handle) const { tjDestroy(handle); }
};
using TurboHandle = std::unique_ptr<void, TurboDelete>;

// The same limit as in Python's PIL, which suspects an attack above it.
inline constexpr std::int64_t most_jpeg_pixels = 178'956'970;

// Turns pictures upright as their EXIF data say. Reuses its memory between pictures. For one thread at a time.
class JpegDecoder {
 public:
  // open() refuses pictures that claim more than `most_pixels`, before memory is taken for them.
  explicit JpegDecoder(std::int64_t most_pixels = most_jpeg_pixels) : most_pixels_{most_pixels} { renew(); }

  // Reads the file and its header. Throws DataError that names the file.
  void open(const std::string& path) {
    io::read_file(path, file_);
    open(path, file_);
  }
  // The same for a file in memory, which must stay valid until it is decoded. `name` is for errors.
  void open(const std::string& name, std::span<const std::byte> file) {
    path_ = name;
    bytes_ = file;
    int subsampling = 0;
    width_ = height_ = 0;
    const int status = tjDecompressHeader3(handle_.get(), data(), size(), &width_, &height_, &subsampling, &colours_);
    if (status != 0) refuse("is not a JPEG picture that can be read: ");
    // libjpeg reports no error for a file with tables but no picture.
    if (width_ < 1 || height_ < 1) refuse("is not a JPEG picture that can be read: it ends before the picture; ");
    if (std::int64_t{width_} * height_ > most_pixels_)
      throw DataError{path_ + ": claims " + std::to_string(width_) + " x " + std::to_string(height_) + " pixels, more than " +
                      std::to_string(most_pixels_) + "; it is damaged, or must be made smaller, or most_pixels must be raised"};
    orientation_ = exif_orientation(bytes_);
  }
  // Of the upright picture.
  std::int64_t width() const { return orientation_ < 5 ? width_ : height_; }
  std::int64_t height() const { return orientation_ < 5 ? height_ : width_; }

  // Decodes the opened picture at 1/shrink of its size (rounded up); shrink is 1, 2, 4 or 8. Grey and CMYK pictures
  // become RGB.
  // Throws DataError for a picture that is damaged or cut short, and for a progressive one with more than 500 scans.
  // Each scan covers the whole picture, so a small file could take hours.
  void decode(int shrink, Picture& picture) {
    if (orientation_ == 1) return decode_as_stored(shrink, picture);
    decode_as_stored(shrink, stored_);
    turn_upright(stored_, orientation_, picture);
  }

 private:
  void decode_as_stored(int shrink, Picture& picture) {
    const tjscalingfactor factor{1, shrink};
    picture.resize(TJSCALED(height_, factor), TJSCALED(width_, factor));
    const bool cmyk = colours_ == TJCS_CMYK || colours_ == TJCS_YCCK;
    const int status =
        tjDecompress2(handle_.get(), data(), size(), picture.bytes.data(), static_cast<int>(picture.width), 0,
                      static_cast<int>(picture.height), cmyk ? TJPF_CMYK : TJPF_RGBX, TJFLAG_LIMITSCANS);
    if (status != 0 && !harmless()) refuse("is damaged or cut short: ");
    if (cmyk) cmyk_to_rgb(picture);
  }

  const unsigned char* data() const { return reinterpret_cast<const unsigned char*>(bytes_.data()); }
  unsigned long size() const { return static_cast<unsigned long>(bytes_.size()); }

  void renew() {
    handle_.reset(tjInitDecompress());
    if (!handle_) throw std::bad_alloc{};
  }

  // After a failure the handle is replaced: libjpeg-turbo 2.1.5 may take the next file for the rest of the damaged one.
  [[noreturn]] void refuse(const char* what) {
    const std::string message = path_ + ": " + what + tjGetErrorStr2(handle_.get());
    renew();
    throw DataError{message};
  }

  // Extra bytes between two markers lose no pixels, and many cameras write them.
  bool harmless() const {
    const std::string_view message = tjGetErrorStr2(handle_.get());
    return tjGetErrorCode(handle_.get()) == TJERR_WARNING &&
           message.find("extraneous bytes before marker") != std::string_view::npos;
  }

  // Adobe stores CMYK inverted: 255 means no ink.
  static void cmyk_to_rgb(Picture& picture) {
    for (std::size_t i = 0; i + 3 < picture.bytes.size(); i += 4) {
      std::uint8_t* const pixel = picture.bytes.data() + i;
      for (std::size_t c = 0; c < 3; ++c) pixel[c] = static_cast<std::uint8_t>((pixel[c] * pixel[3] + 127) / 255);
    }
  }

  TurboHandle handle_;
  std::string path_;
  std::vector<std::byte> file_;
  std::span<const std::byte> bytes_;
  Picture stored_;
  std::int64_t most_pixels_;
  int width_ = 0;
  int height_ = 0;
  int colours_ = 0;
  int orientation_ = 1;
};

}  // namespace detail

// Reads the picture as bytes of shape [height, width, 3], turned upright as its EXIF data say.
// Throws DataError that names the file, also where it claims more than `most_pixels`: before memory is taken for them.
inline Array<std::uint8_t> read_jpeg(const std::string& path, std::int64_t most_pixels = detail::most_jpeg_pixels) {
  detail::JpegDecoder decoder{most_pixels};
  detail::Picture picture;
  decoder.open(path);
  decoder.decode(1, picture);
  Array<std::uint8_t> result{Shape{picture.height, picture.width, 3}};
  for (std::int64_t i = 0; i < picture.height * picture.width; ++i)
    for (std::int64_t c = 0; c < 3; ++c) result[3 * i + c] = picture.bytes[static_cast<std::size_t>(4 * i + c)];
  return result;
}

// Encodes `pixels` of shape [height, width, 3], or [height, width] for grey, as a JPEG file; quality is 1 to 100.
// Colours are stored at half the resolution, as in most JPEG files.
// Throws BuildError for another shape, an empty picture or another quality.
inline std::vector<std::byte> encode_jpeg(const Array<std::uint8_t>& pixels, int quality = 90) {
  const Shape& shape = pixels.shape();
  const bool grey = shape.rank() == 2;
  if (!(grey || (shape.rank() == 3 && shape[2] == 3)) || pixels.size() == 0 || shape[0] > 65500 || shape[1] > 65500)
    throw BuildError{"a JPEG picture has the shape [height, width, 3] or [height, width], each at most 65500; found " +
                     shape.text()};
  if (quality < 1 || quality > 100) throw BuildError{"JPEG quality is 1 to 100, found " + std::to_string(quality)};
  const detail::TurboHandle handle{tjInitCompress()};
  if (!handle) throw std::bad_alloc{};
  unsigned char* bytes = nullptr;
  unsigned long size = 0;
  const int status =
      tjCompress2(handle.get(), pixels.data(), static_cast<int>(shape[1]), 0, static_cast<int>(shape[0]),
                  grey ? TJPF_GRAY : TJPF_RGB, &bytes, &size, grey ? TJSAMP_GRAY : TJSAMP_420, quality, 0);
  struct Free {
    void operator()(unsigned char* p) const { tjFree(p); }
  };
  const std::unique_ptr<unsigned char, Free> owner{bytes};
  if (status != 0) throw DataError{std::string{"JPEG encoding failed: "} + tjGetErrorStr2(handle.get())};
  const auto* first = reinterpret_cast<const std::byte*>(bytes);
  return {first, first + size};
}

}  // namespace replicator::data
