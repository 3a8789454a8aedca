// SPDX-License-Identifier: Apache-2.0
// Reads TFRecord files. Source: tensorflow.org/tutorials/load_data/tfrecord ("TFRecords format details").
// <replicator/replicator.hpp>, or record_files.hpp, brings the code.
#pragma once

#include <cstddef>
#include <cstdint>
#include <replicator/core/array.hpp>
#include <replicator/data/files/table.hpp>
#include <replicator/io/mapped_file.hpp>
#include <string>
#include <vector>

namespace replicator::data {

namespace detail {

class RecordFiles {
 public:
  template <class = void>
  explicit RecordFiles(const std::vector<std::string>& paths);

  std::int64_t size() const { return static_cast<std::int64_t>(records_.size()); }
  // Throws DataError if the checksum of the content is wrong.
  template <class = void>
  Array<std::uint8_t> operator[](std::int64_t item) const;

 private:
  struct Record {
    std::uint32_t file;
    std::uint64_t begin;
    std::uint64_t size;
  };

  template <class = void>
  void scan(const io::detail::MappedFile& file);

  std::vector<io::detail::MappedFile> files_;
  std::vector<Record> records_;
};

}  // namespace detail

// The records of a TFRecord file, or of all files of a folder with .tfrecord in their names. Elements are uint8
// [bytes]; parse them in transform() (see parse_example). The files are memory-mapped, and the lengths of the records
// are read and checked once, so shuffle(), shard() and seeking work over all records.
// Throws DataError that names file and byte: at once for wrong lengths and files cut short, and while reading for a
// record with a wrong checksum.
template <class = void>
TableSource<detail::RecordFiles> tfrecord(const std::string& path);

}  // namespace replicator::data
