// SPDX-License-Identifier: Apache-2.0
// EXPECT: replicator: an rp::PerReplica has a value for each replica: rp::mean(loss) is the mean over them
#include <iostream>
#include <string>

#include <replicator/replicate/per_replica.hpp>

namespace rp = replicator;

struct Row {
  std::string name;
};

void print(const rp::PerReplica<Row>& rows) { std::cout << rows; }
