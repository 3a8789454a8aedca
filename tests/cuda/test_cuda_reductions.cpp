// SPDX-License-Identifier: Apache-2.0
// The order in which GPUs combine the elements of a reduction, against that order written as plain recursion. Interpreted and
// compiled reductions have its bits, however many elements a thread loads at once.
#include "device_run.hpp"

#include <bit>
#include <span>

#include <replicator/cpu/map.hpp>
#include <replicator/cpu/reduce.hpp>
#include <replicator/graph/map_gradient.hpp>

namespace test_cuda_reductions {

using namespace replicator;
using namespace replicator::detail;
using namespace replicator::test;

namespace {

using Values = std::vector<double>;  // of the compute type

// One addition of the compute type, or a minimum or maximum of plain numbers.
double combined(ReduceKind kind, DType compute, double a, double b) {
  if (kind == ReduceKind::sum) return compute == DType::float32 ? static_cast<float>(a) + static_cast<float>(b) : a + b;
  return kind == ReduceKind::min ? std::min(a, b) : std::max(a, b);
}

// The order of rtc/reduction.cuh.
class Order {
 public:
  Order(ReduceKind kind, DType compute, bool columns) : kind_{kind}, compute_{compute}, columns_{columns} {}

  double all(const Values& values) const {
    if (values.size() <= 32) return in_turn(values);
    Values blocks;
    for (std::size_t begin = 0; begin < values.size(); begin += 4096)
      blocks.push_back(block({values.begin() + static_cast<std::ptrdiff_t>(begin), values.begin() + static_cast<std::ptrdiff_t>(std::min(begin + 4096, values.size()))}));
    return counted(blocks);
  }

 private:
  double both(double a, double b) const { return combined(kind_, compute_, a, b); }
  double in_turn(const Values& values) const {
    double result = values[0];
    for (std::size_t i = 1; i < values.size(); ++i) result = both(result, values[i]);
    return result;
  }
  // The left part has the largest power of two of values that is not all of them.
  double counted(std::span<const double> values) const {
    if (values.size() == 1) return values[0];
    const std::size_t left = std::bit_floor(values.size() - 1);
    return both(counted(values.first(left)), counted(values.subspan(left)));
  }
  double block(const Values& values) const {
    const std::size_t chains = columns_ ? 16 : 256;
    std::vector<Values> of_chains(std::min(chains, values.size()));
    for (std::size_t j = 0; j < values.size(); ++j) of_chains[j % chains].push_back(values[j]);
    Values results;
    for (const auto& chain : of_chains) results.push_back(in_turn(chain));
    if (columns_) return halved(results);
    Values trees;
    for (std::size_t first = 0; first < results.size(); first += 32) trees.push_back(counted(std::span{results}.subspan(first, std::min<std::size_t>(32, results.size() - first))));
    return in_turn(trees);
  }
  // Up to 16 chains: the first half with the second half, again and again.
  double halved(Values results) const {
    for (std::size_t half = 8; half > 0; half /= 2)
      for (std::size_t i = 0; i < half && i + half < results.size(); ++i) results[i] = both(results[i], results[i + half]);
    return results[0];
  }

  ReduceKind kind_;
  DType compute_;
  bool columns_;
};

struct Case {
  Shape shape;                     // two axes
  std::vector<std::int64_t> axes;  // {1}: rows; {0}: columns
  DType dtype = DType::float32;    // of x
  ReduceKind kind = ReduceKind::sum;
};

// Of x, and of x y where y has an element for each output element.
void check_order(const Case& c) {
  const auto rows = static_cast<std::size_t>(c.shape[0]), columns = static_cast<std::size_t>(c.shape[1]);
  const bool over_rows = c.axes[0] == 0;
  Expression e;
  e.compute = compute_type(c.dtype);
  e.inputs = 2;
  const auto x = e.input(0), y = e.input(1);
  e.outputs = {x, e.apply(ScalarOp::multiply, x, y)};
  const Reduce reduce{c.kind, std::make_shared<const Expression>(e), c.axes, c.shape, {e.compute, e.compute}};
  const AnyArray xs = random_values({c.dtype, c.shape}, rows * 31 + columns);
  const AnyArray ys = random_values({e.compute, over_rows ? Shape{c.shape[1]} : Shape{c.shape[0], 1}}, columns);
  const auto at = [](const AnyArray& array, std::size_t i) {
    double value = 0;
    visit_dtype(array.dtype(), [&]<class T>() { value = static_cast<double>(array.as<T>()[i]); });
    return value;
  };
  const std::size_t kept = over_rows ? columns : rows, reduced = over_rows ? rows : columns;
  const Order order{c.kind, e.compute, over_rows && kept >= 8};
  for (const auto tier : {KernelTier::reference, KernelTier::compiled}) {
    if (!kernels<Reduce>::slot[static_cast<std::size_t>(DeviceKind::cuda)][static_cast<std::size_t>(tier)].load()) continue;
    const auto got = run_kernel_on(DeviceKind::cuda, reduce, {xs, ys}, {.highest = tier, .lowest = tier});
    for (std::size_t k = 0; k < kept; ++k) {
      Values of_x, of_product;
      for (std::size_t j = 0; j < reduced; ++j) {
        of_x.push_back(at(xs, over_rows ? j * columns + k : k * columns + j));
        const double product = of_x.back() * at(ys, k);
        of_product.push_back(e.compute == DType::float32 ? static_cast<float>(product) : product);
      }
      INFO(name_of(c.kind) << " of " << name_of(c.dtype) << c.shape.text() << " over axis " << c.axes[0] << ", element " << k << ", tier " << static_cast<int>(tier));
      REQUIRE(at(got[0], k) == order.all(of_x));
      REQUIRE(at(got[1], k) == order.all(of_product));
    }
  }
}

}  // namespace

TEST_CASE("the elements of a row are combined in 256 chains of each 4,096, then the blocks in a tree") {
  if (!gpu_is_here()) return;
  for (const std::int64_t reduced : {1, 32, 33, 40, 255, 1000, 4096, 4097, 4104, 8192, 12289})
    for (const std::int64_t kept : {1, 3}) check_order({{kept, reduced}, {1}});
}

TEST_CASE("the elements of neighbouring columns are combined in 16 chains of each 4,096, then the blocks in a tree") {
  if (!gpu_is_here()) return;
  for (const std::int64_t kept : {7, 8, 31, 64, 66})
    for (const std::int64_t reduced : {20, 33, 47, 4100, 13000}) check_order({{reduced, kept}, {0}});
}

TEST_CASE("elements of every size are combined in the same order, whatever the kind") {
  if (!gpu_is_here()) return;
  const auto check_both = [](DType dtype, ReduceKind kind, std::int64_t odd) {
    check_order({{2, 4200 + odd}, {1}, dtype, kind});
    check_order({{4200, 40 + odd}, {0}, dtype, kind});
  };
  for (const auto dtype : {DType::float64, DType::bfloat16, DType::int32, DType::uint8})
    for (const std::int64_t odd : {0, 1}) check_both(dtype, ReduceKind::sum, odd);
  for (const auto kind : {ReduceKind::min, ReduceKind::max}) check_both(DType::bfloat16, kind, 0);
}

TEST_CASE("a tree over many blocks has the binary counter's order: 784 of them, as for the first images of a ResNet-50") {
  if (!gpu_is_here()) return;
  for (const std::int64_t blocks : {17, 784}) check_order({{1, blocks * 4096 - 8}, {1}});
  check_order({{40 * 4096 - 8, 8}, {0}, DType::bfloat16});
}

TEST_CASE("the parts of an expression with too many outputs for the interpreter have counters of their own") {
  if (!gpu_is_here()) return;
  Expression e;
  e.inputs = 2;
  const auto x = e.input(0), y = e.input(1);
  for (int i = 0; i < 10; ++i) e.outputs.push_back(e.apply(ScalarOp::multiply, i % 2 ? x : y, e.constant(1 << i)));
  const Shape shape{2, 9000};
  const std::vector<AnyArray> inputs{random_values({DType::float32, shape}, 1), random_values({DType::float32, shape}, 2)};
  const auto reduce = [&](Expression of) {
    const std::vector<DType> dtypes(of.outputs.size(), DType::float32);
    return Reduce{ReduceKind::sum, std::make_shared<const Expression>(std::move(of)), {1}, shape, dtypes};
  };
  Expression two = e;
  two.outputs.resize(2);  // y, and 2 x
  const auto all = run_kernel_on(DeviceKind::cuda, reduce(e), inputs, {.highest = KernelTier::reference});
  const auto some = run_kernel_on(DeviceKind::cuda, reduce(two), inputs, {.highest = KernelTier::reference});
  for (std::size_t i = 0; i < all.size(); ++i)
    for (std::size_t k = 0; k < 2; ++k) CHECK(all[i].as<float>()[k] == some[i % 2].as<float>()[k] * static_cast<float>(1 << (i - i % 2)));
}

}  // namespace test_cuda_reductions
