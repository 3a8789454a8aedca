// SPDX-License-Identifier: Apache-2.0
// What is claimed for every element type is checked with each.
#pragma once

#include <cstdint>

namespace replicator::test {

// check<T>() for every number that is added up as it is.
template <class Check>
void for_wide_elements(const Check& check) {
  check.template operator()<float>();
  check.template operator()<double>();
  check.template operator()<std::int32_t>();
  check.template operator()<std::int64_t>();
}
// And for the narrow ones.
template <class Check>
void for_all_elements(const Check& check) {
  for_wide_elements(check);
  check.template operator()<std::uint8_t>();
  check.template operator()<bool>();
}

}  // namespace replicator::test
