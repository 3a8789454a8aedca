// SPDX-License-Identifier: Apache-2.0
// Reads an array row by row from a memory-mapped file. load_stored_rows.hpp brings the code.
#pragma once

#include <cstddef>
#include <cstdint>
#include <replicator/core/array.hpp>
#include <replicator/io/mapped_file.hpp>
#include <replicator/io/number_encoding.hpp>
#include <span>
#include <string>

namespace replicator::data::detail {

// The position and type of an array in a file, as the headers of IDX and .npy give them.
struct StoredArray {
  io::detail::Stored stored = io::detail::Stored::uint8;
  bool big_endian = false;
  Shape shape;            // the first extent is the number of elements
  std::size_t begin = 0;  // where the data begin in the file
};

// The rows of a stored array.
template <Element T>
class StoredRows {
 public:
  // read_header(path, the bytes of the file) finds the array.
  StoredRows(const std::string& path, StoredArray (*read_header)(const std::string&, std::span<const std::byte>));
  std::int64_t size() const { return array_.shape[0]; }
  Array<T> operator[](std::int64_t item) const;

 private:
  io::detail::MappedFile file_;
  StoredArray array_;
  Shape row_;
};

}  // namespace replicator::data::detail
