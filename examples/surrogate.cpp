// SPDX-License-Identifier: Apache-2.0
// A solver under MPI that trains a surrogate of itself while it runs: mpirun -n 2 surrogate --replicas 4
// Fisher's equation u' = u_xx + u (1 - u) on a ring: a population spreads. Each replica learns from 64 cells.
#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <iostream>
#include <mutex>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include <replicator/job/mpi.hpp>
#include <replicator/replicator.hpp>
namespace rp = replicator;

constexpr int part = 64, reach = 8, window = 2 * reach + 1;     // cells of a replica; solver steps of one big step; cells that these see
using Sample = std::tuple<rp::Array<float>, rp::Array<float>>;  // [part, window] before a big step, [part, 1] the change of the middle cell

// The cells of this process. The neighbours send what lies beyond its edges.
class Solver {
 public:
  explicit Solver(int parts) : cells_(static_cast<std::size_t>(parts * part)) {
    MPI_Comm_rank(MPI_COMM_WORLD, &rank_), MPI_Comm_size(MPI_COMM_WORLD, &size_);
  }
  void scatter_seeds(std::uint64_t run) {  // each cell is empty or inhabited, whatever process has it
    for (std::size_t i = 0; i < cells_.size(); ++i)
      cells_[i] = rp::PhiloxStream{run, static_cast<std::uint64_t>(rank_) * cells_.size() + i}.uniform() < 0.03f ? 1.0f : 0.0f;
  }
  std::vector<Sample> big_step() {
    const int n = static_cast<int>(cells_.size()), left = (rank_ + size_ - 1) % size_, right = (rank_ + 1) % size_;
    std::vector<float> u(cells_.size() + 2 * reach);
    std::copy(cells_.begin(), cells_.end(), u.begin() + reach);
    MPI_Sendrecv(cells_.data(), reach, MPI_FLOAT, left, 0, u.data() + reach + n, reach, MPI_FLOAT, right, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Sendrecv(cells_.data() + n - reach, reach, MPI_FLOAT, right, 1, u.data(), reach, MPI_FLOAT, left, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    const auto before = u;
    for (int step = 1; step <= reach; ++step) {
      const auto old = u;
      for (std::size_t i = static_cast<std::size_t>(step); i + static_cast<std::size_t>(step) < u.size(); ++i)
        u[i] = old[i] + 0.2f * (old[i - 1] - 2 * old[i] + old[i + 1]) + 0.05f * old[i] * (1 - old[i]);
    }
    std::copy(u.begin() + reach, u.end() - reach, cells_.begin());
    std::vector<Sample> samples;
    for (int first = 0; first < n; first += part) {
      auto& [around, change] = samples.emplace_back(rp::Array<float>{{part, window}}, rp::Array<float>{{part, 1}});
      for (int i = 0; i < part; ++i) {
        for (int j = 0; j < window; ++j) around[i * window + j] = before[static_cast<std::size_t>(first + i + j)];
        change[i] = u[static_cast<std::size_t>(first + i + reach)] - before[static_cast<std::size_t>(first + i + reach)];
      }
    }
    return samples;
  }

 private:
  std::vector<float> cells_;
  int rank_ = 0, size_ = 1;
};

// Samples on their way from the solver, in the main thread, to the inputs, which other threads may read. None: the end.
class Samples {
 public:
  void give(std::vector<Sample> samples) {
    const std::scoped_lock lock{mutex_};
    all_.push_back(std::move(samples)), changed_.notify_all();
  }
  std::optional<Sample> take(std::size_t position, std::size_t local) {
    std::unique_lock lock{mutex_};
    if (!changed_.wait_for(lock, std::chrono::seconds{60}, [&] { return position < all_.size(); })) throw rp::Error{"the solver gave no samples for 60 s"};
    return all_[position].empty() ? std::nullopt : std::optional{all_[position][local]};
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::vector<Sample>> all_;
};

int run(rp::Deployment deployment) {
  const auto processes = rp::processes_of(MPI_COMM_WORLD);
  if (deployment.replicas % processes.size() != 0) throw rp::BuildError{"the replicas must be a multiple of the processes"};
  const int local = deployment.replicas / processes.size();
  Solver solver{local};
  Samples samples;
  auto solve = [&, made = 0]() mutable {
    if (made++ % 20 == 0) solver.scatter_seeds(static_cast<std::uint64_t>(made));
    samples.give(solver.big_step());
  };
  solve();
  deployment.processes = processes;
  rp::Replicator repl{deployment};
  auto input_fn = [&](const rp::InputContext& ctx) {
    const auto mine = static_cast<std::size_t>(ctx.replica() % local);
    return rp::data::from_generator([&samples, mine](std::int64_t position) { return samples.take(static_cast<std::size_t>(position), mine); });
  };
  auto train = repl.replicate(input_fn, [](rp::ReplicaContext& replica, rp::Tensor<float> around, rp::Tensor<float> change) {
    auto hidden = rp::tanh(rp::nn::linear(replica, around, "hidden", {.features = 32}));
    auto guess = rp::nn::linear(replica, hidden, "change", {.features = 1});
    auto loss = rp::mean(rp::map([](auto a, auto b) { return (a - b) * (a - b); }, guess, change));
    rp::nn::adam({.learning_rate = 0.01}).minimize(replica, loss);
    return std::tuple{loss, rp::mean(change * change)};
  });
  float missed = 0, changed = 0;
  for (int step = 1; step <= 400; ++step) {
    solve();  // one big step ahead of what is learned
    const auto [loss, change] = train.step();
    missed += rp::mean(loss), changed += rp::mean(change);
    if (step % 100 != 0) continue;
    if (repl.process() == 0) std::cout << "big step " << step << ": the surrogate misses " << 100 * missed / changed << " % of the squared change\n";
    missed = changed = 0;
  }
  samples.give({});
  const auto digest = repl.digest();
  if (repl.process() == 0) std::cout << "digest: " << digest << '\n';
  return std::cout.flush() ? 0 : 1;
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  try {
    const int code = run(rp::Deployment::only_from(argc, argv));
    return MPI_Finalize(), code;
  } catch (const rp::Error& error) {
    std::cerr << error.what() << '\n';
    return MPI_Abort(MPI_COMM_WORLD, 1);
  }
}
