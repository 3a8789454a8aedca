// SPDX-License-Identifier: Apache-2.0
// Writes 8-bit PNG pictures (ISO/IEC 15948), uncompressed. This needs no library, and photographs would hardly shrink.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <replicator/core/array.hpp>
#include <replicator/io/file.hpp>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace replicator::io {

namespace detail {

class PngBytes {
 public:
  void byte(std::uint32_t value) { bytes_.push_back(static_cast<std::byte>(value)); }
  void big_endian(std::uint32_t value) {
    for (int shift = 24; shift >= 0; shift -= 8) byte(value >> shift);
  }
  void append(std::span<const std::byte> data) { bytes_.insert(bytes_.end(), data.begin(), data.end()); }
  std::span<const std::byte> view() const { return bytes_; }
  std::vector<std::byte> bytes() && { return std::move(bytes_); }

  // A chunk: length, type, content, CRC-32 of type and content.
  void chunk(std::string_view type, std::span<const std::byte> content) {
    big_endian(static_cast<std::uint32_t>(content.size()));
    const std::size_t start = bytes_.size();
    append(std::as_bytes(std::span{type.data(), type.size()}));
    append(content);
    big_endian(crc(view().subspan(start)));
  }

 private:
  static std::uint32_t crc(std::span<const std::byte> data) {
    static constexpr auto table = [] {
      std::array<std::uint32_t, 256> result{};
      for (std::uint32_t n = 0; n < 256; ++n) {
        std::uint32_t c = n;
        for (int bit = 0; bit < 8; ++bit) c = (c & 1) ? 0xEDB88320u ^ (c >> 1) : c >> 1;
        result[n] = c;
      }
      return result;
    }();
    std::uint32_t c = 0xFFFFFFFFu;
    for (const std::byte b : data) c = table[(c ^ std::to_integer<std::uint32_t>(b)) & 255] ^ (c >> 8);
    return ~c;
  }

  std::vector<std::byte> bytes_;
};

inline std::uint32_t adler32(std::span<const std::byte> data) {
  std::uint32_t a = 1, b = 0;
  for (const std::byte value : data) {
    a = (a + std::to_integer<std::uint32_t>(value)) % 65521;
    b = (b + a) % 65521;
  }
  return (b << 16) | a;
}

// The bytes, which must not be empty, as a zlib stream (RFC 1950) of stored blocks (RFC 1951, 3.2.4).
inline std::vector<std::byte> zlib_stored(std::span<const std::byte> data) {
  constexpr std::size_t longest = 65535;  // bytes of a stored block
  PngBytes stream;
  stream.byte(0x78);
  stream.byte(0x01);
  for (auto rest = data; !rest.empty();) {
    const auto block = rest.first(std::min(rest.size(), longest));
    rest = rest.subspan(block.size());
    const auto size = static_cast<std::uint32_t>(block.size());
    stream.byte(rest.empty() ? 1 : 0);  // whether it is the last block
    for (const std::uint32_t value : {size, size >> 8, ~size, ~size >> 8}) stream.byte(value);
    stream.append(block);
  }
  stream.big_endian(adler32(data));
  return std::move(stream).bytes();
}

}  // namespace detail

// Encodes a picture as a PNG file. `pixels` is [height, width] or [height, width, 1] (grey), or [height, width, 3]
// (RGB).
// Throws BuildError for any other shape, an extent of 0, and a picture of 2 GiB or more.
inline std::vector<std::byte> encode_png(const Array<std::uint8_t>& pixels) {
  const Shape& shape = pixels.shape();
  const std::int64_t channels = shape.rank() == 3 ? shape[2] : 1;
  if ((shape.rank() != 2 && shape.rank() != 3) || (channels != 1 && channels != 3) || pixels.size() == 0 ||
      shape[0] > 0x7FFFFFFF || shape[1] > 0x7FFFFFFF)
    throw BuildError{"a PNG needs pixels of shape [height, width], [height, width, 1] or [height, width, 3], found " + shape.text()};
  const auto row = static_cast<std::size_t>(shape[1] * channels);
  std::vector<std::byte> lines;
  lines.reserve((row + 1) * static_cast<std::size_t>(shape[0]));
  for (std::size_t y = 0; y < static_cast<std::size_t>(shape[0]); ++y) {
    lines.push_back(std::byte{0});  // filter: none
    const auto* source = reinterpret_cast<const std::byte*>(pixels.data()) + y * row;
    lines.insert(lines.end(), source, source + row);
  }
  const auto stream = detail::zlib_stored(lines);
  if (stream.size() > 0x7FFFFFFF) throw BuildError{"a picture of 2 GiB or more does not fit in a PNG"};

  detail::PngBytes header;
  header.big_endian(static_cast<std::uint32_t>(shape[1]));
  header.big_endian(static_cast<std::uint32_t>(shape[0]));
  for (const std::uint32_t value : {8u, channels == 3 ? 2u : 0u, 0u, 0u, 0u}) header.byte(value);

  detail::PngBytes file;
  for (const std::uint32_t value : {0x89u, 0x50u, 0x4Eu, 0x47u, 0x0Du, 0x0Au, 0x1Au, 0x0Au}) file.byte(value);
  file.chunk("IHDR", header.view());
  file.chunk("IDAT", stream);
  file.chunk("IEND", {});
  return std::move(file).bytes();
}

// Writes encode_png(pixels) to a file. Its BuildError names the path. Throws DataError if the file cannot be written.
inline void write_png(const std::string& path, const Array<std::uint8_t>& pixels) {
  std::vector<std::byte> bytes;
  try {
    bytes = encode_png(pixels);
  } catch (const BuildError& error) {
    throw BuildError{path + ": " + error.what()};
  }
  FileReplacement out{path};
  out.write(bytes);
  out.commit();
}

}  // namespace replicator::io
