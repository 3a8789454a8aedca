// SPDX-License-Identifier: Apache-2.0
// For the simulation, instead of the header of this name: the text of an error.
#pragma once

#include <exception>
#include <string>

namespace replicator::detail {

inline std::string text_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& known) {
    return known.what();
  }
}

}  // namespace replicator::detail
