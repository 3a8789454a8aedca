// SPDX-License-Identifier: Apache-2.0
#include <rapidcheck.h>
#include <catch2/catch.hpp>

#include <array>
#include <cstring>
#include <map>
#include <string>
#include <string_view>

#include <replicator/cpu/loops/tile_loops.hpp>
#include <replicator/cpu/onednn/onednn_convolution.hpp>
#include <replicator/graph/choose_kernel.hpp>

#include "../support/convolution.hpp"

namespace test_onednn_convolution {

using namespace replicator;
using namespace replicator::detail;
using namespace replicator::test;

namespace {
const EvaluateOptions library{.highest = KernelTier::library};

// What computes each of the three operations of a convolution.
std::array<std::string_view, 3> kernels_of(const ConvolutionCase& c, const KernelChoice& choice) {
  const auto name = [&](const AnyOperation& op, const Shape& a, const Shape& b, const Shape& result) {
    const TensorType in[] = {{DType::float32, a}, {DType::float32, b}}, out[] = {{DType::float32, result}};
    const Layout offered[2];
    return make_executable(DeviceKind::cpu, {op, in, out, offered, 1, choice})->kernel;
  };
  return {name(Convolution{c.options}, c.x, c.w, c.y), name(ConvolutionBackwardData{c.options, c.x}, c.y, c.w, c.x),
          name(ConvolutionBackwardWeights{c.options, c.w}, c.x, c.y, c.w)};
}
const std::array<std::string_view, 3> direct{"oneDNN convolution", "oneDNN convolution backward data", "oneDNN convolution backward weights"};
constexpr KernelChoice allowed{.winograd = true};
// oneDNN 3 has it no more.
bool has_winograd() { return DNNL_VERSION_MAJOR == 2 && cpu::instruction_level() == cpu::InstructionLevel::avx512; }

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

TEST_CASE("by Winograd's algorithm a convolution and both its transposes are within 3e-5 of the scale of their results, by sums of products within 1e-5") {
  const auto c = GENERATE(convolution_case({64, 32, 3, 3}, {32, 32, 3, 3}, {.padding = {1, 1}}),
                          convolution_case({64, 33, 4, 5}, {47, 33, 3, 3}, {.padding = {0, 1}}),
                          convolution_case({16, 50, 7, 8}, {32, 50, 3, 3}, {.padding = {1, 0}}),
                          convolution_case({4, 64, 14, 13}, {48, 64, 3, 3}, {.padding = {1, 1}}),
                          convolution_case({1, 40, 31, 35}, {35, 40, 3, 3}, {.padding = {0, 0}}));
  const int threads = GENERATE(1, 2, 3);
  CAPTURE(c.text(), threads);
  if (has_winograd())
    for (const auto name : kernels_of(c, allowed)) CHECK_THAT(std::string{name}, Catch::EndsWith(" (Winograd)"));
  const auto x = random_array<float>(c.x, 1).any(), w = random_array<float>(c.w, 2).any(), dy = random_array<float>(c.y, 3).any();
  static std::map<std::string, ConvolutionResults> known;
  auto& expected = known[c.text()];
  if (expected.y.size_bytes() == 0) expected = by_definition(c, x, w, dy);
  for (const bool winograd : {true, false}) {
    auto options = library;
    options.threads = threads;
    options.choice.winograd = winograd;
    const auto found = by_kernels(c, x, w, dy, options);
    const double bound = winograd ? 3e-5 : 1e-5;
    CHECK(difference_to_scale(found.y, expected.y) < bound);
    CHECK(difference_to_scale(found.dx, expected.dx) < bound);
    CHECK(difference_to_scale(found.dw, expected.dw) < bound);
  }
}

TEST_CASE("Winograd's algorithm is taken where it is allowed, and tiles and channels are enough for it") {
  const ConvolutionOptions padded{.padding = {1, 1}};
  const auto enough = convolution_case({16, 32, 8, 8}, {32, 32, 3, 3}, padded);
  if (has_winograd()) CHECK(kernels_of(enough, allowed)[0] == "oneDNN convolution (Winograd)");
  CHECK(kernels_of(enough, {}) == direct);
  for (const auto& c : {convolution_case({15, 32, 8, 8}, {32, 32, 3, 3}, padded), convolution_case({16, 31, 8, 8}, {32, 31, 3, 3}, padded),
                        convolution_case({16, 32, 8, 8}, {31, 32, 3, 3}, padded), convolution_case({16, 32, 8, 8}, {32, 32, 3, 1}, padded),
                        convolution_case({16, 32, 8, 8}, {32, 32, 5, 5}, {.padding = {2, 2}}),
                        convolution_case({64, 32, 8, 8}, {32, 32, 3, 3}, {.stride = {1, 2}, .padding = {1, 1}}),
                        convolution_case({64, 32, 8, 8}, {32, 32, 3, 3}, {.padding = {2, 2}, .dilation = {2, 2}}),
                        convolution_case({64, 32, 8, 8}, {32, 32, 3, 3}, {.padding = {{0, 0}, {1, 0}}}),
                        convolution_case({16, 64, 8, 8}, {64, 32, 3, 3}, {.padding = {1, 1}, .groups = 2})}) {
    CAPTURE(c.text());
    CHECK(kernels_of(c, allowed) == direct);
  }
}

TEST_CASE("weights of depthwise windows above 3 x 3 have a kernel of their own, with the bits of any number of threads") {
  const auto depthwise = [](Shape x, Shape window, ConvolutionOptions options) {
    options.groups = x[1];
    return convolution_case(x, {x[1], 1, window[0], window[1]}, options);
  };
  for (const auto& c : {depthwise({2, 32, 9, 11}, {7, 7}, {.padding = {3, 3}}), depthwise({3, 16, 10, 8}, {5, 5}, {.stride = {2, 2}, .padding = {2, 2}}),
                        depthwise({1, 48, 4, 3}, {7, 5}, {.padding = {3, 2}}), depthwise({2, 16, 13, 12}, {4, 4}, {.padding = {{0, 3}, {2, 1}}}),
                        depthwise({2, 16, 12, 30}, {2, 11}, {.padding = {0, 5}}), depthwise({1, 16, 20, 21}, {5, 3}, {.stride = {1, 3}, .padding = {2, 3}, .dilation = {2, 3}}),
                        depthwise({1, 16, 1, 2}, {5, 5}, {.padding = {4, 4}})}) {
    CAPTURE(c.text());
    const auto x = random_array<float>(c.x, 1).any(), w = random_array<float>(c.w, 2).any(), dy = random_array<float>(c.y, 3).any();
    const auto expected = by_definition(c, x, w, dy);
    const bool own = cpu::instruction_level() >= cpu::InstructionLevel::avx2;
    CHECK((kernels_of(c, {})[2] == "depthwise weights") == own);
    const auto once = by_kernels(c, x, w, dy, library);
    CHECK(difference_to_scale(once.dw, expected.dw) < 1e-5);
    for (const int threads : {2, 3, 5}) {
      auto options = library;
      options.threads = threads;
      if (own) CHECK(equal_bits(by_kernels(c, x, w, dy, options).dw, once.dw));
    }
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
  const auto c = GENERATE(convolution_case({4, 24, 14, 14}, {40, 24, 3, 3}, {.padding = {1, 1}}),
                          convolution_case({4, 40, 14, 14}, {40, 40, 3, 3}, {.padding = {1, 1}}));  // by Winograd's algorithm
  const auto x = random_array<float>(c.x, 1).any(), w = random_array<float>(c.w, 2).any(),
             dy = random_array<float>(c.y, 3).any();
  for (const int threads : {1, 2}) {
    auto options = library;
    options.threads = threads;
    options.choice = allowed;
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
