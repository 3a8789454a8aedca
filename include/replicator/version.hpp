// SPDX-License-Identifier: Apache-2.0
// The version of the library.
#pragma once

#include <string_view>

namespace replicator {

inline constexpr std::string_view version = "0.1.0";  // major, minor, patch

}  // namespace replicator
