// SPDX-License-Identifier: Apache-2.0
// Every header in one file.
#include "everything.hpp"
