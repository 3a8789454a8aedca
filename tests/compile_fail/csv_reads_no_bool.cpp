// SPDX-License-Identifier: Apache-2.0
// EXPECT: csv() reads numbers: ask for std::uint8_t, and compare it with 0
#include <replicator/data/files/csv.hpp>

int main() { auto rows = replicator::data::csv<bool>("rows.csv"); }
