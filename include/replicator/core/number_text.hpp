// SPDX-License-Identifier: Apache-2.0
// Numbers as text for people to read.
#pragma once

#include <charconv>
#include <string>

namespace replicator::detail {

// "0.1", "1e-05", "nan": at most six digits, with a decimal point in any locale.
template <class = void>
std::string number_text(double value) {
  char text[32];
  return {text, std::to_chars(text, text + sizeof text, value, std::chars_format::general, 6).ptr};
}

}  // namespace replicator::detail
