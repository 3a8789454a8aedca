// SPDX-License-Identifier: Apache-2.0
// EXPECT: use of deleted function
// NEVER: no match for
#include <iostream>
#include <string>

#include <replicator/replicate/per_replica.hpp>

namespace rp = replicator;

struct Row {
  std::string name;
};

void print(const rp::PerReplica<Row>& rows) { std::cout << rows; }
