// SPDX-License-Identifier: Apache-2.0
// Arrays over borrowed memory.
#include <catch2/catch.hpp>

#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include <replicator/replicator.hpp>

#include "../replicate/deployments.hpp"

namespace test_borrowed {

using namespace replicator;
using namespace replicator::detail;
using test::error_of;
using test::on_devices;

TEST_CASE("a borrowed array views the memory, keeps its owner, and lets go of it with the last of those moved from it") {
  const auto owner = std::make_shared<std::vector<float>>(6, 1.0f);
  {
    auto array = Array<float>::borrow({2, 3}, owner->data(), owner);
    CHECK(array.data() == owner->data());
    CHECK(owner.use_count() == 2);
    array[5] = 7;
    CHECK((*owner)[5] == 7);
    const Array<float> moved = std::move(array);
    CHECK(owner.use_count() == 2);
    const AnyArray copy = moved.any();
    CHECK(owner.use_count() == 2);
    CHECK(copy.data() != moved.any().data());
    CHECK(copy.as<float>()[5] == 7);
  }
  CHECK(owner.use_count() == 1);
}

TEST_CASE("without an owner a borrowed array leaves the memory alone") {
  std::vector<std::int32_t> memory{1, 2, 3};
  { const auto array = Array<std::int32_t>::borrow({3}, memory.data()); }
  CHECK(memory == std::vector<std::int32_t>{1, 2, 3});
}

TEST_CASE("memory that is missing or not aligned to its elements cannot be borrowed") {
  alignas(8) std::byte bytes[16];
  CHECK(error_of([&] { AnyArray::borrow({DType::float32, {2}}, bytes + 1); }) ==
        "an array of float32[2] cannot borrow memory that is not aligned to its elements: copy it");
  CHECK(error_of([&] { AnyArray::borrow({DType::float32, {2}}, nullptr); }) == "an array of float32[2] cannot borrow from a null pointer");
}

TEST_CASE("steps read borrowed memory at any offset and give the bits that owned arrays give") {
  std::vector<float> memory(1000);
  std::iota(memory.begin(), memory.end(), 0.5f);
  const auto run = [&](bool borrowed, int devices) {
    Replicator repl{on_devices(3, devices)};
    auto step = repl.replicate(
        [&](const InputContext& ctx) {
          std::vector<Array<float>> inputs;
          for (std::int64_t i = 0; i < 4; ++i) {
            float* at = memory.data() + 200 * ctx.replica() + 7 * i + 1;
            inputs.push_back(borrowed ? Array<float>::borrow({5, 13}, at) : Array<float>{{5, 13}, std::span<const float>{at, 65}});
          }
          return inputs | data::prefetch(2);
        },
        [](ReplicaContext&, Tensor<float> x) {
          return std::tuple{all_reduce(matmul(transpose(x, {1, 0}), x / 3.0f), Reduction::sum), exp(x * 0.001f)};
        });
    std::vector<float> found(3 * (13 * 13 + 65));
    for (auto [square, e] : step.steps(10)) {
      copy_to(square, std::span{found}.first(3 * 169));
      copy_to(e, std::span{found}.last(3 * 65));
    }
    return found;
  };
  const auto expected = run(false, 1);
  CHECK(expected[0] != 0);
  CHECK(run(true, 1) == expected);
  CHECK(run(true, 2) == expected);
}

TEST_CASE("results are written into the caller's memory only where it has the right size") {
  Replicator repl{on_devices(2, 1)};
  auto step = repl.replicate([](const InputContext& ctx) { return std::vector<Array<float>>(1, Array<float>{{2}, {1.0f + ctx.replica(), 5}}); },
                             [](ReplicaContext&, Tensor<float> x) { return x; });
  const auto x = std::get<0>(step.step());
  std::vector<float> out(4);
  copy_to(x, std::span{out});
  CHECK(out == std::vector<float>{1, 5, 2, 5});
  CHECK(error_of([&] { copy_to(x, std::span{out}.first(3)); }) ==
        "copy_to: the results have 4 elements on this host, and the memory given has room for 3");
}

}  // namespace test_borrowed
