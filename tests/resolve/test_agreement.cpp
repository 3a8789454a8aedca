// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch.hpp>

#include <source_location>

#include <replicator/graph/gradients.hpp>
#include <replicator/nn/cross_replica_moments.hpp>

#include "graphs.hpp"

namespace test_agreement {

using namespace replicator;
using namespace replicator::detail;
using test::resolution_error;
using test::traced;
using Where = std::source_location;

namespace {
std::string line(const Where& where) { return test::at_line(where); }
}  // namespace

TEST_CASE("replicas that ask for the same are in agreement, whatever else they compute") {
  CHECK(resolution_error(traced(3, [](ReplicaContext& replica, Tensor<float> x) {
          if (replica.id() == 1) x = x * 2.0f;
          all_gather(all_reduce(x, Reduction::sum));
          broadcast(x, 2);
        })) == "nothing");
}

TEST_CASE("a replica without collectives agrees with others without") {
  CHECK(resolution_error(traced(2, [](ReplicaContext&, Tensor<float> x) { (void)(x + x); })) == "nothing");
  CHECK(resolution_error({}) == "nothing");
}

TEST_CASE("different shapes: both shapes, both replicas, both lines") {
  Where first, second;
  const auto graphs = traced(4, [&](ReplicaContext& replica, Tensor<float> x) {
    if (replica.id() == 2) all_reduce(sum(x, {0}), Reduction::sum, {false, "loss"}), second = Where::current();
    else all_reduce(x, Reduction::sum, {false, "loss"}), first = Where::current();
  });
  CHECK(resolution_error(graphs) == "replica 2: all_reduce \"loss\" at " + line(second) +
                                        " has float32[2]; replica 0 has float32[4, 2] at " + line(first) +
                                        ": replicas must contribute equal shapes and dtypes");
}

TEST_CASE("different dtypes") {
  Where first, second;
  const auto graphs = traced(2, [&](ReplicaContext& replica, Tensor<float> x) {
    if (replica.id() == 1) all_reduce(cast<double>(x), Reduction::sum), second = Where::current();
    else all_reduce(x, Reduction::sum), first = Where::current();
  });
  CHECK(resolution_error(graphs) == "replica 1: all_reduce at " + line(second) + " has float64[4, 2]; replica 0 has float32[4, 2] at " + line(first) +
                                        ": replicas must contribute equal shapes and dtypes");
}

TEST_CASE("different kinds") {
  Where first, second;
  const auto graphs = traced(2, [&](ReplicaContext& replica, Tensor<float> x) {
    if (replica.id() == 1) all_gather(x), second = Where::current();
    else broadcast(x, 0), first = Where::current();
  });
  CHECK(resolution_error(graphs) == "replica 1: all_gather at " + line(second) +
                                        " has the kind all_gather; replica 0 has broadcast at " + line(first) +
                                        ": replicas must ask for the same collectives in the same order");
}

TEST_CASE("moments over replicas need as many elements on each") {
  const auto moments = [](std::int64_t other) {
    return [other](ReplicaContext& replica, Tensor<float>) {
      const auto n = replica.id() == 1 ? other : 4;
      nn::cross_replica_moments(full<float>(replica, {n, 3}, 1.0f), Axes{0}, {.label = "bn"});
    };
  };
  CHECK_THAT(resolution_error(traced(2, moments(2))),
             Catch::StartsWith("replica 1: all_reduce \"bn/mean\" at ") && Catch::Contains(" has moments of 2 element(s); replica 0 has those of 4 at ") &&
                 Catch::EndsWith(": every replica's moments have equal weight, so all need equally many elements: make their batches equal"));
  CHECK(resolution_error(traced(2, moments(4))) == "nothing");

  const auto in_groups = [](const std::vector<std::int64_t>& counts) {
    return resolution_error(traced(4, [&](ReplicaContext& replica, Tensor<float>) {
      nn::cross_replica_moments(full<float>(replica, {counts[static_cast<std::size_t>(replica.id())]}, 1.0f), {}, {.group = {{0, 2}, {1, 3}}});
    }));
  };
  CHECK(in_groups({2, 4, 2, 4}) == "nothing");
  CHECK_THAT(in_groups({2, 4, 2, 2}), Catch::StartsWith("replica 3: all_reduce at ") && Catch::Contains(" has moments of 2 element(s); replica 1 has those of 4 at "));
}

TEST_CASE("another order is found at the first place that differs") {
  Where first, second;
  const auto graphs = traced(2, [&](ReplicaContext& replica, Tensor<float> x) {
    all_reduce(x, Reduction::sum);
    if (replica.id() == 1) {
      broadcast(x, 0), second = Where::current();
      all_reduce(x, Reduction::max);
    } else {
      all_reduce(x, Reduction::max), first = Where::current();
      broadcast(x, 0);
    }
  });
  CHECK(resolution_error(graphs) == "replica 1: broadcast at " + line(second) +
                                        " has the kind broadcast; replica 0 has all_reduce at " + line(first) +
                                        ": replicas must ask for the same collectives in the same order");
}

TEST_CASE("another order of equal collectives is told by their labels") {
  Where first, second;
  const auto graphs = traced(2, [&](ReplicaContext& replica, Tensor<float> x) {
    const bool swap = replica.id() == 1;
    all_reduce(x, Reduction::sum, {false, swap ? "b" : "a"}), (swap ? second : first) = Where::current();
    all_reduce(x, Reduction::sum, {false, swap ? "a" : "b"});
  });
  CHECK(resolution_error(graphs) == "replica 1: all_reduce \"b\" at " + line(second) + " has the label \"b\"; replica 0 has \"a\" at " + line(first) +
                                        ": replicas must ask for the same collectives in the same order");
}

TEST_CASE("different reductions") {
  Where first, second;
  const auto graphs = traced(2, [&](ReplicaContext& replica, Tensor<float> x) {
    if (replica.id() == 1) all_reduce(x, Reduction::mean), second = Where::current();
    else all_reduce(x, Reduction::sum), first = Where::current();
  });
  CHECK(resolution_error(graphs) == "replica 1: all_reduce at " + line(second) + " has the reduction mean; replica 0 has sum at " + line(first) +
                                        ": replicas must ask for the same reduction");
}

TEST_CASE("different roots") {
  Where where;
  const auto graphs = traced(3, [&](ReplicaContext& replica, Tensor<float> x) { broadcast(x, replica.id() == 2 ? 1 : 0), where = Where::current(); });
  CHECK(resolution_error(graphs) == "replica 2: broadcast at " + line(where) + " has the root 1; replica 0 has the root 0 at " + line(where) +
                                        ": replicas must name the same root");
}

TEST_CASE("different orders of additions") {
  Where where;
  const auto graphs =
      traced(2, [&](ReplicaContext& replica, Tensor<float> x) { all_reduce(x, Reduction::sum, {replica.id() == 1, {}}), where = Where::current(); });
  CHECK(resolution_error(graphs) == "replica 1: all_reduce at " + line(where) + " has any_order; replica 0 has the fixed order at " + line(where) +
                                        ": replicas must ask for the same order");
}

TEST_CASE("a collective that one replica leaves out, or has alone") {
  Where where;
  const auto ask = [&](int lonely, bool more) {
    return traced(3, [&, lonely, more](ReplicaContext& replica, Tensor<float> x) {
      all_reduce(x, Reduction::sum);
      if ((replica.id() == lonely) == more) all_gather(x), where = Where::current();
    });
  };
  const std::string left_out = resolution_error(ask(1, false));
  CHECK(left_out == "replica 0: all_gather at " + line(where) +
                        " has no counterpart in replica 1, which asks for 1 collectives instead of 2: replicas must ask for the same collectives in "
                        "the same order");
  const std::string in_a_gradient = resolution_error(traced(2, [&](ReplicaContext& replica, Tensor<float> x) {
    const auto all = all_gather(x);
    if (replica.id() == 0) (void)gradient(sum(all), x);
  }));
  CHECK_THAT(in_a_gradient, Catch::StartsWith("replica 0: reduce_scatter at test_agreement.cpp:") &&
                                Catch::Contains(", for a gradient, has no counterpart in replica 1, which asks for 1 collectives instead of 2"));
  const std::string alone = resolution_error(ask(2, true));
  CHECK(alone == "replica 2: all_gather at " + line(where) +
                     " has no counterpart in replica 0, which asks for 1 collectives instead of 2: replicas must ask for the same collectives in the "
                     "same order");
}

TEST_CASE("a collective that one replica has alone is named, whatever comes behind it") {
  const auto behind = [](auto extra) {
    return resolution_error(traced(3, [&](ReplicaContext& replica, Tensor<float> x) {
      all_reduce(x, Reduction::sum, {false, "loss"});
      if (replica.id() == 0) extra(x);
      all_reduce(x, Reduction::sum);
      all_gather(x);
    }));
  };
  const auto alone = [](const std::string& kind, int line, int count) {
    return "replica 0: " + kind + " at test_agreement.cpp:" + std::to_string(line) + " has no counterpart in replica 1, which asks for 3 collectives instead of " +
           std::to_string(count) + ": replicas must ask for the same collectives in the same order";
  };
  CHECK(behind([](Tensor<float> x) { all_reduce(sum(x), Reduction::sum); }) == alone("all_reduce", __LINE__, 4));
  CHECK(behind([](Tensor<float> x) { all_reduce(x, Reduction::sum); }) == alone("all_reduce", __LINE__, 4));  // equal to the next one but for the line
  CHECK(behind([](Tensor<float> x) { all_gather(x), broadcast(x, 0); }) == alone("all_gather", __LINE__, 5));
}

TEST_CASE("what a placeholder cannot be is refused at its own line") {
  const auto error_at = [](auto ask) { return test::error_of([&] { traced(3, ask); }); };
  Where where;
  std::string found = error_at([&](ReplicaContext&, Tensor<float> x) { where = Where::current(), broadcast(x, 3); });
  CHECK(found == "replica 0: broadcast at " + line(where) + ": the root 3 is not one of the 3 replicas");
  found = error_at([&](ReplicaContext&, Tensor<float> x) { where = Where::current(), broadcast(x, -1); });
  CHECK(found == "replica 0: broadcast at " + line(where) + ": the root -1 is not one of the 3 replicas");
  found = error_at([&](ReplicaContext&, Tensor<float> x) { where = Where::current(), reduce_scatter(x, Reduction::sum); });
  CHECK(found == "replica 0: reduce_scatter at " + line(where) +
                     ": the first extent is split over 3 replicas, found the shape [4, 2]: make it a multiple");
  found = error_at([&](ReplicaContext&, Tensor<float> x) { where = Where::current(), reduce_scatter(sum(x), Reduction::sum); });
  CHECK(found == "replica 0: reduce_scatter at " + line(where) +
                     ": the first extent is split over 3 replicas, found the shape []: make it a multiple");
  found = error_at([&](ReplicaContext&, Tensor<float> x) { where = Where::current(), all_reduce(cast<std::int32_t>(x), Reduction::mean); });
  CHECK(found == "replica 0: all_reduce at " + line(where) +
                     ": mean of int32[4, 2] over replicas is not defined: cast to a floating type first, or take min or max");
  found = error_at([&](ReplicaContext&, Tensor<float> x) { where = Where::current(), all_reduce(x < x, Reduction::sum); });
  CHECK(found == "replica 0: all_reduce at " + line(where) +
                     ": sum of bool[4, 2] over replicas is not defined: cast to a floating type first, or take min or max");
  CHECK(error_at([](ReplicaContext&, Tensor<float> x) { reduce_scatter(x < x, Reduction::max, {.group = {{0}, {1}, {2}}}); }) == "nothing");
}

TEST_CASE("replicas that return tensors of different types disagree") {
  Where first, second;
  const auto graphs = traced(3, [&](ReplicaContext& replica, Tensor<float> x) {
    replica.graph().results().push_back(x.any().value());
    if (replica.id() == 2) second = Where::current(), replica.graph().results().push_back(sum(x, {0}).any().value());
    else first = Where::current(), replica.graph().results().push_back(sum(x, {1}).any().value());
  });
  CHECK(resolution_error(graphs) == "replica 2: result 1 of the step, made at " + line(second) +
                                        ", is float32[2]; replica 0 has float32[4], made at " + line(first) +
                                        ": replicas must return equal shapes and dtypes");
  const auto inputs = traced(2, [&](ReplicaContext& replica, Tensor<float> x) {
    replica.graph().results().push_back(replica.id() == 0 ? x.any().value() : sum(x).any().value());
  });
  CHECK_THAT(resolution_error(inputs), Catch::Contains("replica 0 has float32[4, 2], an input: replicas must return equal shapes and dtypes"));
}

TEST_CASE("a variable that begins differently on a replica, or is not there, is refused") {
  Where first, second;
  const auto declare = [&](auto choose) {
    return resolution_error(traced(2, [&](ReplicaContext& replica, Tensor<float>) {
      const bool one = replica.id() == 1;
      choose(replica, one);
    }));
  };
  const auto variable = [&](ReplicaContext& replica, const char* name, Shape shape, Initializer initializer, VariableKind kind) {
    (replica.id() == 1 ? second : first) = Where::current(), replica.variable<float>(name, shape, std::move(initializer), {kind});
  };
  const auto mirrored = VariableKind::mirrored, local = VariableKind::replica_local;
  const std::string found = declare([&](auto& replica, bool one) { variable(replica, "w", {2}, Initializer::constant(one), local); });
  CHECK(found == "replica 1: the variable \"w\" at " + line(second) + " has another first value than in replica 0 at " + line(first) +
                     ": every replica must declare the same variables");
  CHECK(declare([&](auto& replica, bool one) { variable(replica, "w", {2}, one ? Initializer::normal(0, 1) : Initializer::uniform(0, 1), mirrored); })
            .find("another first value") != std::string::npos);
  CHECK(declare([&](auto& replica, bool one) {
          variable(replica, "w", {2}, Initializer::value(Array<float>{{2}, {0, one ? 1.0f : 2.0f}}), mirrored);
        }).find("another first value") != std::string::npos);
  CHECK(declare([&](auto& replica, bool) {
          variable(replica, "w", {2}, Initializer::value(Array<float>{{2}, {0, 1}}), mirrored);
        }) == "nothing");
  CHECK(declare([&](auto& replica, bool one) { variable(replica, "w", {one ? 2 : 3}, Initializer::zeros(), mirrored); }) ==
        "replica 1: the variable \"w\" at " + line(second) + " is mirrored float32[2]; in replica 0 it is mirrored float32[3] at " + line(first) +
            ": every replica must declare the same variables");
  CHECK(declare([&](auto& replica, bool one) {
          variable(replica, "w", {2}, Initializer::zeros(), one ? local : mirrored);
        }) == "replica 1: the variable \"w\" at " + line(second) +
                  " is replica_local float32[2]; in replica 0 it is mirrored float32[2] at " + line(first) +
                  ": every replica must declare the same variables");
  CHECK(declare([&](auto& replica, bool one) {
          if (one) variable(replica, "w", {2}, Initializer::zeros(), local);
        }) == "replica 1: the variable \"w\" at " + line(second) + " is not declared by replica 0: every replica must declare the same variables");
  CHECK(declare([&](auto& replica, bool one) {
          if (!one) variable(replica, "w", {2}, Initializer::zeros(), local);
        }) == "replica 0: the variable \"w\" at " + line(first) + " is not declared by replica 1: every replica must declare the same variables");
}

TEST_CASE("variables may be declared in any order") {
  CHECK(resolution_error(traced(2, [](ReplicaContext& replica, Tensor<float>) {
          for (const int i : {0, 1}) replica.variable<float>((i == replica.id()) ? "a" : "b", {2}, Initializer::zeros());
        })) == "nothing");
}

}  // namespace test_agreement
