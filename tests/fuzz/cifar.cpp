// SPDX-License-Identifier: Apache-2.0
// covers: data/files/cifar.hpp data/files/cifar_files.hpp
#include <algorithm>
#include <replicator/data/files/cifar.hpp>
#include <replicator/data/files/cifar_files.hpp>

#include "target.hpp"

namespace replicator::fuzz {

using namespace replicator::detail;

namespace {

void read(const std::string& path, std::size_t label_bytes, int classes) {
  documented<DataError>(path, [&] {
    const data::detail::CifarFiles files{{path, path}, label_bytes, classes};
    for (std::int64_t i = 0; i < files.size(); ++i) {
      const auto [picture, label] = files[i];
      require(label.item() >= 0 && label.item() < classes, "a label that does not exist");
    }
  });
}

}  // namespace

// An input stands for a file: whether it is cut short, the label bytes of each record, and the pixel that all have.
void one(Bytes input) {
  static File file;
  if (input.size() >= 3072) {
    file.write(input);
  } else {
    Input choice{input};
    const auto cut = choice.number<std::uint8_t>();
    const std::string pixel(3072, static_cast<char>(choice.number<std::uint8_t>()));
    std::string records;
    for (const std::size_t labels = cut & 1 ? 1 : 2; !choice.empty() && records.size() < 40000;)
      records += std::string{text_of(choice.take(labels))} + pixel;
    file.write(bytes_of(std::string_view{records}.substr(0, records.size() - std::min<std::size_t>(records.size(), cut / 2))));
  }
  read(file.path(), 1, 10);
  read(file.path(), 2, 100);
}

std::vector<std::string> seeds() { return {std::string{"\1x\3\4", 4}, std::string{"\0x\3\4\5\6", 6}}; }

}  // namespace replicator::fuzz
