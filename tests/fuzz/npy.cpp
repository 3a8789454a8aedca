// SPDX-License-Identifier: Apache-2.0
// covers: data/files/npy.hpp data/files/stored_rows.hpp io/number_encoding.hpp io/text_cursor.hpp data/files/npy_header.hpp
#include <replicator/data/files/npy.hpp>
#include <replicator/data/files/npy_header.hpp>

#include "rows.hpp"
#include "target.hpp"

namespace replicator::fuzz {

using namespace replicator::detail;

void one(Bytes input) {
  static File file;
  file.write(input);
  read_rows(file.path(), input.size(), [&]<class T>() { return data::npy<T>(file.path()); });
}

std::vector<std::string> seeds() {
  const auto made = [](const std::string& dictionary, std::size_t bytes, char version = 1) {
    const auto length =
        version == 1 ? little(static_cast<std::uint16_t>(dictionary.size())) : little(static_cast<std::uint32_t>(dictionary.size()));
    return std::string{"\x93NUMPY"} + version + '\0' + length + dictionary + std::string(bytes, 'x');
  };
  return {made("{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }\n", 24),
          made("{'descr': '|u1', 'fortran_order': False, 'shape': (3,), }", 3),
          made("{'shape': (2L, 1), 'descr': '>i8', 'fortran_order': False}", 16, 2),
          made("{'descr': '|b1', 'fortran_order': False, 'shape': (1, 0), }", 0, 3)};
}

}  // namespace replicator::fuzz
