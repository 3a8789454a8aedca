// SPDX-License-Identifier: Apache-2.0
// The line on stderr about an exception of the program's own, which is then thrown on as it is.
#pragma once

#include <cstdio>
#include <exception>
#include <string>

#include <replicator/core/printable.hpp>

namespace replicator::detail {

// `place`: where the program's function was called, as in "in the step_fn given to replicate at train.cpp:31".
template <class = void>
void report_program_exception(const std::string& place, const std::exception& error) {
  std::fprintf(stderr, "replicator: the program threw an exception (%s): %s\n", place.c_str(), printable(error.what(), 2000, LineEnds::keep).c_str());
}

}  // namespace replicator::detail
