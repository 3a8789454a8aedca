// SPDX-License-Identifier: Apache-2.0
// Reads how a camera was held from a JPEG file's EXIF data, and turns pictures upright.
// Source: CIPA DC-008 (Exif 2.3), tag 274 "Orientation"; TIFF 6.0, section 2 (file header and directory).
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <replicator/data/pictures/resample.hpp>
#include <span>
#include <string_view>

namespace replicator::data::detail {

// A TIFF directory inside an EXIF segment. Numbers outside the segment read as 0.
class ExifTags {
 public:
  explicit ExifTags(std::string_view tiff) : tiff_{tiff}, big_endian_{tiff.substr(0, 2) == "MM"} {}

  // The value of tag 274 in the first directory; 1 (upright) if it is missing or damaged.
  int orientation() const {
    if ((!big_endian_ && tiff_.substr(0, 2) != "II") || number(2, 2) != 42) return 1;
    const std::size_t directory = number(4, 4), entries = number(directory, 2);
    for (std::size_t i = 0; i < entries; ++i) {
      const std::size_t entry = directory + 2 + 12 * i;
      if (entry >= tiff_.size()) return 1;
      constexpr std::size_t short_type = 3;
      if (number(entry, 2) != 274 || number(entry + 2, 2) != short_type || number(entry + 4, 4) != 1) continue;
      const std::size_t value = number(entry + 8, 2);
      return value >= 1 && value <= 8 ? static_cast<int>(value) : 1;
    }
    return 1;
  }

 private:
  std::size_t number(std::size_t at, std::size_t bytes) const {
    if (at > tiff_.size() || bytes > tiff_.size() - at) return 0;
    std::size_t value = 0;
    for (std::size_t i = 0; i < bytes; ++i)
      value = value << 8 | static_cast<unsigned char>(tiff_[big_endian_ ? at + i : at + bytes - 1 - i]);
    return value;
  }

  std::string_view tiff_;
  bool big_endian_;
};

// The orientation of a JPEG file, 1 to 8 as in EXIF; 1 (upright) where it does not say.
inline int exif_orientation(std::span<const std::byte> jpeg) {
  const std::string_view file{reinterpret_cast<const char*>(jpeg.data()), jpeg.size()};
  const auto byte = [&](std::size_t at) { return static_cast<unsigned char>(file[at]); };
  std::size_t at = 2;  // behind the marker that begins the file
  while (at + 4 <= file.size() && byte(at) == 0xFF) {
    constexpr unsigned app1 = 0xE1, fill = 0xFF, start_of_scan = 0xDA;
    const unsigned marker = byte(at + 1);
    if (marker == fill) {
      ++at;
      continue;
    }
    if (marker == start_of_scan) break;
    const std::size_t length = std::size_t{byte(at + 2)} << 8 | byte(at + 3);
    if (length < 2 || length > file.size() - at - 2) break;
    const std::string_view segment = file.substr(at + 4, length - 2);
    constexpr std::string_view exif{"Exif\0\0", 6};
    if (marker == app1 && segment.substr(0, exif.size()) == exif) return ExifTags{segment.substr(exif.size())}.orientation();
    at += 2 + length;
  }
  return 1;
}

// Writes the pixels of `stored`, which has this orientation, upright into `upright`. The two are different objects.
inline void turn_upright(const Picture& stored, int orientation, Picture& upright) {
  const std::int64_t h = stored.height, w = stored.width;
  const bool swaps_axes = orientation >= 5;
  upright.resize(swaps_axes ? w : h, swaps_axes ? h : w);
  // Orientations 2, 3, 6, 7 show the stored rows or columns backwards along the upright row, 3, 4, 7, 8 along the column.
  const bool row_backwards = orientation == 2 || orientation == 3 || orientation == 6 || orientation == 7;
  const bool column_backwards = orientation == 3 || orientation == 4 || orientation == 7 || orientation == 8;
  for (std::int64_t row = 0; row < upright.height; ++row)
    for (std::int64_t column = 0; column < upright.width; ++column) {
      const std::int64_t down = column_backwards ? upright.height - 1 - row : row;
      const std::int64_t along = row_backwards ? upright.width - 1 - column : column;
      const std::int64_t from = swaps_axes ? along * w + down : down * w + along;
      std::memcpy(upright.bytes.data() + 4 * (row * upright.width + column), stored.bytes.data() + 4 * from, 4);
    }
}

}  // namespace replicator::data::detail
