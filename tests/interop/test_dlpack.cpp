// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch.hpp>

#include <cstring>
#include <string>
#include <vector>

#include <replicator/io/dlpack.hpp>
#include <replicator/io/dlpack_exchange.hpp>

#include "../replicate/deployments.hpp"

namespace test_dlpack {

using namespace replicator;
using namespace replicator::detail;
using test::error_of;

namespace {

// A tensor of somebody else's, which counts how often it was deleted.
struct Foreign {
  std::vector<float> memory;
  std::vector<std::int64_t> shape, strides;
  int deleted = 0;
  dlpack::ManagedVersioned managed;

  Foreign(std::vector<std::int64_t> extents, std::vector<std::int64_t> steps) : memory(24), shape{std::move(extents)}, strides{std::move(steps)} {
    for (std::size_t i = 0; i < memory.size(); ++i) memory[i] = static_cast<float>(i);
    managed.version = {1, 3};
    managed.context = this;
    managed.deleter = [](dlpack::ManagedVersioned* self) { ++static_cast<Foreign*>(self->context)->deleted; };
    managed.tensor = {memory.data(),
                      {},
                      static_cast<std::int32_t>(shape.size()),
                      {2, 32, 1},
                      shape.data(),
                      strides.empty() ? nullptr : strides.data(),
                      0};
  }
};

std::vector<float> values(const AnyArray& array) {
  const auto all = array.as<float>();
  return {all.begin(), all.end()};
}

}  // namespace

TEST_CASE("an array goes out and comes back without being copied, whatever its type") {
  const auto round = [](AnyArray array) {
    const std::byte* const data = array.data();
    const TensorType type = array.type();
    const AnyArray back = from_dlpack(to_dlpack(array).release());
    CHECK(back.type() == type);
    CHECK(std::memcmp(back.data(), data, array.size_bytes()) == 0);
    const AnyArray moved = from_dlpack(to_dlpack_unversioned(std::move(array)).release());
    CHECK(moved.data() == data);
    CHECK(moved.type() == type);
  };
  round(Array<float>{{2, 3}, {1, 2, 3, 4, 5, 6}}.any());
  round(Array<double>{{}, {0.5}}.any());
  round(Array<std::int32_t>{{2}, {1, -1}}.any());
  round(Array<std::int64_t>{{1, 1}, {7}}.any());
  round(Array<std::uint8_t>{{2}, {1, 255}}.any());
  round(Array<bool>{{2}, {true, false}}.any());
  round(Array<bfloat16>{{2}, {1.5f, -0.1f}}.any());
}

TEST_CASE("an exported array says where its elements lie, and goes away with its taker") {
  const auto tensor = to_dlpack(Array<float>{{2, 3}, {1, 2, 3, 4, 5, 6}}.any());
  CHECK((tensor->version.major == 1 && tensor->flags == 0));
  CHECK((tensor->tensor.device.type == 1 && tensor->tensor.rank == 2 && tensor->tensor.byte_offset == 0));
  CHECK((tensor->tensor.dtype.code == 2 && tensor->tensor.dtype.bits == 32 && tensor->tensor.dtype.lanes == 1));
  CHECK((tensor->tensor.shape[1] == 3 && tensor->tensor.strides[0] == 3 && tensor->tensor.strides[1] == 1));
  CHECK(static_cast<const float*>(tensor->tensor.data)[5] == 6);
  CHECK_THAT(error_of([] { to_dlpack(AnyArray{}); }), Catch::StartsWith("to_dlpack: the array has no memory: it was made without a shape, or moved from"));
}

TEST_CASE("dense memory is borrowed, and given back with the last use") {
  Foreign foreign{{2, 3}, {3, 1}};
  foreign.managed.tensor.byte_offset = 8;
  {
    AnyArray array = from_dlpack(&foreign.managed);
    CHECK(array.as<float>().data() == foreign.memory.data() + 2);
    const AnyArray moved = std::move(array);
    CHECK(foreign.deleted == 0);
  }
  CHECK(foreign.deleted == 1);
  Foreign unspecified{{2, 3}, {}}, one_row{{1, 3}, {99, 1}};
  CHECK(from_dlpack(&unspecified.managed).as<float>().data() == unspecified.memory.data());
  CHECK(from_dlpack(&one_row.managed).as<float>().data() == one_row.memory.data());
}

TEST_CASE("strided, reversed, repeated, read-only and crooked memory is copied") {
  const auto copied = [](Foreign& foreign) {
    const AnyArray array = from_dlpack(&foreign.managed);
    CHECK(foreign.deleted == 1);
    return values(array);
  };
  Foreign transposed{{3, 2}, {1, 3}}, repeated{{2, 2}, {0, 1}}, reversed{{3}, {-1}}, fixed{{2}, {1}}, crooked{{2}, {1}};
  reversed.managed.tensor.byte_offset = 8;
  fixed.managed.flags = dlpack::read_only;
  CHECK(copied(transposed) == std::vector<float>{0, 3, 1, 4, 2, 5});
  CHECK(copied(repeated) == std::vector<float>{0, 1, 0, 1});
  CHECK(copied(reversed) == std::vector<float>{2, 1, 0});
  CHECK(copied(fixed) == std::vector<float>{0, 1});
  std::memmove(reinterpret_cast<char*>(crooked.memory.data()) + 1, crooked.memory.data(), 16);
  crooked.managed.tensor.byte_offset = 1;
  CHECK(copied(crooked) == std::vector<float>{0, 1});
}

TEST_CASE("tensors without elements need no memory") {
  Foreign none{{0, 3}, {}};
  none.managed.tensor.data = nullptr;
  CHECK(from_dlpack(&none.managed).shape() == Shape{0, 3});
  CHECK(none.deleted == 1);
}

TEST_CASE("what cannot be an array is refused and given back") {
  const auto refused = [](auto change, const std::string& text) {
    Foreign foreign{{2}, {1}};
    change(foreign.managed);
    CHECK(error_of([&] { from_dlpack(&foreign.managed); }) == "from_dlpack: " + text);
    CHECK(foreign.deleted == 1);
  };
  refused([](auto& m) { m.version = {2, 1}; }, "the tensor follows version 2.1 of DLPack; versions 1.x can be read");
  refused([](auto& m) { m.tensor.device.type = 2; },
          "the tensor lies on a device of type 2; arrays lie in host memory: copy it there first (in PyTorch: x.cpu())");
  refused([](auto& m) { m.tensor.dtype = {2, 16, 1}; },
          "the tensor is float16; float32, float64, bfloat16, int32, int64, uint8 and bool can be taken: convert it first");
  refused([](auto& m) { m.tensor.dtype = {2, 32, 4}; },
          "the tensor is float32 x 4; float32, float64, bfloat16, int32, int64, uint8 and bool can be taken: convert it first");
  refused([](auto& m) { m.tensor.rank = 9; }, "the tensor has 9 dimensions; at most 8 are possible");
  refused([](auto& m) { m.tensor.shape = nullptr; }, "the tensor has 1 dimensions, but no shape");
  refused([](auto& m) { m.tensor.shape[0] = -3; }, "the tensor has the extent -3 in dimension 0");
  refused([](auto& m) { m.tensor.shape[0] = std::int64_t{1} << 60; },
          "a tensor of shape [1152921504606846976] has more than 2^59 - 1 elements: one of these extents must be wrong");
  refused([](auto& m) { m.tensor.data = nullptr; }, "the tensor float32[2] has no memory");
  CHECK(error_of([] { from_dlpack(static_cast<dlpack::Managed*>(nullptr)); }) == "from_dlpack: no tensor was given");
}

}  // namespace test_dlpack
