// SPDX-License-Identifier: Apache-2.0
// Reads the members of a tar archive.
// Source: POSIX.1-2017, pax ("ustar" and "pax" interchange formats); GNU tar's manual for long names.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <replicator/io/number_encoding.hpp>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace replicator::data::detail {

struct TarMember {
  std::string name;
  std::uint64_t header = 0;  // the position of its header in the archive
  std::uint64_t begin = 0;   // the position of its content
  std::uint64_t size = 0;
};

// Returns the regular files of an archive in order; skips folders, links and devices.
// Throws DataError that names archive and byte for damaged headers, for an archive that is cut short, and for GNU tar's sparse
// files.
class TarReader {
 public:
  TarReader(const std::string& path, std::span<const std::byte> archive) : path_{path}, archive_{archive} {}

  std::optional<TarMember> next() {
    std::optional<std::string> long_name;
    std::optional<std::uint64_t> long_size;
    while (true) {
      const std::uint64_t header = at_;
      if (archive_.size() - at_ < block)
        fail(at_, at_ == 0 ? "no tar archive: it has fewer than 512 bytes"
                           : "the archive ends without the empty block that closes it: it was cut short");
      const std::span<const std::byte> bytes = archive_.subspan(at_, block);
      if (empty(bytes)) return std::nullopt;
      check_sum(bytes);
      const char type = static_cast<char>(bytes[156]);
      std::uint64_t size = number(bytes, 124, 12, "size");
      const bool meta = type == 'L' || type == 'K' || type == 'x' || type == 'g';
      if (!meta && long_size) size = *long_size;
      at_ += block;
      if (size > archive_.size() - at_)
        fail(header, "the member claims " + std::to_string(size) + " bytes, and " +
                         std::to_string(archive_.size() - at_) + " follow: the archive was cut short");
      const std::uint64_t begin = at_;
      const std::uint64_t padded = (size + block - 1) / block * block;
      at_ += padded < archive_.size() - at_ ? padded : archive_.size() - at_;
      const std::string_view content{reinterpret_cast<const char*>(archive_.data()) + begin, static_cast<std::size_t>(size)};
      if (type == 'L') long_name = until_zero(content);
      else if (type == 'x') read_pax(content, begin, long_name, long_size);
      else if (!meta) {
        if (type == 'S') refuse_sparse(header);
        if (type == '0' || type == '\0' || type == '7') return TarMember{long_name ? *long_name : short_name(bytes), header, begin, size};
        long_name.reset();
        long_size.reset();
      }
    }
  }

 private:
  static constexpr std::uint64_t block = 512;

  [[noreturn]] void fail(std::uint64_t offset, const std::string& found) const { io::detail::refuse(path_, offset, "tar: " + found); }

  // Such a file is stored without its holes, behind a map of them.
  [[noreturn]] void refuse_sparse(std::uint64_t offset) const {
    fail(offset, "a sparse file, which cannot be read: pack the archive again without --sparse");
  }

  static bool empty(std::span<const std::byte> bytes) {
    for (const std::byte b : bytes)
      if (b != std::byte{0}) return false;
    return true;
  }
  static std::string until_zero(std::string_view text) { return std::string{text.substr(0, text.find('\0'))}; }
  static std::string field(std::span<const std::byte> bytes, std::size_t begin, std::size_t size) {
    return until_zero({reinterpret_cast<const char*>(bytes.data()) + begin, size});
  }

  // The checksum is the sum of all bytes of the header, with its own field taken as spaces.
  void check_sum(std::span<const std::byte> bytes) const {
    std::uint64_t sum = 0;
    for (std::size_t i = 0; i < block; ++i) sum += i >= 148 && i < 156 ? 32 : std::to_integer<std::uint64_t>(bytes[i]);
    const std::uint64_t stored = number(bytes, 148, 8, "check sum");
    if (stored != sum)
      fail(at_, "no header of a member: its check sum is " + std::to_string(sum) + ", the header says " + std::to_string(stored));
  }

  // Octal digits, or a big-endian number if the first bit is set.
  std::uint64_t number(std::span<const std::byte> bytes, std::size_t begin, std::size_t size, const char* what) const {
    std::uint64_t value = 0;
    if ((bytes[begin] & std::byte{0x80}) != std::byte{0}) {
      for (std::size_t i = 0; i < size; ++i) {
        const auto digit = std::to_integer<std::uint64_t>(i == 0 ? bytes[begin] & std::byte{0x7f} : bytes[begin + i]);
        if (value >> 55) fail(at_ + begin, std::string{"the "} + what + " is too large");
        value = value << 8 | digit;
      }
      return value;
    }
    const std::string text = field(bytes, begin, size);
    std::size_t i = text.find_first_not_of(' ');
    if (i == std::string::npos) i = text.size();
    for (; i < text.size() && text[i] >= '0' && text[i] <= '7'; ++i) value = value * 8 + static_cast<std::uint64_t>(text[i] - '0');
    if (text.find_first_not_of(' ', i) != std::string::npos) fail(at_ + begin, std::string{"the "} + what + " is no octal number");
    return value;
  }

  std::string short_name(std::span<const std::byte> bytes) const {
    const std::string name = field(bytes, 0, 100);
    // Only "ustar\0" has a prefix; GNU's "ustar  " stores other fields there.
    if (std::string_view{reinterpret_cast<const char*>(bytes.data()) + 257, 6} != std::string_view{"ustar\0", 6}) return name;
    const std::string prefix = field(bytes, 345, 155);
    return prefix.empty() ? name : prefix + "/" + name;
  }

  // Pax records are "<length> <keyword>=<value>\n"; the length counts the whole record.
  void read_pax(std::string_view text, std::uint64_t offset, std::optional<std::string>& name, std::optional<std::uint64_t>& size) const {
    for (std::size_t at = 0; at < text.size();) {
      std::size_t i = at, length = 0;
      for (; i < text.size() && text[i] >= '0' && text[i] <= '9' && length < (std::size_t{1} << 40); ++i)
        length = length * 10 + static_cast<std::size_t>(text[i] - '0');
      if (i == at || i == text.size() || text[i] != ' ' || length > text.size() - at || at + length < i + 2 || text[at + length - 1] != '\n')
        fail(offset + at, "a pax record that is not \"<length> <keyword>=<value>\"");
      const std::string_view record = text.substr(i + 1, at + length - 1 - (i + 1));
      const std::size_t equals = record.find('=');
      if (equals == std::string_view::npos) fail(offset + at, "a pax record without \"=\"");
      const std::string_view value = record.substr(equals + 1);
      if (record.substr(0, equals).starts_with("GNU.sparse.")) refuse_sparse(offset);
      if (record.substr(0, equals) == "path") name = until_zero(value);
      if (record.substr(0, equals) == "size") size = decimal(value, offset + at);
      at += length;
    }
  }
  std::uint64_t decimal(std::string_view text, std::uint64_t offset) const {
    std::uint64_t value = 0;
    for (const char c : text) {
      if (c < '0' || c > '9' || value > std::numeric_limits<std::uint64_t>::max() / 10 - 1) fail(offset, "a pax size that is no number");
      value = value * 10 + static_cast<std::uint64_t>(c - '0');
    }
    return value;
  }

  const std::string& path_;
  std::span<const std::byte> archive_;
  std::uint64_t at_ = 0;
};

}  // namespace replicator::data::detail
