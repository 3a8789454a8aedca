// SPDX-License-Identifier: Apache-2.0
// Decodes PNG files by libpng: component `png` (link png). Source: the manual of libpng 1.6 (libpng-manual.txt).
#pragma once

#include <png.h>

#include <csetjmp>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>
#include <new>
#include <replicator/core/error.hpp>
#include <replicator/data/pictures/exif.hpp>
#include <replicator/data/pictures/picture_decoder.hpp>
#include <replicator/data/pictures/resample.hpp>
#include <replicator/io/number_encoding.hpp>
#include <span>
#include <string>
#include <string_view>

namespace replicator::data::detail {

// A file in memory, as libpng reads it, and libpng's words about what is wrong with it.
struct PngSource {
  std::span<const std::byte> left;
  char error[128] = "";
};

struct PngHandle {
  explicit PngHandle(PngSource& source) : png{png_create_read_struct(PNG_LIBPNG_VER_STRING, &source, &keep_error, &ignore)} {
    if (png) info = png_create_info_struct(png);
    if (!info) {
      png_destroy_read_struct(&png, nullptr, nullptr);
      throw std::bad_alloc{};
    }
  }
  PngHandle(const PngHandle&) = delete;
  PngHandle& operator=(const PngHandle&) = delete;
  ~PngHandle() { png_destroy_read_struct(&png, &info, nullptr); }

  png_structp png;
  png_infop info = nullptr;

 private:
  [[noreturn]] static void keep_error(png_structp png, png_const_charp message) {
    auto& source = *static_cast<PngSource*>(png_get_error_ptr(png));
    std::snprintf(source.error, sizeof source.error, "%s", message);
    png_longjmp(png, 1);
  }
  static void ignore(png_structp, png_const_charp) {}
};

inline void read_png_bytes(png_structp png, png_bytep to, std::size_t size) {
  auto& left = static_cast<PngSource*>(png_get_io_ptr(png))->left;
  if (size > left.size()) png_error(png, "it ends too early");
  std::memcpy(to, left.data(), size);
  left = left.subspan(size);
}

// Writes height x width pixels of 4 bytes to `pixels`. False if libpng refuses the file. An error jumps out of libpng's
// functions, so no object with a destructor may live in this one.
inline bool read_png_pixels(png_structp png, png_infop info, PngSource& source, std::size_t height, std::size_t width, std::uint8_t* pixels) {
  if (setjmp(png_jmpbuf(png)) != 0) return false;
  png_set_read_fn(png, &source, &read_png_bytes);
  // Profiles, texts and the like are neither kept nor unpacked; colours stay as they are stored.
  png_set_keep_unknown_chunks(png, PNG_HANDLE_CHUNK_NEVER, nullptr, -1);
  png_read_info(png, info);
  png_set_expand(png);  // palettes and grey of fewer than 8 bits
  png_set_scale_16(png);
  png_set_strip_alpha(png);
  png_set_gray_to_rgb(png);
  png_set_filler(png, 255, PNG_FILLER_AFTER);
  const int passes = png_set_interlace_handling(png);
  png_read_update_info(png, info);
  if (png_get_image_height(png, info) != height || png_get_rowbytes(png, info) != 4 * width) png_error(png, "its header contradicts itself");
  for (int pass = 0; pass < passes; ++pass)
    for (std::size_t y = 0; y < height; ++y) png_read_row(png, pixels + 4 * width * y, nullptr);
  png_read_end(png, nullptr);
  return true;
}

// The orientation in a PNG file's eXIf chunk, 1 to 8 as in EXIF; 1 (upright) where there is none.
inline int png_orientation(std::span<const std::byte> file) {
  constexpr std::size_t frame = 12;  // length, type and check sum of a chunk
  for (std::size_t at = 8; at < file.size() && file.size() - at >= frame;) {
    const std::size_t length = io::detail::load_big<std::uint32_t>(file.data() + at);
    if (length > file.size() - at - frame) break;
    const std::string_view chunk{reinterpret_cast<const char*>(file.data()) + at + 4, length + 4};
    if (chunk.starts_with("eXIf")) return ExifTags{chunk.substr(4)}.orientation();
    at += length + frame;
  }
  return 1;
}

class PngDecoder : public PictureDecoder {
 public:
  explicit PngDecoder(std::int64_t most_pixels = most_picture_pixels) : PictureDecoder{most_pixels} {}

 private:
  static constexpr std::int64_t longest_side = 1'000'000;  // libpng's own limit

  // The header is the first chunk: length, "IHDR", width, height.
  void read_header() override {
    const std::string_view text{reinterpret_cast<const char*>(bytes().data()), bytes().size()};
    if (text.size() < 24 || !text.starts_with(picture_formats[png_format].begin) || text.substr(12, 4) != "IHDR")
      throw DataError{name() + ": is not a PNG picture that can be read: it ends before its header, or begins with something else"};
    stored_width_ = io::detail::load_big<std::uint32_t>(bytes().data() + 16);
    stored_height_ = io::detail::load_big<std::uint32_t>(bytes().data() + 20);
    if (stored_width_ < 1 || stored_height_ < 1 || stored_width_ > longest_side || stored_height_ > longest_side)
      throw DataError{name() + ": is not a PNG picture that can be read: claims " + std::to_string(stored_width_) + " x " +
                      std::to_string(stored_height_) + " pixels; each side can have 1 to " + std::to_string(longest_side)};
    orientation_ = png_orientation(bytes());
  }

  // PNG has no smaller sizes to decode.
  int decode_as_stored(int, Picture& picture) override {
    picture.resize(stored_height_, stored_width_);
    PngSource source{bytes()};
    const PngHandle handle{source};
    if (!read_png_pixels(handle.png, handle.info, source, static_cast<std::size_t>(stored_height_), static_cast<std::size_t>(stored_width_), picture.bytes.data()))
      throw DataError{name() + ": is damaged or cut short: " + source.error};
    return 1;
  }
};

inline const bool png_decoder_is_registered = [] {
  picture_decoder_slot[png_format].store([](std::int64_t most_pixels) -> std::unique_ptr<PictureDecoder> { return std::make_unique<PngDecoder>(most_pixels); });
  return true;
}();

}  // namespace replicator::data::detail
