// SPDX-License-Identifier: Apache-2.0
// Expressions compiled by NVRTC have the interpreter's bits. (On the host, the tests' own compiler compiles the same
// sources.)
#include "device_run.hpp"
#include "expressions.hpp"

#include <replicator/cpu/map.hpp>
#include <replicator/cpu/reduce.hpp>
#include <replicator/graph/map_gradient.hpp>

namespace test_cuda_compiled {

using namespace replicator;
using namespace replicator::detail;
using namespace replicator::test;

namespace {

// The outputs of both; NaNs are equal.
template <class Op>
void check_both(const Op& op, const std::vector<AnyArray>& inputs, bool in_place = false) {
  for (const bool last : {false, true}) {
    const auto compiled = run_kernel_on(DeviceKind::cuda, op, inputs,
                                        {.in_place = in_place, .highest = KernelTier::compiled, .lowest = KernelTier::compiled, .channels_last = last});
    const auto interpreted = run_kernel_on(DeviceKind::cuda, op, inputs, {.highest = KernelTier::reference, .channels_last = last});
    for (std::size_t o = 0; o < compiled.size(); ++o)
      check_close(compiled[o], interpreted[o], 0, "output " + std::to_string(o) + " of " + op.expression->text());
  }
}

Map map_of(Expression e, Shape domain, std::vector<DType> stored) { return {std::make_shared<const Expression>(std::move(e)), domain, std::move(stored)}; }

bool compiles() {
  if (!gpu_is_here()) return false;
  if (kernels<Map>::slot[static_cast<std::size_t>(DeviceKind::cuda)][static_cast<std::size_t>(KernelTier::compiled)].load()) return true;
  WARN("skipped: it needs a program with the component nvrtc");
  return false;
}

}  // namespace

TEST_CASE("every scalar operation, compiled, has the interpreter's bits") {
  if (!compiles()) return;
  const Shape domain{300, 7};
  for (const auto compute : compute_types) {
    Expression e = every_operation(compute);
    const std::vector<AnyArray> inputs{random_values({compute, domain}, 1, true), random_values({compute, {7}}, 2, true),
                                       random_values({compute, {300, 1}}, 3, true)};
    const std::vector<DType> stored(e.outputs.size(), compute);
    check_both(map_of(std::move(e), domain, stored), inputs);
  }
}

TEST_CASE("elements of all types, loaded and stored by compiled kernels") {
  if (!compiles()) return;
  for (const auto from : element_types) {
    Expression e;
    e.compute = compute_type(from);
    e.inputs = 1;
    const auto half = e.apply(ScalarOp::divide, e.input(0), e.constant(2));
    const std::vector<DType> stored{std::begin(element_types), std::end(element_types)};
    e.outputs.assign(stored.size(), half);
    check_both(map_of(e, {1000}, stored), {random_values({from, {1000}}, 5)});
  }
}

TEST_CASE("random expressions over random broadcasts, mapped and reduced, compiled and interpreted") {
  if (!compiles()) return;
  for (std::uint64_t seed = 0; seed < 30; ++seed) {
    INFO("seed " << seed);
    PhiloxStream random{seed, 11};
    const auto drawn = random_expression(random);
    std::vector<AnyArray> inputs;
    for (const auto& type : drawn.inputs) inputs.push_back(random_values(type, seed + inputs.size(), true));
    check_both(map_of(drawn.expression, drawn.domain, drawn.stored), inputs, random.below(2) != 0);
    std::vector<std::int64_t> axes;
    for (std::size_t axis = 0; axis < drawn.domain.rank(); ++axis)
      if (random.below(2)) axes.push_back(static_cast<std::int64_t>(axis));
    const ReduceKind kinds[] = {ReduceKind::sum, ReduceKind::min, ReduceKind::max};
    check_both(Reduce{kinds[random.below(3)], std::make_shared<const Expression>(drawn.expression), axes, drawn.domain, drawn.stored}, inputs);
  }
}

TEST_CASE("where there are no elements nothing is compiled, and the interpreter's answer is the CPU's") {
  if (!compiles()) return;
  Expression e;
  e.inputs = 2;
  e.outputs = {e.apply(ScalarOp::multiply, e.input(0), e.input(1))};
  const std::vector<AnyArray> inputs{random_values({DType::float32, {0, 4, 5}}, 1), random_values({DType::float32, {4, 1}}, 2)};
  const auto check_declined = [&](const auto& op) {
    std::vector<TensorType> types;
    for (const auto& input : inputs) types.push_back(input.type());
    const AnyOperation operation{op};
    const auto outputs = operation.infer_shape(types);
    const std::vector<Layout> offered(inputs.size());
    const auto& compiled = operation.slots()[static_cast<std::size_t>(DeviceKind::cuda)][static_cast<std::size_t>(KernelTier::compiled)];
    CHECK(compiled.load()->make({operation, types, outputs, offered, 1}) == nullptr);
    check_close(run_kernel_on(DeviceKind::cuda, op, inputs)[0], run_kernel_on(DeviceKind::cpu, op, inputs)[0], 0, "nothing");
  };
  check_declined(map_of(e, {0, 4, 5}, {DType::float32}));
  for (const auto& axes : {std::vector<std::int64_t>{0}, {1}})  // zeros, and nothing
    check_declined(Reduce{ReduceKind::sum, std::make_shared<const Expression>(e), axes, {0, 4, 5}, {DType::float32}});
}

TEST_CASE("reductions of many blocks, compiled") {
  if (!compiles()) return;
  Expression e;
  e.inputs = 2;
  e.outputs = {e.apply(ScalarOp::multiply, e.input(0), e.input(1)), e.apply(ScalarOp::exponential, e.input(1))};
  const AnyArray x = random_values({DType::float32, {3, 30000}}, 1), y = random_values({DType::bfloat16, {30000}}, 2);
  for (const auto kind : {ReduceKind::sum, ReduceKind::min, ReduceKind::max})
    for (const auto& axes : {std::vector<std::int64_t>{1}, {0, 1}, {0}})  // of few elements, of blocks
      check_both(Reduce{kind, std::make_shared<const Expression>(e), axes, {3, 30000}, {DType::float32, DType::bfloat16}}, {x, y});
}

TEST_CASE("reductions to neighbouring channels, compiled") {
  if (!compiles()) return;
  Expression e;
  e.inputs = 2;
  const auto x = e.input(0), y = e.input(1);
  e.outputs = {x, e.apply(ScalarOp::multiply, x, y)};
  const Shape shape{5, 40, 30, 31};
  for (const auto kind : {ReduceKind::sum, ReduceKind::max})
    check_both(Reduce{kind, std::make_shared<const Expression>(e), {0, 2, 3}, shape, {DType::float32, DType::float32}},
               {random_values({DType::float32, shape}, 1), random_values({DType::float32, {40, 1, 1}}, 2)});
}

TEST_CASE("an expression that is too large for the interpreter is one compiled kernel") {
  if (!compiles()) return;
  Expression e;
  e.inputs = 1;
  auto value = e.input(0);
  for (int i = 0; i < 400; ++i) value = e.apply(i % 3 ? ScalarOp::add : ScalarOp::subtract, value, i % 2 ? e.input(0) : e.constant(i + 0.5));
  e.outputs = {value};
  const AnyArray x = random_values({DType::float32, {999}}, 4);
  const auto map = map_of(e, {999}, {DType::float32});
  check_close(run_kernel_on(DeviceKind::cuda, map, {x})[0], run_kernel_on(DeviceKind::cpu, map, {x})[0], 0, "400 sums");
}

}  // namespace test_cuda_compiled
