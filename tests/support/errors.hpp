// SPDX-License-Identifier: Apache-2.0
// What a mistake says.
#pragma once

#include <string>

#include <replicator/core/error.hpp>

namespace replicator::test {

using namespace replicator::detail;

// What f throws as an Error, or "nothing".
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
