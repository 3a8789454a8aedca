// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch.hpp>

#include <cstdint>
#include <limits>
#include <utility>

#include <replicator/core/array.hpp>
#include <replicator/core/shape.hpp>

namespace test_shape {

using namespace replicator;
using namespace replicator::detail;

namespace {
constexpr std::int64_t huge = std::numeric_limits<std::int64_t>::max();
}

TEST_CASE("elements are counted up to 2^59 - 1; beyond, the error names the shape") {
  CHECK(Shape{}.elements() == 1);
  CHECK(Shape{2, 3, 4}.elements() == 24);
  CHECK(Shape{7, 0, 5}.elements() == 0);
  CHECK(Shape{Shape::max_elements}.elements() == Shape::max_elements);
  CHECK(TensorType{DType::float64, {Shape::max_elements}}.bytes() == std::size_t{8} * Shape::max_elements);
  CHECK_THROWS_WITH((Shape{std::int64_t{1} << 30, std::int64_t{1} << 29}.elements()),
                    "a tensor of shape [1073741824, 536870912] has more than 2^59 - 1 elements: one of these extents must be wrong");
  // Products that would wrap around to something small, or to a negative number.
  for (const Shape& shape : {Shape{std::int64_t{1} << 32, std::int64_t{1} << 32}, Shape{huge, 2}, Shape{huge, huge, 3},
                             Shape{3, std::int64_t{1} << 62, 4}, Shape{huge}}) {
    INFO(shape.text());
    CHECK(shape.too_large());
    CHECK_THROWS_AS(shape.elements(), BuildError);
    CHECK_THROWS_AS((TensorType{DType::boolean, shape}.bytes()), BuildError);
    CHECK_THROWS_WITH(Array<float>{shape}, Catch::Contains("a tensor of shape " + shape.text() + " has more than"));
  }
}

TEST_CASE("axes count from either end, and one that is not there is named") {
  Shape shape{4, 2, 3};
  CHECK(shape[0] == 4);
  CHECK(shape[-1] == 3);
  CHECK(shape[-3] == 4);
  shape[-1] = 5;
  CHECK(shape == Shape{4, 2, 5});
  CHECK_THROWS_WITH(shape[3], "asked for axis 3 of the shape [4, 2, 5], which has 3: axes count from 0, or from -1 at the end");
  CHECK_THROWS_WITH(shape[-4], Catch::StartsWith("asked for axis -4 of the shape [4, 2, 5]"));
}

TEST_CASE("an empty extent hides no others whose strides cannot be counted") {
  CHECK_THROWS_AS((Shape{0, huge, huge}.elements()), BuildError);
  CHECK_FALSE(Shape{0, Shape::max_elements}.too_large());
}

TEST_CASE("an array without memory has no elements") {
  CHECK(AnyArray{}.as<float>().empty());
  AnyArray full{{DType::int32, Shape{3}}};
  CHECK(full.as<std::int32_t>().size() == 3);
  const AnyArray taken = std::move(full);
  CHECK(full.as<std::int32_t>().empty());
  CHECK(taken.as<std::int32_t>().size() == 3);
}

TEST_CASE("at() gives the element with one index for each axis, and names one that does not exist") {
  Array<float> a{{2, 3}, {1, 2, 3, 4, 5, 6}};
  CHECK(a.at(1, 0) == 4);
  a.at(0, 2) = 7;
  CHECK(std::as_const(a).at(0, 2) == 7);
  CHECK(Array<float>{{}, {5}}.at() == 5);
  CHECK_THROWS_WITH(a.at(0, 3), "at(0, 3) asks for an element that an array of shape [2, 3] does not have");
  CHECK_THROWS_WITH(a.at(-1, 0), Catch::StartsWith("at(-1, 0) asks"));
  CHECK_THROWS_WITH(a.at(1), Catch::StartsWith("at(1) asks"));
  CHECK_THROWS_WITH(Array<float>{}.at(), Catch::StartsWith("at() asks"));
}

}  // namespace test_shape
