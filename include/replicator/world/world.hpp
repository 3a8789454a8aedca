// SPDX-License-Identifier: Apache-2.0
// World: collectives between processes on raw buffers, without graphs and without replicator.hpp.
//
//   replicator::World world;                                      // which process is this: from the environment, or mpirun
//   world.all_reduce(gradient.data(), gradient.data(), n, Reduction::mean);    // in place
//   world.finish();
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <string>

#include <replicator/core/dtype.hpp>
#include <replicator/core/error.hpp>
#include <replicator/core/processes.hpp>
#include <replicator/core/reduction.hpp>
#include <replicator/world/raw_call.hpp>

namespace replicator {

// Equal on every process.
struct WorldOptions {
  // The number of contributors, dealt to the processes in contiguous blocks; 0: one for each process. With more replicas
  // than processes, results have the same bits for any number of processes.
  int replicas = 0;
  std::string transport = "auto";  // auto, shared_memory, ucx
  // Limit of every wait on a process that is alive, but late. 0, or more than a century: no limit.
  std::chrono::milliseconds deadline{300000};
  std::size_t window = std::size_t{512} << 10;  // bytes that move at once; each kind of call reserves 10 to 20 windows
  // Compares each new call (kind, element type, count, reduction, root) between all processes before it runs. This costs
  // one round trip over process 0. **Without it, processes that contradict each other get wrong values or wait for the
  // deadline.**
  bool compare_calls = true;
};

namespace detail {

// What a World forwards its calls to. The code stands in world/open_world.hpp. Files that link replicator::compiled do not
// compile it.
class WorldImplementation {
 public:
  WorldImplementation() = default;
  WorldImplementation(const WorldImplementation&) = delete;
  WorldImplementation& operator=(const WorldImplementation&) = delete;
  virtual ~WorldImplementation() = default;

  virtual int rank() const noexcept = 0;
  virtual int size() const noexcept = 0;
  virtual const collectives::ReplicaBlocks& blocks() const noexcept = 0;
  virtual void run(const collectives::RawCall& call) = 0;
  virtual std::byte* allocate(std::size_t bytes) = 0;
  virtual void barrier() = 0;
  virtual void finish() = 0;
};

// Null processes: those of the environment.
template <class = void>
std::unique_ptr<WorldImplementation> open_world(const Processes* processes, const WorldOptions& options);

}  // namespace detail

// The collectives of one process; use one World for each process and thread. Every process makes the same calls in the same
// order. A call returns when its result is complete on this process.
//
// Buffers are laid out as raw_call.hpp says; `count` counts the elements of one block. The output may be separate from the
// input, or begin where one of the input's blocks begins ("in place"). Sums follow the tree T over the replicas. So the
// bits are the same on every process, and for any number of processes with the same replicas.
//
// Every call throws BuildError for a mistake of the caller (nothing has moved then), and after finish(). It throws
// CommunicationError that names the culprit when a process has died, is late, or asks for something else. After a
// CommunicationError every call throws the same error again.
class World {
 public:
  // Meets the other processes. It finds them through RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT, a launcher that the
  // program knows (PMIx), or srun. Without any of these the process is alone. Throws BuildError or CommunicationError.
  explicit World(const WorldOptions& options = {}) : implementation_{detail::open_world(nullptr, options)} {}
  // The same, with processes that the program knows: World{processes_of(comm)} in a program that has called MPI_Init.
  explicit World(const Processes& processes, const WorldOptions& options = {}) : implementation_{detail::open_world(&processes, options)} {}
  World(const World&) = delete;
  World& operator=(const World&) = delete;
  // Like finish(), but never throws. While an exception unwinds, it tells the others that this process failed.
  ~World() = default;

  // The index of this process, and the number of processes.
  int rank() const noexcept { return implementation_->rank(); }
  int size() const noexcept { return implementation_->size(); }
  // The number of replicas, the first replica of this process, and the number of its replicas.
  int replicas() const noexcept { return implementation_->blocks().replicas(); }
  int first_replica() const { return implementation_->blocks().begin(rank()); }
  int local_replicas() const { return implementation_->blocks().count(rank()); }

  // Every process gets the reduction of all replicas' blocks. `any_order` allows a schedule that moves fewer bytes where
  // the number of processes is no power of two. **The bits then depend on the number of processes.**
  void all_reduce(const void* input, void* output, std::int64_t count, DType dtype, Reduction reduction = Reduction::sum,
                  bool any_order = false) {
    implementation_->run({detail::collectives::Kind::all_reduce, dtype, reduction, any_order, 0, count, bytes(input), bytes(output)});
  }
  // Replica r gets the reduction of block r of all replicas.
  void reduce_scatter(const void* input, void* output, std::int64_t count, DType dtype,
                      Reduction reduction = Reduction::sum) {
    implementation_->run({detail::collectives::Kind::reduce_scatter, dtype, reduction, false, 0, count, bytes(input), bytes(output)});
  }
  // Every process gets the blocks of all replicas, one after the other.
  void all_gather(const void* input, void* output, std::int64_t count, DType dtype) {
    implementation_->run({detail::collectives::Kind::all_gather, dtype, Reduction::sum, false, 0, count, bytes(input), bytes(output)});
  }
  // Every process gets the block of replica `root`. Other processes' `input` is ignored.
  void broadcast(const void* input, void* output, std::int64_t count, DType dtype, int root = 0) {
    implementation_->run({detail::collectives::Kind::broadcast, dtype, Reduction::sum, false, root, count, bytes(input), bytes(output)});
  }
  // Replica r gets block r of all replicas, one after the other.
  void all_to_all(const void* input, void* output, std::int64_t count, DType dtype) {
    implementation_->run({detail::collectives::Kind::all_to_all, dtype, Reduction::sum, false, 0, count, bytes(input), bytes(output)});
  }
  // Collective. Allocates `count` elements in memory that peers access directly, so that calls on it copy nothing. The
  // memory is zero, aligned to 64 bytes, and lives until finish(). Between machines it is ordinary memory.
  //
  // Every process must pass the same count. Calls must then get the same places of the same allocations on every process,
  // for inputs and for outputs. These are compared like the calls. Throws BuildError for a negative or too large count.
  template <Element T>
  std::span<T> allocate(std::int64_t count) {
    const auto most = std::numeric_limits<std::int64_t>::max() / static_cast<std::int64_t>(sizeof(T));
    if (count < 0 || count > most)
      throw BuildError{"allocate of " + std::to_string(count) + " elements: " + (count < 0 ? "a count may not be negative" : "no memory holds so many bytes")};
    return {reinterpret_cast<T*>(allocate_bytes(static_cast<std::size_t>(count) * sizeof(T))), static_cast<std::size_t>(count)};
  }
  // The same in bytes, without a type.
  std::byte* allocate_bytes(std::size_t bytes) { return implementation_->allocate(bytes); }

  // Returns when every process has called it.
  void barrier() { implementation_->barrier(); }

  // The same calls; the element type is the pointers'.
  template <Element T>
  void all_reduce(const T* input, T* output, std::int64_t count, Reduction reduction = Reduction::sum,
                  bool any_order = false) {
    all_reduce(input, output, count, dtype_of<T>, reduction, any_order);
  }
  template <Element T>
  void reduce_scatter(const T* input, T* output, std::int64_t count, Reduction reduction = Reduction::sum) {
    reduce_scatter(input, output, count, dtype_of<T>, reduction);
  }
  template <Element T>
  void all_gather(const T* input, T* output, std::int64_t count) {
    all_gather(input, output, count, dtype_of<T>);
  }
  template <Element T>
  void broadcast(const T* input, T* output, std::int64_t count, int root = 0) {
    broadcast(input, output, count, dtype_of<T>, root);
  }
  template <Element T>
  void all_to_all(const T* input, T* output, std::int64_t count) {
    all_to_all(input, output, count, dtype_of<T>);
  }

  // Leaves the job in good order: waits until every process has called it. Every later call throws BuildError.
  void finish() { implementation_->finish(); }

 private:
  static const std::byte* bytes(const void* pointer) { return static_cast<const std::byte*>(pointer); }
  static std::byte* bytes(void* pointer) { return static_cast<std::byte*>(pointer); }

  std::unique_ptr<detail::WorldImplementation> implementation_;
};

}  // namespace replicator

#if !__has_include(<replicator/with/compiled.hpp>)  // without replicator::compiled this file brings the code itself
#include <replicator/world/open_world.hpp>
#endif
