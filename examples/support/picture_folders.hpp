// SPDX-License-Identifier: Apache-2.0
// Where the pictures are that examples learn from.
#pragma once

#include <cstdint>
#include <filesystem>
#include <iostream>
#include <string>

#include "synthetic.hpp"

namespace example {

struct Folders {
  std::string train;
  std::string val;  // empty: there are no held-out pictures
};

// Those of `data`: train/<class> and val/<class>, or <class> alone. Without `data` a synthetic set of this size in pixels is written
// into `synthetic_dir` and used; who `speaks` says so.
inline Folders find_folders(const std::string& data, const std::string& synthetic_dir, std::int64_t size, bool speaks) {
  if (!data.empty()) {
    const auto train = data + "/train", val = data + "/val";
    if (!std::filesystem::is_directory(train)) return {data, ""};
    return {train, std::filesystem::is_directory(val) ? val : ""};
  }
  const std::string folder = synthetic_dir + "/synthetic-" + std::to_string(size);
  if (speaks) std::cout << "no --data: training on synthetic pictures in " << folder << std::endl;
  write_synthetic(folder, {.size = size});
  return {folder + "/train", folder + "/val"};
}

}  // namespace example
