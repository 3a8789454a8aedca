// SPDX-License-Identifier: Apache-2.0
// The code of stored_rows.hpp: checks and loads the rows of stored arrays.
#pragma once

#include <cstddef>
#include <cstdint>
#include <replicator/core/array.hpp>
#include <replicator/data/files/stored_rows.hpp>
#include <replicator/io/mapped_file.hpp>
#include <replicator/io/number_encoding.hpp>
#include <span>
#include <string>

namespace replicator::data::detail {

// Throws DataError unless the file behind its header is exactly this array.
inline void require_bytes(const std::string& path, std::span<const std::byte> file, const StoredArray& array) {
  if (array.shape.too_large()) io::detail::refuse(path, array.begin, "the header describes " + array.shape.too_large_text());
  const std::uint64_t found = file.size() - array.begin;
  const std::uint64_t bytes = static_cast<std::uint64_t>(array.shape.elements()) * io::detail::size_of(array.stored);
  if (bytes == found) return;
  io::detail::refuse(path, array.begin,
                     "the header describes " + std::string{io::detail::name_of(array.stored)} + array.shape.text() + ", but " + std::to_string(found) +
                         " bytes follow it" + (bytes > found ? ": the file was cut short" : ""));
}

template <Element T>
StoredRows<T>::StoredRows(const std::string& path, StoredArray (*read_header)(const std::string&, std::span<const std::byte>))
    : file_{path}, array_{read_header(path, file_.bytes())}, row_{std::span{array_.shape.begin() + 1, array_.shape.rank() - 1}} {
  io::detail::require_hold<T>(path, array_.stored);
}

template <Element T>
Array<T> StoredRows<T>::operator[](std::int64_t item) const {
  Array<T> result{row_};
  const auto count = static_cast<std::size_t>(row_.elements());
  const std::size_t at = array_.begin + static_cast<std::size_t>(item) * count * io::detail::size_of(array_.stored);
  io::detail::load(array_.stored, array_.big_endian, file_.bytes().data() + at, result.data(), count);
  return result;
}

}  // namespace replicator::data::detail
