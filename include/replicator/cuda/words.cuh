// SPDX-License-Identifier: Apache-2.0
// Words of the elements' size, for kernels that move elements without looking at them.
#pragma once

#include <cstddef>
#include <cstdint>

#include <replicator/core/dtype.hpp>

namespace replicator::detail::cuda {

// Calls f.template operator()<Word>() with the unsigned type of the dtype's size.
template <class F>
decltype(auto) visit_word(DType dtype, F&& f) {
  switch (size_of(dtype)) {
    case 1: return f.template operator()<std::uint8_t>();
    case 2: return f.template operator()<std::uint16_t>();
    case 4: return f.template operator()<std::uint32_t>();
    default: return f.template operator()<std::uint64_t>();
  }
}

}  // namespace replicator::detail::cuda
