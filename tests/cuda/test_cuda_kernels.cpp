// SPDX-License-Identifier: Apache-2.0
// The kernels of cuda:0 against plain loops: against the CPU's kernels where the bits must be equal, else against
// definitions in double. Map and Reduce are interpreted here; test_cuda_compiled.cpp compares the compiled ones with
// the interpreter.
#include "device_run.hpp"

#include <replicator/collectives/reduction.hpp>
#include <replicator/cpu/map.hpp>
#include <replicator/cpu/reduce.hpp>
#include <replicator/graph/map_gradient.hpp>
#include <replicator/ops/matmul.hpp>

namespace test_cuda_kernels {

using namespace replicator;
using namespace replicator::detail;
using namespace replicator::test;

namespace {

constexpr DType computes[] = {DType::float32, DType::float64, DType::int32, DType::int64};
constexpr DType dtypes[] = {DType::float32, DType::float64, DType::int32, DType::int64, DType::uint8, DType::boolean};

bool is_approximate(ScalarOp op) {
  return op == ScalarOp::exponential || op == ScalarOp::logarithm || op == ScalarOp::hyperbolic_tangent || op == ScalarOp::error_function || op == ScalarOp::sine ||
         op == ScalarOp::cosine || op == ScalarOp::power;
}
bool needs_floating(ScalarOp op) { return op == ScalarOp::square_root || (op >= ScalarOp::exponential && op <= ScalarOp::cosine); }

void check_map(Expression e, const Shape& domain, const std::vector<AnyArray>& inputs, std::vector<DType> stored,
               double tolerance, bool in_place = false) {
  const Map map{std::make_shared<const Expression>(std::move(e)), domain, std::move(stored)};
  const auto want = run_kernel_on(DeviceKind::cpu, map, inputs);
  for (const bool channels_last : {false, true}) {
    const auto got = run_kernel_on(DeviceKind::cuda, map, inputs, {.in_place = in_place, .highest = KernelTier::reference, .channels_last = channels_last});
    for (std::size_t o = 0; o < want.size(); ++o) check_close(got[o], want[o], tolerance, map.expression->text());
  }
}

// In double, or in int64 for integers; and how large the terms were.
void check_reduce(ReduceKind kind, DType dtype, const Shape& domain, std::vector<std::int64_t> axes, const AnyArray& x, bool channels_last = false) {
  Expression e;
  e.compute = compute_type(dtype);
  e.inputs = 1;
  e.outputs = {e.apply(ScalarOp::add, e.input(0), e.constant(1)), e.input(0)};
  const Reduce reduce{kind, std::make_shared<const Expression>(e), axes, domain, {e.compute, e.compute}};
  const auto got = run_kernel_on(DeviceKind::cuda, reduce, {x}, {.highest = KernelTier::reference, .channels_last = channels_last});
  const auto strides = x.shape().strides(), kept = got[0].shape().strides();
  visit_dtype(e.compute, [&]<class T>() {
    for (int o = 0; o < 2; ++o) {
      std::vector<double> want(static_cast<std::size_t>(got[0].shape().elements())), scale(want.size());
      std::vector<bool> seen(want.size());
      for (std::int64_t i = 0; i < domain.elements(); ++i) {
        std::int64_t rest = i, at = 0, offset = 0;
        std::size_t next = got[0].shape().rank();
        for (std::size_t axis = domain.rank(); axis-- > 0; rest /= domain[axis]) {
          const std::int64_t index = rest % domain[axis];
          if (x.shape()[axis] != 1) offset += index * strides[axis];
          if (std::find(axes.begin(), axes.end(), static_cast<std::int64_t>(axis)) == axes.end()) at += index * kept[--next];
        }
        const auto k = static_cast<std::size_t>(at);
        const double value = static_cast<double>(x.as<T>()[static_cast<std::size_t>(offset)]) + (o == 0 ? 1 : 0);
        want[k] = !seen[k]                  ? value
                  : kind == ReduceKind::sum ? want[k] + value
                  : kind == ReduceKind::min ? std::min(want[k], value)
                                            : std::max(want[k], value);
        scale[k] += std::abs(value);
        seen[k] = true;
      }
      const auto values = got[static_cast<std::size_t>(o)].as<T>();
      for (std::size_t k = 0; k < want.size(); ++k) {
        INFO(name_of(kind) << " of " << name_of(dtype) << domain.text() << ", element " << k);
        CHECK(std::abs(static_cast<double>(values[k]) - want[k]) <= (std::is_integral_v<T> ? 0 : scale[k] * 1e-6));
      }
    }
  });
}

template <class T>
void check_matmul(const Matmul& op, const MatmulExtents& e) {
  Shape a, b;
  if (e.batch > 1) a.push_back(e.batch), b.push_back(e.batch);
  a.push_back(op.transpose_a ? e.depth : e.rows), a.push_back(op.transpose_a ? e.rows : e.depth);
  b.push_back(op.transpose_b ? e.columns : e.depth), b.push_back(op.transpose_b ? e.depth : e.columns);
  const AnyArray x = random_values({dtype_of<T>, a}, 1), y = random_values({dtype_of<T>, b}, 2);
  const AnyArray got = run_kernel_on(DeviceKind::cuda, op, {x, y})[0];
  AnyArray want{got.type()};
  for (std::int64_t n = 0; n < e.batch; ++n)
    for (std::int64_t i = 0; i < e.rows; ++i)
      for (std::int64_t j = 0; j < e.columns; ++j) {
        double sum = 0;
        for (std::int64_t k = 0; k < e.depth; ++k)
          sum += static_cast<double>(x.as<T>()[static_cast<std::size_t>(
                     n * e.rows * e.depth + (op.transpose_a ? k * e.rows + i : i * e.depth + k))]) *
                 static_cast<double>(y.as<T>()[static_cast<std::size_t>(
                     n * e.depth * e.columns + (op.transpose_b ? j * e.depth + k : k * e.columns + j))]);
        want.as<T>()[static_cast<std::size_t>((n * e.rows + i) * e.columns + j)] = static_cast<T>(sum);
      }
  check_close(got, want, std::is_integral_v<T> ? 0 : 1e-4, "matmul of " + a.text() + " and " + b.text());
}

// Matrices that are repeated: a [2, 1, 5, 4] and b [3, 4, 6].
void check_broadcast_matmul() {
  const AnyArray a = random_values({DType::float32, {2, 1, 5, 4}}, 1), b = random_values({DType::float32, {3, 4, 6}}, 2);
  const AnyArray got = run_kernel_on(DeviceKind::cuda, Matmul{}, {a, b})[0];
  AnyArray want{{DType::float32, {2, 3, 5, 6}}};
  const auto x = a.as<float>(), y = b.as<float>();
  for (std::size_t n = 0; n < 6; ++n)
    for (std::size_t i = 0; i < 5; ++i)
      for (std::size_t j = 0; j < 6; ++j)
        for (std::size_t k = 0; k < 4; ++k)
          want.as<float>()[(n * 5 + i) * 6 + j] += x[(n / 3 * 5 + i) * 4 + k] * y[(n % 3 * 4 + k) * 6 + j];
  check_close(got, want, 1e-4, "matmul of batches that broadcast");
}

}  // namespace

TEST_CASE("every scalar operation on every compute type gives the CPU's values") {
  if (!gpu_is_here()) return;
  const Shape domain{300, 7};
  for (const auto compute : computes)
    for (auto code = static_cast<int>(ScalarOp::negate); code <= static_cast<int>(ScalarOp::multiply_add); ++code) {
      const auto op = static_cast<ScalarOp>(code);
      if (is_floating(compute) ? needs_integers(op) : needs_floating(op)) continue;
      Expression e;
      e.compute = compute;
      e.inputs = 3;
      e.outputs = {e.apply(op, e.input(0), operands_of(op) > 1 ? e.input(1) : std::uint16_t{0}, operands_of(op) > 2 ? e.input(2) : std::uint16_t{0})};
      const bool odd = !is_approximate(op);
      const std::vector<AnyArray> inputs{random_values({compute, domain}, 1, odd), random_values({compute, {7}}, 2, odd),
                                         random_values({compute, {300, 1}}, 3, odd)};
      check_map(e, domain, inputs, {compute}, odd || !is_floating(compute) ? 0 : compute == DType::float32 ? 2e-6
                                                                                                           : 1e-13);
    }
}

TEST_CASE("elements are converted between all types when loaded and stored") {
  if (!gpu_is_here()) return;
  for (const auto from : dtypes)
    for (const auto to : dtypes) {
      Expression e;
      e.compute = compute_type(from);
      e.inputs = 1;
      e.outputs = {e.input(0), e.constant(2), e.input(0)};
      check_map(e, {1000}, {random_values({from, {1000}}, 5)}, {to, to, from}, 0);
      e.compute = compute_type(to);
      e.outputs = {e.input(0)};
      check_map(e, {1000}, {random_values({from, {1000}}, 6)}, {to}, 0);
    }
}

TEST_CASE("operands of all broadcast shapes, many values alive, and outputs over inputs") {
  if (!gpu_is_here()) return;
  const Shape domain{3, 4, 5, 6};
  const Shape shapes[] = {{3, 4, 5, 6}, {}, {6}, {5, 1}, {4, 1, 6}, {3, 1, 1, 1}, {1, 1, 5, 6}, {3, 1, 5, 1}};
  Expression e;
  e.inputs = 8;
  std::vector<AnyArray> inputs;
  std::vector<std::uint16_t> alive;
  for (std::uint16_t i = 0; i < 8; ++i) {
    inputs.push_back(random_values({i % 3 == 2 ? DType::int32 : DType::float32, shapes[i]}, 30u + i));
    for (int turn = 0; turn < 5; ++turn) alive.push_back(e.apply(ScalarOp::multiply, e.input(i), e.constant(turn + 0.25)));
  }
  auto sum = alive[0];
  for (const auto value : alive) sum = e.apply(ScalarOp::add, sum, value);
  e.outputs = {sum, e.apply(ScalarOp::subtract, alive[7], alive[39]), e.input(0)};
  check_map(e, domain, inputs, {DType::float32, DType::float64, DType::float32}, 0);
  check_map(e, domain, inputs, {DType::float32, DType::float64, DType::float32}, 0, true);
  check_map(e, {0, 4, 5, 6},
            {random_values({DType::float32, {0, 4, 5, 6}}, 1), inputs[1], inputs[2], inputs[3], inputs[4], inputs[1],
             inputs[6], inputs[1]},
            {DType::float32, DType::float64, DType::float32}, 0);
}

TEST_CASE("expressions of more outputs and inputs than a launch has room for") {
  if (!gpu_is_here()) return;
  const Shape domain{70, 9};
  Expression e;
  e.inputs = 20;
  std::vector<AnyArray> inputs;
  for (std::uint16_t i = 0; i < 20; ++i) {
    inputs.push_back(random_values({DType::float32, i % 2 ? domain : Shape{9}}, 50u + i));
    e.outputs.push_back(e.apply(ScalarOp::multiply, e.input(i), e.input(static_cast<std::uint16_t>(i / 2))));
  }
  check_map(e, domain, inputs, std::vector<DType>(20, DType::float32), 0);
  const Reduce reduce{ReduceKind::max, std::make_shared<const Expression>(e), {0}, domain, std::vector<DType>(20, DType::float32)};
  const auto want = run_kernel_on(DeviceKind::cpu, reduce, inputs);
  const auto got = run_kernel_on(DeviceKind::cuda, reduce, inputs, {.highest = KernelTier::reference});
  for (std::size_t o = 0; o < want.size(); ++o) check_close(got[o], want[o], 0, "max of " + reduce.expression->text());
}

TEST_CASE("reductions over any axes, of few elements and of many blocks") {
  if (!gpu_is_here()) return;
  struct Case {
    Shape domain, x;
    std::vector<std::int64_t> axes;
  };
  const Case cases[] = {{{1000}, {1000}, {0}}, {{20000}, {20000}, {0}}, {{5, 40}, {5, 40}, {1}}, {{40, 5}, {40, 5}, {0}}, {{3, 7, 4099}, {3, 7, 4099}, {0, 2}}, {{70, 9}, {70, 9}, {1}}, {{4, 5, 6}, {4, 1, 6}, {1}}, {{6, 7}, {6, 7}, {}}, {{2, 3, 4, 50}, {2, 3, 4, 50}, {0, 1, 2, 3}}, {{0, 3}, {0, 3}, {1}}, {{3, 40, 6, 5}, {3, 40, 6, 5}, {0, 2, 3}}, {{2, 70, 8, 9}, {2, 70, 8, 9}, {2, 3}}, {{4100, 9}, {4100, 9}, {0}}, {{3, 8, 40, 40}, {1, 8, 40, 40}, {0, 2, 3}}, {{9, 5, 7, 1}, {9, 5, 7, 1}, {0}}};
  for (const auto& c : cases)
    for (const auto compute : computes)
      for (const auto kind : {ReduceKind::sum, ReduceKind::min, ReduceKind::max})
        for (const bool channels_last : {false, true})
          check_reduce(kind, compute, c.domain, c.axes, random_values({compute, c.x}, 9), channels_last);
  check_reduce(ReduceKind::sum, DType::float32, {4, 0}, {1}, AnyArray{{DType::float32, {4, 0}}});
}

TEST_CASE("products of matrices, transposed, in batches, of any extents") {
  if (!gpu_is_here()) return;
  const MatmulExtents cases[] = {{1, 1, 1, 1}, {1, 8, 1, 2}, {1, 64, 64, 16}, {1, 65, 130, 33}, {3, 17, 70, 5}, {1, 200, 3, 100}, {1, 4, 5, 0}};
  for (const auto& e : cases)
    for (const bool left : {false, true})
      for (const bool right : {false, true}) {
        check_matmul<float>({left, right}, e);
        check_matmul<double>({left, right}, e);
        check_matmul<std::int32_t>({left, right}, e);
      }
  check_broadcast_matmul();
}

TEST_CASE("a fold on the device has the host's bits") {
  if (!gpu_is_here()) return;
  for (const auto dtype : dtypes)
    for (const auto reduction : {Reduction::sum, Reduction::mean, Reduction::min, Reduction::max}) {
      const bool adds = reduction == Reduction::sum || reduction == Reduction::mean;
      if ((dtype == DType::boolean && adds) || (!is_floating(dtype) && reduction == Reduction::mean)) continue;
      const AnyArray left = random_values({dtype, {1001}}, 21, true), right = random_values({dtype, {1001}}, 22, true);
      AnyArray want = left, got = left;
      collectives::combine(dtype, reduction, want.data(), left.data(), right.data(), 1001);
      const Queue queue = device_queue();
      support_of(DeviceKind::cuda).enter(0);
      const DeviceBuffer a{left.size_bytes()}, b{right.size_bytes()}, apart{left.size_bytes()};
      queue.copy(a.data(), left.data(), left.size_bytes());
      queue.copy(b.data(), right.data(), right.size_bytes());
      for (auto* into : {apart.data(), b.data(), a.data()}) {
        support_of(DeviceKind::cuda).fold(queue.handle(), dtype, reduction, into, a.data(), b.data(), 1001);
        queue.copy(got.data(), into, got.size_bytes());
        if (into == b.data()) queue.copy(b.data(), right.data(), right.size_bytes());
        queue.synchronise();
        check_close(got, want, 0, std::string{name_of(reduction)} + " of " + std::string{name_of(dtype)});
      }
    }
}

TEST_CASE("the root of a mean on the device has the host's bits") {
  if (!gpu_is_here()) return;
  for (const auto dtype : {DType::float32, DType::float64, DType::bfloat16})
    for (const auto reduction : {Reduction::sum, Reduction::mean}) {
      const AnyArray root = random_values({dtype, {1001}}, 23, true);
      AnyArray want = root, got = root;
      collectives::finish_root(dtype, reduction, want.data(), 1001, 7);
      const Queue queue = device_queue();
      support_of(DeviceKind::cuda).enter(0);
      const DeviceBuffer values{root.size_bytes()};
      queue.copy(values.data(), root.data(), root.size_bytes());
      support_of(DeviceKind::cuda).peers->finish(queue.handle(), dtype, reduction, values.data(), 1001, 7);
      queue.copy(got.data(), values.data(), got.size_bytes());
      queue.synchronise();
      check_close(got, want, 0, std::string{name_of(reduction)} + " of " + std::string{name_of(dtype)});
    }
}

}  // namespace test_cuda_kernels
