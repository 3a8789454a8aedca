// SPDX-License-Identifier: Apache-2.0
// Reads the binary files of CIFAR-10 and CIFAR-100. Source: www.cs.toronto.edu/~kriz/cifar.html ("Binary version").
// <replicator/replicator.hpp>, or cifar_files.hpp, brings the code.
#pragma once

#include <cstddef>
#include <cstdint>
#include <replicator/core/array.hpp>
#include <replicator/data/files/table.hpp>
#include <replicator/io/mapped_file.hpp>
#include <string>
#include <tuple>
#include <vector>

namespace replicator::data {

struct CifarOptions {
  bool train = true;  // false: the test set
};

namespace detail {

// Memory-mapped files of records: one or two label bytes (the last one counts), then 3 x 32 x 32 pixels.
class CifarFiles {
 public:
  static constexpr std::size_t pixels = 3 * 32 * 32;

  // Throws DataError for a file that is missing, empty, or not a whole number of records.
  template <class = void>
  CifarFiles(const std::vector<std::string>& paths, std::size_t label_bytes, int classes);

  std::int64_t size() const { return size_; }
  template <class = void>
  std::tuple<Array<std::uint8_t>, Array<std::int32_t>> operator[](std::int64_t item) const;

 private:
  std::size_t record_;
  int classes_;
  std::int64_t size_ = 0;
  std::vector<io::detail::MappedFile> files_;
  std::vector<std::int64_t> ends_;
};

}  // namespace detail

// The pictures of cifar-10-batches-bin (data_batch_1.bin to data_batch_5.bin, or test_batch.bin). Elements are (uint8
// [3, 32, 32], int32 label).
// Throws DataError that names file and byte: at once for a file that is missing or cut short, and while reading for a
// label that does not exist.
template <class = void>
TableSource<detail::CifarFiles> cifar10(const std::string& folder, const CifarOptions& options = {});

// The same for cifar-100-binary (train.bin or test.bin), with the fine labels.
template <class = void>
TableSource<detail::CifarFiles> cifar100(const std::string& folder, const CifarOptions& options = {});

}  // namespace replicator::data
