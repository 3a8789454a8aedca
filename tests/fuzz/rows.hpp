// SPDX-License-Identifier: Apache-2.0
// Reads the first rows and the last one of an array in a file.
#pragma once

#include <algorithm>
#include <cstdint>
#include <replicator/core/error.hpp>

#include "target.hpp"

namespace replicator::fuzz {

using namespace replicator::detail;

// `open.operator()<T>()` gives the source; `choice` takes one of the element types.
template <class Open>
void read_rows(const std::string& path, std::size_t choice, const Open& open) {
  const auto as = [&]<class T>() {
    documented<DataError>(path, [&] {
      auto source = open.template operator()<T>();
      for (std::int64_t i = 0; i < std::min<std::int64_t>(source.size(), 3); ++i) static_cast<void>(source(i));
      static_cast<void>(source(source.size() - 1));
    });
  };
  switch (choice % 8) {
    case 0:
      return as.template operator()<float>();
    case 1:
      return as.template operator()<std::uint8_t>();
    case 2:
      return as.template operator()<std::int32_t>();
    case 3:
      return as.template operator()<std::int64_t>();
    case 4:
      return as.template operator()<bool>();
    default:
      return as.template operator()<double>();  // holds most of what is stored
  }
}

}  // namespace replicator::fuzz
