// SPDX-License-Identifier: Apache-2.0
// Maps computed by Thrust have the interpreter's bits; other Maps go to other kernels.
#include "device_run.hpp"
#include "expressions.hpp"

#include <replicator/cpu/map.hpp>
#include <replicator/graph/map_gradient.hpp>
#include <replicator/replicator.hpp>

namespace test_cuda_thrust {

using namespace replicator;
using namespace replicator::detail;
using namespace replicator::test;

namespace {

Map map_of(Expression e, Shape domain, DType stored) { return {std::make_shared<const Expression>(std::move(e)), std::move(domain), {stored}}; }

// Thrust's, the interpreter's, and the CPU's where no function of the system's library comes in. NaNs are equal.
void check_both(const Map& map, const std::vector<AnyArray>& inputs, bool in_place = false, bool channels_last = false) {
  const auto text = map.expression->text();
  const auto got = run_kernel_on(DeviceKind::cuda, map, inputs,
                                 {.in_place = in_place, .highest = KernelTier::library, .lowest = KernelTier::library, .channels_last = channels_last});
  check_close(got[0], run_kernel_on(DeviceKind::cuda, map, inputs, {.highest = KernelTier::reference, .channels_last = channels_last})[0], 0, text);
  const auto& code = map.expression->code;
  const bool by_library = std::any_of(code.begin(), code.end(), [](const auto& i) {
    return i.op == ScalarOp::power || (i.op >= ScalarOp::exponential && i.op <= ScalarOp::cosine);
  });
  if (!by_library) check_close(got[0], run_kernel_on(DeviceKind::cpu, map, inputs)[0], 0, text);
}

// The operation with these operands: 0 and 1 are inputs, 2 a constant.
Expression one_operation(ScalarOp op, const std::vector<int>& operands) {
  Expression e;
  e.inputs = static_cast<std::uint16_t>(std::count(operands.begin(), operands.end(), 1) > 0 ? 2 : 1);
  std::uint16_t values[3]{};
  for (std::size_t o = 0; o < operands.size(); ++o)
    values[o] = operands[o] == 2 ? e.constant(0.75 + static_cast<double>(o)) : e.input(static_cast<std::uint16_t>(operands[o]));
  e.outputs = {e.apply(op, values[0], values[1], values[2])};
  return e;
}

// Calls f with all operands of the operation among which is the first input.
template <class F>
void for_all_operands(ScalarOp op, F&& f) {
  std::vector<int> operands(static_cast<std::size_t>(operands_of(op)));
  do {
    if (std::count(operands.begin(), operands.end(), 0) > 0) f(operands);
    auto next = operands.begin();
    while (next != operands.end() && ++*next == 3) *next++ = 0;
    if (next == operands.end()) return;
  } while (true);
}

bool is_taken(const Map& map, const std::vector<TensorType>& inputs, std::vector<Layout> offered = {}) {
  const AnyOperation operation{map};
  const auto outputs = operation.infer_shape(inputs);
  offered.resize(inputs.size());
  const auto& slots = operation.slots()[static_cast<std::size_t>(DeviceKind::cuda)];
  return slots[static_cast<std::size_t>(KernelTier::library)].load()->make({operation, inputs, outputs, offered, 1}) != nullptr;
}

}  // namespace

TEST_CASE("every built-in operation, of inputs and constants in every order, in place and not") {
  if (!gpu_is_here()) return;
  for (const auto op : operations_on(DType::float32))
    for_all_operands(op, [&](const std::vector<int>& operands) {
      const Expression e = one_operation(op, operands);
      for (const std::int64_t elements : {0, 1, 3, 257, 2051}) {
        std::vector<AnyArray> inputs;
        for (std::uint16_t i = 0; i < e.inputs; ++i) inputs.push_back(random_values({DType::float32, {elements}}, 10u * static_cast<unsigned>(op) + i, true));
        for (const bool in_place : {false, true}) check_both(map_of(e, {elements}, DType::float32), inputs, in_place);
      }
    });
}

TEST_CASE("images in either layout, inputs of a lower rank and of a second use") {
  if (!gpu_is_here()) return;
  const Shape shape{3, 5, 7, 9};
  const AnyArray x = random_values({DType::float32, shape}, 1, true), y = random_values({DType::float32, shape}, 2, true);
  const AnyArray flat = random_values({DType::float32, {7, 9}}, 3, true);
  for (const bool channels_last : {false, true}) {
    check_both(map_of(one_operation(ScalarOp::subtract, {0, 1}), shape, DType::float32), {x, y}, false, channels_last);
    check_both(map_of(one_operation(ScalarOp::multiply, {0, 0}), shape, DType::float32), {x}, true, channels_last);
  }
  check_both(map_of(one_operation(ScalarOp::divide, {0, 1}), {1, 7, 9}, DType::float32), {flat, random_values({DType::float32, {1, 7, 9}}, 4, true)});
}

TEST_CASE("casts between float32 and bfloat16, and copies") {
  if (!gpu_is_here()) return;
  Expression e;
  e.inputs = 1;
  e.outputs = {e.input(0)};
  const std::pair<DType, DType> casts[] = {
      {DType::float32, DType::bfloat16}, {DType::bfloat16, DType::float32}, {DType::float32, DType::float32}};
  for (const auto& [from, to] : casts)
    for (const std::int64_t elements : {0, 1, 511, 4099})
      check_both(map_of(e, {elements}, to), {random_values({from, {elements}}, 7, true)}, true);
}

TEST_CASE("what is more than one operation, broadcast, or of another type is not Thrust's") {
  if (!gpu_is_here()) return;
  const Shape domain{4, 6};
  const TensorType x{DType::float32, domain};
  const Expression sum = one_operation(ScalarOp::add, {0, 1});
  const auto sum_of = [&](DType stored) { return map_of(sum, domain, stored); };
  REQUIRE(is_taken(sum_of(DType::float32), {x, x}));
  for (const Shape& shape : {Shape{6}, Shape{4, 1}, Shape{}}) CHECK(!is_taken(sum_of(DType::float32), {x, {DType::float32, shape}}));
  for (const auto other : element_types) {
    if (other == DType::float32) continue;
    CHECK(!is_taken(sum_of(other), {x, x}));
    CHECK(!is_taken(sum_of(DType::float32), {{other, domain}, x}));
    CHECK(!is_taken(sum_of(DType::float32), {x, {other, domain}}));
    CHECK(!is_taken(sum_of(other), {{other, domain}, {other, domain}}));
  }
  for (const auto compute : {DType::float64, DType::int32, DType::int64}) {
    Expression e = sum;
    e.compute = compute;
    CHECK(!is_taken(map_of(e, domain, DType::float32), {x, x}));
  }
  Expression chain = sum;
  chain.outputs = {chain.apply(ScalarOp::rectify, chain.outputs[0])};
  CHECK(!is_taken(map_of(chain, domain, DType::float32), {x, x}));
  Expression three = sum;
  three.inputs = 3;
  three.outputs = {three.apply(ScalarOp::select, three.input(0), three.input(1), three.input(2))};
  CHECK(!is_taken(map_of(three, domain, DType::float32), {x, x, x}));
  Expression twice = sum;
  twice.outputs.push_back(twice.input(0));
  CHECK(!is_taken({std::make_shared<const Expression>(twice), domain, {DType::float32, DType::float32}}, {x, x}));
  Expression filled;
  filled.outputs = {filled.constant(2)};
  CHECK(!is_taken(map_of(filled, domain, DType::float32), {}));
  Expression of_constants;
  of_constants.outputs = {of_constants.apply(ScalarOp::add, of_constants.constant(2), of_constants.constant(3))};
  CHECK(!is_taken(map_of(of_constants, domain, DType::float32), {}));
  Expression rectified = one_operation(ScalarOp::rectify, {0});
  CHECK(!is_taken(map_of(rectified, domain, DType::bfloat16), {x}));
  Expression cast;
  cast.inputs = 1;
  cast.outputs = {cast.input(0)};
  REQUIRE(is_taken(map_of(cast, domain, DType::bfloat16), {x}));
  CHECK(!is_taken(map_of(cast, domain, DType::boolean), {x}));
  CHECK(!is_taken(map_of(cast, domain, DType::bfloat16), {{DType::float32, {6}}}));
}

TEST_CASE("a step says which of its kernels are Thrust's, and of merged ones whose they are") {
  if (!gpu_is_here()) return;
  const char* const arguments[] = {"--replicas", "2", "--input-threads", "1", "--devices", "cuda:0"};
  Replicator repl{Deployment::from(arguments)};
  const auto input_fn = [](const InputContext&) { return std::vector<Array<float>>(2, Array<float>{{33, 7}}); };
  auto step = repl.replicate(input_fn, [](ReplicaContext& replica, Tensor<float> x) {
    for (const char* name : {"first", "second"}) {
      auto scale = replica.variable<float>(name, {7}, Initializer::constant(1));
      scale.assign(scale.read() * 3.0f);
    }
    return exp(x);
  });
  for (int i = 0; i < 2; ++i) {
    const auto [y] = step.step();
    CHECK(y[1][0] == 1);
  }
  const auto explanation = step.explain({.nodes = 1000});
  CHECK_THAT(explanation, Catch::Contains("exp(x0)") && Catch::Contains(" by Thrust: "));
  CHECK_THAT(explanation, Catch::Contains("1 more in one launch by cuda interpreter: "));
  CHECK_THAT(explanation, !Catch::Contains("could not be captured"));
}

}  // namespace test_cuda_thrust
