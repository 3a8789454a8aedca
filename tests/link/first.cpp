// SPDX-License-Identifier: Apache-2.0
#include "everything.hpp"

int answer_of_second_file();

int main() { return answer_of_second_file() == 42 ? 0 : 1; }
