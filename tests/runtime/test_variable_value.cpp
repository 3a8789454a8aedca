// SPDX-License-Identifier: Apache-2.0
// A variable's value on the host and on devices with their own memory: every reader gets the newest one.
#include <rapidcheck.h>
#include <catch2/catch.hpp>

#include <cstdint>
#include <string>
#include <vector>

#include <replicator/runtime/variable_store.hpp>

#include "../replicate/pretend_device.hpp"

namespace test_variable_value {

using namespace replicator;
using namespace replicator::detail;
namespace pretend = replicator::test::pretend;
using Devices = replicator::test::PretendDevices<>;

namespace {

VariableDeclaration declaration(const std::string& name, std::int64_t elements) {
  VariableDeclaration result;
  result.name = name;
  result.type = {DType::int32, Shape{elements}};
  result.initializer = Initializer::zeros();
  return result;
}
Array<std::int32_t> filled(std::int64_t elements, std::int32_t number) {
  Array<std::int32_t> result{{elements}};
  for (auto& value : result) value = number;
  return result;
}

// One variable, on two devices.
struct Resident {
  explicit Resident(std::int64_t elements) : elements{elements} {
    store.declare(declaration("w", elements));
    value = &store.at("w", 0);
    for (int device = 0; device < 2; ++device) memories.push_back(&store.reside({&value, 1}, DeviceKind::cuda, device));
  }
  // As a step does it.
  void change(int device, std::int32_t number) {
    auto& memory = *memories[static_cast<std::size_t>(device)];
    const auto array = filled(elements, number);
    value->begin_change(memory);
    memory.copy(value->resident(memory), array.any().data(), array.any().size_bytes());
    value->end_change(memory);
  }
  std::vector<std::int32_t> on_device(int device) {
    auto& memory = *memories[static_cast<std::size_t>(device)];
    value->bring_to(memory);
    std::vector<std::int32_t> found(static_cast<std::size_t>(elements));
    memory.copy(reinterpret_cast<std::byte*>(found.data()), value->resident(memory), found.size() * sizeof(std::int32_t));
    return found;
  }
  std::vector<std::int32_t> on_host() const {
    const auto found = value->read().as<std::int32_t>();
    return {found.begin(), found.end()};
  }

  std::int64_t elements;
  VariableStore store{1, 1, 1};
  VariableValue* value = nullptr;
  std::vector<VariableMemory*> memories;
};

}  // namespace

TEST_CASE("whoever asks has what was written last, wherever that was, and nothing is copied twice") {
  const Devices devices;
  const bool held = rc::check([] {
    const auto elements = *rc::gen::inRange<std::int64_t>(0, 40);
    Resident w{elements};
    std::int32_t newest = 0;
    const auto expected = [&] { return std::vector<std::int32_t>(static_cast<std::size_t>(elements), newest); };
    for (int i = *rc::gen::inRange(1, 30); i > 0; --i) {
      const int device = *rc::gen::inRange(0, 2);
      switch (*rc::gen::inRange(0, 4)) {
        case 0: w.store.set("w", filled(elements, ++newest).any()); break;
        case 1: w.change(device, ++newest); break;
        case 2: RC_ASSERT(w.on_device(device) == expected()); break;
        default: RC_ASSERT(w.on_host() == expected());
      }
    }
    (void)w.on_host(), (void)w.on_device(0), (void)w.on_device(1);
    const auto copied = pretend::counts.from_host + pretend::counts.to_host;
    (void)w.on_host();
    for (auto* memory : w.memories) w.value->bring_to(*memory);
    RC_ASSERT(pretend::counts.from_host + pretend::counts.to_host == copied);
  });
  CHECK(held);
  CHECK(devices.in_use() == 0);
}

TEST_CASE("a value whose change was not brought to its end is lost to everyone, until it is given anew") {
  const Devices devices;
  Resident w{3};
  w.change(0, 5);
  w.value->begin_change(*w.memories[1]);
  const std::string sentence =
      "the value of the variable \"w\" was asked for, but it is lost: a step failed on cuda:1 while it changed it. Go on from a checkpoint";
  CHECK_THROWS_WITH(w.on_host(), sentence);
  CHECK_THROWS_WITH(w.on_device(0), sentence);
  CHECK_THROWS_WITH(w.on_device(1), sentence);
  CHECK_THROWS_AS(w.on_host(), DeviceError);
  w.store.set("w", filled(3, 9).any());
  CHECK(w.on_device(1) == std::vector<std::int32_t>{9, 9, 9});
}

TEST_CASE("variables that come to a device together lie in one block, and those that are there stay where they are") {
  const Devices devices;
  VariableStore store{1, 1, 1};
  std::vector<VariableValue*> values;
  for (const auto* name : {"a", "b", "c"}) {
    store.declare(declaration(name, 7));
    values.push_back(&store.at(name, 0));
  }
  auto& memory = store.reside(std::vector{values[0], values[1], values[0]}, DeviceKind::cuda, 3);
  CHECK(pretend::device(3).memory.blocks() == 1);
  const auto* const first = values[0]->resident(memory);
  CHECK(first != values[1]->resident(memory));
  CHECK(values[2]->resident(memory) == nullptr);
  CHECK(&store.reside(values, DeviceKind::cuda, 3) == &memory);
  CHECK(pretend::device(3).memory.blocks() == 2);
  CHECK(values[0]->resident(memory) == first);
  CHECK(values[2]->resident(memory) != nullptr);
  for (const auto* value : values) CHECK(reinterpret_cast<std::uintptr_t>(value->resident(memory)) % buffer_alignment == 0);
}

}  // namespace test_variable_value
