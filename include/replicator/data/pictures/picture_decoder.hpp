// SPDX-License-Identifier: Apache-2.0
// The code of read_image.hpp: decodes a picture file of any format that the program has a decoder for. Each format is a component of its own, and
// registers its decoder in a slot.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <replicator/core/array.hpp>
#include <replicator/core/error.hpp>
#include <replicator/data/pictures/exif.hpp>
#include <replicator/data/pictures/read_image.hpp>
#include <replicator/data/pictures/resample.hpp>
#include <replicator/io/file.hpp>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace replicator::data {

namespace detail {

// A decoder of one format. Turns pictures upright as their EXIF data say. Reuses its memory between pictures. For one
// thread at a time.
class PictureDecoder {
 public:
  // open() refuses pictures that claim more than `most_pixels`, before memory is taken for them.
  explicit PictureDecoder(std::int64_t most_pixels) : most_pixels_{most_pixels} {}
  virtual ~PictureDecoder() = default;

  // Reads the header of a file in memory, which must stay valid until it is decoded. `name` is for errors.
  // Throws DataError that begins with the name.
  void open(const std::string& name, std::span<const std::byte> file) {
    name_ = name;
    bytes_ = file;
    stored_height_ = stored_width_ = 0;
    orientation_ = 1;
    read_header();
    if (stored_width_ > most_pixels_ / stored_height_)
      throw DataError{name_ + ": claims " + std::to_string(stored_width_) + " x " + std::to_string(stored_height_) + " pixels, more than " +
                      std::to_string(most_pixels_) + "; it is damaged, or must be made smaller, or most_pixels must be raised"};
  }
  // Of the upright picture.
  std::int64_t width() const { return orientation_ < 5 ? stored_width_ : stored_height_; }
  std::int64_t height() const { return orientation_ < 5 ? stored_height_ : stored_width_; }

  // Decodes the opened picture as RGB at 1/n of its size (rounded up), and returns n. `shrink` is 1, 2, 4 or 8, and n
  // is at most `shrink`: not every format has smaller sizes.
  // Throws DataError for a picture that is damaged or cut short.
  int decode(int shrink, Picture& picture) {
    if (orientation_ == 1) return decode_as_stored(shrink, picture);
    const int used = decode_as_stored(shrink, stored_);
    turn_upright(stored_, orientation_, picture);
    return used;
  }

 protected:
  // Sets the extents, at least 1 each, and the orientation, from bytes().
  virtual void read_header() = 0;
  virtual int decode_as_stored(int shrink, Picture& picture) = 0;

  const std::string& name() const { return name_; }
  std::span<const std::byte> bytes() const { return bytes_; }

  std::int64_t stored_height_ = 0;
  std::int64_t stored_width_ = 0;
  int orientation_ = 1;  // 1 to 8, as in EXIF

 private:
  std::int64_t most_pixels_;
  std::string name_;
  std::span<const std::byte> bytes_;
  Picture stored_;
};

struct PictureFormat {
  const char* name;
  const char* component;   // of replicator, which holds its decoder
  std::string_view begin;  // the first bytes of every file
};
inline constexpr std::array<PictureFormat, 2> picture_formats{{{"JPEG", "jpeg", {"\xFF\xD8\xFF", 3}}, {"PNG", "png", {"\x89PNG\r\n\x1A\n", 8}}}};
inline constexpr std::size_t jpeg_format = 0, png_format = 1;

using MakePictureDecoder = std::unique_ptr<PictureDecoder> (*)(std::int64_t most_pixels);
// The slots of the formats. Constant-initialised; storing twice is harmless.
inline constinit std::atomic<MakePictureDecoder> picture_decoder_slot[picture_formats.size()]{};

// Decodes files of all formats, one after the other; the first bytes of a file say which one it has. For one thread at a
// time.
class PictureReader {
 public:
  explicit PictureReader(std::int64_t most_pixels = most_picture_pixels) : most_pixels_{most_pixels} {}

  // Reads the file and its header. Throws DataError that names the file, also where the program has no decoder for it.
  void open(const std::string& path) {
    io::read_file(path, file_);
    open(path, file_);
  }
  // The same for a file in memory, which must stay valid until it is decoded. `name` is for errors.
  void open(const std::string& name, std::span<const std::byte> file) {
    decoder_ = &decoder_of(name, file);
    decoder_->open(name, file);
  }
  std::int64_t width() const { return decoder_->width(); }
  std::int64_t height() const { return decoder_->height(); }
  int decode(int shrink, Picture& picture) { return decoder_->decode(shrink, picture); }

 private:
  PictureDecoder& decoder_of(const std::string& name, std::span<const std::byte> file) {
    const std::string_view text{reinterpret_cast<const char*>(file.data()), file.size()};
    for (std::size_t i = 0; i < picture_formats.size(); ++i) {
      const PictureFormat& format = picture_formats[i];
      if (!text.starts_with(format.begin)) continue;
      const auto make = picture_decoder_slot[i].load();
      if (!make)
        throw DataError{name + ": is a " + format.name + " picture, and this program has no decoder for it: link replicator::" + format.component};
      if (!decoders_[i]) decoders_[i] = make(most_pixels_);
      return *decoders_[i];
    }
    throw DataError{name + ": is neither a JPEG nor a PNG picture: " + (file.empty() ? "it is empty" : "it begins with the bytes " + first_bytes(file))};
  }

  // "47 49 46 38" of a GIF file.
  static std::string first_bytes(std::span<const std::byte> file) {
    std::string text;
    for (const std::byte byte : file.first(file.size() < 8 ? file.size() : 8)) {
      if (!text.empty()) text += ' ';
      for (const int shift : {4, 0}) text += "0123456789ABCDEF"[std::to_integer<int>(byte) >> shift & 15];
    }
    return text;
  }

  std::int64_t most_pixels_;
  std::array<std::unique_ptr<PictureDecoder>, picture_formats.size()> decoders_;
  PictureDecoder* decoder_ = nullptr;
  std::vector<std::byte> file_;
};

}  // namespace detail

template <class>
Array<std::uint8_t> read_image(const std::string& path, std::int64_t most_pixels) {
  detail::PictureReader reader{most_pixels};
  detail::Picture picture;
  reader.open(path);
  reader.decode(1, picture);
  Array<std::uint8_t> result{Shape{picture.height, picture.width, 3}};
  for (std::int64_t i = 0; i < picture.height * picture.width; ++i)
    for (std::int64_t c = 0; c < 3; ++c) result[3 * i + c] = picture.bytes[static_cast<std::size_t>(4 * i + c)];
  return result;
}

}  // namespace replicator::data
