// SPDX-License-Identifier: Apache-2.0
// covers: data/files/csv.hpp data/files/csv_file.hpp
#include <replicator/data/files/csv.hpp>
#include <replicator/data/files/csv_file.hpp>

#include "target.hpp"

namespace replicator::fuzz {

using namespace replicator::detail;

void one(Bytes input) {
  static File file;
  Input from{input};
  const auto choice = from.number<std::uint8_t>();
  data::CsvOptions options{.header = (choice & 1) != 0, .separator = choice & 2 ? ';' : ','};
  if (choice & 4) options.missing = 7;
  const std::string& path = file.write(from.rest());
  const auto read = [&](auto source) {
    require(source.size() > 0, "an empty source");
    (void)source(source.size() - 1);
  };
  documented<DataError>(path, [&] { read(data::csv<float>(path, {}, options)); });
  documented<DataError>(path, [&] { read(data::csv<std::uint8_t>(path, {1, 0}, options)); });
  documented<DataError, BuildError>(path, [&] { read(data::csv_column<double>(path, "a", options)); });
  documented<DataError>(path, [&] { read(data::csv_labels(path, 0, {"x", "1"}, options)); });
}

std::vector<std::string> seeds() {
  using std::string;
  return {string{"\1a,b\n1,2\n3,4\n"}, string{"\7\"a\";b\r\n\"1\";\r\n\n+2;\"x\"\"y\n\"\n"}, string{"\4"
                                                                                                    "1e-400,nan\n1,"},
          string{"\1\xEF\xBB\xBF"
                 "a,a\n1,2"}};
}

}  // namespace replicator::fuzz
