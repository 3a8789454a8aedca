// SPDX-License-Identifier: Apache-2.0
// Fits y = a x + b on data that is distributed over several processes. An rp::World averages the gradients, which are
// plain vectors of the program. It uses nothing else of the library.
//
//   raw_allreduce                              one process
//   mpirun -n 3 raw_allreduce                  three processes
//   raw_allreduce --replicas 12                more replicas than processes: each process computes the share of several
//
// With the same --replicas it prints the same digits on any number of processes.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <replicator/core/philox.hpp>
#include <replicator/world/world.hpp>
#include <vector>

namespace rp = replicator;

namespace {

constexpr int points = 100;  // of each replica

struct Model {
  float a = 0, b = 0;
};

// d/da, d/db and the value of sum((a x + b - y)^2) / points, over a replica's own points near y = 3 x - 1.
std::vector<float> gradient(const Model& model, int replica) {
  replicator::PhiloxStream random{1, static_cast<std::uint64_t>(replica)};
  std::vector<float> sums(3);
  for (int i = 0; i < points; ++i) {
    const float x = 2 * random.uniform() - 1;
    const float y = 3 * x - 1 + 0.1f * (random.uniform() - 0.5f);
    const float error = model.a * x + model.b - y;
    sums[0] += 2 * error * x / points;
    sums[1] += 2 * error / points;
    sums[2] += error * error / points;
  }
  return sums;
}

void fit(rp::World& world, int steps) {
  Model model;
  for (int step = 0; step < steps; ++step) {
    std::vector<float> local;  // three numbers for each local replica
    for (int r = 0; r < world.local_replicas(); ++r)
      for (const float value : gradient(model, world.first_replica() + r)) local.push_back(value);
    float mean[3];
    world.all_reduce(local.data(), mean, 3, rp::Reduction::mean);
    model.a -= 0.5f * mean[0];
    model.b -= 0.5f * mean[1];
    if (world.rank() == 0 && (step + 1) % 10 == 0)
      std::printf("step %d: loss %.9g, y = %.9g x + %.9g\n", step + 1, mean[2], model.a, model.b);
  }
}

}  // namespace

int main(int argc, char** argv) {
  rp::WorldOptions options;
  for (int i = 1; i + 1 < argc; i += 2)
    if (std::strcmp(argv[i], "--replicas") == 0) options.replicas = std::atoi(argv[i + 1]);
  try {
    rp::World world{options};
    if (world.rank() == 0) std::printf("%d replicas on %d processes\n", world.replicas(), world.size());
    fit(world, 50);
    world.finish();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
