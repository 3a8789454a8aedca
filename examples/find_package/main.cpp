// SPDX-License-Identifier: Apache-2.0
// Draws one random word: the same on every machine.
#include <iostream>

#include <replicator/core/philox.hpp>

int main() { std::cout << replicator::PhiloxStream{7, 0}.next() << '\n'; }
