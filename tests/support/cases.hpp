// SPDX-License-Identifier: Apache-2.0
// The number of cases that a test tries: all, or a few in the slow builds with sanitizers, which need only a few.
#pragma once

#include <cstdlib>
#include <initializer_list>
#include <set>
#include <vector>

namespace replicator::test {

// Set by tests/CMakeLists.txt.
inline bool few_cases() { return std::getenv("REPLICATOR_FEW_CASES") != nullptr; }

template <class T>
std::vector<T> cases(std::initializer_list<T> all, std::initializer_list<T> few) {
  return few_cases() ? few : all;
}

// The counts from 1 to `last`; if few, only 1, 2, 3, 5 and `last`.
inline std::set<int> counts_to(int last) {
  std::set<int> result;
  for (int count = 1; count <= last; ++count)
    if (!few_cases() || count <= 3 || count == 5 || count == last) result.insert(count);
  return result;
}

}  // namespace replicator::test
