// SPDX-License-Identifier: Apache-2.0
// The compiler's vector intrinsics. Compilers take half a second to read them, so only code that calls them includes this header.
#pragma once

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif
