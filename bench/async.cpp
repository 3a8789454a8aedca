// SPDX-License-Identifier: Apache-2.0
// The cost of a straggler: steps per second with and without one, in the synchronous and in the asynchronous regime.
//
//   async [--work MS] [--straggler MS] [--steps N]
//
// It takes the flags of a deployment too. Every replica sleeps for --work in each step. The last replica is the straggler. It
// sleeps for --straggler more.
// Sleeping makes the figures independent of the number of cores. A step counts when as many gradients as there are
// replicas (or groups) have arrived. In a job of several processes it measures over all of them, and process 0 prints.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include <replicator/replicate/parse_devices.hpp>
#include <replicator/replicator.hpp>
namespace rp = replicator;

namespace {

struct Options {
  double work = 2, straggler = 20;  // milliseconds
  int steps = 100;
};

Options parse(const std::vector<std::string>& arguments) {
  Options options;
  for (std::size_t i = 0; i + 1 < arguments.size(); i += 2) {
    const double value = std::atof(arguments[i + 1].c_str());
    if (arguments[i] == "--work") options.work = value;
    else if (arguments[i] == "--straggler") options.straggler = value;
    else if (arguments[i] == "--steps") options.steps = static_cast<int>(value);
    else throw rp::BuildError{"async knows no flag " + arguments[i]};
  }
  return options;
}

// `prints`: set to whether this process must print.
double steps_per_second(const rp::Deployment& deployment, const Options& options, bool straggler, bool& prints) {
  rp::Replicator repl{deployment};
  prints = repl.process() == 0;
  auto train = repl.replicate(
      [](const rp::InputContext&) { return rp::data::from_generator([] { return rp::Array<float>{{}, {1}}; }); },
      [&](rp::ReplicaContext& replica, rp::Tensor<float> x) {
        const auto done = rp::host_callback(x, [&options, straggler, last = replica.count() - 1](const rp::Observation& at) {
          const bool slow = straggler && at.replica == last;
          std::this_thread::sleep_for(std::chrono::duration<double, std::milli>{options.work + (slow ? options.straggler : 0)});
        });
        const auto w = replica.variable<float>("w", {1000}, rp::Initializer::zeros());
        rp::nn::sgd({.learning_rate = 1e-3}).minimize(replica, rp::sum(w.read()) * done);
        return done;
      });
  train.step();
  const auto begin = std::chrono::steady_clock::now();
  for (int step = 0; step < options.steps; ++step) train.step();
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  return options.steps / seconds.count();
}

}  // namespace

int main(int argc, char** argv) try {
  auto deployment = rp::Deployment::from(argc, argv);
  const auto options = parse(deployment.remaining);
  if (argc == 1) {
    deployment.replicas = 4;
    deployment.devices = rp::parse_devices("cpu:0-3");
  }
  bool prints = true;
  const auto measure = [&](rp::Regime regime, const char* name) {  // returns the steps/s with a straggler
    auto one = deployment;
    one.regime = regime;
    if (regime == rp::Regime::synchronous) one.staleness.reset(), one.sync_group = 1;
    const double without = steps_per_second(one, options, false, prints), with = steps_per_second(one, options, true, prints);
    if (prints) std::printf("%-13s%10.1f steps/s%10.1f with a straggler%8.2f of it\n", name, without, with, with / without);
    return with;
  };
  const double together = measure(rp::Regime::synchronous, "synchronous"), apart = measure(rp::Regime::asynchronous, "asynchronous");
  if (prints) std::printf("with a straggler the asynchronous regime makes %.1f times the steps of the synchronous one\n", apart / together);
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "async: %s\n", error.what());
  return 1;
}
