// SPDX-License-Identifier: Apache-2.0
// Handles on tensors and variables that are used outside of their step: each use is an error with a message, never a
// wrong value or a crash.
#include <catch2/catch.hpp>

#include <functional>
#include <optional>
#include <source_location>
#include <string>
#include <vector>

#include <replicator/replicator.hpp>

#include "../support/errors.hpp"

namespace test_kept_tensors {

namespace rp = replicator;
using F = rp::Tensor<float>;
using StepFn = std::function<F(rp::ReplicaContext&, F)>;

namespace {

const auto rows = [](const rp::InputContext&) { return rp::data::from_generator([](std::int64_t) { return rp::Array<float>{{2}, {1, 2}}; }); };

// What the BuildError says that a step of two replicas is refused with; empty where it is not.
std::string refusal(const StepFn& step_fn) {
  rp::Replicator repl{{.replicas = 2}};
  try {
    auto step = repl.replicate(rows, step_fn);
    (void)step.step();
  } catch (const rp::BuildError& error) {
    return error.what();
  }
  return {};
}

const std::string foreign = "a tensor of another replica's graph was used, or of an earlier trace";
const std::string gone = "kept from an earlier trace of a step_fn, whose graph is gone";

}  // namespace

TEST_CASE("a tensor that another replica made is refused wherever it is given to: returned, assigned, differentiated by, printed, reduced") {
  const auto first = [](const std::function<F(rp::ReplicaContext&, F x, F kept)>& use) {
    std::vector<F> kept;
    return refusal([&](rp::ReplicaContext& replica, F x) {
      kept.push_back(x * x);
      return use(replica, x, kept[0]);
    });
  };
  CHECK_THAT(first([](auto&, F, F kept) { return kept; }), Catch::Contains("replica 1: what step_fn returns: " + foreign));
  CHECK_THAT(first([](auto& replica, F x, F kept) {
               replica.template variable<float>("w", {2}, rp::Initializer::zeros()).assign(kept);
               return x;
             }),
             Catch::Contains("the assignment to \"w\" at ") && Catch::Contains(foreign));
  CHECK_THAT(first([](auto&, F x, F kept) { return rp::gradient(rp::sum(x), kept); }), Catch::Contains("the gradient at ") && Catch::Contains(foreign));
  CHECK_THAT(first([](auto&, F x, F kept) {
               rp::print(kept, "kept");
               return x;
             }),
             Catch::Contains(foreign));
  CHECK_THAT(first([](auto&, F, F kept) { return rp::all_reduce(kept, rp::Reduction::sum); }), Catch::Contains("all_reduce at ") && Catch::Contains(foreign));
  CHECK_THAT(first([](auto&, F, F kept) { return rp::exp(kept); }), Catch::Contains(foreign));
}

TEST_CASE("a variable that one step keeps is refused in the next, whether the first step is still there or not") {
  for (const bool alive : {true, false}) {
    rp::Replicator repl{{.replicas = 1}};
    std::optional<rp::Variable<float>> w;
    const StepFn step_fn = [&](rp::ReplicaContext& replica, F x) {
      if (!w) w = replica.variable<float>("w", {2}, rp::Initializer::ones());
      return x * w->read();
    };
    std::optional step{repl.replicate(rows, step_fn)};
    (void)step->step();
    if (!alive) step.reset();
    CHECK_THROWS_WITH(repl.replicate(rows, step_fn).step(), Catch::Contains(foreign) || Catch::Contains(gone));
  }
}

TEST_CASE("the message names what was kept, with the lines of its origin and its use") {
  std::vector<F> kept;
  std::source_location made, used;
  const auto text = refusal([&](rp::ReplicaContext& replica, F x) {
    auto w = replica.variable<float>("fc.weight", {2}, rp::Initializer::ones());
    made = std::source_location::current(), kept.push_back(w.read());
    used = std::source_location::current(), x = rp::exp(kept[0]);
    return x;
  });
  CHECK_THAT(text, Catch::StartsWith("replica 1: exp at " + rp::Location{used}.text() + ": " + foreign + " (replica0/fc.weight at " +
                                     rp::Location{made}.text() + "); every step_fn must use only its own arguments"));
}

TEST_CASE("a tensor whose graph is gone is refused with the lines of replicate and of its use") {
  rp::Replicator repl{{.replicas = 1}};
  std::optional<F> mask;
  std::source_location used;
  const StepFn first_of_two = [&](rp::ReplicaContext&, F x) {
    if (!mask) mask = rp::exp(x);
    used = std::source_location::current(), x = *mask * x;
    return x;
  };
  const StepFn second_of_two = [&](rp::ReplicaContext&, F x) {
    used = std::source_location::current(), x = x - *mask;
    return x;
  };
  (void)repl.replicate(rows, first_of_two);
  for (const auto& [step_fn, call] : {std::pair{first_of_two, "operator*"}, std::pair{second_of_two, "operator-"}}) {
    std::source_location where;
    const auto again = [&] { where = std::source_location::current(), repl.replicate(rows, step_fn).step(); };
    const auto message = rp::test::error_of(again);
    CHECK_THAT(message, Catch::StartsWith("the step_fn given to replicate at " + rp::Location{where}.text() + ": " + call + " at " + rp::Location{used}.text() +
                                          ": a tensor or a variable") &&
                            Catch::Contains(gone));
  }
}

TEST_CASE("a tensor that is kept beyond its trace is refused in the next") {
  rp::Replicator repl{{.replicas = 1}};
  std::optional<F> mask;
  const StepFn step_fn = [&](rp::ReplicaContext&, F x) {
    if (!mask) mask = rp::exp(x);
    return rp::exp(*mask);
  };
  {
    auto step = repl.replicate(rows, step_fn);
    (void)step.step();
  }
  CHECK_THROWS_WITH(repl.replicate(rows, step_fn).step(), Catch::Contains(foreign) || Catch::Contains(gone));
}

}  // namespace test_kept_tensors
