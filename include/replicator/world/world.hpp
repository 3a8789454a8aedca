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
#include <exception>
#include <limits>
#include <memory>
#include <optional>
#include <replicator/collectives/connect/host_transport.hpp>
#include <replicator/collectives/connect/linked_parts.hpp>
#include <replicator/core/dtype.hpp>
#include <replicator/core/error.hpp>
#include <replicator/core/processes.hpp>
#include <replicator/core/processor.hpp>
#include <replicator/devices/pages.hpp>
#include <replicator/job/job.hpp>
#include <replicator/world/sliced_collectives.hpp>
#include <set>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

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
  explicit World(const WorldOptions& options = {}) : World{detail::transport::find_environment(), options} {}
  // The same, with processes that the program knows: World{processes_of(comm)} in a program that has called MPI_Init.
  explicit World(const Processes& processes, const WorldOptions& options = {}) : World{detail::transport::environment_of(processes), options} {}
  World(const detail::transport::ProcessEnvironment& environment, const WorldOptions& options)
      : options_{checked(options)},
        job_{environment, job_options(options_)},
        blocks_{options.replicas == 0 ? job_.size() : options.replicas, job_.size()} {
    job_.barrier("world of " + std::to_string(blocks_.replicas()) + " replicas, transport " + options.transport +
                 ", window " + std::to_string(options.window));
    std::vector<int> process_of_rank(static_cast<std::size_t>(job_.size()));
    for (std::size_t rank = 0; rank < process_of_rank.size(); ++rank) process_of_rank[rank] = static_cast<int>(rank);
    communicator_ = std::move(detail::collectives::connect_hosts(options.transport, job_, process_of_rank, blocks_).front());
    sliced_ = std::make_unique<detail::collectives::SlicedCollectives>(*communicator_, options.window);
  }
  World(const World&) = delete;
  World& operator=(const World&) = delete;
  // Like finish(), but never throws. While an exception unwinds, it tells the others that this process failed.
  ~World() = default;

  // The index of this process, and the number of processes.
  int rank() const noexcept { return job_.rank(); }
  int size() const noexcept { return job_.size(); }
  // The number of replicas, the first replica of this process, and the number of its replicas.
  int replicas() const noexcept { return blocks_.replicas(); }
  int first_replica() const { return blocks_.begin(rank()); }
  int local_replicas() const { return blocks_.count(rank()); }

  // Every process gets the reduction of all replicas' blocks. `any_order` allows a schedule that moves fewer bytes where
  // the number of processes is no power of two. **The bits then depend on the number of processes.**
  void all_reduce(const void* input, void* output, std::int64_t count, DType dtype, Reduction reduction = Reduction::sum,
                  bool any_order = false) {
    run({detail::collectives::Kind::all_reduce, dtype, reduction, any_order, 0, count, bytes(input), bytes(output)});
  }
  // Replica r gets the reduction of block r of all replicas.
  void reduce_scatter(const void* input, void* output, std::int64_t count, DType dtype,
                      Reduction reduction = Reduction::sum) {
    run({detail::collectives::Kind::reduce_scatter, dtype, reduction, false, 0, count, bytes(input), bytes(output)});
  }
  // Every process gets the blocks of all replicas, one after the other.
  void all_gather(const void* input, void* output, std::int64_t count, DType dtype) {
    run({detail::collectives::Kind::all_gather, dtype, Reduction::sum, false, 0, count, bytes(input), bytes(output)});
  }
  // Every process gets the block of replica `root`. Other processes' `input` is ignored.
  void broadcast(const void* input, void* output, std::int64_t count, DType dtype, int root = 0) {
    run({detail::collectives::Kind::broadcast, dtype, Reduction::sum, false, root, count, bytes(input), bytes(output)});
  }
  // Replica r gets block r of all replicas, one after the other.
  void all_to_all(const void* input, void* output, std::int64_t count, DType dtype) {
    run({detail::collectives::Kind::all_to_all, dtype, Reduction::sum, false, 0, count, bytes(input), bytes(output)});
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
  std::byte* allocate_bytes(std::size_t bytes) {
    std::byte* memory = nullptr;
    guarded("allocate", [&] {
      fatal_ = true;
      if (job_.size() > 1) job_.barrier("allocate " + std::to_string(bytes) + " bytes");
      memory = sliced_->allocate(bytes);
      if (!memory) {
        pages_.push_back(replicator::detail::map_pages(bytes));
        memory = pages_.back().get();
      }
      if (!memory) throw BuildError{"there is no memory for " + std::to_string(bytes) + " bytes"};
      fatal_ = false;
    });
    return memory;
  }

  // Returns when every process has called it.
  void barrier() {
    guarded("barrier", [&] { job_.barrier(); });
  }

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
  void finish() {
    guarded("finish", [&] {
      finished_ = true;
      sliced_.reset();
      communicator_.reset();
      pages_.clear();
      job_.leave();
    });
  }

 private:
  // Other libraries may have set a flushing or rounding mode, which would make this process's sums differ. This saves and
  // restores the mode of the vector unit only, which does all additions here. The x87 unit would cost as much as a small call.
  class PlainArithmetic {
   public:
    PlainArithmetic() : saved_{detail::floating_point_mode()} {
      if (saved_ != detail::plain_arithmetic) detail::set_floating_point_mode(detail::plain_arithmetic);
    }
    PlainArithmetic(const PlainArithmetic&) = delete;
    PlainArithmetic& operator=(const PlainArithmetic&) = delete;
    // Drops the floating-point flags that were raised meanwhile.
    ~PlainArithmetic() {
      if (detail::floating_point_mode() != saved_) detail::set_floating_point_mode(saved_);
    }

   private:
    detail::FloatingPointMode saved_;
  };
  using BufferPlace = std::pair<std::size_t, std::size_t>;
  using Signature = std::tuple<detail::collectives::Kind, DType, Reduction, bool, int, std::int64_t, BufferPlace, BufferPlace>;
  static constexpr std::size_t most_known = 65536;
  static constexpr std::chrono::hours longest_deadline{24 * 36525};  // a clock can count only a few of these

  static WorldOptions checked(WorldOptions options) {
    if (options.deadline.count() < 0)
      throw BuildError{"the deadline of a world is " + std::to_string(options.deadline.count()) + " ms: it is at least 0, which is for none"};
    if (options.deadline > longest_deadline) options.deadline = {};
    return options;
  }
  static detail::transport::JobOptions job_options(const WorldOptions& options) {
    detail::transport::JobOptions result;
    result.exchange_deadline = options.deadline;
    return result;
  }
  static const std::byte* bytes(const void* pointer) { return static_cast<const std::byte*>(pointer); }
  static std::byte* bytes(void* pointer) { return static_cast<std::byte*>(pointer); }

  void run(const detail::collectives::RawCall& call) {
    guarded(call, [&] {
      call.require_valid(blocks_, rank());
      const PlainArithmetic environment;
      fatal_ = true;
      compare(call);
      sliced_->run(call, options_.deadline);
      fatal_ = false;
    });
  }

  void compare(const detail::collectives::RawCall& call) {
    if (job_.size() == 1) return;
    job_.begin("call", ++calls_, name_of(call.kind).data());
    if (!options_.compare_calls) return;
    if (known_.size() == most_known) known_.clear();
    // Only the root reads a broadcast's input.
    const BufferPlace input = call.kind == detail::collectives::Kind::broadcast ? BufferPlace{} : sliced_->place_of(call.input), output = sliced_->place_of(call.output);
    const Signature signature{call.kind, call.dtype, call.reduction, call.any_order, call.root, call.count, input, output};
    if (signature == last_) return;
    if (known_.insert(signature).second) job_.barrier(call.text() + words("input", input) + words("output", output));
    last_ = signature;
  }

  static std::string words(const char* what, const BufferPlace& place) {
    if (place.first == 0) return {};
    return std::string{", its "} + what + " at byte " + std::to_string(place.second) + " of allocation " + std::to_string(place.first);
  }
  static std::string words(const char* what) { return what; }
  static std::string words(const detail::collectives::RawCall& call) { return call.text(); }

  template <class What, class Action>
  void guarded(const What& what, Action&& action) {
    if (finished_) throw BuildError{words(what) + " was called after finish(): make another World for it"};
    if (failure_) std::rethrow_exception(failure_);
    try {
      action();
    } catch (const CommunicationError& error) {
      fail(error.what(), error.culprit());
    } catch (const std::exception& error) {
      if (!fatal_) throw;
      fail(job_.describe(rank()) + " failed: " + error.what(), rank());
    }
  }

  // Tells the other processes, so that none waits for this one. All end with one sentence.
  [[noreturn]] void fail(const std::string& message, int culprit) {
    if (job_.size() > 1) job_.abort(message, culprit);
    failure_ = std::make_exception_ptr(job_.aborted() ? CommunicationError{job_.failure(), job_.culprit()}
                                                      : CommunicationError{message, culprit});
    std::rethrow_exception(failure_);
  }

  WorldOptions options_;
  detail::transport::Job job_;
  detail::collectives::ReplicaBlocks blocks_;
  std::unique_ptr<detail::collectives::Communicator> communicator_;
  std::unique_ptr<detail::collectives::SlicedCollectives> sliced_;
  std::set<Signature> known_;
  std::optional<Signature> last_;  // consecutive calls are often equal
  std::vector<replicator::detail::Pages> pages_;
  std::uint64_t calls_ = 0;
  bool fatal_ = false;  // other processes may already be in the call
  bool finished_ = false;
  std::exception_ptr failure_;
};

}  // namespace replicator
