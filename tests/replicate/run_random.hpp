// SPDX-License-Identifier: Apache-2.0
// Draws a random program, runs it on a deployment, and keeps all its bits.
#pragma once

#include <rapidcheck.h>

#include <cstdint>
#include <string>
#include <tuple>
#include <utility>

#include <replicator/core/philox.hpp>
#include <replicator/data/generator.hpp>
#include <replicator/replicate/replicator.hpp>

#include "random_program.hpp"

namespace replicator::test {

using namespace replicator::detail;

struct Outcome {
  std::string digest;
  std::string outputs;  // the bytes of all results of all steps
  std::string explanation;
};

inline Array<float> random_rows(std::int64_t rows, PhiloxStream& random) {
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

inline constexpr int random_steps = 3;

inline Outcome run(const RandomProgram& program, const Deployment& where) {
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
  for (const auto& results : train.steps(random_steps)) append_bytes(outcome.outputs, results);
  outcome.digest = repl.digest();
  outcome.explanation = train.explain();
  return outcome;
}

inline RandomProgram draw_program() {
  const auto instruction = rc::gen::map(
      rc::gen::tuple(rc::gen::inRange(0u, test::random_instructions), rc::gen::inRange(0u, 4u),
                     rc::gen::inRange(0u, 64u), rc::gen::inRange(0u, 64u), rc::gen::inRange(0u, 64u),
                     rc::gen::inRange(0u, 6u)),
      [](const auto& t) {
        return std::apply([](auto... field) { return RandomInstruction{field...}; }, t);
      });
  return *rc::gen::container<RandomProgram>(instruction);
}

}  // namespace replicator::test
