// SPDX-License-Identifier: Apache-2.0
// A stand-in on the host for the exception that Thrust throws where CUDA refuses. It is std::system_error.
#pragma once

#include <system_error>

namespace thrust {
using std::system_error;
}
