// SPDX-License-Identifier: Apache-2.0
#include "everything.hpp"

int answer_of_second_file() { return 42; }
