// SPDX-License-Identifier: Apache-2.0
// Promise 1: the placement never changes the bits.
#include <rapidcheck.h>
#include <catch2/catch.hpp>

#include <string>
#include <tuple>
#include <vector>

#include <replicator/core/philox.hpp>
#include <replicator/data/generator.hpp>
#include <replicator/replicate/replicator.hpp>

#include "deployments.hpp"
#include "random_program.hpp"

using namespace replicator;
using replicator::test::RandomInstruction;
using replicator::test::RandomProgram;
using replicator::test::RandomTrace;

namespace {

struct Outcome {
  std::string digest;
  std::string outputs;  // the bytes of all results of all steps
  std::string explanation;
};

Deployment deployment(int replicas, int devices, std::int64_t bucket_bytes) {
  Deployment result = test::on_devices(replicas, devices);
  result.bucket_bytes = bucket_bytes;
  return result;
}

Array<float> random_rows(std::int64_t rows, PhiloxStream& random) {
  Array<float> result{{rows, RandomTrace::width}};
  for (auto& value : result) value = 2 * random.uniform() - 1;
  return result;
}

template <class Results>
void append_bytes(std::string& to, const Results& results) {
  std::apply(
      [&](const auto&... result) {
        const auto one = [&](const auto& values) {
          for (int replica = 0; replica < values.replicas(); ++replica) {
            const auto bytes = values[replica].any().bytes();
            to.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
          }
        };
        (one(result), ...);
      },
      results);
}

constexpr int steps = 3;

Outcome run(const RandomProgram& program, const Deployment& where) {
  Replicator repl{where};
  const auto input_fn = [](const InputContext& ctx) {
    return data::from_generator([ctx](std::int64_t position) {
      PhiloxStream random{ctx.seed(), static_cast<std::uint64_t>(position), static_cast<std::uint32_t>(ctx.replica())};
      auto big = random_rows(2 * ctx.replicas(), random);
      return std::tuple{std::move(big), random_rows(2, random)};
    });
  };
  const auto step_fn = [&](ReplicaContext& replica, Tensor<float> x, Tensor<float> y) {
    return RandomTrace{replica, x, y}.run(program);
  };
  auto train = repl.replicate(input_fn, step_fn);
  Outcome outcome;
  for (const auto& results : train.steps(steps)) append_bytes(outcome.outputs, results);
  outcome.digest = repl.digest();
  outcome.explanation = train.explain();
  return outcome;
}

RandomProgram draw_program() {
  const auto instruction = rc::gen::map(
      rc::gen::tuple(rc::gen::inRange(0u, test::random_instructions), rc::gen::inRange(0u, 4u),
                     rc::gen::inRange(0u, 64u), rc::gen::inRange(0u, 64u), rc::gen::inRange(0u, 64u)),
      [](const std::tuple<unsigned, unsigned, unsigned, unsigned, unsigned>& t) {
        return RandomInstruction{std::get<0>(t), std::get<1>(t), std::get<2>(t), std::get<3>(t), std::get<4>(t)};
      });
  return *rc::gen::container<RandomProgram>(instruction);
}

// What differs, or nothing.
std::string difference(const RandomProgram& program, const Outcome& alone, int replicas, int devices,
                       std::int64_t bucket_bytes) {
  const auto other = run(program, deployment(replicas, devices, bucket_bytes));
  if (other.digest == alone.digest && other.outputs == alone.outputs) return {};
  return std::to_string(replicas) + " replicas on " + std::to_string(devices) + " devices, buckets of " +
         std::to_string(bucket_bytes) + " B: " + (other.outputs == alone.outputs ? "the variables" : "the outputs") +
         " differ\n" + test::text_of(program) + "\n" + other.explanation;
}

constexpr std::int64_t bucket_sizes[] = {1, 64, 4 << 20};

}  // namespace

TEST_CASE("any program has the same variables and outputs on any number of devices with buckets of any size") {
  const bool holds = rc::check([] {
    const auto program = draw_program();
    const int replicas = *rc::gen::element(1, 2, 3, 5, 8);
    const auto alone = run(program, deployment(replicas, 1, 4 << 20));
    for (int devices = 1; devices <= replicas; ++devices) {
      const auto found = difference(program, alone, replicas, devices, bucket_sizes[*rc::gen::inRange(0, 3)]);
      RC_ASSERT(found == "");
    }
  });
  CHECK(holds);
}

TEST_CASE(
    "the instructions that make graphs differ between replicas, with every collective after them, keep the bits") {
  RandomProgram program;
  for (const unsigned op : {11u, 5u, 6u})
    for (unsigned shape = 0; shape < 4; ++shape) program.push_back({op, shape, shape + 1, 0, 0});
  for (unsigned reduction = 0; reduction < 4; ++reduction)
    for (unsigned shape = 0; shape < 4; ++shape) {
      program.push_back({7, shape, 60 + shape, 0, reduction});
      program.push_back({15, shape, reduction, 0, 0});
    }
  for (unsigned i = 0; i < 4; ++i) {
    program.push_back({8, 0, 7 + i, 0, 0});
    program.push_back({9, 0, 11 + i, 0, i});
    program.push_back({10, i, 5 + i, 0, i});
    program.push_back({12, i, 13, 3, 0});
    program.push_back({14, i, 9 + i, 0, 0});
  }
  for (const int replicas : {1, 2, 3, 5, 8}) {
    const auto alone = run(program, deployment(replicas, 1, 4 << 20));
    for (int devices = 1; devices <= replicas; ++devices)
      for (const auto bucket_bytes : bucket_sizes)
        CHECK(difference(program, alone, replicas, devices, bucket_bytes) == "");
  }
}
