// SPDX-License-Identifier: Apache-2.0
// EXPECT: replicator needs C++20: compile with g++ 12 or clang++ 16, or a newer version, and with -std=c++20
// NEVER: Replicator
// STANDARD: c++17
#include <replicator/replicator.hpp>

int main() { replicator::Replicator repl; }  // no follow-up error names it
