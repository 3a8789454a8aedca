// SPDX-License-Identifier: Apache-2.0
// The messages of errors.
#pragma once

#include <string>

#include <replicator/core/error.hpp>

namespace replicator::test {

using namespace replicator::detail;

// The message of the Error that f throws, or "nothing".
template <class F>
std::string error_of(F f) {
  try {
    f();
  } catch (const Error& error) {
    return error.what();
  }
  return "nothing";
}

}  // namespace replicator::test
