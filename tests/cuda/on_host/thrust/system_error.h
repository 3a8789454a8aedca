// SPDX-License-Identifier: Apache-2.0
// What Thrust throws where CUDA refuses: on the host as in C++'s library.
#pragma once

#include <system_error>

namespace thrust {
using std::system_error;
}
