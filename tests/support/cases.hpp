// SPDX-License-Identifier: Apache-2.0
// How many cases a test tries: all of them, or a few in the builds under sanitizers, which are slow and look for what few show.
#pragma once

#include <cstdlib>
#include <initializer_list>
#include <set>
#include <vector>

namespace replicator::test {

// tests/CMakeLists.txt says so.
inline bool few_cases() { return std::getenv("REPLICATOR_FEW_CASES") != nullptr; }

template <class T>
std::vector<T> cases(std::initializer_list<T> all, std::initializer_list<T> few) {
  return few_cases() ? few : all;
}

// 1 to last; if few, those of 1, 2, 3, 5 that are less, and last.
inline std::set<int> counts_to(int last) {
  std::set<int> result;
  for (int count = 1; count <= last; ++count)
    if (!few_cases() || count <= 3 || count == 5 || count == last) result.insert(count);
  return result;
}

}  // namespace replicator::test
