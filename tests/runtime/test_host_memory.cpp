// SPDX-License-Identifier: Apache-2.0
// The host memory that a device copies from and to, and who frees it.
#include <catch2/catch.hpp>

#include <cstdint>
#include <new>
#include <utility>

#include <replicator/runtime/host_memory.hpp>

#include "../input/temporary_folder.hpp"
#include "../support/told.hpp"

namespace test_host_memory {

using namespace replicator;
using namespace replicator::detail;

namespace {

int given = 0;  // by a device that has `left` blocks
int left = 0;

std::byte* give(std::size_t bytes) {
  if (left == 0) return nullptr;
  --left, ++given;
  return static_cast<std::byte*>(::operator new (bytes, std::align_val_t{buffer_alignment}));
}
void take_back(std::byte* memory, std::size_t) noexcept {
  --given;
  ::operator delete (memory, std::align_val_t{buffer_alignment});
}
constexpr StagingSupport staging{.allocate = &give, .release = &take_back, .pin = [](std::byte*, std::size_t) { return false; }};

bool is_aligned(const HostMemory& memory) { return reinterpret_cast<std::uintptr_t>(memory.data()) % buffer_alignment == 0; }

}  // namespace

TEST_CASE("memory that a device gave goes back to it, plain memory where it gave none does not") {
  left = 1;
  {
    HostMemory pinned{staging, 100}, plain{staging, 100}, empty{staging, 0};
    CHECK(given == 1);
    for (const auto* memory : {&pinned, &plain, &empty}) {
      REQUIRE(memory->data());
      CHECK(is_aligned(*memory));
    }
    plain.data()[99] = std::byte{7};
    std::swap(pinned, plain);
    CHECK(pinned.data()[99] == std::byte{7});
    const HostMemory moved{std::move(plain)};
    CHECK(given == 1);
  }
  CHECK(given == 0);
}

TEST_CASE("plain memory in place of pinned is told once, and none where the device computes on the host's memory") {
  const auto told = [](auto work) {
    const TemporaryFolder folder;
    return test::told(folder, work);
  };
  detail::told_of_plain_memory = false;
  left = 1;
  CHECK(told([] { const HostMemory pinned{staging, 100}, plain{nullptr, 100}; }).empty());
  CHECK_THAT(told([] { const HostMemory refused{staging, 100}, again{&staging, 200}; }),
             Catch::Equals("replicator: 100 bytes of the host's memory could not be pinned for a device's copies; later ones are not reported. Such copies are "
                           "slow, and no deadline ends them if the device hangs. Raise the limit of locked memory (ulimit -l), or leave more of it free\n"));
  detail::told_of_plain_memory = false;
  std::byte others[64];
  CHECK_THAT(told([&] { const PinnedMemory refused{staging, others, sizeof others}; }), Catch::StartsWith("replicator: 64 bytes of the host's memory"));
}

TEST_CASE("arrays for a device's copies are filled with zeros, whosever the memory is") {
  for (left = 1; const bool from_device : {true, false}) {
    const AnyArray array = host_array(&staging, {DType::float32, {5}});
    CHECK(given == (from_device ? 1 : 0));
    for (const float value : array.as<float>()) CHECK(value == 0);
  }
  CHECK(given == 0);
}

}  // namespace test_host_memory
