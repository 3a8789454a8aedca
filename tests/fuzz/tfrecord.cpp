// SPDX-License-Identifier: Apache-2.0
// covers: data/files/tfrecord.hpp io/record.hpp data/files/record_files.hpp
#include <algorithm>
#include <replicator/data/files/record_files.hpp>
#include <replicator/data/files/tfrecord.hpp>

#include "target.hpp"

namespace replicator::fuzz {

using namespace replicator::detail;

namespace {

std::string masked_sum(Bytes bytes) { return little(io::detail::masked_crc32c(bytes)); }

std::string record(Bytes content) {
  const auto framed = io::detail::framed_record(content);
  return std::string{text_of(framed)};
}

// No mutation guesses a check sum: these are put right, as far as the lengths lead.
std::string with_sums(std::string file) {
  for (std::size_t at = 0; file.size() - at >= 12;) {
    file.replace(at + 8, 4, masked_sum(bytes_of(file).subspan(at, 8)));
    const auto size = io::detail::load_little<std::uint64_t>(bytes_of(file).data() + at);
    if (file.size() - at < 16 || size > file.size() - at - 16) break;
    file.replace(at + 12 + size, 4, masked_sum(bytes_of(file).subspan(at + 12, size)));
    at += 16 + size;
  }
  return file;
}

}  // namespace

// The first byte says whether check sums are put right.
void one(Bytes input) {
  static File file;
  Input first{input};
  const bool mended = first.number<std::uint8_t>() & 1;
  const std::string content{text_of(first.rest())};
  file.write(bytes_of(mended ? with_sums(content) : content));
  documented<DataError>(file.path(), [&] {
    const auto records = data::tfrecord(file.path());
    std::size_t bytes = 0;
    for (std::int64_t i = 0; i < records.size(); ++i) bytes += static_cast<std::size_t>(records(i).size()) + 16;
    require(bytes == content.size(), "records of another length than their file");
  });
}

std::vector<std::string> seeds() {
  const auto two = record(bytes_of("hello")) + record({});
  return {"\1" + two, "0" + two, "\1" + record(bytes_of(std::string(40, 'x')))};
}

}  // namespace replicator::fuzz
