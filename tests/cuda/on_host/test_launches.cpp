// SPDX-License-Identifier: Apache-2.0
// Counts the launches of reductions.
#include "../device_run.hpp"

#include <utility>

#include <replicator/graph/map_gradient.hpp>

#include "launch.hpp"

namespace {

using namespace replicator;
using namespace replicator::detail;
using namespace replicator::test;

}  // namespace

TEST_CASE("a reduction is one launch, however many blocks its output elements have") {
  Expression e;
  e.inputs = 1;
  const auto x = e.input(0);
  e.outputs = {x, e.apply(ScalarOp::multiply, x, x)};
  const std::pair<Shape, std::int64_t> cases[] = {{{3, 20}, 1}, {{3, 4000}, 1}, {{3, 20000}, 1}, {{4000, 40}, 0}, {{20000, 40}, 0}};
  for (const auto& [shape, axis] : cases) {
    const auto before = on_host::launches;
    (void)run_kernel_on(DeviceKind::cuda, Reduce{ReduceKind::sum, std::make_shared<const Expression>(e), {axis}, shape, {DType::float32, DType::float32}},
                        {random_values({DType::float32, shape}, 1)});
    CHECK(on_host::launches - before == 3);  // it is replayed twice
  }
}
