// SPDX-License-Identifier: Apache-2.0
// Needs no GPU: checks the sources generated from expressions, and that NVRTC compiles them.
#include <catch2/catch.hpp>

#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <replicator/cuda/expressions/expression_source.hpp>
#include <replicator/cuda/libraries/nvrtc.hpp>
#include <replicator/graph/passes/fuse_reduces.hpp>
#include <replicator/graph/passes/optimise.hpp>
#include <replicator/replicator.hpp>

#include "expressions.hpp"
#include "kernel_requests.hpp"

namespace test_cuda_source {

using namespace replicator;
using namespace replicator::detail;
using namespace replicator::test;

namespace {

// relu(x * scale + bias), scale and bias by the second axis.
Expression scaled() {
  Expression e;
  e.inputs = 3;
  const auto x = e.input(0), scale = e.input(1), bias = e.input(2);
  e.outputs = {e.apply(ScalarOp::rectify, e.apply(ScalarOp::multiply_add, x, scale, bias))};
  return e;
}
cuda::Operands scaled_operands(std::int64_t batch, std::int64_t channels, std::int64_t pixels) {
  const TensorType inputs[] = {{DType::float32, {batch, channels, pixels}}, {DType::float32, {channels, 1}}, {DType::bfloat16, {channels, 1}}};
  const std::size_t axes[] = {0, 1, 2};
  return cuda::place_operands(inputs, std::vector<Layout>(3), {batch, channels, pixels}, axes);
}
constexpr DType floats[] = {DType::float32};

// NVRTC's machine code for a Hopper is an ELF file.
void check_compiles(const std::optional<cuda::ExpressionSource>& source) {
  REQUIRE(source);
  CHECK(cuda::compile_to_cubin(source->text, "sm_90").substr(0, 4) ==
        "\x7f"
        "ELF");
}

// A Map's, alone and merged.
void check_both_compile(const Expression& expression, const std::optional<cuda::ExpressionSource>& source) {
  check_compiles(source);
  CHECK(cuda::compile_to_cubin(cuda::merged_map_source(*source, expression.compute), "sm_90").substr(0, 4) ==
        "\x7f"
        "ELF");
}

// Of the Maps and Reduces of a graph that will run; Maps may also be merged.
void add_sources(const Graph& graph, std::set<std::string>& sources, bool merged = false) {
  for_each_request(graph, [&](const Node& node, const KernelRequest& request) {
    std::optional<cuda::ExpressionSource> source;
    if (const auto* map = operation_of<Map>(node)) {
      source = cuda::map_source(*map->expression, cuda::plan_of(*map, request).operands, map->dtypes);
      if (source && merged) sources.insert(cuda::merged_map_source(*source, map->expression->compute));
    } else if (const auto* fused = operation_of<FusedReduce>(node)) {
      source = cuda::reduce_source(fused->reduce.kind, *fused->reduce.expression, cuda::plan_of(*fused, request), *fused->epilogue, fused->dtypes);
    } else if (const auto* reduce = operation_of<Reduce>(node)) {
      const auto plan = cuda::plan_of(*reduce, request);
      source = cuda::reduce_source(reduce->kind, *reduce->expression, plan, reduce->dtypes);
    } else {
      return;
    }
    REQUIRE(source);
    sources.insert(source->text);
  });
}

}  // namespace

TEST_CASE("a source says the expression in its order, with the interpreter's functions") {
  const auto source = cuda::map_source(scaled(), scaled_operands(8, 16, 49), floats);
  REQUIRE(source);
  CHECK_THAT(source->text, Catch::Contains("    const float v0 = load<float>(x0, index);\n"
                                           "    const float v1 = load<float>(x1, c1);\n"
                                           "    const float v2 = load<float>(x2, c1);\n"
                                           "    const float v3 = fused_multiply_add(v0, v1, v2);\n"
                                           "    const float v4 = rectify(v3);\n"
                                           "    y[0] = v4;\n"));
  CHECK_THAT(source->text, Catch::Contains("const Bfloat16Word* x2;"));
  CHECK_THAT(source->text, Catch::Contains("extern \"C\" __global__ void __launch_bounds__(block_threads) compiled_map("));
}

TEST_CASE("a merged launch takes a program for each part, and a tile for each block") {
  const auto source = cuda::map_source(scaled(), scaled_operands(8, 16, 49), floats);
  REQUIRE(source);
  const auto merged = cuda::merged_map_source(*source, DType::float32);
  CHECK_THAT(merged, Catch::Contains("    const float v3 = fused_multiply_add(v0, v1, v2);\n") &&
                         Catch::Contains("compiled_merged_map(const Program* __restrict__ programs, const MapTile* __restrict__ tiles) {\n"
                                         "  const MapTile tile = tiles[blockIdx.x];\n  const Program program = programs[tile.program];\n"
                                         "  map_tile<float>(program, tile.number);\n}"));
  CHECK_THAT(merged, !Catch::Contains("compiled_map("));
}

TEST_CASE("one source serves all extents that allow the same groups; they are in its argument") {
  const auto small = cuda::map_source(scaled(), scaled_operands(2, 3, 5), floats), large = cuda::map_source(scaled(), scaled_operands(64, 256, 3137), floats);
  REQUIRE(small);
  REQUIRE(large);
  CHECK(small->text == large->text);
  CHECK(small->words.size() == large->words.size());
  CHECK(small->words[0] == 2 * 3 * 5);
  CHECK(large->words[0] == 64 * 256 * 3137);
  const auto grouped = cuda::map_source(scaled(), scaled_operands(2, 3, 16), floats), large_grouped = cuda::map_source(scaled(), scaled_operands(64, 256, 3136), floats);
  REQUIRE(grouped);
  REQUIRE(large_grouped);
  CHECK(grouped->text == large_grouped->text);
  CHECK(grouped->text != small->text);
  const auto huge = cuda::map_source(scaled(), scaled_operands(1 << 12, 1 << 10, 1 << 10), floats);  // numbers of 64 bits
  REQUIRE(huge);
  CHECK(huge->text != small->text);
}

TEST_CASE("groups of neighbouring elements are loaded, and computed one by one") {
  const auto source = cuda::map_source(scaled(), scaled_operands(8, 16, 48), floats);  // a bfloat16 has 2 bytes
  REQUIRE(source);
  CHECK_THAT(source->text, Catch::Contains("lanes = 8, ") && Catch::Contains("load_lanes<lanes>(l0, x0 + index);\n") &&
                               Catch::Contains("const float l1 = load<float>(x1, c1);\n") && Catch::Contains("const float v0 = l0[j];\n") &&
                               Catch::Contains("const float v1 = l1;\n") && Catch::Contains("store_lanes<lanes>(y0 + at * lanes, y + 0 * lanes);"));
}

TEST_CASE("a group has at most 16 bytes of the narrowest operand, and never crosses the end of a row") {
  const auto lanes = [](std::vector<TensorType> inputs, Shape domain, DType output) {
    std::vector<std::size_t> axes;
    for (std::size_t axis = 0; axis < domain.rank(); ++axis) axes.push_back(axis);
    return cuda::lanes_of(cuda::place_operands(inputs, std::vector<Layout>(inputs.size()), domain, axes), {&output, 1});
  };
  constexpr auto f32 = DType::float32, f64 = DType::float64, bf16 = DType::bfloat16, boolean = DType::boolean;
  CHECK(lanes({{f32, {64}}}, {64}, f32) == 4);
  CHECK(lanes({{f64, {64}}}, {64}, f64) == 2);
  CHECK(lanes({{bf16, {64}}}, {64}, bf16) == 8);
  CHECK(lanes({{boolean, {64}}}, {64}, boolean) == 8);
  CHECK(lanes({{f32, {64}}}, {64}, bf16) == 8);  // the float32 twice 16 bytes
  CHECK(lanes({{f32, {66}}}, {66}, f32) == 2);
  CHECK(lanes({{f32, {65}}}, {65}, f32) == 1);
  CHECK(lanes({{f32, {1}}}, {1}, f32) == 1);
  CHECK(lanes({{f32, {}}}, {}, f32) == 1);
  CHECK(lanes({{f32, {7, 64}}, {f32, {64}}}, {7, 64}, f32) == 4);     // a row
  CHECK(lanes({{f32, {64, 7}}, {f32, {64, 1}}}, {64, 7}, f32) == 1);  // a column, whose rows are odd
  CHECK(lanes({{f32, {7, 64}}, {f32, {7, 1}}}, {7, 64}, f32) == 4);
  CHECK(lanes({{f32, {4, 7}}}, {4, 7}, f32) == 4);  // one row of 28
  CHECK(lanes({{f32, {4, 7}}, {f32, {7}}}, {4, 7}, f32) == 1);
  CHECK(lanes({{f32, {2, 6}}, {f32, {6}}}, {2, 6}, f32) == 2);
  // A transposed input: neighbours in the domain are none in memory.
  const TensorType types[] = {{f32, {8, 8}}, {f32, {8, 8}}};
  const std::size_t axes[] = {1, 0};
  CHECK(cuda::lanes_of(cuda::place_operands(types, std::vector<Layout>(2), {8, 8}, axes), floats) == 1);
  using Row = std::pair<std::int64_t, int>;
  for (const auto& [row, expected] : {Row{8, 4}, Row{9, 1}, Row{10, 2}})  // rows with gaps
    CHECK(cuda::lanes_of({64, {8, 8}, {{f32, cuda::OperandKind::strided, {row, 1}}}}, floats) == expected);
}

TEST_CASE("numbers of elements have 32 bits where the domain has fewer than 2^31") {
  const auto index = [](std::int64_t elements, std::int64_t lanes) {
    const TensorType type{DType::float32, {elements}};
    const std::size_t axes[] = {0};
    Expression e;
    e.inputs = 1;
    e.outputs = {e.apply(ScalarOp::negate, e.input(0))};
    const auto source = cuda::map_source(e, cuda::place_operands({&type, 1}, std::vector<Layout>(1), {elements}, axes), floats);
    REQUIRE(source);
    CHECK_THAT(source->text, Catch::Contains("lanes = " + std::to_string(lanes) + ","));
    return source->text.find("using Index = unsigned;") != std::string::npos ? 32 : 64;
  };
  CHECK(index((std::int64_t{1} << 31) - 1, 1) == 32);
  CHECK(index((std::int64_t{1} << 31) - 4, 4) == 32);
  CHECK(index(std::int64_t{1} << 31, 4) == 64);
  CHECK(index((std::int64_t{1} << 31) + 1, 1) == 64);
}

TEST_CASE("a reduction loads 16 bytes at a time where rows, or rows of columns, consist of such groups") {
  const auto lanes = [](DType dtype, const Shape& shape, std::int64_t axis, bool scaled = false) {
    Expression e;
    e.compute = compute_type(dtype);
    e.inputs = 2;
    e.outputs = {e.apply(ScalarOp::multiply, e.input(0), e.input(1))};
    const AnyOperation reduce{Reduce{ReduceKind::sum, std::make_shared<const Expression>(e), {axis}, shape, {e.compute}}};
    Shape factors = shape;
    factors[static_cast<std::size_t>(axis)] = 1;
    const TensorType inputs[] = {{dtype, shape}, {e.compute, scaled ? factors : shape}};
    const auto outputs = reduce.infer_shape(inputs);
    const Layout offered[2];
    const auto plan = cuda::plan_of(*reduce.get<Reduce>(), {reduce, inputs, outputs, offered});
    const auto source = cuda::reduce_source(ReduceKind::sum, e, plan, {{e.compute}});
    REQUIRE(source);
    CHECK(source->lanes == cuda::lanes_of(plan));
    return source->lanes;
  };
  CHECK(lanes(DType::float32, {8, 1000}, 1) == 4);
  CHECK(lanes(DType::float32, {8, 1002}, 1) == 2);
  CHECK(lanes(DType::float32, {8, 1001}, 1) == 1);  // the inputs are of one piece, but a group would lie in two rows
  CHECK(lanes(DType::float32, {8, 1000}, 1, true) == 4);
  CHECK(lanes(DType::float64, {8, 1000}, 1) == 2);
  CHECK(lanes(DType::bfloat16, {8, 1000}, 1, true) == 8);
  CHECK(lanes(DType::float32, {8, 32}, 1) == 1);  // a thread takes a whole row
  CHECK(lanes(DType::float32, {1001, 64}, 0) == 4);
  CHECK(lanes(DType::bfloat16, {1001, 64}, 0, true) == 8);
  CHECK(lanes(DType::bfloat16, {1001, 12}, 0, true) == 4);
  CHECK(lanes(DType::float32, {1000, 63}, 0) == 1);
  CHECK(lanes(DType::float32, {1000, 4}, 0) == 1);  // too few columns: its elements lie far apart
}

TEST_CASE("the source of a reduction with an epilogue computes it from the results, and reads what else it needs") {
  Expression sums;
  sums.inputs = 1;
  sums.outputs = {sums.input(0)};
  Expression epilogue;
  epilogue.inputs = 3;
  const auto sum = epilogue.input(0), count = epilogue.constant(8), mean = epilogue.apply(ScalarOp::divide, sum, count);
  const auto scale = epilogue.input(1), shift = epilogue.input(2);
  epilogue.outputs = {mean, epilogue.apply(ScalarOp::multiply_add, mean, scale, shift)};
  const Shape domain{1000, 64};
  const FusedReduce fused{{ReduceKind::sum, std::make_shared<const Expression>(sums), {0}, domain, {DType::float32}}, std::make_shared<const Expression>(epilogue), {{64}, {64}}, {DType::float32, DType::bfloat16}};
  const AnyOperation operation{fused};
  const TensorType inputs[] = {{DType::float32, domain}, {DType::bfloat16, {64}}, {DType::float32, {1}}};
  const auto outputs = operation.infer_shape(inputs);
  const Layout offered[3];
  const auto plan = cuda::plan_of(fused, {operation, inputs, outputs, offered});
  const auto source = cuda::reduce_source(ReduceKind::sum, sums, plan, epilogue, fused.dtypes);
  check_compiles(source);
  CHECK(source->lanes == 4);                  // the bfloat16 is not among what is reduced
  CHECK(source->words.back() == 0x41000000);  // 8
  CHECK_THAT(source->text, Catch::Contains("finish(long long index, const float* results) const {\n"
                                           "    const float v0 = results[0];\n"
                                           "    const float v1 = constants[0][0];\n"
                                           "    const float v2 = quotient(v0, v1);\n"
                                           "    const float v3 = load<float>(x1, index);\n"
                                           "    const float v4 = load<float>(x2, 0);\n"
                                           "    const float v5 = fused_multiply_add(v2, v3, v4);\n"
                                           "    cuda::store(y0, index, v2);\n"
                                           "    cuda::store(y1, index, v5);\n"));
}

TEST_CASE("a division by an extent is exact") {
  PhiloxStream random{7, 0};
  const auto quotient = [](std::uint32_t n, std::int64_t extent) {  // rtc/divider.cuh
    const auto words = cuda::divider_words(extent);
    return n * (words[0] & 0xffffffff) >> (words[0] >> 32);
  };
  for (const std::int64_t extent : {1, 2, 3, 7, 49, 56, 1000, 4097, 65537, (1 << 30) - 1, 1 << 30, (1 << 30) + 1, 2147483647}) {
    CHECK(cuda::divider_words(extent)[1] == static_cast<std::uint64_t>(extent));
    for (const std::int64_t near : {std::int64_t{0}, extent - 1, extent, 2 * extent - 1, 2147483647 / extent * extent - 1, std::int64_t{2147483647}})
      if (near >= 0 && near <= 2147483647) CHECK(quotient(static_cast<std::uint32_t>(near), extent) == static_cast<std::uint64_t>(near / extent));
    for (int i = 0; i < 100; ++i) {
      const std::uint32_t n = random.below(1u << 31);
      CHECK(quotient(n, extent) == static_cast<std::uint64_t>(n / extent));
    }
  }
}

TEST_CASE("what is no source: operations that the compute type does not have, and too much of anything") {
  Expression e = scaled();
  e.compute = DType::int32;
  CHECK(cuda::map_source(e, scaled_operands(2, 3, 5), floats));
  e.outputs = {e.apply(ScalarOp::exponential, e.input(0))};
  CHECK_FALSE(cuda::map_source(e, scaled_operands(2, 3, 5), floats));
  Expression many;
  many.inputs = 600;
  many.outputs = {many.input(0)};
  cuda::Operands operands{4, {4}, std::vector<cuda::Operand>(600, cuda::Operand{DType::float32, cuda::OperandKind::linear, {1}})};
  CHECK_FALSE(cuda::map_source(many, operands, floats));
}

TEST_CASE("a libnvrtc of another version than the program's is refused") {
  int major = 0, minor = 0;
  REQUIRE(nvrtcVersion(&major, &minor) == NVRTC_SUCCESS);
  CHECK(cuda::refused_nvrtc(1000 * major + 10 * minor).empty());
  CHECK(cuda::refused_nvrtc(11080) == "libnvrtc is of CUDA " + std::to_string(major) + "." + std::to_string(minor) +
                                          ", the program was built with CUDA 11.8, and only equal versions have equal bits");
}

TEST_CASE("the environment may ask for the interpreter") {
  int major = 0, minor = 0;
  REQUIRE(nvrtcVersion(&major, &minor) == NVRTC_SUCCESS);
  const int built_with = 1000 * major + 10 * minor;
  CHECK(cuda::reason_to_interpret(nullptr, built_with).empty());
  CHECK(cuda::reason_to_interpret("compiled", built_with).empty());
  CHECK(cuda::reason_to_interpret("interpreted", built_with) == "REPLICATOR_CUDA_EXPRESSIONS=interpreted");
  CHECK_THROWS_WITH(cuda::reason_to_interpret("interpret", built_with),
                    "REPLICATOR_CUDA_EXPRESSIONS is \"interpret\": it must be compiled or interpreted");
}

TEST_CASE("what NVRTC refuses is told with source and messages") {
  CHECK_THROWS_WITH(cuda::compile_to_cubin("float x = y;\n", "sm_90"),
                    Catch::Contains("NVRTC refused for sm_90:\nfloat x = y;") && Catch::Contains("identifier \"y\" is undefined"));
}

TEST_CASE("NVRTC compiles every operation on every type, mapped and reduced") {
  for (const auto compute : compute_types) {
    const Expression e = every_operation(compute);
    const std::vector<DType> stored(e.outputs.size(), compute);
    check_both_compile(e, cuda::map_source(e, scaled_operands(2, 3, 5), stored));
  }
  for (const auto type : element_types) {
    Expression e;
    e.compute = compute_type(type);
    e.inputs = 1;
    e.outputs.assign(std::size(element_types), e.input(0));
    const cuda::Operands operands{4, {4}, {{type, cuda::OperandKind::linear, {1}}}};
    check_compiles(cuda::map_source(e, operands, element_types));
    const auto source_of = [&](ReduceKind kind, cuda::ReduceWay way) {
      return cuda::reduce_source(kind, e, {way, {.kept = 4, .reduced = 4}, {}, operands, {}}, element_types);
    };
    check_compiles(source_of(ReduceKind::sum, cuda::ReduceWay::few));
    if (type == DType::float32)
      for (const auto kind : {ReduceKind::sum, ReduceKind::min, ReduceKind::max})
        for (const auto way : {cuda::ReduceWay::blocks, cuda::ReduceWay::columns}) check_compiles(source_of(kind, way));
  }
}

TEST_CASE("NVRTC compiles random expressions") {
  for (std::uint64_t seed = 0; seed < 30; ++seed) {
    PhiloxStream random{seed, 12};
    const auto drawn = random_expression(random);
    std::vector<std::size_t> axes;
    for (std::size_t axis = 0; axis < drawn.domain.rank(); ++axis) axes.push_back(axis);
    check_both_compile(drawn.expression, cuda::map_source(drawn.expression, cuda::place_operands(drawn.inputs, std::vector<Layout>(drawn.inputs.size()), drawn.domain, axes), drawn.stored));
  }
}

TEST_CASE("NVRTC compiles all that training a ResNet-50 asks for, one source for many shapes") {
  std::set<std::string> sources;
  const char* const arguments[] = {"--replicas", "1", "--input-threads", "1", "--devices", "cpu:0"};
  Replicator repl{Deployment::from(arguments)};
  const auto input_fn = [](const InputContext&) { return std::vector{std::tuple{Array<float>{{2, 3, 64, 64}}, Array<std::int32_t>{{2}}}}; };
  (void)repl.replicate(input_fn, [&](ReplicaContext& replica, Tensor<float> images, Tensor<std::int32_t> labels) {
    const auto mixed = mixed_precision(replica);
    const auto logits = models::resnet(replica, images, 50, {.classes = 10});
    const auto loss = mean(softmax_cross_entropy(logits, labels, {.label_smoothing = 0.1}));
    nn::lars({.learning_rate = 0.1, .momentum = 0.9}).minimize(replica, loss);
    add_sources(passes::fuse_reduces(optimise(replica.graph())).graph, sources);
    return std::tuple{loss, accuracy(logits, labels)};
  });
  CHECK(sources.size() > 20);
  CHECK(sources.size() < 100);  // of several hundred nodes
  for (const auto& source : sources) CHECK_NOTHROW(cuda::compile_to_cubin(source, "sm_90"));
}

TEST_CASE("NVRTC compiles the update of every optimizer, alone and merged") {
  std::set<std::string> sources;
  const auto add_update = [&](const auto& optimizer) {
    const char* const arguments[] = {"--replicas", "1", "--input-threads", "1", "--devices", "cpu:0"};
    Replicator repl{Deployment::from(arguments)};
    const auto input_fn = [](const InputContext&) { return std::vector{Array<float>{{4, 5}}}; };
    (void)repl.replicate(input_fn, [&](ReplicaContext& replica, Tensor<float> x) {
      const auto loss = mean(tanh(nn::linear(replica, nn::layer_norm(replica, x, "norm"), "fc", {.features = 3})));
      optimizer.minimize(replica, loss);
      add_sources(optimise(replica.graph()), sources, true);
      return loss;
    });
  };
  add_update(nn::sgd({.learning_rate = 0.1, .momentum = 0.9, .weight_decay = 1e-4}));
  add_update(nn::adam({.learning_rate = 0.1}));
  add_update(nn::adamw({.learning_rate = nn::warmup_cosine(0.1, 5, 100), .weight_decay = 0.1}));
  add_update(nn::rmsprop({.learning_rate = 0.1}));
  add_update(nn::lars({.learning_rate = 0.1}));
  add_update(nn::lamb({.learning_rate = 0.1}));
  CHECK(sources.size() > 20);
  for (const auto& source : sources) CHECK_NOTHROW(cuda::compile_to_cubin(source, "sm_90"));
}

}  // namespace test_cuda_source
