// SPDX-License-Identifier: Apache-2.0
// covers: data/files/idx.hpp data/files/stored_rows.hpp io/number_encoding.hpp data/files/idx_header.hpp
#include <replicator/data/files/idx.hpp>
#include <replicator/data/files/idx_header.hpp>

#include "rows.hpp"
#include "target.hpp"

namespace replicator::fuzz {

using namespace replicator::detail;

void one(Bytes input) {
  static File file;
  file.write(input);
  read_rows(file.path(), input.size(), [&]<class T>() { return data::idx<T>(file.path()); });
}

std::vector<std::string> seeds() {
  using std::string;
  return {string{"\0\0\x08\x01\0\0\0\x04"
                 "abcd",
                 12},
          string{"\0\0\x0d\x02\0\0\0\x01\0\0\0\x02"
                 "abcdefgh",
                 20},
          string{"\0\0\x0b\x03\0\0\0\x01\0\0\0\x01\0\0\0\x01"
                 "ab",
                 18}};
}

}  // namespace replicator::fuzz
