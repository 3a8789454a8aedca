// SPDX-License-Identifier: Apache-2.0
// Fuzzes weight files, and their headers alone.
// covers: io/safetensors_file.hpp io/safetensors_header.hpp io/json/json_reader.hpp io/text_cursor.hpp
#include <replicator/io/safetensors_file.hpp>

#include "safetensors_file.hpp"

namespace replicator::fuzz {

using namespace replicator::detail;

void one(Bytes input) {
  static File file;
  if (Input first{input}; first.number<std::uint8_t>() != '{') {
    documented<DataError>(file.path(), [&] {
      const auto content = io::read_safetensors(file.write(first.rest()));
      std::size_t bytes = 0;
      for (const auto& [name, array] : content.tensors) bytes += array.size_bytes();
      require(bytes + 8 <= first.rest().size(), "more tensors than the file has bytes");
    });
    return;
  }
  const std::string header{text_of(input)};
  documented<DataError>("a.safetensors", [&] {
    const std::string path = "a.safetensors";
    const auto read = io::detail::SafetensorsHeaderReader{header, path}.read();
    std::uint64_t bytes = 0;
    for (const auto& [name, entry] : read.tensors) bytes = bytes > entry.end ? bytes : entry.end;
    static_cast<void>(io::detail::checked_order(path, read, bytes));
  });
}

std::vector<std::string> seeds() {
  const auto file = safetensors_file({{"w", {DType::float32, {2, 3}}}, {"half", {DType::bfloat16, {2}}}, {"on", {DType::boolean, {}}}},
                                     {{"format", "pt"}});
  return {" " + file, file.substr(8, file.find_last_of('}') - 7), R"({"a":{"dtype":"I64","shape":[0,4],"data_offsets":[0,0]}})",
          R"({"__metadata__":{"k\u00e9\ud83d\ude00\n":"v"},"b":{"dtype":"U8","shape":[3],"data_offsets":[0,3]}} )"};
}

}  // namespace replicator::fuzz
