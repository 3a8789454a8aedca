// SPDX-License-Identifier: Apache-2.0
// Fuzzes archives of pictures and labels.
// covers: data/files/tar.hpp data/files/tar_header.hpp data/files/tar_samples.hpp
#include <cstdio>
#include <replicator/data/files/tar.hpp>
#include <replicator/data/files/tar_samples.hpp>

#include "target.hpp"

namespace replicator::fuzz {

using namespace replicator::detail;

namespace {

constexpr std::size_t block = 512;

// No mutation guesses a check sum: that of every block is put right.
void put_right(std::string& header) {
  unsigned sum = 0;
  header.replace(148, 8, 8, ' ');
  for (const char c : header) sum += static_cast<unsigned char>(c);
  char text[9];
  std::snprintf(text, sizeof text, "%06o", sum);
  header.replace(148, 7, text, 7);
}

std::string member(const std::string& name, char type, const std::string& content) {
  std::string header(block, '\0');
  char size[13];
  std::snprintf(size, sizeof size, "%011zo", content.size());
  header.replace(0, name.size(), name).replace(124, 12, size, 12).replace(257, 6, "ustar\0", 6);
  header[156] = type;
  put_right(header);
  return header + content + std::string((block - content.size() % block) % block, '\0');
}

}  // namespace

// Bits of the first byte: check sums are put right; the archive is cut to whole blocks; it is closed by empty ones.
void one(Bytes input) {
  static File file;
  Input first{input};
  const auto mode = first.number<std::uint8_t>();
  std::string archive{text_of(first.rest())};
  for (std::size_t at = 0; (mode & 1) && archive.size() - at >= block; at += block) {
    auto header = archive.substr(at, block);
    if (header.find_first_not_of('\0') == std::string::npos) continue;
    put_right(header);
    archive.replace(at, block, header);
  }
  if (mode & 2) archive.resize(archive.size() / block * block);
  if (mode & 4) archive.append(2 * block, '\0');
  file.write(bytes_of(archive));
  documented<DataError>(file.path(), [&] {
    const data::detail::TarSamples samples{{file.path()}, {"jpg;jpeg", "cls"}};
    for (std::int64_t i = 0; i < samples.size(); ++i)
      require(samples.bytes(i, 0).size() + samples.bytes(i, 1).size() <= archive.size(), "a member beyond the archive");
  });
  documented<DataError>(file.path(), [&] {
    const data::TarPictures pictures{file.path(), "jpg;jpeg", "cls"};
    require(pictures(0).label >= 0, "a label below 0");
  });
}

std::vector<std::string> seeds() {
  const std::string end(2 * block, '\0');
  const auto pair = member("a/0001.jpg", '0', "picture") + member("a/0001.cls", '0', "7\n");
  return {"\5" + pair, "\1" + pair + end,
          "\5" + member("././@LongLink", 'L', "a/" + std::string(120, 'n') + ".cls") + member("a/short", '0', "3") +
              member("pax", 'x', "14 path=b.cls\n") + member("b", '0', "1"),
          "\5" + member("pax", 'x', "10 size=3\n") + member("b.cls", '0', "123") + member("folder", '5', "")};
}

}  // namespace replicator::fuzz
