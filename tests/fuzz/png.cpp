// SPDX-License-Identifier: Apache-2.0
// covers: data/pictures/png.hpp data/pictures/exif.hpp data/pictures/picture_decoder.hpp
// links: png
#include <replicator/data/pictures/png.hpp>
#include <replicator/io/pictures/png.hpp>

#include "target.hpp"

namespace replicator::fuzz {

using namespace replicator::detail;

// Check sums are made right, so that the fuzzer gets behind them.
std::vector<std::byte> with_right_sums(Bytes input) {
  std::vector<std::byte> file{input.begin(), input.end()};
  for (std::size_t at = 8; at < file.size() && file.size() - at >= 12;) {
    const std::size_t length = io::detail::load_big<std::uint32_t>(file.data() + at);
    if (length > file.size() - at - 12) break;
    io::detail::PngBytes chunk;
    chunk.chunk({reinterpret_cast<const char*>(file.data()) + at + 4, 4}, std::span{file}.subspan(at + 8, length));
    std::copy(chunk.view().begin(), chunk.view().end(), file.begin() + static_cast<std::ptrdiff_t>(at));
    at += length + 12;
  }
  return file;
}

void one(Bytes input) {
  static data::detail::PictureReader reader;
  data::detail::Picture picture;
  for (const bool right : {false, true}) {
    const std::vector<std::byte> file = right ? with_right_sums(input) : std::vector<std::byte>{input.begin(), input.end()};
    documented<DataError>("a.png", [&] {
      reader.open("a.png", file);
      if (reader.width() * reader.height() > 1 << 16) return;  // the limit of the library is far above what is quick
      const auto height = reader.height(), width = reader.width();
      require(reader.decode(8, picture) == 1 && picture.height == height && picture.width == width, "a size that the header does not have");
    });
  }
}

std::vector<std::string> seeds() {
  const auto made = [](Shape shape) {
    Array<std::uint8_t> pixels{shape};
    for (std::int64_t i = 0; i < pixels.size(); ++i) pixels[i] = static_cast<std::uint8_t>(i * 37);
    const auto bytes = io::encode_png(pixels);
    return std::string{text_of(bytes)};
  };
  std::vector<std::string> all{made({16, 9, 3}), made({3, 40}), made({1, 1, 3})};
  // Every depth and kind of colour of one pixel, interlaced or not, with all chunks that count.
  for (const std::uint32_t colour : {0u, 2u, 3u, 4u, 6u})
    for (const std::uint32_t depth : {1u, 8u, 16u})
      for (const std::uint32_t interlaced : {0u, 1u}) {
        io::detail::PngBytes head, file;
        head.big_endian(1);
        head.big_endian(1);
        for (const std::uint32_t value : {depth, colour, 0u, 0u, interlaced}) head.byte(value);
        file.append(bytes_of(std::string_view{"\x89PNG\r\n\x1A\n", 8}));
        file.chunk("IHDR", head.view());
        if (colour == 3) file.chunk("PLTE", bytes_of("abcdef"));
        file.chunk("tRNS", bytes_of(std::string_view{"\0\1\0\2\0\3", colour == 2 ? std::size_t{6} : std::size_t{2}}));
        file.chunk("eXIf", bytes_of(std::string_view{"MM\0*\0\0\0\x08\0\1\1\x12\0\3\0\0\0\1\0\6\0\0", 22}));
        file.chunk("IDAT", io::detail::zlib_stored(bytes_of(std::string_view{"\0abcdefgh", 9})));
        file.chunk("IEND", {});
        all.emplace_back(text_of(file.view()));
      }
  return all;
}

}  // namespace replicator::fuzz
