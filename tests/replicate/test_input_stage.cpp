// SPDX-License-Identifier: Apache-2.0
// The transfer of a step's inputs to a device, while the next step's inputs are already on their way.
#include <rapidcheck.h>
#include <catch2/catch.hpp>

#include <cstring>
#include <optional>
#include <vector>

#include <replicator/runtime/arena.hpp>
#include <replicator/runtime/input_stage.hpp>

#include "pretend_device.hpp"

namespace test_input_stage {

using namespace replicator;
using namespace replicator::detail;
namespace pretend = replicator::test::pretend;

namespace {

using Elements = std::vector<std::vector<AnyArray>>;

// Bytes that no other step has.
Elements elements(const std::vector<std::int64_t>& sizes, std::uint64_t step) {
  Elements result{1};
  for (const auto size : sizes) {
    auto& array = result[0].emplace_back(TensorType{DType::uint8, {size}});
    for (std::int64_t i = 0; i < size; ++i) array.as<std::uint8_t>()[static_cast<std::size_t>(i)] = static_cast<std::uint8_t>(7 * step + static_cast<std::uint64_t>(i) + 1);
  }
  return result;
}
// A user's generator may do this as soon as it is asked for another element.
void scribble(Elements& arrays) {
  for (auto& replica : arrays)
    for (auto& array : replica) std::memset(array.data(), 0xEE, array.size_bytes());
}

// What a step does with its inputs: brings each from its place to memory of its own, and later from there to the host.
class Step {
 public:
  explicit Step(const std::vector<std::int64_t>& sizes) {
    for (const auto size : sizes) bytes_ += static_cast<std::size_t>(size);
    memory_ = Arena{pretend::support, 0, 2 * bytes_};
    std::vector<InputPlace> places;
    std::size_t at = 0;
    for (std::uint32_t element = 0; element < sizes.size(); ++element) {
      places.push_back({0, element, static_cast<std::size_t>(sizes[element]), memory_.data() + at});
      at += places.back().bytes;
    }
    stage_ = InputStage{pretend::support, 0, std::move(places)};
    queue_ = Queue{pretend::support, 0};
  }
  // Those of `number`; `next` may be null. What the step found is in `found` when the queue has been waited for.
  void run(const Elements& now, const Elements* next, std::uint64_t number, AnyArray& found) {
    stage_.bring(queue_, now, number);
    queue_.copy(memory_.data() + bytes_, memory_.data(), bytes_);
    stage_.taken(queue_);
    if (next) stage_.prefetch(*next, number + 1);
    queue_.copy(found.data(), memory_.data() + bytes_, bytes_);
  }
  void wait() { queue_.synchronise(); }
  AnyArray memory() const { return AnyArray{{DType::uint8, {static_cast<std::int64_t>(bytes_)}}}; }

 private:
  std::size_t bytes_ = 0;
  Arena memory_;
  InputStage stage_;
  Queue queue_;
};

std::vector<std::uint8_t> joined(const Elements& arrays) {
  std::vector<std::uint8_t> result;
  for (const auto& array : arrays[0]) result.insert(result.end(), array.as<std::uint8_t>().begin(), array.as<std::uint8_t>().end());
  return result;
}

}  // namespace

TEST_CASE("every step finds its own inputs, in whatever order queues get to their work, announced before or not") {
  const bool held = rc::check([] {
    std::optional<pretend::ByThreads> threads;
    if (*rc::gen::arbitrary<bool>()) threads.emplace(*rc::gen::arbitrary<std::uint64_t>());
    const auto sizes = *rc::gen::container<std::vector<std::int64_t>>(*rc::gen::inRange(1, 4), rc::gen::inRange<std::int64_t>(1, 200));
    const auto steps = *rc::gen::inRange<std::uint64_t>(1, 12);
    Step step{sizes};
    std::vector<AnyArray> found;
    for (std::uint64_t number = 0; number < steps; ++number) found.push_back(step.memory());
    Elements now = elements(sizes, 0);
    for (std::uint64_t number = 0; number < steps; ++number) {
      Elements next = elements(sizes, number + 1);
      const auto announced = *rc::gen::inRange(0, 3);
      Elements other = elements({3}, 0);  // what another program is for
      step.run(now, announced == 0 ? nullptr : announced == 1 ? &next
                                                              : &other,
               number, found[number]);
      if (announced == 1) scribble(next);  // the host has copied it; only where it lies still counts
      scribble(now);
      now = std::move(next);
      if (announced != 1) now = elements(sizes, number + 1);
      if (*rc::gen::inRange(0, 3) == 0) step.wait();
    }
    step.wait();
    for (std::uint64_t number = 0; number < steps; ++number) {
      const auto bytes = found[number].as<std::uint8_t>();
      RC_ASSERT((std::vector<std::uint8_t>{bytes.begin(), bytes.end()} == joined(elements(sizes, number))));
    }
  });
  CHECK(held);
}

TEST_CASE("the next step's inputs are on their way before this one is waited for, and are brought once") {
  const std::vector<std::int64_t> sizes{64, 3};
  Step step{sizes};
  Elements now = elements(sizes, 0), next = elements(sizes, 1);
  auto found = step.memory();
  const int before = pretend::counts.given;
  step.run(now, &next, 0, found);
  CHECK(pretend::counts.given == before + 2 + 2 + 2);  // to the places, taken and told, to the places again
  step.run(next, nullptr, 1, found);
  CHECK(pretend::counts.given == before + 6 + 2);
  step.wait();
}

TEST_CASE("whichever wait is left out it is found: a place is read before it is filled, or filled before it has been read") {
  const test::PretendDevices<> devices;
  const std::vector<std::int64_t> sizes{64, 3};
  const std::uint64_t steps = 4;
  std::vector<Elements> all;
  for (std::uint64_t number = 0; number <= steps; ++number) all.push_back(elements(sizes, number));
  const auto conflict = [&](int left_out) {
    pretend::planted = {.left_out = left_out};
    Step step{sizes};
    auto found = step.memory();
    for (std::uint64_t number = 0; number < steps; ++number) step.run(all[number], &all[number + 1], number, found);
    step.wait();
    CHECK(pretend::planted.waits == 9);
    const auto result = pretend::planted.found.empty() ? "none" : pretend::planted.found[0];
    pretend::planted = {};
    return result;
  };
  CHECK(conflict(0) == "none");  // nobody has read the places before the first step
  for (int left_out = 1; left_out < 9; left_out += 2) {
    CHECK(conflict(left_out) == "a copy in queue 1 of cuda:0 reads what a copy in queue 0 of cuda:0 writes, and nothing makes it wait");
    CHECK(conflict(left_out + 1) == "a copy in queue 0 of cuda:0 writes what a copy in queue 1 of cuda:0 reads, and nothing makes it wait");
  }
}

}  // namespace test_input_stage
