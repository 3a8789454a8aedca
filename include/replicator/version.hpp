// SPDX-License-Identifier: Apache-2.0
// The version of the library, and the compilers that it needs.
#pragma once

#if __cplusplus < 202002L || (defined(__GNUC__) && !defined(__clang__) && __GNUC__ < 12) || (defined(__clang__) && __clang_major__ < 16)
#error "replicator needs C++20: compile with g++ 12 or clang++ 16, or a newer version, and with -std=c++20"
#include "the compilation ends here, so that no other errors follow"
#endif

#include <string_view>

namespace replicator {

inline constexpr std::string_view version = "0.1.0";  // major, minor, patch

}  // namespace replicator
