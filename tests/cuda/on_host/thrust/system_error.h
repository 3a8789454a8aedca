// SPDX-License-Identifier: Apache-2.0
// The exception that Thrust throws for CUDA errors; on the host it is the C++ library's.
#pragma once

#include <system_error>

namespace thrust {
using std::system_error;
}
