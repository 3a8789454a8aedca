// SPDX-License-Identifier: Apache-2.0
// Reads TFRecord files. Source: tensorflow.org/tutorials/load_data/tfrecord ("TFRecords format details").
#pragma once

#include <cstddef>
#include <cstdint>
#include <replicator/core/array.hpp>
#include <replicator/data/files/files.hpp>
#include <replicator/data/files/table.hpp>
#include <replicator/io/mapped_file.hpp>
#include <replicator/io/number_encoding.hpp>
#include <replicator/io/record.hpp>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace replicator::data {

namespace detail {

class RecordFiles {
 public:
  explicit RecordFiles(const std::vector<std::string>& paths) {
    for (const std::string& path : paths) {
      files_.emplace_back(path);
      scan(files_.back());
    }
  }

  std::int64_t size() const { return static_cast<std::int64_t>(records_.size()); }
  // Throws DataError if the checksum of the content is wrong.
  Array<std::uint8_t> operator[](std::int64_t item) const {
    const Record& record = records_[static_cast<std::size_t>(item)];
    const io::detail::MappedFile& file = files_[record.file];
    const auto content = file.bytes().subspan(record.begin, record.size);
    check(file.path(), record.begin, content, file.bytes().data() + record.begin + record.size, "the content of the record");
    return array_of_bytes(content);
  }

 private:
  struct Record {
    std::uint32_t file;
    std::uint64_t begin;
    std::uint64_t size;
  };

  static void check(const std::string& path, std::uint64_t offset, std::span<const std::byte> bytes, const std::byte* stored, const char* what) {
    if (io::detail::masked_crc32c(bytes) != io::detail::load_little<std::uint32_t>(stored))
      io::detail::refuse(path, offset,
                         std::string{"TFRecord: "} + what +
                             " does not have the check sum that is stored with it: the file is damaged, or no TFRecord file");
  }

  void scan(const io::detail::MappedFile& file) {
    const auto bytes = file.bytes();
    for (std::uint64_t at = 0; at < bytes.size();) {
      if (bytes.size() - at < io::detail::record_frame)
        io::detail::refuse(file.path(), at,
                           "TFRecord: " + std::to_string(bytes.size() - at) +
                               " bytes are left, too few for a record: the file was cut short");
      check(file.path(), at, bytes.subspan(at, 8), bytes.data() + at + 8, "the length of the record");
      const auto size = io::detail::load_little<std::uint64_t>(bytes.data() + at);
      if (size > bytes.size() - at - io::detail::record_frame)
        io::detail::refuse(file.path(), at,
                           "TFRecord: a record of " + std::to_string(size) + " bytes, but " +
                               std::to_string(bytes.size() - at - io::detail::record_frame) + " are left: the file was cut short");
      records_.push_back({static_cast<std::uint32_t>(files_.size() - 1), at + 12, size});
      at += size + io::detail::record_frame;
    }
  }

  std::vector<io::detail::MappedFile> files_;
  std::vector<Record> records_;
};

}  // namespace detail

// The records of a TFRecord file, or of all files of a folder with .tfrecord in their names. Elements are uint8
// [bytes]; parse them in transform() (see parse_example). The files are memory-mapped, and the lengths of the records
// are read and checked once, so shuffle(), shard() and seeking work over all records.
// Throws DataError that names file and byte: at once for wrong lengths and files cut short, and while reading for a
// record with a wrong checksum.
inline TableSource<detail::RecordFiles> tfrecord(const std::string& path) {
  return TableSource<detail::RecordFiles>{
      detail::RecordFiles{detail::files_at(path, "files with .tfrecord in their names",
                                           [](std::string_view name) { return name.find(".tfrecord") != std::string_view::npos; })},
      path};
}

}  // namespace replicator::data
