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

TEST_CASE("groups of neighbouring elements, of mixed types and broadcast along any axis, have the interpreter's bits") {
  if (!compiles()) return;
  const DType mixes[][4] = {{DType::float32, DType::bfloat16, DType::float32, DType::float64},
                            {DType::bfloat16, DType::float32, DType::boolean, DType::bfloat16},
                            {DType::int32, DType::uint8, DType::int32, DType::boolean}};
  for (const auto& [like_domain, of_row, of_column, single] : mixes) {
    Expression e;
    e.compute = compute_type(like_domain);
    e.inputs = 4;
    const auto x = e.input(0), row = e.input(1), column = e.input(2), one = e.input(3);
    e.outputs = {e.apply(ScalarOp::multiply_add, x, row, column), e.apply(ScalarOp::select, e.apply(ScalarOp::less, x, row), one, x)};
    const auto check = [&](const Shape& domain, const Shape& row_shape, const Shape& column_shape) {
      INFO(domain.text());
      const std::vector<AnyArray> inputs{random_values({like_domain, domain}, 1, true), random_values({of_row, row_shape}, 2),
                                         random_values({of_column, column_shape}, 3), random_values({single, {}}, 4)};
      for (const bool in_place : {false, true}) check_both(map_of(e, domain, {like_domain, of_row}), inputs, in_place);
    };
    for (const std::int64_t inner : {1, 2, 3, 4, 6, 8, 20, 24, 257})
      for (const std::int64_t outer : {1, 5, 300}) check({outer, inner}, {inner}, {outer, 1});
    for (const std::int64_t channels : {3, 4, 24}) check({2, channels, 3, 5}, {channels, 1, 1}, {2, channels, 1, 1});  // an image's channels are last, too
    check({3, 4, 6, 8}, {4, 1, 8}, {3, 1, 6, 1});
  }
}

TEST_CASE("operands that lie in a row of operands of one size, as replicas' values do, may be loaded in groups") {
  if (!compiles()) return;
  constexpr std::int64_t count = 5;
  for (const auto dtype : {DType::float32, DType::bfloat16, DType::boolean})
    for (const std::int64_t elements : {1, 2, 3, 4, 6, 12, 20, 24, 250}) {
      INFO(name_of(dtype) << " " << elements);
      Expression e;
      e.compute = compute_type(dtype);
      e.inputs = 2;
      e.outputs = {e.apply(ScalarOp::maximum, e.input(0), e.input(1))};
      const AnyOperation operation{map_of(e, {elements}, {dtype})};
      const TensorType type{dtype, {elements}}, all{dtype, {count, elements}};
      const auto& kernel = *operation.slots()[static_cast<std::size_t>(DeviceKind::cuda)][static_cast<std::size_t>(KernelTier::compiled)].load();
      const std::vector<TensorType> types{type, type}, outputs{type};
      const std::vector<Layout> offered(2);
      const auto executable = kernel.make({operation, types, outputs, offered, 1});
      REQUIRE(executable);
      const AnyArray a = random_values(all, 1), b = random_values(all, 2);
      AnyArray got{all};
      const Queue queue = device_queue();
      queue.enter();
      const DeviceBuffer on_device[] = {DeviceBuffer{all.bytes()}, DeviceBuffer{all.bytes()}, DeviceBuffer{all.bytes()}};
      queue.copy(on_device[0].data(), a.data(), all.bytes());
      queue.copy(on_device[1].data(), b.data(), all.bytes());
      for (std::int64_t r = 0; r < count; ++r) {
        const std::size_t offset = static_cast<std::size_t>(r) * type.bytes();
        const std::byte* const inputs[] = {on_device[0].data() + offset, on_device[1].data() + offset};
        std::byte* const output[] = {on_device[2].data() + offset};
        executable->run({inputs, output, nullptr, context, queue.handle()});
      }
      queue.copy(got.data(), on_device[2].data(), all.bytes());
      queue.synchronise();
      check_close(got, run_kernel_on(DeviceKind::cuda, map_of(e, {count, elements}, {dtype}), {a, b}, {.highest = KernelTier::reference})[0], 0, "all");
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
