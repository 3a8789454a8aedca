// SPDX-License-Identifier: Apache-2.0
// The programs of docs/tutorial.md, in order, on four replicas; the same output on any devices: ./tutorial --devices cpu:0-1
#include <algorithm>
#include <iostream>
#include <string>
#include <vector>

#include <replicator/replicator.hpp>

namespace rp = replicator;

namespace {

// Of the numbers 0 to 15, replica i has the four numbers 4i, 4i + 1, 4i + 2, 4i + 3.
auto numbers(const rp::InputContext& ctx) {
  return rp::data::from_generator([i = ctx.replica()](std::int64_t) {
    rp::Array<float> x{{4}};
    for (std::int64_t k = 0; k < 4; ++k) x[k] = static_cast<float>(4 * i + k);
    return x;
  });
}

std::string text(const std::vector<float>& values) {
  std::string line = "[";
  for (const float value : values) line += (line.size() > 1 ? " " : "") + std::to_string(static_cast<int>(value));
  return line + "]";
}

void first_program(rp::Replicator& repl) {
  auto step_fn = [](rp::ReplicaContext&, rp::Tensor<float> x) {  // x [4], this replica's own
    auto mine = rp::sum(x);                                      // []
    auto all = rp::all_reduce(mine, rp::Reduction::sum);         // [], the same on every replica
    return std::tuple{mine, all};
  };
  auto step = repl.replicate(numbers, step_fn);
  auto [mine, all] = step.step();
  for (int i = 0; i < repl.replicas(); ++i)
    std::cout << "replica " << i << ": " << mine[i].item() << " of " << all[i].item() << '\n';
}

// --- collectives, each with the plain loop that computes the same -----------------------------------------------------

constexpr std::size_t R = 4;                     // replicas
using Values = std::vector<std::vector<float>>;  // values[i]: what replica i has

// Runs a step function on the numbers above, prints every replica's result, and compares it with the loop's.
template <class StepFn, class Loop>
void compare(rp::Replicator& repl, const char* name, StepFn step_fn, Loop loop) {
  auto step = repl.replicate(numbers, step_fn);
  const auto [result] = step.step();
  Values x(R, std::vector<float>(4)), y;
  for (std::size_t i = 0; i < R; ++i)
    for (std::size_t k = 0; k < 4; ++k) x[i][k] = static_cast<float>(4 * i + k);
  std::cout << name << ":\n";
  for (std::size_t i = 0; i < R; ++i) {
    const auto& got = result[static_cast<int>(i)];
    y.emplace_back(got.begin(), got.end());
    std::cout << "  replica " << i << ": " << text(x[i]) << " -> " << text(y[i]) << '\n';
  }
  if (y != loop(x)) throw rp::Error{std::string{name} + " is not what its loop gives"};
}

void collectives(rp::Replicator& repl) {
  compare(
      repl, "all_reduce",
      [](rp::ReplicaContext&, rp::Tensor<float> x) {   // x [4]
        return rp::all_reduce(x, rp::Reduction::sum);  // [4], uniform
      },
      [](const Values& x) {
        Values y(R, std::vector<float>(4));
        for (std::size_t i = 0; i < R; ++i)
          for (std::size_t j = 0; j < R; ++j)
            for (std::size_t k = 0; k < 4; ++k) y[i][k] += x[j][k];
        return y;
      });

  compare(
      repl, "all_gather",
      [](rp::ReplicaContext&, rp::Tensor<float> x) {  // x [4]
        return rp::all_gather(x);                     // [16], uniform
      },
      [](const Values& x) {
        Values y(R);
        for (std::size_t i = 0; i < R; ++i)
          for (std::size_t j = 0; j < R; ++j) y[i].insert(y[i].end(), x[j].begin(), x[j].end());
        return y;
      });

  compare(
      repl, "reduce_scatter",
      [](rp::ReplicaContext&, rp::Tensor<float> x) {       // x [4]
        return rp::reduce_scatter(x, rp::Reduction::sum);  // [1], another on each replica
      },
      [](const Values& x) {
        Values y(R, std::vector<float>(1));
        for (std::size_t i = 0; i < R; ++i)
          for (std::size_t j = 0; j < R; ++j) y[i][0] += x[j][i];
        return y;
      });

  compare(
      repl, "broadcast",
      [](rp::ReplicaContext&, rp::Tensor<float> x) {  // x [4]
        return rp::broadcast(x, 2);                   // [4], uniform
      },
      [](const Values& x) {
        Values y(R, x[2]);
        return y;
      });

  compare(
      repl, "all_to_all",
      [](rp::ReplicaContext&, rp::Tensor<float> x) {  // x [4]
        return rp::all_to_all(x);                     // [4], another on each replica
      },
      [](const Values& x) {
        Values y(R, std::vector<float>(4));
        for (std::size_t i = 0; i < R; ++i)
          for (std::size_t j = 0; j < R; ++j) y[i][j] = x[j][i];
        return y;
      });

  compare(
      repl, "all_reduce in groups",
      [](rp::ReplicaContext&, rp::Tensor<float> x) {                                // x [4]
        return rp::all_reduce(x, rp::Reduction::max, {.group = {{0, 1}, {2, 3}}});  // [4], one in each group
      },
      [](const Values& x) {
        Values y(R, std::vector<float>(4));
        for (std::size_t i = 0; i < R; ++i)
          for (std::size_t k = 0; k < 4; ++k) y[i][k] = std::max(x[i / 2 * 2][k], x[i / 2 * 2 + 1][k]);
        return y;
      });

  compare(
      repl, "gradient",
      [](rp::ReplicaContext&, rp::Tensor<float> x) {                  // x [4]
        auto y = rp::all_reduce(rp::sum(x * x), rp::Reduction::sum);  // [], on every replica
        return rp::gradient(y, x);                                    // [4]: of the sum of y over all replicas
      },
      [](const Values& x) {
        Values slope(R, std::vector<float>(4));
        for (std::size_t i = 0; i < R; ++i)
          for (std::size_t k = 0; k < 4; ++k)
            for (std::size_t j = 0; j < R; ++j) slope[i][k] += 2 * x[i][k];  // of replica j's y, which holds x[i][k] squared
        return slope;
      });
}

// --- variables ---------------------------------------------------------------------------------------------------------

void variables(rp::Replicator& repl) {
  auto count = repl.replicate(numbers, [](rp::ReplicaContext& replica, rp::Tensor<float> x) {                            // x [4]
    auto total = replica.variable<float>("total", {}, rp::Initializer::zeros());                                         // one value
    auto own = replica.variable<float>("own", {}, rp::Initializer::zeros(), {.kind = rp::VariableKind::replica_local});  // one for each replica
    total.assign(total.read() + rp::all_reduce(rp::sum(x), rp::Reduction::sum));
    own.assign(own.read() + rp::sum(x));
  });
  for (int step = 0; step < 3; ++step) count.step();
  std::cout << "total: " << repl.value("total").as<float>()[0] << ", own of replica 0: " << repl.value("own", 0).as<float>()[0] << '\n';

  try {
    repl.replicate(numbers, [](rp::ReplicaContext& replica, rp::Tensor<float> x) {
      auto total = replica.variable<float>("total", {}, rp::Initializer::zeros());
      total.assign(total.read() + rp::sum(x));  // another on each replica
    });
  } catch (const rp::BuildError& error) {
    std::cout << "refused: " << error.what() << '\n';
  }
}

// --- training ----------------------------------------------------------------------------------------------------------

// Points on the line y = 2 x: a batch of 64 over all replicas.
auto line(const rp::InputContext& ctx) {
  return rp::data::from_generator([n = ctx.replica_batch(64), ctx](std::int64_t position) {
    rp::PhiloxStream random{ctx.seed(), static_cast<std::uint64_t>(position), static_cast<std::uint32_t>(ctx.replica())};
    rp::Array<float> x{{n}}, y{{n}};
    for (std::int64_t i = 0; i < n; ++i) y[i] = 2 * (x[i] = random.uniform());
    return std::tuple{x, y};
  });
}

void training(rp::Replicator& repl) {
  auto by_hand = repl.replicate(line, [](rp::ReplicaContext& replica, rp::Tensor<float> x, rp::Tensor<float> y) {  // x, y [16]
    auto w = replica.variable<float>("w", {}, rp::Initializer::zeros());
    auto loss = rp::mean(rp::pow(x * w.read() - y, 2));      // [], of this replica's points
    auto slope = rp::gradient(loss, w.read());               // [], of its own loss
    auto mean = rp::all_reduce(slope, rp::Reduction::mean);  // [], of the loss of all 64 points
    w.assign(w.read() - mean * 0.5f);                        // the same on every replica: allowed
    return loss;
  });
  auto by_optimizer = repl.replicate(line, [](rp::ReplicaContext& replica, rp::Tensor<float> x, rp::Tensor<float> y) {  // x, y [16]
    auto v = replica.variable<float>("v", {}, rp::Initializer::zeros());
    auto loss = rp::mean(rp::pow(x * v.read() - y, 2));
    rp::nn::sgd({.learning_rate = 0.5}).minimize(replica, loss);  // gradient, all_reduce and assign, as above
    return loss;
  });
  for (int step = 0; step < 10; ++step) {
    by_hand.step();
    by_optimizer.step();
  }
  const auto w = repl.value("w").as<float>()[0], v = repl.value("v").as<float>()[0];
  std::cout << "w: " << w << (w == v ? ", v has the same bits" : ", v has other bits") << '\n';
}

}  // namespace

int main(int argc, char** argv) try {
  auto deployment = rp::Deployment::only_from(argc, argv);
  deployment.replicas = static_cast<int>(R);
  rp::Replicator repl{deployment};
  first_program(repl);
  collectives(repl);
  variables(repl);
  training(repl);
  return std::cout << "digest: " << repl.digest() << std::endl ? 0 : 1;
} catch (const rp::Error& error) { return std::cerr << error.what() << '\n', 1; }
