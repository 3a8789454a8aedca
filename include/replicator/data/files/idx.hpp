// SPDX-License-Identifier: Apache-2.0
// Reads files in the IDX format of MNIST. <replicator/replicator.hpp>, or idx_header.hpp, brings the code.
// Source: yann.lecun.com/exdb/mnist ("The IDX file format").
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
StoredArray read_idx_header(const std::string& path, std::span<const std::byte> file);

}  // namespace detail

// The elements of an IDX file: Array<T> of the shape without the first dimension. The stored type must be T or one
// whose values T holds exactly: idx<std::int32_t>("train-labels-idx1-ubyte") for labels. Use zip() to join pictures and
// labels. The file is memory-mapped.
// Throws DataError that names file and byte if it is no IDX file, cut short, or does not fit T.
template <Element T>
TableSource<detail::StoredRows<T>> idx(const std::string& path) {
  return TableSource<detail::StoredRows<T>>{{path, &detail::read_idx_header<>}, path};
}

}  // namespace replicator::data
