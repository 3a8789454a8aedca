// SPDX-License-Identifier: Apache-2.0
// Lets compared programs measure in turns, so that other load of the machine affects all of them alike. See also
// turns.py.
#pragma once

#include <cstdio>
#include <functional>
#include <iostream>
#include <string>

namespace bench {

// Measures once. With `turns`, measures for each line on standard input until its end, and prints "ready" before each.
inline void take_turns(bool turns, const std::function<void()>& measure) {
  if (!turns) return measure();
  const auto ready = [] { return std::puts("ready"), std::fflush(stdout); };
  ready();
  for (std::string line; std::getline(std::cin, line); ready()) measure();
}

}  // namespace bench
