// SPDX-License-Identifier: Apache-2.0
// Promise 1: the placement never changes the bits.
#include <rapidcheck.h>
#include <catch2/catch.hpp>

#include <string>

#include <replicator/replicate/replicator.hpp>

#include "../support/cases.hpp"
#include "deployments.hpp"
#include "run_random.hpp"

namespace test_placements {

using namespace replicator;
using namespace replicator::detail;
using test::Outcome;
using test::RandomProgram;
using test::run;

namespace {

Deployment deployment(int replicas, int devices, std::int64_t bucket_bytes) {
  Deployment result = test::on_devices(replicas, devices);
  result.bucket_bytes = bucket_bytes;
  return result;
}

// On one device, and no activation is computed again.
Deployment keeping_all(int replicas) {
  Deployment result = deployment(replicas, 1, 4 << 20);
  result.recompute_bytes = std::int64_t{1} << 40;
  return result;
}

// What differs, or nothing: with everything computed again that can be, where `alone` keeps all.
std::string difference(const RandomProgram& program, const Outcome& alone, int replicas, int devices,
                       std::int64_t bucket_bytes) {
  auto where = deployment(replicas, devices, bucket_bytes);
  where.recompute_bytes = 0;
  const auto other = run(program, where);
  if (other.digest == alone.digest && other.outputs == alone.outputs) return {};
  return std::to_string(replicas) + " replicas on " + std::to_string(devices) + " devices, buckets of " +
         std::to_string(bucket_bytes) + " B: " + (other.outputs == alone.outputs ? "the variables" : "the outputs") +
         " differ\n" + test::text_of(program) + "\n" + other.explanation;
}

constexpr std::int64_t bucket_sizes[] = {1, 64, 4 << 20};

}  // namespace

TEST_CASE("any program has the same variables and outputs on any number of devices with buckets of any size") {
  const bool holds = rc::check([] {
    const auto program = test::draw_program();
    const int replicas = *rc::gen::element(1, 2, 3, 4, 5, 6, 8);
    const auto alone = run(program, keeping_all(replicas));
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
  for (unsigned i = 0; i < 6; ++i)
    for (unsigned op = 16; op < test::random_instructions; ++op) program.push_back({op, i, i + op, i + op / 2, i});
  for (const int replicas : test::cases({1, 2, 3, 4, 5, 6, 8, 9}, {1, 3, 8})) {
    const auto alone = run(program, keeping_all(replicas));
    for (const int devices : test::counts_to(replicas))
      for (const auto bucket_bytes : bucket_sizes)
        CHECK(difference(program, alone, replicas, devices, bucket_bytes) == "");
  }
}

}  // namespace test_placements
