// SPDX-License-Identifier: Apache-2.0
// The implementation of the C interface (replicator_c.h), and the only file of replicator::c.
#include <replicator/replicator_c.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <exception>
#include <memory>
#include <new>
#include <optional>
#include <replicator/job/rendezvous.hpp>
#include <replicator/world/world.hpp>
#include <string>
#include <utility>

using replicator::BuildError;
using replicator::CommunicationError;
using replicator::DType;
using replicator::Processes;
using replicator::Reduction;
using replicator::World;
using replicator::WorldOptions;
using replicator::detail::transport::ProcessEnvironment;

static_assert(REPLICATOR_FLOAT32 == static_cast<int>(DType::float32));
static_assert(REPLICATOR_FLOAT64 == static_cast<int>(DType::float64));
static_assert(REPLICATOR_INT32 == static_cast<int>(DType::int32));
static_assert(REPLICATOR_INT64 == static_cast<int>(DType::int64));
static_assert(REPLICATOR_UINT8 == static_cast<int>(DType::uint8));
static_assert(REPLICATOR_BOOL == static_cast<int>(DType::boolean));
static_assert(REPLICATOR_BFLOAT16 == static_cast<int>(DType::bfloat16));
static_assert(REPLICATOR_SUM == static_cast<int>(Reduction::sum));
static_assert(REPLICATOR_MEAN == static_cast<int>(Reduction::mean));
static_assert(REPLICATOR_MIN == static_cast<int>(Reduction::min));
static_assert(REPLICATOR_MAX == static_cast<int>(Reduction::max));

struct replicator_world {
  std::unique_ptr<World> world;
  std::string error;
  int culprit = -1;
};

namespace {

// Storing the message may itself run out of memory.
int keep(replicator_world* handle, int status, const char* text) noexcept {
  try {
    handle->error = text;
  } catch (...) {
    handle->error.clear();
  }
  return status;
}

template <class Action>
int guarded(replicator_world* handle, Action&& action) noexcept {
  if (!handle) return REPLICATOR_MISTAKE;
  try {
    action();
    return REPLICATOR_OK;
  } catch (const BuildError& error) {
    return keep(handle, REPLICATOR_MISTAKE, error.what());
  } catch (const CommunicationError& error) {
    handle->culprit = error.culprit();
    return keep(handle, REPLICATOR_FAILURE, error.what());
  } catch (const std::exception& error) {
    return keep(handle, REPLICATOR_INTERNAL, error.what());
  } catch (...) {
    return keep(handle, REPLICATOR_INTERNAL, "an exception that is no std::exception");
  }
}

template <class Action>
int call(replicator_world* handle, Action&& action) noexcept {
  return guarded(handle, [&] {
    if (!handle->world) throw BuildError{"this world has not begun: replicator_init failed"};
    action(*handle->world);
  });
}

template <class Question>
int ask(const replicator_world* handle, Question&& question) noexcept {
  return handle && handle->world ? question(*handle->world) : -1;
}

DType dtype_of(int number) {
  if (number < 0 || number > REPLICATOR_BFLOAT16)
    throw BuildError{"there is no dtype " + std::to_string(number) + ": take one of enum replicator_dtype"};
  return static_cast<DType>(number);
}

Reduction reduction_of(int number) {
  if (number < 0 || number > REPLICATOR_MAX)
    throw BuildError{"there is no reduction " + std::to_string(number) + ": take one of enum replicator_reduction" +
                     (number & REPLICATOR_ANY_ORDER ? "; REPLICATOR_ANY_ORDER is for all_reduce" : "")};
  return static_cast<Reduction>(number);
}

WorldOptions options_of(const replicator_options& given) {
  WorldOptions options;
  if (given.replicas < 0) throw BuildError{"replicator_options: replicas is " + std::to_string(given.replicas)};
  options.replicas = given.replicas;
  if (given.transport) options.transport = given.transport;
  using std::chrono::milliseconds;
  constexpr double countable = 1e15;  // milliseconds; World treats that many as no deadline
  if (std::isnan(given.deadline)) throw BuildError{"replicator_options: deadline is not a number: give seconds, or less than 0 for none"};
  if (given.deadline > 0) options.deadline = milliseconds{1 + static_cast<std::int64_t>(std::min(given.deadline * 1000, countable))};
  if (given.deadline < 0) options.deadline = milliseconds{0};
  return options;
}

// Nothing: those of the environment.
std::optional<Processes> processes_of(const replicator_options& given) {
  if (given.world_size == 0) return std::nullopt;
  ProcessEnvironment result;
  result.world_size = given.world_size;
  result.rank = given.rank;
  if (given.world_size < 0 || given.rank < 0 || given.rank >= given.world_size)
    throw BuildError{"replicator_options: rank is " + std::to_string(given.rank) + " and world_size " +
                     std::to_string(given.world_size) + ": ranks count from 0 to world_size - 1"};
  if (given.world_size == 1) return Processes{};
  if (!given.master_address || given.master_port < 1 || given.master_port > 65535)
    throw BuildError{"replicator_options: with a world_size there must be a master_address and a master_port"};
  result.master_address = given.master_address;
  result.master_port = static_cast<std::uint16_t>(given.master_port);
  // The other settings, above all the secret, always come from environment variables.
  using replicator::detail::transport::detail::variable;
  result.job_name = variable("REPLICATOR_JOB").value_or("");
  result.job_token = replicator::detail::transport::find_job_token({});
  result.insecure = replicator::detail::transport::insecure_by_variable();
  result.interface = variable("REPLICATOR_INTERFACE").value_or("");
  return Processes{given.rank, given.world_size, std::make_shared<const ProcessEnvironment>(std::move(result))};
}

}  // namespace

extern "C" {

int replicator_init(replicator_world** world) {
  replicator_options options;
  std::memset(&options, 0, sizeof options);
  options.size = sizeof options;
  return replicator_init_with(world, &options);
}

int replicator_init_with(replicator_world** world, const replicator_options* options) {
  if (!world) return REPLICATOR_MISTAKE;
  *world = new (std::nothrow) replicator_world;
  if (!*world) return REPLICATOR_INTERNAL;
  return guarded(*world, [&] {
    if (!options || options->size != sizeof *options)
      throw BuildError{"replicator_options: size must be sizeof(replicator_options), which is " +
                       std::to_string(sizeof *options) + " here: compile against this library's header"};
    const auto processes = processes_of(*options);
    const WorldOptions world_options = options_of(*options);
    (*world)->world = processes ? std::make_unique<World>(*processes, world_options) : std::make_unique<World>(world_options);
  });
}

int replicator_rank(const replicator_world* world) {
  return ask(world, [](const World& w) { return w.rank(); });
}
int replicator_size(const replicator_world* world) {
  return ask(world, [](const World& w) { return w.size(); });
}
int replicator_replicas(const replicator_world* world) {
  return ask(world, [](const World& w) { return w.replicas(); });
}
int replicator_first_replica(const replicator_world* world) {
  return ask(world, [](const World& w) { return w.first_replica(); });
}
int replicator_local_replicas(const replicator_world* world) {
  return ask(world, [](const World& w) { return w.local_replicas(); });
}

int replicator_allocate(replicator_world* world, size_t bytes, void** memory) {
  return call(world, [&](World& w) {
    if (!memory) throw BuildError{"replicator_allocate: memory is a null pointer"};
    *memory = w.allocate_bytes(bytes);
  });
}

int replicator_all_reduce(replicator_world* world, const void* input, void* output, int64_t count, int dtype,
                          int reduction) {
  return call(world, [&](World& w) {
    w.all_reduce(input, output, count, dtype_of(dtype), reduction_of(reduction & ~REPLICATOR_ANY_ORDER),
                 (reduction & REPLICATOR_ANY_ORDER) != 0);
  });
}
int replicator_reduce_scatter(replicator_world* world, const void* input, void* output, int64_t count, int dtype,
                              int reduction) {
  return call(world, [&](World& w) {
    w.reduce_scatter(input, output, count, dtype_of(dtype), reduction_of(reduction));
  });
}
int replicator_all_gather(replicator_world* world, const void* input, void* output, int64_t count, int dtype) {
  return call(world, [&](World& w) { w.all_gather(input, output, count, dtype_of(dtype)); });
}
int replicator_broadcast(replicator_world* world, const void* input, void* output, int64_t count, int dtype,
                         int root) {
  return call(world, [&](World& w) { w.broadcast(input, output, count, dtype_of(dtype), root); });
}
int replicator_all_to_all(replicator_world* world, const void* input, void* output, int64_t count, int dtype) {
  return call(world, [&](World& w) { w.all_to_all(input, output, count, dtype_of(dtype)); });
}
int replicator_barrier(replicator_world* world) {
  return call(world, [](World& w) { w.barrier(); });
}
int replicator_finish(replicator_world* world) {
  return call(world, [](World& w) { w.finish(); });
}
void replicator_free(replicator_world* world) { delete world; }

const char* replicator_last_error(const replicator_world* world) {
  return world ? world->error.c_str() : "the handle is a null pointer";
}
int replicator_culprit(const replicator_world* world) { return world ? world->culprit : -1; }

}  // extern "C"
