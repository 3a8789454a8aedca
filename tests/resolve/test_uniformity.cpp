// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch.hpp>

#include <algorithm>
#include <source_location>
#include <stdexcept>
#include <utility>
#include <vector>

#include <replicator/graph/gradients.hpp>
#include <replicator/ops/losses/loss.hpp>
#include <replicator/ops/matmul.hpp>
#include <replicator/ops/movement/reshape.hpp>
#include <replicator/ops/pooling.hpp>
#include <replicator/ops/random.hpp>

#include "graphs.hpp"

namespace test_uniformity {

using namespace replicator;
using namespace replicator::detail;
using test::resolution_error;
using test::traced;
using Where = std::source_location;

namespace {

// Is the value uniform, when resolution has seen all replicas? It is what the step function returns.
template <class Step>
bool uniform(int replicas, Step step) {
  const auto graphs = traced(replicas, [&](ReplicaContext& replica, Tensor<float> x) {
    const AnyTensor value = step(replica, x);
    replica.graph().results().push_back(value.value());
  });
  const auto resolution = resolve(graphs);
  bool all = true, none = true;
  for (const auto& one : resolution.classes) {
    const bool here = one.uniformity.uniform[one.graph.results()[0].node];
    all = all && here;
    none = none && !here;
  }
  REQUIRE(all != none);
  return all;
}

Variable<float> mirrored(ReplicaContext& replica, std::string_view name = "w") {
  return replica.variable<float>(name, {4, 2}, Initializer::normal(0, 1));
}
Variable<float> local(ReplicaContext& replica) {
  return replica.variable<float>("statistics", {4, 2}, Initializer::zeros(), {VariableKind::replica_local});
}

}  // namespace

TEST_CASE("mirrored variables are uniform, input, replica id, random numbers and replica-local variables vary") {
  CHECK(uniform(2, [](ReplicaContext& replica, Tensor<float>) { return mirrored(replica).read(); }));
  CHECK_FALSE(uniform(2, [](ReplicaContext&, Tensor<float> x) { return x; }));
  CHECK_FALSE(uniform(2, [](ReplicaContext& replica, Tensor<float>) { return replica_id(replica, {}); }));
  CHECK_FALSE(uniform(2, [](ReplicaContext& replica, Tensor<float>) { return normal<float>(replica, {4, 2}); }));
  CHECK_FALSE(uniform(2, [](ReplicaContext& replica, Tensor<float>) { return local(replica).read(); }));
}

TEST_CASE("the number of the step is uniform") {
  CHECK(uniform(2, [](ReplicaContext& replica, Tensor<float>) { return cast<float>(replica.step()); }));
}

TEST_CASE("constants are uniform where their bits are equal, varying where they depend on the replica") {
  CHECK(uniform(3, [](ReplicaContext& replica, Tensor<float>) { return constant<float>(replica, {{2}, {1, 2}}); }));
  CHECK_FALSE(uniform(3, [](ReplicaContext& replica, Tensor<float>) {
    return constant<float>(replica, {{2}, {1, static_cast<float>(replica.id())}});
  }));
  CHECK(uniform(3, [](ReplicaContext& replica, Tensor<float>) { return full<float>(replica, {2}, 3); }));
  CHECK_FALSE(uniform(3, [](ReplicaContext& replica, Tensor<float>) { return full<float>(replica, {2}, replica.id() == 2 ? 3 : 4); }));
  CHECK_FALSE(uniform(2, [](ReplicaContext& replica, Tensor<float>) { return constant<float>(replica, {{}, {replica.id() ? -0.0f : 0.0f}}); }));
}

TEST_CASE("a value stays uniform where one replica also looks at what it is made of, in bfloat16 too") {
  const auto stays = [](auto make) {  // make(w) gives a value, and one on the way to it
    const auto graphs = traced(2, [&](ReplicaContext& replica, Tensor<float>) {
      const auto [value, inner] = make(mirrored(replica).read());
      replica.graph().results().push_back(value.value());
      if (replica.id() == 0) replica.graph().results().push_back(inner.value());
    });
    const auto resolution = resolve(graphs);
    REQUIRE(resolution.classes.size() == 2);
    for (const auto& one : resolution.classes) CHECK(one.uniformity.uniform[one.graph.results()[0].node]);
  };
  stays([](Tensor<float> w) { return std::pair{((w + w) * 2.0f).any(), (w + w).any()}; });
  stays([](Tensor<float> w) {  // see passes::round_late
    const auto rounded = cast<bfloat16>(w + w);
    return std::pair{detail::map_at(
                         w.graph(), DType::float32, {}, [](Symbol v, Symbol r) { return select(v <= 0, 0, r); }, w, rounded),
                     rounded.any()};
  });
  stays([](Tensor<float> w) {  // see passes::narrow
    const auto image = cast<float>(cast<bfloat16>(reshape(w, {1, 1, 4, 2})));
    const auto spread = gradient(sum(max_pool(image, {.window = {2, 2}})), image);
    return std::pair{cast<bfloat16>(spread).any(), spread.any()};
  });
}

TEST_CASE("what an operation computes is uniform where all its inputs are") {
  CHECK(uniform(2, [](ReplicaContext& replica, Tensor<float>) { return sum(mirrored(replica).read() * 2.0f, {0}); }));
  CHECK_FALSE(uniform(2, [](ReplicaContext& replica, Tensor<float> x) { return mirrored(replica).read() + x; }));
  CHECK_FALSE(uniform(2, [](ReplicaContext& replica, Tensor<float>) { return reshape(local(replica).read(), {8}); }));
  CHECK(uniform(2, [](ReplicaContext& replica, Tensor<float>) { return reshape(mirrored(replica).read(), {8}); }));
}

TEST_CASE("another operation on the same uniform input on one replica varies") {
  CHECK_FALSE(uniform(2, [](ReplicaContext& replica, Tensor<float>) {
    const auto w = mirrored(replica).read();
    return replica.id() == 0 ? w + w : w * w;
  }));
}

TEST_CASE("all_reduce, all_gather and broadcast make values uniform, reduce_scatter does not") {
  CHECK(uniform(2, [](ReplicaContext&, Tensor<float> x) { return all_reduce(x, Reduction::sum); }));
  CHECK(uniform(2, [](ReplicaContext&, Tensor<float> x) { return all_reduce(x, Reduction::max); }));
  CHECK(uniform(2, [](ReplicaContext&, Tensor<float> x) { return all_gather(x); }));
  CHECK(uniform(2, [](ReplicaContext&, Tensor<float> x) { return broadcast(x, 1); }));
  CHECK_FALSE(uniform(2, [](ReplicaContext&, Tensor<float> x) { return reduce_scatter(x, Reduction::sum); }));
  CHECK_FALSE(uniform(2, [](ReplicaContext& replica, Tensor<float>) { return reduce_scatter(mirrored(replica).read(), Reduction::sum); }));
}

TEST_CASE("an all_reduce is uniform even where replicas compute their contributions differently") {
  CHECK(uniform(2, [](ReplicaContext& replica, Tensor<float> x) { return all_reduce(replica.id() ? x * 2.0f : x, Reduction::sum) * 3.0f; }));
}

TEST_CASE("a forgotten all_reduce is refused with the variable, the line of the assignment and the mend") {
  Where where;
  const auto graphs = traced(2, [&](ReplicaContext& replica, Tensor<float> x) {
    auto w = mirrored(replica, "fc.weight");
    where = Where::current(), w.assign(w.read() - x * 0.1f);
  });
  CHECK(resolution_error(graphs) == "\"fc.weight\" is mirrored, but the value assigned at " + test::at_line(where) +
                                        " differs between replicas: an all_reduce is missing, or make it replica_local");
}

TEST_CASE("an update that differs because of an earlier assignment names the line of that value too") {
  Where average, update;
  const auto graphs = traced(2, [&](ReplicaContext& replica, Tensor<float> x) {
    auto w = mirrored(replica, "average");
    average = Where::current(), w.assign(w.read() * 0.9f + sum(x, Axes{0}.kept()));
    auto m = mirrored(replica, "average/moment");
    const auto gradient = all_reduce(x, Reduction::mean);
    update = Where::current(), m.assign(m.read() + gradient + w.read() * 0.1f, update), w.assign(w.read() - gradient, update);
  });
  CHECK(resolution_error(graphs) == "\"average/moment\" is mirrored, but the value assigned at " + test::at_line(update) +
                                        " differs between replicas, because the value computed at " + test::at_line(average) +
                                        " does: an all_reduce is missing, or make it replica_local");
}

TEST_CASE("an update by a gradient that was not reduced names no line of the forward pass") {
  Where update;
  const auto graphs = traced(2, [&](ReplicaContext& replica, Tensor<float> x) {
    auto w = mirrored(replica, "fc.weight");
    const auto loss = sum(w.read() * x);
    const auto slope = gradient(loss, w.read());
    update = Where::current(), w.assign(w.read() - slope);
  });
  CHECK(resolution_error(graphs) == "\"fc.weight\" is mirrored, but the value assigned at " + test::at_line(update) +
                                        " differs between replicas: an all_reduce is missing, or make it replica_local");
}

TEST_CASE("an optimizer that was not wrapped is named where its update differs") {
  Where update;
  const auto graphs = traced(2, [&](ReplicaContext& replica, Tensor<float> x) {
    auto w = mirrored(replica, "fc.weight");
    const auto error = matmul(x, w, {.transpose_b = true}) - 1.0f;
    const auto slope = gradient(sum(error * error), w.read());
    update = Where::current(), w.assign(w.read() - slope);
  });
  CHECK(resolution_error(graphs) == "\"fc.weight\" is mirrored, but the value assigned at " + test::at_line(update) +
                                        " differs between replicas: an all_reduce is missing, or make it replica_local. It is computed from a gradient of this "
                                        "replica: rp::nn::wrap_optimizer(optimizer) averages gradients over the replicas");
}

TEST_CASE("a forgotten all_reduce is refused for a single replica too, before the experiment grows") {
  CHECK(resolution_error(traced(1, [](ReplicaContext& replica, Tensor<float> x) { mirrored(replica).assign(x); })) != "nothing");
}

TEST_CASE("the all_reduced value is accepted, and a replica_local variable takes any") {
  CHECK(resolution_error(traced(2, [](ReplicaContext& replica, Tensor<float> x) {
          auto w = mirrored(replica);
          w.assign(w.read() - all_reduce(x, Reduction::mean) * 0.1f);
          auto s = local(replica);
          s.assign(s.read() * 0.9f + x);
        })) == "nothing");
}

TEST_CASE("a mirrored variable whose value depends on the replica by a constant is refused with both constants and their lines") {
  Where rate, where;
  const auto graphs = traced(3, [&](ReplicaContext& replica, Tensor<float> x) {
    auto w = mirrored(replica, "fc.weight");
    const auto gradient = all_reduce(x * static_cast<float>(replica.id()), Reduction::mean);
    rate = Where::current();
    const auto change = gradient * (replica.id() == 2 ? 0.2f : 0.1f);
    where = Where::current(), w.assign(w.read() - change);
  });
  const auto line = Location{rate.file_name(), rate.line() + 1}.text();
  CHECK(resolution_error(graphs) == "the step functions of replicas 0 and 2 differ: map (mul(x0, 0.1)) at " + line + " on replica 0, map (mul(x0, 0.2)) at " +
                                        line + " on replica 2, so the mirrored variable \"fc.weight\" would be given different values at " + test::at_line(where) +
                                        ": give it the same value on every replica, or make it replica_local");
}

TEST_CASE("an outline of a graph that is damaged on its way is refused, and a whole one arrives") {
  const auto graphs = traced(1, [](ReplicaContext& replica, Tensor<float> x) {
    auto w = mirrored(replica, "fc.weight");
    w.assign(w.read() - all_reduce(x, Reduction::mean) * 0.1f);
  });
  const auto outline = outline_of(graphs[0]);
  std::vector<std::string> texts;
  outline.add_to(texts);
  const auto arrived = GraphOutline::from(texts);
  REQUIRE(arrived);
  CHECK(arrived->nodes.size() == outline.nodes.size());
  CHECK(first_difference(outline, *arrived, {"a", "b"}) == "what they return");
  CHECK_FALSE(GraphOutline::from(std::span{texts}.first(texts.size() - 1)));
  texts.back() = std::string(sizeof(std::uint32_t), '\xff');  // an input that is no earlier node
  CHECK_FALSE(GraphOutline::from(texts));
}

TEST_CASE("a mirrored variable that takes another value on one replica is refused") {
  const auto assign = [](auto make) { return resolution_error(traced(3, make)); };
  CHECK(assign([](ReplicaContext& replica, Tensor<float>) { mirrored(replica).assign(full<float>(replica, {4, 2}, replica.id() == 1 ? 1 : 2)); }) !=
        "nothing");
  CHECK(assign([](ReplicaContext& replica, Tensor<float> x) { mirrored(replica).assign(reduce_scatter(all_gather(x), Reduction::sum)); }) !=
        "nothing");
  CHECK(assign([](ReplicaContext& replica, Tensor<float>) { mirrored(replica).assign(mirrored(replica, replica.id() == 1 ? "a" : "b").read()); }) !=
        "nothing");
}

TEST_CASE("a mirrored variable that only some replicas assign is refused") {
  CHECK(resolution_error(traced(2, [](ReplicaContext& replica, Tensor<float> x) {
          auto w = mirrored(replica);
          const auto g = all_reduce(x, Reduction::sum);
          if (replica.id() == 1) w.assign(g);
        })) != "nothing");
}

TEST_CASE("replicas that assign different mirrored variables are refused") {
  CHECK(resolution_error(traced(2, [](ReplicaContext& replica, Tensor<float> x) {
          auto v = mirrored(replica, "v"), w = mirrored(replica, "w");
          const auto g = all_reduce(x, Reduction::sum);
          (replica.id() == 1 ? v : w).assign(g);
        })) != "nothing");
}

TEST_CASE("a varying value that is assigned and then replaced does no harm") {
  CHECK(resolution_error(traced(2, [](ReplicaContext& replica, Tensor<float> x) {
          auto w = mirrored(replica);
          w.assign(x);
          w.assign(all_reduce(w.read(), Reduction::mean));
        })) == "nothing");
}

TEST_CASE("a uniform reduction stays uniform beside a varying one over the same memory") {
  // Merged into one pass, they would both vary.
  CHECK(resolution_error(traced(2, [](ReplicaContext& replica, Tensor<float> x) {
          auto w = mirrored(replica);
          auto norm = replica.variable<float>("norm", {}, Initializer::zeros());
          const auto value = w.read();
          norm.assign(sum(value * value));
          replica.graph().results().push_back(sum(value * x).any().value());
        })) == "nothing");
}

TEST_CASE("a uniform reduction stays uniform beside one that varies by a constant of the replica") {
  CHECK(resolution_error(traced(2, [](ReplicaContext& replica, Tensor<float>) {
          auto w = mirrored(replica);
          auto norm = replica.variable<float>("norm", {}, Initializer::zeros());
          const auto value = w.read();
          norm.assign(sum(value * value));
          replica.graph().results().push_back(sum(value * static_cast<float>(replica.id())).any().value());
        })) == "nothing");
}

TEST_CASE("an update is the same on all replicas though some use a part of it elsewhere") {
  // exp(w) is stored on replica 1, which uses it twice, and computed in passing on replica 0.
  CHECK(resolution_error(traced(2, [](ReplicaContext& replica, Tensor<float> x) {
          auto w = mirrored(replica);
          const auto e = exp(w.read());
          w.assign(e + w.read());
          replica.graph().results().push_back((replica.id() == 1 ? x * e : x * 2.0f).any().value());
        })) == "nothing");
}

TEST_CASE("rows of uniform values are uniform, and others are not joined with them") {
  const auto step = [](ReplicaContext& replica, Tensor<float> x) {
    auto variable = replica.variable<float>("w", {4, 8}, Initializer::normal(0, 1));
    const auto w = softmax(variable.read());
    replica.graph().results().push_back((softmax(x) * w).any().value());
    variable.assign(w);
  };
  const auto graphs = traced(2, step, {4, 8});
  const auto plain = resolve(graphs);
  const auto fused = resolve(graphs, {.fuse_rows = {true, true}});
  const auto& one = fused.classes.at(0);
  std::vector<bool> uniform;
  for (std::uint32_t i = 0; i < one.graph.nodes().size(); ++i)
    if (one.graph.node(i).kind() == "rows") uniform.push_back(one.uniformity.uniform[i]);
  CHECK(uniform.size() == 2);
  CHECK(std::count(uniform.begin(), uniform.end(), true) == 1);
  CHECK_FALSE(one.uniformity.uniform_results[0]);
  const auto assigned = [](const Resolution& resolution) {
    const auto& of = resolution.classes.at(0);
    for (std::uint32_t i = 0; i < of.graph.nodes().size(); ++i)
      if (of.graph.node(i).get<Assign>()) return of.uniformity.digest({i, 0});
    throw std::logic_error{"nothing is assigned"};
  };
  CHECK(assigned(fused) == assigned(plain));
}

}  // namespace test_uniformity
