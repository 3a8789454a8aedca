// SPDX-License-Identifier: Apache-2.0
// Programs that are compared take turns, so that what else the machine does meets all of them alike. turns.py does the same.
#pragma once

#include <cstdio>
#include <functional>
#include <iostream>
#include <string>

namespace bench {

// Measures once; with `turns` whenever a line comes on standard input, until that ends, and prints "ready" before each.
inline void take_turns(bool turns, const std::function<void()>& measure) {
  if (!turns) return measure();
  const auto ready = [] { return std::puts("ready"), std::fflush(stdout); };
  ready();
  for (std::string line; std::getline(std::cin, line); ready()) measure();
}

}  // namespace bench
