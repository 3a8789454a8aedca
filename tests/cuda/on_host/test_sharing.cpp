// SPDX-License-Identifier: Apache-2.0
// What the CUDA runtime is asked for where processes share the memory of GPUs.
#include <catch2/catch.hpp>

#include <cstddef>
#include <string>
#include <utility>

#include <replicator/cuda/device.cuh>

#include "../../support/errors.hpp"
#include "cuda_runtime.h"

namespace {

using namespace replicator;
using namespace replicator::detail;
using replicator::test::error_of;

}  // namespace

TEST_CASE("memory that is shared takes whole blocks of 2 MiB, is opened by its handle, and closed again") {
  const auto& support = cuda::support;
  for (const auto& [bytes, taken] : {std::pair{std::size_t{1}, std::size_t{2} << 20}, std::pair{std::size_t{2} << 20, std::size_t{2} << 20},
                                     std::pair{(std::size_t{2} << 20) + 1, std::size_t{4} << 20}}) {
    SharedHandle handle{};
    std::byte* const memory = support.sharing->allocate(1, bytes, handle);
    const auto* const address = reinterpret_cast<const char*>(memory);
    CHECK(on_host::memory.at(address) == taken);
    CHECK(support.sharing->open(0, handle) == memory);
    CHECK(on_host::current_device == 0);
    CHECK(on_host::opened[address] == 1);
    support.sharing->close(0, memory);
    CHECK(on_host::opened[address] == 0);
    support.release(1, memory, bytes);
    CHECK(on_host::memory.count(address) == 0);
    CHECK(error_of([&] { support.sharing->open(0, handle); }).starts_with("cuda:0 cannot open the memory of a GPU of another process (cudaIpcOpenMemHandle gave "));
  }
}

TEST_CASE("memory to share that cannot be allocated is an error that names the GPU, and a failed allocation leaves nothing") {
  const auto before = on_host::memory.size();
  const auto free = std::exchange(on_host::free_memory, 1000);
  SharedHandle handle{};
  CHECK(error_of([&] { cuda::support.sharing->allocate(1, 10, handle); }).starts_with("cuda:1 cannot allocate memory to share with other processes (cudaMalloc gave "));
  on_host::free_memory = free;
  CHECK(on_host::memory.size() == before);
}

TEST_CASE("an event that is shared is made for several processes, and without times") {
  const auto& support = cuda::support;
  SharedHandle handle{};
  void* const event = support.sharing->make_event(0, handle);
  void* const opened = support.sharing->open_event(1, handle);
  CHECK(opened != event);
  support.staging->destroy_event(1, opened);
  support.staging->destroy_event(0, event);
  CHECK(error_of([&] { support.sharing->open_event(1, SharedHandle{}); }).starts_with("cuda:1 cannot open an event of another process (cudaIpcOpenEventHandle gave "));
}
