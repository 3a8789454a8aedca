// SPDX-License-Identifier: Apache-2.0
// Small files in the formats of the sources, byte by byte.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include <replicator/io/crc32c.hpp>

namespace replicator::test {

using namespace replicator::detail;

template <class T>
std::string little(T value) {
  std::string bytes(sizeof value, '\0');
  std::memcpy(bytes.data(), &value, sizeof value);
  return bytes;
}
template <class T>
std::string big(T value) {
  const std::string bytes = little(value);
  return {bytes.rbegin(), bytes.rend()};
}

template <class T>
std::string idx_file(char type, const std::vector<std::uint32_t>& shape, const std::vector<T>& values) {
  std::string file{'\0', '\0', type, static_cast<char>(shape.size())};
  for (const auto extent : shape) file += big(extent);
  for (const auto value : values) file += big(value);
  return file;
}

inline std::string npy_file(int version, std::string header, const std::string& data) {
  const std::size_t head = version == 1 ? 10 : 12;
  while ((head + header.size() + 1) % 64 != 0) header += ' ';
  header += '\n';
  std::string file = "\x93NUMPY";
  file += static_cast<char>(version);
  file += '\0';
  file += version == 1 ? little(static_cast<std::uint16_t>(header.size())) : little(static_cast<std::uint32_t>(header.size()));
  return file + header + data;
}

inline std::string cifar_record(int label, int seed, bool fine = false) {
  std::string record(fine ? 2 : 1, '\x13');
  record.back() = static_cast<char>(label);
  for (int i = 0; i < 3072; ++i) record += static_cast<char>(i * 7 + seed);
  return record;
}

inline std::string octal(std::uint64_t value, std::size_t digits) {
  std::string text(digits, '0');
  for (std::size_t i = digits; i-- > 0; value >>= 3) text[i] = static_cast<char>('0' + (value & 7));
  return text;
}
inline std::string tar_member(const std::string& name, const std::string& content, char type = '0', const std::string& prefix = "") {
  std::string header(512, '\0');
  const auto put = [&](std::size_t at, const std::string& text) { header.replace(at, text.size(), text); };
  put(0, name.substr(0, 100));
  put(100, "0000644");
  put(124, octal(content.size(), 11));
  header[156] = type;
  put(257, std::string{"ustar\0"
                       "00",
                       8});
  put(345, prefix);
  put(148, "        ");
  std::uint64_t sum = 0;
  for (const char c : header) sum += static_cast<unsigned char>(c);
  put(148, octal(sum, 6) + std::string(1, '\0'));
  return header + content + std::string((512 - content.size() % 512) % 512, '\0');
}
inline std::string tar_end() { return std::string(1024, '\0'); }
// "<length> <key>=<value>\n", the length counting itself.
inline std::string pax_record(const std::string& key, const std::string& value) {
  const std::string rest = " " + key + "=" + value + "\n";
  std::size_t size = rest.size() + 1;
  while (std::to_string(size).size() + rest.size() != size) ++size;
  return std::to_string(size) + rest;
}

inline std::string masked_sum(const std::string& bytes) {
  const std::uint32_t sum = crc32c(std::as_bytes(std::span{bytes.data(), bytes.size()}));
  return little((sum >> 15 | sum << 17) + 0xA282EAD8u);
}
inline std::string record(const std::string& content) {
  const std::string length = little(static_cast<std::uint64_t>(content.size()));
  return length + masked_sum(length) + content + masked_sum(content);
}

inline std::string varint(std::uint64_t value) {
  std::string bytes;
  for (; value >= 128; value >>= 7) bytes += static_cast<char>(value | 128);
  return bytes + static_cast<char>(value);
}
// A field of a message with a length.
inline std::string field(int number, const std::string& content) {
  return varint(static_cast<std::uint64_t>(number) << 3 | 2) + varint(content.size()) + content;
}
inline std::string feature(const std::string& name, int kind, const std::string& list) {
  return field(1, field(1, name) + field(2, field(kind, list)));
}
inline std::string example_message() {
  return field(1, feature("image", 1, field(1, "jpeg bytes")) + feature("label", 3, field(1, varint(7) + varint(~std::uint64_t{0}))) +
                      feature("box", 2, field(1, little(0.5f) + little(-2.0f))) + feature("old", 3, varint(1 << 3) + varint(300)) +
                      feature("one", 2, varint(1 << 3 | 5) + little(1.5f)));
}

}  // namespace replicator::test
