// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch.hpp>

#include <string>
#include <vector>

#include <replicator/models/sngan.hpp>

namespace test_sngan {

namespace rp = replicator;
using Catch::Matchers::Contains;

namespace {

struct Traced {
  rp::Graph graph{0, 4};
  rp::ReplicaContext replica{graph};

  template <class T>
  rp::Tensor<T> element(rp::Shape shape) {
    return rp::Tensor<T>{graph.tensor(graph.add({rp::detail::Input{rp::detail::Input::Source::element, elements++}, {}, {{rp::dtype_of<T>, shape}}, {}, {}}))};
  }
  std::int64_t trained() const {
    std::int64_t total = 0;
    for (const auto& variable : graph.variables()) total += variable.trainable ? variable.type.shape.elements() : 0;
    return total;
  }
  template <class Kind>
  int count() const {
    int found = 0;
    for (const auto& node : graph.nodes()) found += node.get<Kind>() ? 1 : 0;
    return found;
  }
  std::uint32_t elements = 0;
};

rp::Shape pictures_of(const rp::models::SnganOptions& options) {
  Traced traced;
  return rp::models::sngan_generator(traced.replica, traced.element<float>({2, 128}), traced.element<std::int32_t>({2}), options).shape();
}

}  // namespace

TEST_CASE("the networks for 32x32 pictures have the paper's layers and sizes") {
  const std::int64_t g = 256, d = 128, k = 10;
  Traced generator;
  const auto pictures = rp::models::sngan_generator(generator.replica, generator.element<float>({2, 128}), generator.element<std::int32_t>({2}));
  CHECK(pictures.shape() == rp::Shape{2, 3, 32, 32});
  const auto up = 2 * (9 * g * g + g) + (g * g + g) + 4 * k * g;  // two 3x3, a 1x1, gain and bias of every class twice
  CHECK(generator.trained() == 128 * 16 * g + 16 * g + 3 * up + 2 * g + 27 * g + 3);
  CHECK(generator.count<rp::detail::Placeholder>() == 2 * 7);  // mean and variance of each normalisation

  Traced discriminator;
  const auto scores = rp::models::sngan_discriminator(discriminator.replica, discriminator.element<float>({2, 3, 32, 32}),
                                                      discriminator.element<std::int32_t>({2}));
  CHECK(scores.shape() == rp::Shape{2});
  const auto first = 27 * d + d + 9 * d * d + d + 3 * d + d, plain = 2 * (9 * d * d + d), down = plain + d * d + d;
  CHECK(discriminator.trained() == first + down + 2 * plain + d + 1 + k * d);
  CHECK(discriminator.count<rp::detail::Placeholder>() == 0);
  CHECK(discriminator.count<rp::detail::Assign>() == 12);  // the singular vector of each weight: 9 + 1 of blocks, the linear one, the embedding
}

TEST_CASE("a discriminator that is not trained leaves its singular vectors, and statistics of replicas may be their own") {
  Traced traced;
  rp::models::sngan_discriminator(traced.replica, traced.element<float>({2, 3, 16, 16}), traced.element<std::int32_t>({2}),
                                  {.image_size = 16, .discriminator_channels = 4, .training = false});
  CHECK(traced.count<rp::detail::Assign>() == 0);
  Traced other;
  rp::models::sngan_generator(other.replica, other.element<float>({2, 8}), other.element<std::int32_t>({2}),
                              {.image_size = 16, .generator_channels = 4, .across_replicas = false});
  CHECK(other.count<rp::detail::Placeholder>() == 0);
}

TEST_CASE("pictures are as large as asked, and other sizes than powers of two are refused") {
  for (const std::int64_t size : {16, 64}) CHECK(pictures_of({.image_size = size, .generator_channels = 4}) == rp::Shape{2, 3, size, size});
  for (const std::int64_t size : {8, 48, 0}) CHECK_THROWS_WITH(pictures_of({.image_size = size}), Contains("found " + std::to_string(size) + " pixels"));
  CHECK_THROWS_WITH(pictures_of({.classes = 0}), Contains("0 classes"));
}

}  // namespace test_sngan
