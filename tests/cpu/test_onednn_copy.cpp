// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch.hpp>

#include <replicator/cpu/copy.hpp>
#include <replicator/cpu/onednn/onednn_copy.hpp>

#include "copy_cases.hpp"

namespace test_onednn_copy {

using namespace replicator;
using namespace replicator::detail;
using namespace replicator::test;

namespace {

// By oneDNN; null where it leaves the copy to the loops. Of processors that it is for, unless said otherwise.
std::unique_ptr<Executable> reorder(const Shape& shape, DType dtype, const Layout& from, const Layout& to, int threads = 1,
                                    cpu::InstructionLevel level = cpu::InstructionLevel::avx2) {
  const AnyOperation operation = LayoutCopy{to};
  const TensorType type{dtype, shape};
  return cpu::onednn::make_reorder_at(level, {operation, {&type, 1}, {&type, 1}, {&from, 1}, threads});
}

Layout weights_layout(const Shape& shape, dnnl_format_tag_t tag) {
  return *cpu::onednn::layout_of(cpu::onednn::tagged(cpu::onednn::extents_of(shape), dnnl_bf16, tag));
}

// One of those that oneDNN has a name for.
Layout named_layout(const Shape& shape) {
  for (;;) {
    const auto tag = static_cast<dnnl_format_tag_t>(draw(dnnl_format_tag_any + 1, dnnl_format_tag_last));
    const auto memory = cpu::onednn::tagged(cpu::onednn::extents_of(shape), dnnl_f32, tag);
    if (const auto layout = memory.get() ? cpu::onednn::layout_of(memory) : std::nullopt) return *layout;
  }
}

}  // namespace

TEST_CASE("oneDNN's copies into any layout that it has a name for move the bits of every element and write zero where padding is") {
  CHECK(rc::check([] {
    static const Shape shapes[] = {{1}, {37}, {5, 7}, {32, 48}, {2, 20, 5, 3}, {2, 32, 7, 7}, {33, 17, 3, 3}, {2, 3, 4, 5, 6}};
    for (int repeat = 0; repeat < 10; ++repeat) {
      const Shape& shape = shapes[draw(0, static_cast<int>(std::size(shapes)))];
      const DType dtype = draw(0, 2) == 0 ? DType::float32 : DType::bfloat16;
      const Layout from = named_layout(shape), to = named_layout(shape);
      if (const auto copy = reorder(shape, dtype, from, to)) RC_ASSERT(copies(*copy, shape, dtype, from, to));
      else RC_ASSERT(to.plain);
    }
  }));
}

TEST_CASE("weights go into the blocks of convolutions by oneDNN, under one thread and three") {
  for (const Shape& shape : {Shape{64, 32, 3, 3}, Shape{40, 3, 7, 7}, Shape{130, 70, 1, 1}})
    for (const auto tag : {dnnl_OIhw16i16o, dnnl_OIhw16o16i, dnnl_OIhw8i16o2i, dnnl_OIhw8o16i2o, dnnl_hwio})
      for (const DType dtype : {DType::float32, DType::bfloat16})
        for (const int threads : {1, 3}) {
          const Layout blocked = weights_layout(shape, tag);
          const auto copy = reorder(shape, dtype, {}, blocked, threads);
          REQUIRE(copy);
          CHECK(copies(*copy, shape, dtype, {}, blocked));
        }
}

TEST_CASE("with AVX-512 what goes in rectangles is left to the loops, and oneDNN has the rest") {
  const auto on_avx512 = [](const Shape& shape, DType dtype, const Layout& to) { return reorder(shape, dtype, {}, to, 1, cpu::InstructionLevel::avx512); };
  const Shape weights{64, 32, 3, 3}, pictures{64, 3, 7, 7};
  for (const auto tag : {dnnl_OIhw8i16o2i, dnnl_OIhw8o16i2o}) CHECK(!on_avx512(weights, DType::bfloat16, weights_layout(weights, tag)));
  CHECK(!on_avx512(weights, DType::float32, weights_layout(weights, dnnl_OIhw16i16o)));
  CHECK(on_avx512(pictures, DType::bfloat16, weights_layout(pictures, dnnl_OIhw8i16o2i)));
}

TEST_CASE("other types, tensors without elements, blocks without a name and copies to plain memory are left to the loops") {
  const Shape shape{32, 16, 3, 3};
  CHECK(!reorder(shape, DType::float32, {}, weight_blocks(shape, {{0, 3}})));
  for (const DType dtype : {DType::float64, DType::int32, DType::uint8}) CHECK(!reorder(shape, dtype, {}, blocked(shape, 1, 16)));
  CHECK(!reorder({0, 16}, DType::float32, {}, blocked({0, 16}, 1, 16)));
  CHECK(!reorder({}, DType::float32, {}, {}));
  CHECK(!reorder(shape, DType::float32, blocked(shape, 1, 16), {}));
}

}  // namespace test_onednn_copy
