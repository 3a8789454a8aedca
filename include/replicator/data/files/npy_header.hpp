// SPDX-License-Identifier: Apache-2.0
// The code of npy.hpp: reads the headers of NumPy's .npy files.
// Source: NumPy Enhancement Proposal 1 ("A Simple File Format for NumPy Arrays"), versions 1.0 to 3.0.
#pragma once

#include <cstddef>
#include <cstdint>
#include <replicator/core/array.hpp>
#include <replicator/data/files/load_stored_rows.hpp>
#include <replicator/data/files/npy.hpp>
#include <replicator/data/files/stored_rows.hpp>
#include <replicator/data/index_stages.hpp>
#include <replicator/io/number_encoding.hpp>
#include <replicator/io/text_cursor.hpp>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace replicator::data::detail {

// Reads {'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }: a Python dictionary of exactly these keys, in any
// order.
// Throws DataError for anything else; never reads outside of `text` and never recurses.
class NpyHeaderReader : io::detail::TextCursor {
 public:
  NpyHeaderReader(std::string_view text, std::size_t begin, const std::string& path) : TextCursor{text, begin, path, "header of .npy"} {}

  StoredArray read() {
    StoredArray result;
    int seen = 0;
    expect('{');
    while (!accept('}')) {
      const std::string_view key = string();
      const int bit = key == "descr"           ? 1
                      : key == "fortran_order" ? 2
                      : key == "shape"         ? 4
                                               : 0;
      if (bit == 0 || (seen & bit)) fail("an unexpected '" + std::string{key} + "'");
      seen |= bit;
      expect(':');
      if (bit == 1) type(result);
      if (bit == 2 && word() == "True") fail("the array is stored in Fortran's order: save numpy.ascontiguousarray(x)");
      if (bit == 4) shape(result.shape);
      if (!accept(',')) {
        expect('}');
        break;
      }
    }
    if (seen != 7) fail("'descr', 'fortran_order' and 'shape' are needed");
    finish();
    return result;
  }

 private:
  std::string_view string() {
    space();
    if (!rest().starts_with('\'') && !rest().starts_with('"')) fail("expected a string; arrays of records cannot be read");
    const std::size_t end = rest().find(rest()[0], 1);
    if (end == std::string_view::npos) fail("the string does not end");
    return take(end + 1).substr(1, end - 1);
  }
  std::string_view word() {
    space();
    for (const std::string_view each : {"True", "False"})
      if (rest().starts_with(each)) return take(each.size());
    fail("expected True or False");
  }
  void type(StoredArray& result) {
    const std::string_view descr = string();
    static constexpr std::pair<std::string_view, io::detail::Stored> known[] = {
        {"b1", io::detail::Stored::boolean}, {"u1", io::detail::Stored::uint8}, {"i1", io::detail::Stored::int8}, {"u2", io::detail::Stored::uint16}, {"i2", io::detail::Stored::int16}, {"u4", io::detail::Stored::uint32}, {"i4", io::detail::Stored::int32}, {"i8", io::detail::Stored::int64}, {"f4", io::detail::Stored::float32}, {"f8", io::detail::Stored::float64}};
    for (const auto& [name, stored] : known)
      if (descr.size() == 3 && descr.substr(1) == name && std::string_view{"<>|="}.find(descr[0]) != std::string_view::npos) {
        result.stored = stored;
        result.big_endian = descr[0] == '>';
        return;
      }
    fail("the type '" + std::string{descr} + "' cannot be read; b1, i1, i2, i4, i8, u1, u2, u4, f4 and f8 can");
  }
  void shape(Shape& result) {
    expect('(');
    while (!accept(')')) {
      if (result.rank() == Shape::max_rank) fail("more than 8 dimensions");
      result.push_back(integer());
      if (rest().starts_with('L')) take(1);  // Python 2 wrote 3L
      if (!accept(',')) {
        expect(')');
        break;
      }
    }
  }
};

template <class>
StoredArray read_npy_header(const std::string& path, std::span<const std::byte> file) {
  static constexpr std::string_view magic = "\x93NUMPY";
  const std::string_view text{reinterpret_cast<const char*>(file.data()), file.size()};
  if (file.size() < 10 || text.substr(0, 6) != magic) io::detail::refuse(path, 0, "no .npy file: it does not begin with \\x93NUMPY, or ends too early");
  const int version = std::to_integer<int>(file[6]);
  if (version < 1 || version > 3) io::detail::refuse(path, 6, "version " + std::to_string(version) + " of .npy; 1 to 3 can be read");
  const std::size_t head = version == 1 ? 10 : 12;
  if (file.size() < head) io::detail::refuse(path, file.size(), "the file ends within its header");
  const std::size_t length = version == 1 ? io::detail::load_little<std::uint16_t>(file.data() + 8) : io::detail::load_little<std::uint32_t>(file.data() + 8);
  if (length > file.size() - head)
    io::detail::refuse(path, 8,
                       "the header claims " + std::to_string(length) + " bytes, and " + std::to_string(file.size() - head) +
                           " follow");
  StoredArray result = NpyHeaderReader{text.substr(head, length), head, path}.read();
  result.begin = head + length;
  if (result.shape.rank() == 0) io::detail::refuse(path, head, "a scalar; the elements of an input lie along the first dimension");
  require_bytes(path, file, result);
  return result;
}

}  // namespace replicator::data::detail
