// SPDX-License-Identifier: Apache-2.0
// Times collectives of float32 between processes: bytes, median and least microseconds of a call (see
// processes/timing.hpp). bench/compare_processes runs it beside Open MPI, MPICH and Gloo. Start it as any World: by
// mpirun, or with RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT.
//
//   processes [collective=all_reduce] [smallest=4] [largest=268435456] [samples=15]
//             [buffers=transport] or world: anywhere; allocated: by World::allocate    [window=...] the bytes that a World moves at once
//             [schedule=auto] or the name of an all-reduce; ring adds in its own order; add: the limit that memory sets, see Adding
//             [transport=shared_memory] or ucx, if built with it
#include <xmmintrin.h>

#include <chrono>
#include <cstdio>
#include <exception>
#include <memory>
#include <replicator/collectives/choose/choose_schedule.hpp>
#include <replicator/collectives/connect/connect_hosts.hpp>
#include <replicator/job/job_inline.hpp>
#include <replicator/world/world.hpp>
#include <span>
#include <string>
#include <vector>

#include "processes/timing.hpp"

namespace rc = replicator::detail::collectives;
namespace rt = replicator::detail::transport;

namespace {

std::string option(int argc, char** argv, const std::string& key, const std::string& otherwise) {
  for (int i = 1; i < argc; ++i)
    if (std::string{argv[i]}.rfind(key + "=", 0) == 0) return std::string{argv[i]}.substr(key.size() + 1);
  return otherwise;
}

rc::Kind kind_of(const std::string& collective) {
  for (const rc::Kind kind : {rc::Kind::all_reduce, rc::Kind::reduce_scatter, rc::Kind::all_gather, rc::Kind::broadcast})
    if (collective == name_of(kind)) return kind;
  return rc::Kind::all_to_all;
}

// Buffers in the transport's memory, as in a training step.
class InTransport {
 public:
  InTransport(const std::string& transport, const std::string& schedule)
      : job_{rt::find_environment()}, blocks_{job_.size(), job_.size()} {
    std::vector<int> process_of_rank;
    for (int rank = 0; rank < job_.size(); ++rank) process_of_rank.push_back(rank);
    wanted_ = rc::parse_all_reduce(schedule, {blocks_.ranks()});
    communicator_ = std::move(rc::connect_hosts(transport, job_, process_of_rank, blocks_).front());
    rc::CollectiveSpec spec;
    spec.dtype = replicator::DType::float64;
    spec.reduction = replicator::Reduction::max;
    spec.elements = 1;
    maximum_ = prepared(spec);
  }

  int rank() const { return job_.rank(); }
  int size() const { return job_.size(); }
  void barrier() { maximum(0); }
  double maximum(double mine) {
    *reinterpret_cast<double*>(maximum_->input(0)) = mine;
    run(*maximum_);
    return *reinterpret_cast<const double*>(maximum_->output());
  }

  void prepare(const std::string& collective, const processes::Lengths& lengths) {
    rc::CollectiveSpec spec;
    spec.kind = kind_of(collective);
    spec.elements = lengths.block;
    collective_ = prepared(spec, wanted_);
  }
  float* input() { return reinterpret_cast<float*>(collective_->input(0)); }
  const float* output() { return reinterpret_cast<const float*>(collective_->output()); }
  void call() { run(*collective_); }
  void finish() {
    maximum_.reset();
    collective_.reset();
    job_.leave();
  }

 private:
  std::unique_ptr<rc::Collective> prepared(rc::CollectiveSpec spec, const rc::AllReducePreference& wanted = {}) {
    spec.id = next_id_++;
    spec.any_order = wanted.name == "ring";
    const auto bytes = spec.elements * static_cast<std::int64_t>(size_of(spec.dtype));
    return communicator_->prepare(spec, rc::choose(spec.kind, bytes, blocks_, 0, spec.any_order, wanted, {}, communicator_->latency()).schedule);
  }
  static void run(rc::Collective& collective) {
    collective.start();
    if (!collective.advance()) collective.wait(rt::Clock::now() + std::chrono::seconds{300});
  }

  rt::Job job_;
  rc::ReplicaBlocks blocks_;
  rc::AllReducePreference wanted_;
  std::unique_ptr<rc::Communicator> communicator_;
  std::uint32_t next_id_ = 0;
  std::unique_ptr<rc::Collective> maximum_, collective_;
};

// Buffers of the caller.
class Raw {
 public:
  // `allocated`: elements of a buffer that the world allocates; 0: use the program's own memory.
  Raw(const replicator::WorldOptions& options, bool any_order, std::int64_t allocated) : any_order_{any_order}, world_{options} {
    if (allocated == 0) return;
    shared_input_ = world_.allocate<float>(allocated);
    shared_output_ = world_.allocate<float>(allocated);
  }

  int rank() const { return world_.rank(); }
  int size() const { return world_.size(); }
  void barrier() { maximum(0); }
  double maximum(double mine) {
    double result = 0;
    world_.all_reduce(&mine, &result, 1, replicator::Reduction::max);
    return result;
  }

  void prepare(const std::string& collective, const processes::Lengths& lengths) {
    kind_ = kind_of(collective);
    block_ = lengths.block;
    in_ = shared_input_.data();
    out_ = shared_output_.data();
    if (in_) return;
    input_.assign(static_cast<std::size_t>(lengths.input), 0);
    output_.assign(static_cast<std::size_t>(lengths.output), 0);
    in_ = input_.data();
    out_ = output_.data();
  }
  float* input() { return in_; }
  const float* output() const { return out_; }
  void call() {
    switch (kind_) {
      case rc::Kind::all_reduce:
        return world_.all_reduce(in_, out_, block_, replicator::Reduction::sum, any_order_);
      case rc::Kind::reduce_scatter:
        return world_.reduce_scatter(in_, out_, block_);
      case rc::Kind::all_gather:
        return world_.all_gather(in_, out_, block_);
      case rc::Kind::broadcast:
        return world_.broadcast(in_, out_, block_);
      case rc::Kind::all_to_all:
        return world_.all_to_all(in_, out_, block_);
    }
  }
  void finish() { world_.finish(); }

 private:
  bool any_order_;
  replicator::World world_;
  rc::Kind kind_ = rc::Kind::all_reduce;
  std::int64_t block_ = 0;
  std::vector<float> input_, output_;
  std::span<float> shared_input_, shared_output_;
  float* in_ = nullptr;
  float* out_ = nullptr;
};

// A limit, not a collective: all processes at once add two of their own buffers into a third. An all-reduce of S bytes
// between P processes reads and writes at least 2 P S bytes, this loop 3 P S. Two thirds of its time are thus the limit
// that memory sets.
class Adding {
 public:
  explicit Adding(Raw& world) : world_{world} {}

  int rank() const { return world_.rank(); }
  void barrier() { world_.barrier(); }
  double maximum(double mine) { return world_.maximum(mine); }
  void prepare(std::size_t elements) {
    left_.assign(elements, 1);
    right_.assign(elements, 2);
    sum_.assign(elements, 0);
  }
  void call() {
    constexpr std::size_t in_caches = std::size_t{1} << 20;
    const std::size_t n = sum_.size(), streamed = n * sizeof(float) > in_caches ? n / 4 * 4 : 0;
    float* to = sum_.data();
    for (std::size_t i = 0; i < streamed; i += 4) _mm_stream_ps(to + i, _mm_add_ps(_mm_loadu_ps(&left_[i]), _mm_loadu_ps(&right_[i])));
    for (std::size_t i = streamed; i < n; ++i) to[i] = left_[i] + right_[i];
    _mm_sfence();
  }

 private:
  Raw& world_;
  std::vector<float> left_, right_, sum_;
};

template <class System>
void run(System&& system, const processes::Options& options) {
  processes::measure(system, options);
  system.finish();
}

void run_limit(Raw&& world, const processes::Options& options) {
  Adding adding{world};
  for (std::int64_t bytes = options.smallest; bytes <= options.largest; bytes *= 4) {
    adding.prepare(static_cast<std::size_t>(bytes / 4));
    const processes::Times times = processes::microseconds(adding, bytes, options.samples_of(bytes));
    if (adding.rank() == 0) std::printf("%lld %.3f %.3f\n", static_cast<long long>(bytes), times.median * 2 / 3, times.least * 2 / 3);
  }
  world.finish();
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const processes::Options options = processes::options_from(argc, argv);
    const std::string transport = option(argc, argv, "transport", "shared_memory");
    const std::string schedule = option(argc, argv, "schedule", "auto");
    replicator::WorldOptions world;
    world.transport = transport;
    world.window = std::stoul(option(argc, argv, "window", std::to_string(world.window)));
    const std::string buffers = option(argc, argv, "buffers", "transport");
    if (schedule == "add")
      run_limit(Raw{world, false, 0}, options);
    else if (buffers != "transport")
      run(Raw{world, schedule == "ring", buffers == "allocated" ? options.largest / 4 : 0}, options);
    else
      run(InTransport{transport, schedule}, options);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
