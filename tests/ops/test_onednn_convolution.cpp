// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch.hpp>
#include <rapidcheck.h>

#include <cstring>

#include <replicator/cpu/onednn_convolution.hpp>

#include "../support/convolution.hpp"

namespace test_onednn_convolution {

using namespace replicator;
using namespace replicator::test;

namespace {
const EvaluateOptions library{.highest = KernelTier::library};

bool equal_bits(const AnyArray& a, const AnyArray& b) {
  return a.type() == b.type() && std::memcmp(a.data(), b.data(), a.size_bytes()) == 0;
}
}  // namespace

TEST_CASE("oneDNN computes convolution and both its transposes as defined, whatever the geometry") {
  REQUIRE(rc::check("few channels", [] {
    const auto c = draw_convolution({1, 2, 3, 8});
    RC_LOG(c.text());
    RC_ASSERT(convolution_error<float>(c, library) < 1e-5);
  }));
}

TEST_CASE("channels that do not fill the blocks of a layout change nothing and leave the padding zero") {
  for (const std::int64_t channels : {3, 10, 17, 64})
    for (const std::int64_t outputs : {10, 16, 33})
      for (const std::int64_t stride : {1, 2}) {
        const auto c = convolution_case({2, channels, 9, 7}, {outputs, channels, 3, 3},
                                        {.stride = {stride, stride}, .padding = {1, 1}});
        CAPTURE(c.text());
        CHECK(convolution_error<float>(c, library) < 1e-5);
      }
}

TEST_CASE("depthwise and grouped weights stay plain outside") {
  for (const std::int64_t groups : {2, 32}) {
    const auto c = convolution_case({2, 32, 8, 8}, {32, 32 / groups, 3, 3}, {.padding = {1, 1}, .groups = groups});
    CAPTURE(c.text());
    CHECK(convolution_error<float>(c, library) < 1e-5);
    const AnyOperation op = Convolution{c.options};
    const TensorType in[] = {{DType::float32, c.x}, {DType::float32, c.w}}, out[] = {{DType::float32, c.y}};
    const Layout offered[2];
    const auto executable = make_kernel(op, {op, in, out, offered, 1}, KernelTier::library);
    CHECK(executable->input_layouts[1].plain);
    CHECK(executable->output_layouts[0].blocks > 0);
  }
}

TEST_CASE("a layer takes its image in the layout in which the layer before it left it") {
  const auto first = convolution_case({2, 32, 8, 8}, {64, 32, 3, 3}, {.padding = {1, 1}});
  const auto second = convolution_case(first.y, {32, 64, 1, 1}, {});
  const auto make = [](const ConvolutionCase& c) {
    const AnyOperation op = Convolution{c.options};
    const TensorType in[] = {{DType::float32, c.x}, {DType::float32, c.w}}, out[] = {{DType::float32, c.y}};
    const Layout offered[2];
    return make_kernel(op, {op, in, out, offered, 1}, KernelTier::library);
  };
  CHECK(make(first)->output_layouts[0] == make(second)->input_layouts[0]);
}

TEST_CASE("the layouts that oneDNN chooses survive the way through core/layout.hpp") {
  using namespace cpu::onednn;
  const Shape shape{20, 10, 3, 3};
  for (const auto tag :
       {dnnl_nchw, dnnl_nChw16c, dnnl_nChw8c, dnnl_nhwc, dnnl_OIhw16i16o, dnnl_OIhw4i16o4i, dnnl_Oihw16o, dnnl_hwio}) {
    const auto memory = tagged(extents_of(shape), dnnl_f32, tag);
    const auto layout = layout_of(memory);
    REQUIRE(layout);
    CHECK(described(shape, dnnl_f32, *layout) == memory);
    CHECK(layout->plain == (tag == dnnl_nchw));
  }
}

TEST_CASE("equal convolutions give equal bits, from one primitive or another, at any address") {
  const auto c = convolution_case({4, 24, 14, 14}, {40, 24, 3, 3}, {.padding = {1, 1}});
  const auto x = random_array<float>(c.x, 1).any(), w = random_array<float>(c.w, 2).any(),
             dy = random_array<float>(c.y, 3).any();
  for (const int threads : {1, 2}) {
    auto options = library;
    options.threads = threads;
    const auto first = by_kernels(c, x, w, dy, options);
    std::vector<AnyArray> in_the_way;
    for (int i = 0; i < 5; ++i) {
      in_the_way.emplace_back(TensorType{DType::uint8, Shape{64 * (2 * i + 1)}});
      const auto again = by_kernels(c, x, w, dy, options);
      CHECK(equal_bits(first.y, again.y));
      CHECK(equal_bits(first.dx, again.dx));
      CHECK(equal_bits(first.dw, again.dw));
    }
  }
}

TEST_CASE("float64 is left to the loops") {
  const auto c = convolution_case({1, 3, 5, 5}, {4, 3, 3, 3}, {});
  CHECK(convolution_error<double>(c, library) < 1e-13);
}

}  // namespace test_onednn_convolution
