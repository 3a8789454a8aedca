// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch.hpp>

#include <cmath>

#include <replicator/nn/optimizers/rate.hpp>

#include "../support/evaluate.hpp"

namespace test_rate {

namespace rp = replicator;
namespace nn = rp::nn;

namespace {

// The rate in the step that comes after `step` others.
double at(const nn::Rate& rate, std::int64_t step) {
  rp::Graph graph;
  rp::ReplicaContext replica{graph};
  const auto value = rate.in<double>(replica);
  REQUIRE(value.shape() == rp::Shape{});
  rp::test::EvaluateOptions options;
  options.context.step = static_cast<std::uint64_t>(step);
  return rp::test::doubles(rp::test::evaluate(value, {}, options))[0];
}

}  // namespace

TEST_CASE("a rate is a number or a formula of the step") {
  CHECK(at(0.25, 7) == 0.25);
  CHECK(at(0.5f, 0) == 0.5);
  const nn::Rate rate = [](rp::Symbol step) { return 0.5 / (1 + step); };
  CHECK(at(rate, 0) == 0.5);
  CHECK(at(rate, 3) == 0.125);
}

TEST_CASE("warm-up rises linearly to the rate that it wraps") {
  const auto rate = nn::linear_warmup(0.8, 4);
  for (const auto& [step, expected] : {std::pair{0, 0.2}, {1, 0.4}, {3, 0.8}, {4, 0.8}, {1000, 0.8}})
    CHECK(at(rate, step) == Approx(expected));
  const auto both = nn::linear_warmup(nn::step_decay(1, 0.1, 10), 20);
  CHECK(at(both, 9) == Approx(0.5));
  CHECK(at(both, 10) == Approx(0.055));
}

TEST_CASE("step decay multiplies after every so many steps") {
  const auto rate = nn::step_decay(0.1, 0.5, 3);
  for (std::int64_t step = 0; step < 12; ++step) CHECK(at(rate, step) == Approx(0.1 * std::pow(0.5, step / 3)));
}

TEST_CASE("the cosine falls from the peak to the end and stays there") {
  const auto rate = nn::warmup_cosine(1, 10, 110, 0.2);
  CHECK(at(rate, 0) == Approx(0.1));
  CHECK(at(rate, 9) == Approx(1));
  CHECK(at(rate, 10) == Approx(1));
  CHECK(at(rate, 60) == Approx(0.6));
  CHECK(at(rate, 85) == Approx(0.2 + 0.4 * (1 + std::cos(0.75 * std::acos(-1.0)))));
  CHECK(at(rate, 110) == Approx(0.2));
  CHECK(at(rate, 5000) == Approx(0.2));
  CHECK(at(nn::warmup_cosine(1, 0, 10), 0) == Approx(1));
}

TEST_CASE("schedules that cannot be are refused") {
  CHECK_THROWS_WITH(nn::linear_warmup(0.1, 0), Catch::StartsWith("rate at test_rate.cpp:"));
  CHECK_THROWS_WITH(nn::step_decay(0.1, 0.5, 0), Catch::StartsWith("rate at test_rate.cpp:"));
  CHECK_THROWS_WITH(nn::warmup_cosine(NAN, 1, 10), Catch::Contains("warmup_cosine") && Catch::Contains("must be a finite number"));
  CHECK_THROWS_AS(nn::step_decay(-0.1, 0.5, 3), rp::BuildError);
  CHECK_THROWS_WITH(nn::warmup_cosine(0.1, 10, 10), Catch::StartsWith("rate at test_rate.cpp:") && Catch::EndsWith(": warmup_cosine: asked for 10 steps in all, of which 10 are the warm-up: give a larger total"));
}

}  // namespace test_rate
