// SPDX-License-Identifier: Apache-2.0
// The code of jpeg.hpp: decodes and encodes JPEG files by libjpeg-turbo, component `jpeg` (link turbojpeg).
#pragma once

#include <turbojpeg.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <replicator/core/array.hpp>
#include <replicator/core/error.hpp>
#include <replicator/data/pictures/exif.hpp>
#include <replicator/data/pictures/jpeg.hpp>
#include <replicator/data/pictures/picture_decoder.hpp>
#include <replicator/data/pictures/read_image.hpp>
#include <replicator/data/pictures/resample.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace replicator::data {

namespace detail {

struct TurboDelete {
  void operator()(void* handle) const { tjDestroy(handle); }
};
using TurboHandle = std::unique_ptr<void, TurboDelete>;

// Grey and CMYK pictures become RGB.
class JpegDecoder : public PictureDecoder {
 public:
  explicit JpegDecoder(std::int64_t most_pixels = most_picture_pixels) : PictureDecoder{most_pixels} { renew(); }

 private:
  void read_header() override {
    int subsampling = 0, width = 0, height = 0;
    const int status = tjDecompressHeader3(handle_.get(), data(), size(), &width, &height, &subsampling, &colours_);
    if (status != 0) refuse("is not a JPEG picture that can be read: ");
    // libjpeg reports no error for a file with tables but no picture.
    if (width < 1 || height < 1) refuse("is not a JPEG picture that can be read: it ends before the picture; ");
    stored_width_ = width;
    stored_height_ = height;
    orientation_ = exif_orientation(bytes());
  }

  // Refuses a progressive picture with more than 500 scans: each scan covers the whole picture, so a small file could
  // take hours.
  int decode_as_stored(int shrink, Picture& picture) override {
    const tjscalingfactor factor{1, shrink};
    picture.resize(TJSCALED(stored_height_, factor), TJSCALED(stored_width_, factor));
    const bool cmyk = colours_ == TJCS_CMYK || colours_ == TJCS_YCCK;
    const int status =
        tjDecompress2(handle_.get(), data(), size(), picture.bytes.data(), static_cast<int>(picture.width), 0,
                      static_cast<int>(picture.height), cmyk ? TJPF_CMYK : TJPF_RGBX, TJFLAG_LIMITSCANS);
    if (status != 0 && !harmless()) refuse("is damaged or cut short: ");
    if (cmyk) cmyk_to_rgb(picture);
    return shrink;
  }

  const unsigned char* data() const { return reinterpret_cast<const unsigned char*>(bytes().data()); }
  unsigned long size() const { return static_cast<unsigned long>(bytes().size()); }

  void renew() {
    handle_.reset(tjInitDecompress());
    if (!handle_) throw std::bad_alloc{};
  }

  // After a failure the handle is replaced: libjpeg-turbo 2.1.5 may take the next file for the rest of the damaged one.
  [[noreturn]] void refuse(const char* what) {
    const std::string message = name() + ": " + what + tjGetErrorStr2(handle_.get());
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
  int colours_ = 0;
};

inline const bool jpeg_decoder_is_registered = [] {
  picture_decoder_slot[jpeg_format].store([](std::int64_t most_pixels) -> std::unique_ptr<PictureDecoder> { return std::make_unique<JpegDecoder>(most_pixels); });
  return true;
}();

}  // namespace detail

template <class>
std::vector<std::byte> encode_jpeg(const Array<std::uint8_t>& pixels, int quality) {
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
