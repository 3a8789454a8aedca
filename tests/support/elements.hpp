// SPDX-License-Identifier: Apache-2.0
// Runs a check for every element type.
#pragma once

#include <cstdint>

namespace replicator::test {

// check<T>() for every wide numeric type, which is accumulated in itself.
template <class Check>
void for_wide_elements(const Check& check) {
  check.template operator()<float>();
  check.template operator()<double>();
  check.template operator()<std::int32_t>();
  check.template operator()<std::int64_t>();
}
// The same, and for the narrow types.
template <class Check>
void for_all_elements(const Check& check) {
  for_wide_elements(check);
  check.template operator()<std::uint8_t>();
  check.template operator()<bool>();
}

}  // namespace replicator::test
