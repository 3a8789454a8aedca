// SPDX-License-Identifier: Apache-2.0
// Every replica has its own number, and prints the sum of all: "consumer --replicas 4" prints 6 6 6 6.
#include <iostream>

#include <replicator/replicator.hpp>
namespace rp = replicator;

int main(int argc, char** argv) try {
  rp::Replicator repl{rp::Deployment::only_from(argc, argv)};
  auto numbers = [](const rp::InputContext& ctx) {
    return rp::data::from_generator([i = ctx.replica()](std::int64_t) { return rp::Array<float>{{}, {static_cast<float>(i)}}; });
  };
  auto step = repl.replicate(numbers, [](rp::ReplicaContext&, rp::Tensor<float> x) { return rp::all_reduce(x, rp::Reduction::sum); });
  const auto [sum] = step.step();
  for (int i = 0; i < repl.replicas(); ++i) std::cout << sum[i].item() << (i + 1 < repl.replicas() ? ' ' : '\n');
} catch (const rp::Error& error) {
  return std::cerr << error.what() << '\n', 1;
}
