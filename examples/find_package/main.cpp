// SPDX-License-Identifier: Apache-2.0
// Prints one random word, which is the same on every machine.
#include <iostream>

#include <replicator/core/philox.hpp>

int main() { std::cout << replicator::PhiloxStream{7, 0}.next() << '\n'; }
