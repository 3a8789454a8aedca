// SPDX-License-Identifier: Apache-2.0
// EXPECT: csv() reads no bfloat16: ask for float, and convert it
#include <replicator/data/files/csv.hpp>

int main() { auto rows = replicator::data::csv<replicator::bfloat16>("rows.csv"); }
