// SPDX-License-Identifier: Apache-2.0
// The code of tfrecord.hpp: finds and checks the records of TFRecord files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <replicator/core/array.hpp>
#include <replicator/data/files/files.hpp>
#include <replicator/data/files/table.hpp>
#include <replicator/data/files/tfrecord.hpp>
#include <replicator/data/index_stages.hpp>
#include <replicator/io/mapped_file.hpp>
#include <replicator/io/number_encoding.hpp>
#include <replicator/io/record.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace replicator::data {

namespace detail {

inline void check_record(const std::string& path, std::uint64_t offset, std::span<const std::byte> bytes, const std::byte* stored, const char* what) {
  if (io::detail::masked_crc32c(bytes) != io::detail::load_little<std::uint32_t>(stored))
    io::detail::refuse(path, offset,
                       std::string{"TFRecord: "} + what +
                           " does not have the check sum that is stored with it: the file is damaged, or no TFRecord file");
}

template <class>
void RecordFiles::scan(const io::detail::MappedFile& file) {
  const auto bytes = file.bytes();
  for (std::uint64_t at = 0; at < bytes.size();) {
    if (bytes.size() - at < io::detail::record_frame)
      io::detail::refuse(file.path(), at,
                         "TFRecord: " + std::to_string(bytes.size() - at) +
                             " bytes are left, too few for a record: the file was cut short");
    check_record(file.path(), at, bytes.subspan(at, 8), bytes.data() + at + 8, "the length of the record");
    const auto size = io::detail::load_little<std::uint64_t>(bytes.data() + at);
    if (size > bytes.size() - at - io::detail::record_frame)
      io::detail::refuse(file.path(), at,
                         "TFRecord: a record of " + std::to_string(size) + " bytes, but " +
                             std::to_string(bytes.size() - at - io::detail::record_frame) + " are left: the file was cut short");
    records_.push_back({static_cast<std::uint32_t>(files_.size() - 1), at + 12, size});
    at += size + io::detail::record_frame;
  }
}

template <class>
RecordFiles::RecordFiles(const std::vector<std::string>& paths) {
  for (const std::string& path : paths) {
    files_.emplace_back(path);
    scan(files_.back());
  }
}

template <class>
Array<std::uint8_t> RecordFiles::operator[](std::int64_t item) const {
  const Record& record = records_[static_cast<std::size_t>(item)];
  const io::detail::MappedFile& file = files_[record.file];
  const auto content = file.bytes().subspan(record.begin, record.size);
  check_record(file.path(), record.begin, content, file.bytes().data() + record.begin + record.size, "the content of the record");
  return array_of_bytes(content);
}

}  // namespace detail

template <class>
TableSource<detail::RecordFiles> tfrecord(const std::string& path) {
  return TableSource<detail::RecordFiles>{
      detail::RecordFiles{detail::files_at(path, "files with .tfrecord in their names",
                                           [](std::string_view name) { return name.find(".tfrecord") != std::string_view::npos; })},
      path};
}

}  // namespace replicator::data
