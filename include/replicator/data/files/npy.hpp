// SPDX-License-Identifier: Apache-2.0
// Reads NumPy's .npy files. <replicator/replicator.hpp>, or npy_header.hpp, brings the code.
// Source: NumPy Enhancement Proposal 1 ("A Simple File Format for NumPy Arrays"), versions 1.0 to 3.0.
#pragma once

#include <cstddef>
#include <replicator/core/array.hpp>
#include <replicator/data/files/stored_rows.hpp>
#include <replicator/data/files/table.hpp>
#include <span>
#include <string>

namespace replicator::data {

namespace detail {

template <class = void>
StoredArray read_npy_header(const std::string& path, std::span<const std::byte> file);

}  // namespace detail

// The rows x[0], x[1], ... of the array in a .npy file in C order: Array<T> of the shape without the first dimension.
// The stored type must be T or one whose values T holds exactly (int32 labels from uint8, float from uint8). The file
// is memory-mapped.
// Throws DataError that names file and byte if it is no .npy file, cut short, in Fortran order, or does not fit T.
template <Element T>
TableSource<detail::StoredRows<T>> npy(const std::string& path) {
  return TableSource<detail::StoredRows<T>>{{path, &detail::read_npy_header<>}, path};
}

}  // namespace replicator::data
