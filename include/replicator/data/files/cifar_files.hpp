// SPDX-License-Identifier: Apache-2.0
// The code of cifar.hpp: reads the records of CIFAR's binary files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <replicator/core/array.hpp>
#include <replicator/data/files/cifar.hpp>
#include <replicator/data/files/table.hpp>
#include <replicator/data/index_stages.hpp>
#include <replicator/io/mapped_file.hpp>
#include <replicator/io/number_encoding.hpp>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace replicator::data {

namespace detail {

template <class>
CifarFiles::CifarFiles(const std::vector<std::string>& paths, std::size_t label_bytes, int classes) : record_{label_bytes + pixels}, classes_{classes} {
  for (const std::string& path : paths) {
    io::detail::MappedFile file{path};
    const std::size_t size = file.bytes().size();
    if (size == 0 || size % record_ != 0)
      io::detail::refuse(path, size - size % record_,
                         "CIFAR's records have " + std::to_string(record_) + " bytes; the file has " + std::to_string(size) +
                             ", no whole number of them: it was cut short, or is another file");
    size_ += static_cast<std::int64_t>(size / record_);
    ends_.push_back(size_);
    files_.push_back(std::move(file));
  }
}

template <class>
std::tuple<Array<std::uint8_t>, Array<std::int32_t>> CifarFiles::operator[](std::int64_t item) const {
  std::size_t file = 0;
  while (item >= ends_[file]) ++file;
  const std::size_t at = static_cast<std::size_t>(item - (file ? ends_[file - 1] : 0)) * record_;
  const std::byte* const record = files_[file].bytes().data() + at;
  const int label = std::to_integer<int>(record[record_ - pixels - 1]);
  if (label >= classes_)
    io::detail::refuse(files_[file].path(), at + record_ - pixels - 1,
                       "the label " + std::to_string(label) + "; there are " + std::to_string(classes_) + " classes");
  Array<std::uint8_t> picture{Shape{3, 32, 32}};
  std::memcpy(picture.data(), record + record_ - pixels, pixels);
  return {std::move(picture), Array<std::int32_t>{Shape{}, {label}}};
}

}  // namespace detail

template <class>
TableSource<detail::CifarFiles> cifar10(const std::string& folder, const CifarOptions& options) {
  std::vector<std::string> paths;
  if (!options.train) paths.push_back(folder + "/test_batch.bin");
  for (int i = 1; options.train && i <= 5; ++i) paths.push_back(folder + "/data_batch_" + std::to_string(i) + ".bin");
  return TableSource<detail::CifarFiles>{{paths, 1, 10}, folder};
}

template <class>
TableSource<detail::CifarFiles> cifar100(const std::string& folder, const CifarOptions& options) {
  return TableSource<detail::CifarFiles>{{{folder + (options.train ? "/train.bin" : "/test.bin")}, 2, 100}, folder};
}

}  // namespace replicator::data
