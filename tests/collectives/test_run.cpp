// SPDX-License-Identifier: Apache-2.0
// Real runs between threads against a reference that folds T by recursion in plain loops: equal bits.
#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <cstring>
#include <memory>
#include <replicator/collectives/choose/choose_schedule.hpp>
#include <replicator/collectives/run/run.hpp>
#include <replicator/core/philox.hpp>
#include <replicator/transport/in_process.hpp>
#include <string>
#include <thread>
#include <vector>

#include "../support/cases.hpp"
#include "ranks.hpp"

namespace test_run {

namespace rc = replicator::detail::collectives;
namespace rt = replicator::detail::transport;
using replicator::test::cases;
using replicator::test::counts_to;
using replicator::test::LoadsOnly;
using replicator::test::MessagesOnly;
using replicator::test::run_ranks;
using replicator::test::soon;

namespace {

rc::CollectiveSpec spec_of(rc::Kind kind, std::int64_t elements) {
  rc::CollectiveSpec spec;
  spec.kind = kind;
  spec.elements = elements;
  return spec;
}

using Values = std::vector<float>;

Values leaf(int replica, int step, std::int64_t elements) {
  replicator::PhiloxStream random{7, static_cast<std::uint64_t>(replica), static_cast<std::uint32_t>(step)};
  Values values(static_cast<std::size_t>(elements));
  for (float& value : values) value = random.uniform() - 0.5f;
  return values;
}

Values fold(rc::TreeNode node, int step, std::int64_t elements, replicator::Reduction reduction) {
  if (node.leaf()) return leaf(node.begin, step, elements);
  Values left = fold(node.left(), step, elements, reduction);
  const Values right = fold(node.right(), step, elements, reduction);
  for (std::size_t i = 0; i < left.size(); ++i) {
    if (reduction == replicator::Reduction::min)
      left[i] = left[i] < right[i] ? left[i] : right[i];
    else if (reduction == replicator::Reduction::max)
      left[i] = left[i] > right[i] ? left[i] : right[i];
    else
      left[i] = left[i] + right[i];
  }
  return left;
}

// What `rank` must receive.
Values reference(const rc::CollectiveSpec& spec, const rc::ReplicaBlocks& blocks, int rank, int step) {
  const std::int64_t n = spec.elements;
  const int replicas = blocks.replicas();
  if (spec.kind == rc::Kind::broadcast) return leaf(spec.root, step, n);
  if (spec.kind == rc::Kind::all_gather) {
    Values all;
    for (int replica = 0; replica < replicas; ++replica) {
      const Values one = leaf(replica, step, n);
      all.insert(all.end(), one.begin(), one.end());
    }
    return all;
  }
  const bool scatter = spec.kind == rc::Kind::reduce_scatter;
  Values whole = fold({0, replicas}, step, scatter ? n * replicas : n, spec.reduction);
  if (spec.reduction == replicator::Reduction::mean)
    for (float& value : whole) value = value / static_cast<float>(replicas);
  if (!scatter) return whole;
  return {whole.begin() + blocks.begin(rank) * n, whole.begin() + blocks.end(rank) * n};
}

void write(std::byte* to, const Values& values) {
  if (!values.empty()) std::memcpy(to, values.data(), values.size() * sizeof(float));
}

bool same_bits(const std::byte* found, const Values& wanted) {
  return wanted.empty() || std::memcmp(found, wanted.data(), wanted.size() * sizeof(float)) == 0;
}

// Three steps with other data each, on every rank, without any other synchronisation in between.
template <class T>
void check_bits(const rc::CollectiveSpec& spec, const rc::Schedule& schedule, std::size_t piece_bytes) {
  constexpr int steps = 3;
  const rc::ReplicaBlocks& blocks = schedule.blocks;
  rt::InProcessGroup group{blocks.ranks()};
  run_ranks(group, [&](int rank) {
    const auto communicator = rc::make_communicator(T{group, rank}, blocks, piece_bytes);
    const auto collective = communicator->prepare(spec, schedule);
    const std::int64_t length = spec.elements * schedule.input_blocks();
    const auto inputs = schedule.inputs(rank);
    if (collective->inputs() != static_cast<int>(inputs.size())) throw replicator::Error{"wrong number of inputs"};
    for (int step = 0; step < steps; ++step) {
      for (int index = 0; index < collective->inputs(); ++index)
        write(collective->input(index), fold(inputs[static_cast<std::size_t>(index)], step, length, spec.reduction));
      collective->start();
      collective->wait(soon());
      if (!same_bits(collective->output(), reference(spec, blocks, rank, step)))
        throw replicator::Error{"wrong bits in step " + std::to_string(step)};
    }
  });
}

void check_everywhere(const rc::CollectiveSpec& spec, const rc::Schedule& schedule) {
  INFO(schedule.name << ": " << schedule.blocks.replicas() << " replicas on " << schedule.ranks() << " ranks, "
                     << spec.elements << " elements, " << rc::name_of(spec.reduction));
  check_bits<rt::InProcess>(spec, schedule, 1024);
  check_bits<LoadsOnly>(spec, schedule, 1024);
  check_bits<MessagesOnly>(spec, schedule, 1024);
}

// The same, each input being written piece by piece, and none before the piece in front of it has been received. Returns the number of pieces.
template <class T>
int check_pieces(const rc::CollectiveSpec& spec, const rc::Schedule& schedule) {
  constexpr int steps = 3;
  const rc::ReplicaBlocks& blocks = schedule.blocks;
  rt::InProcessGroup group{blocks.ranks()};
  std::atomic<int> most{0};
  run_ranks(group, [&](int rank) {
    const auto communicator = rc::make_communicator(T{group, rank}, blocks, 1024);
    const auto collective = communicator->prepare(spec, schedule);
    const auto inputs = schedule.inputs(rank);
    const auto first = [&](int piece) { return static_cast<std::size_t>(rc::part_begin(spec.elements, collective->pieces(), piece)); };
    const auto block = static_cast<std::size_t>(spec.elements);
    most = std::max(most.load(), collective->pieces());
    for (int step = 0; step < steps; ++step) {
      std::vector<Values> values;
      for (const auto& input : inputs) values.push_back(fold(input, step, spec.elements * schedule.input_blocks(), spec.reduction));
      const Values wanted = reference(spec, blocks, rank, step);
      for (int piece = 0; piece < collective->pieces(); ++piece) {
        const std::size_t from = first(piece), bytes = (first(piece + 1) - from) * sizeof(float);
        for (std::size_t i = 0; i < values.size(); ++i)
          for (std::size_t at = from; at < values[i].size(); at += block)
            std::memcpy(collective->input(static_cast<int>(i)) + at * sizeof(float), values[i].data() + at, bytes);
        collective->give(piece + 1);
        if (piece + 1 == collective->pieces()) break;
        const auto patience = soon();
        while (collective->received() <= piece && rt::Clock::now() < patience) {
          if (collective->advance()) throw replicator::Error{"finished before all was given"};
          std::this_thread::yield();  // threads outnumber cores
        }
        if (collective->received() <= piece) throw replicator::Error{"a piece waits for those behind it"};
        for (std::size_t at = from; at < wanted.size(); at += block)
          if (std::memcmp(collective->output() + at * sizeof(float), wanted.data() + at, bytes) != 0) throw replicator::Error{"a piece has other bits"};
      }
      collective->wait(soon());
      if (!same_bits(collective->output(), wanted)) throw replicator::Error{"wrong bits in step " + std::to_string(step)};
    }
  });
  return most;
}

}  // namespace

TEST_CASE("an all-reduce has the bits of the tree for every schedule, size and number of ranks") {
  for (const int ranks : counts_to(8))
    for (const int replicas : {ranks, 8, 2 * ranks + 1})
      for (const std::int64_t elements : {0, 1, 2, 5, 1000}) {
        rc::CollectiveSpec spec;
        spec.elements = elements;
        const rc::ReplicaBlocks blocks{replicas, ranks};
        for (const auto reduction : {replicator::Reduction::mean, replicator::Reduction::max}) {
          spec.reduction = reduction;
          check_everywhere(spec, rc::owner_computes(blocks));
          check_everywhere(spec, rc::direct(blocks));
        }
      }
}

TEST_CASE("a large all-reduce has the bits of the tree, in many pieces or in one") {
  rc::CollectiveSpec spec;
  spec.elements = 100003;
  for (const int ranks : cases({1, 2, 3, 5, 8}, {1, 3, 8})) {
    check_everywhere(spec, rc::owner_computes({8, ranks}));
    check_everywhere(spec, rc::direct({8, ranks}));
    check_bits<rt::InProcess>(spec, rc::owner_computes({8, ranks}), std::size_t{1} << 30);
  }
}

TEST_CASE("inputs may be written piece by piece, and the output of a piece is there before the next one is given") {
  for (const int ranks : cases({1, 2, 3, 5}, {1, 3}))
    for (const auto kind : {rc::Kind::all_reduce, rc::Kind::all_gather, rc::Kind::reduce_scatter, rc::Kind::broadcast})
      for (const std::int64_t elements : {100, 10007}) {
        auto spec = spec_of(kind, elements);
        spec.root = kind == rc::Kind::broadcast ? 3 : 0;
        spec.piecewise = true;
        const rc::ReplicaBlocks blocks{7, ranks};
        const auto schedule = rc::choose(kind, elements * 4, blocks, spec.root, false, {}, {}, rt::Latency::memory).schedule;
        INFO(schedule.name << " of " << elements << " elements on " << ranks << " ranks");
        const bool large = elements > 100;
        CHECK((check_pieces<rt::InProcess>(spec, schedule) > 1) == large);
        CHECK((check_pieces<LoadsOnly>(spec, schedule) > 1) == large);
        CHECK((check_pieces<MessagesOnly>(spec, schedule) > 1) == large);
      }
}

TEST_CASE("all-gather, reduce-scatter and broadcast have the reference's bits") {
  for (const int ranks : counts_to(8))
    for (const int replicas : {ranks, 2 * ranks + 1})
      for (const std::int64_t elements : {0, 1, 5, 1000}) {
        const rc::ReplicaBlocks blocks{replicas, ranks};
        rc::CollectiveSpec spec;
        spec.elements = elements;
        spec.kind = rc::Kind::all_gather;
        check_everywhere(spec, rc::all_gather(blocks));
        spec.kind = rc::Kind::reduce_scatter;
        spec.reduction = replicator::Reduction::mean;
        check_everywhere(spec, rc::reduce_scatter(blocks));
        spec.kind = rc::Kind::broadcast;
        spec.root = replicas / 2;
        check_everywhere(spec, rc::broadcast(blocks, spec.root));
        check_everywhere(spec, rc::broadcast(blocks, spec.root, true));
      }
}

TEST_CASE("large gathers, scatters and broadcasts have the reference's bits") {
  for (const int ranks : {2, 3}) {
    const rc::ReplicaBlocks blocks{4, ranks};
    rc::CollectiveSpec spec;
    spec.elements = 100003;
    spec.kind = rc::Kind::all_gather;
    check_everywhere(spec, rc::all_gather(blocks));
    spec.kind = rc::Kind::reduce_scatter;
    check_everywhere(spec, rc::reduce_scatter(blocks));
    spec.kind = rc::Kind::broadcast;
    spec.root = 3;
    check_everywhere(spec, rc::broadcast(blocks, 3));
  }
}

// In five steps.
template <class T>
void check_whole_numbers(const rc::Schedule& schedule, int elements) {
  const rc::ReplicaBlocks& blocks = schedule.blocks;
  rc::CollectiveSpec spec;
  spec.dtype = replicator::DType::int32;
  spec.elements = elements;
  spec.any_order = true;
  rt::InProcessGroup group{blocks.ranks()};
  run_ranks(group, [&](int rank) {
    const auto communicator = rc::make_communicator(T{group, rank}, blocks, 256);
    const auto collective = communicator->prepare(spec, schedule);
    const auto nodes = schedule.inputs(rank);
    for (int step = 0; step < 5; ++step) {
      for (int index = 0; index < collective->inputs(); ++index) {
        int sum = 0;
        for (int r = nodes[static_cast<std::size_t>(index)].begin; r < nodes[static_cast<std::size_t>(index)].end; ++r)
          sum += r + 1 + step;
        auto* input = reinterpret_cast<std::int32_t*>(collective->input(index));
        for (int i = 0; i < elements; ++i) input[i] = sum + i;
      }
      collective->start();
      collective->wait(soon());
      const auto* output = reinterpret_cast<const std::int32_t*>(collective->output());
      const int n = blocks.replicas();
      for (int i = 0; i < elements; ++i) {
        int wanted = n * (n + 1) / 2 + n * step;
        for (int r = 0; r < blocks.ranks(); ++r) wanted += i * static_cast<int>(schedule.inputs(r).size());
        if (output[i] != wanted) throw replicator::Error{"wrong sum"};
      }
    }
  });
}

TEST_CASE("every all-reduce adds whole numbers exactly, in whichever order: n(n+1)/2") {
  for (const int ranks : counts_to(9))
    for (const int replicas : {ranks, 2 * ranks + 1})
      for (const auto name : rc::all_reduce_names)
        for (const int elements : cases({0, 1, 7, 999}, {0, 999})) {
          const std::vector<int> dimensions = ranks % 2 == 0 ? std::vector{ranks / 2, 2} : std::vector{ranks};
          const auto schedule = rc::all_reduce_by_name({std::string{name}, dimensions}, {replicas, ranks});
          INFO(name << ": " << replicas << " replicas on " << ranks << " ranks, " << elements << " elements");
          check_whole_numbers<rt::InProcess>(schedule, elements);
          check_whole_numbers<LoadsOnly>(schedule, elements);
          check_whole_numbers<MessagesOnly>(schedule, elements);
        }
}

TEST_CASE("every all-reduce that keeps the tree has its bits") {
  for (const int ranks : counts_to(9))
    for (const int replicas : {ranks, 2 * ranks, 2 * ranks + 1})
      for (const auto name : {"halving_doubling", "binary_tree", "naive", "hierarchical"})
        for (const std::int64_t elements : {1, 7, 999}) {
          const std::vector<int> dimensions = ranks % 2 == 0 ? std::vector{ranks / 2, 2} : std::vector{ranks};
          const auto schedule = rc::all_reduce_by_name({name, dimensions}, {replicas, ranks});
          if (schedule.any_order) continue;
          rc::CollectiveSpec spec;
          spec.elements = elements;
          spec.reduction = replicator::Reduction::mean;
          check_everywhere(spec, schedule);
        }
}

TEST_CASE("a rank alone has its result where its input was, unless results have another order") {
  const rc::ReplicaBlocks blocks{4, 1};
  rt::InProcessGroup group{1};
  const auto communicator = rc::make_communicator(rt::InProcess{group, 0}, blocks);
  for (const auto kind : {rc::Kind::all_reduce, rc::Kind::reduce_scatter, rc::Kind::all_gather, rc::Kind::all_to_all}) {
    rc::CollectiveSpec spec;
    spec.kind = kind;
    spec.elements = 100;
    spec.id = static_cast<std::uint32_t>(kind);
    const auto collective = communicator->prepare(spec, rc::choose(kind, 400, blocks).schedule);
    CHECK((collective->output() == collective->input(0)) == rc::reduces(kind));
  }
}

TEST_CASE("several collectives are under way at once and a slow rank never sees another step's data") {
  constexpr int ranks = 3, steps = 200;
  const rc::ReplicaBlocks blocks{ranks, ranks};
  rt::InProcessGroup group{ranks};
  run_ranks(group, [&](int rank) {
    const auto communicator = rc::make_communicator(rt::InProcess{group, rank}, blocks, 64);
    std::vector<std::unique_ptr<rc::Collective>> collectives;
    std::vector<rc::CollectiveSpec> specs;
    for (const auto kind : {rc::Kind::all_reduce, rc::Kind::all_gather, rc::Kind::reduce_scatter, rc::Kind::broadcast})
      for (const std::int64_t elements : {4, 30000}) {
        rc::CollectiveSpec spec;
        spec.kind = kind;
        spec.elements = elements;
        spec.id = static_cast<std::uint32_t>(specs.size());
        specs.push_back(spec);
        collectives.push_back(communicator->prepare(spec, rc::choose(kind, elements * 4, blocks).schedule));
      }
    for (int step = 0; step < steps; ++step) {
      for (std::size_t c = 0; c < collectives.size(); ++c) {
        const std::int64_t length = specs[c].elements * (specs[c].kind == rc::Kind::reduce_scatter ? ranks : 1);
        auto* values = reinterpret_cast<float*>(collectives[c]->input(0));
        for (std::int64_t i = 0; i < length; ++i) values[i] = static_cast<float>(rank + 1 + step);
        collectives[c]->start();
      }
      if ((step + rank) % 50 == 0) std::this_thread::sleep_for(std::chrono::milliseconds{1});
      for (std::size_t c = collectives.size(); c-- > 0;) {
        collectives[c]->wait(soon());
        const auto* found = reinterpret_cast<const float*>(collectives[c]->output());
        float wanted = static_cast<float>(ranks * (ranks + 1) / 2 + ranks * step);
        if (specs[c].kind == rc::Kind::all_gather || specs[c].kind == rc::Kind::broadcast)
          wanted = static_cast<float>(1 + step);
        for (std::int64_t i = 0; i < specs[c].elements; ++i)
          if (found[i] != wanted) throw replicator::Error{"another step's data"};
      }
    }
  });
}

TEST_CASE("the root of a small broadcast runs eight steps ahead of those who listen, and waits for the slowest then") {
  constexpr int ranks = 3, steps = 50, root = 1;
  const rc::ReplicaBlocks blocks{ranks, ranks};
  rt::InProcessGroup group{ranks};
  std::atomic<bool> stuck{false};
  run_ranks(group, [&](int rank) {
    const auto communicator = rc::make_communicator(rt::InProcess{group, rank}, blocks);
    rc::CollectiveSpec spec = spec_of(rc::Kind::broadcast, 4);
    spec.root = root;
    const auto collective = communicator->prepare(spec, rc::choose(spec.kind, 16, blocks, root).schedule);
    while (rank == 2 && !stuck) std::this_thread::yield();
    for (int step = 0; step < steps; ++step) {
      write(collective->input(0), leaf(rank, step, 4));
      collective->start();
      if (rank == root && step == 8) {
        const auto patience = soon();
        do {
          if (collective->wait_until(rt::Clock::now() + std::chrono::milliseconds{5}, {})) throw replicator::Error{"has not waited"};
        } while (collective->missing().rank != 2 && rt::Clock::now() < patience);
        if (collective->missing().rank != 2) throw replicator::Error{"does not wait for the slowest"};
        stuck = true;
      }
      collective->wait(soon());
      if (!same_bits(collective->output(), leaf(root, step, 4))) throw replicator::Error{"another step's data"};
    }
  });
}

TEST_CASE("a rank that does not come is named with its replicas when the deadline is over") {
  for (const std::int64_t elements : {4, 100000}) {
    const rc::ReplicaBlocks blocks{8, 3};
    rt::InProcessGroup group{3};
    std::string message;
    int culprit = -1;
    run_ranks(group, [&](int rank) {
      const auto communicator = rc::make_communicator(rt::InProcess{group, rank}, blocks);
      rc::CollectiveSpec spec;
      spec.elements = elements;
      spec.name = "all_reduce \"fc.weight/gradient\" (train.cpp:31)";
      const auto collective = communicator->prepare(spec, rc::choose_all_reduce(elements * 4, 3, 8, false).schedule);
      if (rank == 1) return;
      collective->start();
      try {
        collective->wait(rt::Clock::now() + std::chrono::milliseconds{50});
      } catch (const replicator::CommunicationError& error) {
        if (rank != 0) return;
        message = error.what();
        culprit = error.culprit();
      }
    });
    CHECK_THAT(message, Catch::Contains("all_reduce \"fc.weight/gradient\" (train.cpp:31): rank 0 waited until the "
                                        "deadline for rank 1 (replicas 3 to 5); 0 bytes had moved"));
    CHECK(culprit == 1);
  }
}

namespace {

// Keeps back what was sent for a while, as UCX does where a socket is full.
class KeepsBack : public MessagesOnly {
 public:
  KeepsBack(rt::InProcessGroup& group, int rank, std::atomic<int>& looks) : MessagesOnly{group, rank}, looks_{&looks} {}
  bool flushed() { return --*looks_ < 0; }
  int unsent_to() { return *looks_ < 0 ? -1 : 1; }
  // Nobody wakes this rank when it may look again.
  bool wait(const std::function<bool()>& ready, rt::Clock::time_point until) {
    while (rt::Clock::now() < until)
      if (MessagesOnly::wait(ready, rt::Clock::now() + std::chrono::milliseconds{1})) return true;
    return ready();
  }

 private:
  std::atomic<int>* looks_;  // until everything has left
};

}  // namespace

TEST_CASE("a step ends only after all its messages have left the process, and the error names the rank that takes none") {
  constexpr int ranks = 2;
  const rc::ReplicaBlocks blocks{ranks, ranks};
  const auto spec = spec_of(rc::Kind::broadcast, 4);  // rank 0 only sends
  std::atomic<int> looks{1'000'000'000}, none{0};
  rt::InProcessGroup group{ranks};
  std::string message;
  run_ranks(group, [&](int rank) {
    const auto communicator = rc::make_communicator(KeepsBack{group, rank, rank == 0 ? looks : none}, blocks);
    const auto collective = communicator->prepare(spec, rc::choose(spec.kind, 16, blocks).schedule);
    collective->start();
    if (rank == 1) return collective->wait(soon());
    try {
      collective->wait(rt::Clock::now() + std::chrono::milliseconds{50});
    } catch (const replicator::CommunicationError& error) {
      message = error.what();
    }
    looks = 10;
    collective->wait(soon());
    if (looks >= 0) throw replicator::Error{"has ended before its messages have left"};
  });
  CHECK_THAT(message, Catch::Contains("rank 0 waited until the deadline for rank 1 (replica 1)"));
}

TEST_CASE("an abort ends a wait with the same error on every rank") {
  const rc::ReplicaBlocks blocks{2, 2};
  rt::InProcessGroup group{2};
  std::string found;
  run_ranks(group, [&](int rank) {
    const auto communicator = rc::make_communicator(rt::InProcess{group, rank}, blocks);
    const auto collective = communicator->prepare(spec_of(rc::Kind::all_reduce, 100000), rc::owner_computes(blocks));
    if (rank == 1) {
      std::this_thread::sleep_for(std::chrono::milliseconds{20});
      group.abort({"host 1 was killed", 1});
      return;
    }
    collective->start();
    try {
      collective->wait(soon());
    } catch (const replicator::CommunicationError& error) {
      found = error.what();
    }
    try {
      communicator->check();
      found += ", but goes on";
    } catch (const replicator::CommunicationError&) {
    }
  });
  CHECK(found == "host 1 was killed");
}

TEST_CASE("a schedule that does not fit is refused before anything moves") {
  rt::InProcessGroup group{1};
  const auto communicator = rc::make_communicator(rt::InProcess{group, 0}, {4, 1});
  const auto schedule = rc::owner_computes({4, 1});
  CHECK_THROWS_WITH(communicator->prepare(spec_of(rc::Kind::broadcast, 1), schedule),
                    "broadcast cannot run by the schedule \"owner_computes\": that is one for all_reduce");
  CHECK_THROWS_WITH(communicator->prepare({}, rc::owner_computes({5, 1})),
                    "all_reduce cannot run by the schedule \"owner_computes\": that is one for 5 replicas on 1 ranks, "
                    "there are 4 on 1");
  CHECK_THROWS_AS(communicator->prepare({}, rc::ring({4, 1})), replicator::BuildError);
  CHECK_THROWS_AS(rc::make_communicator(rt::InProcess{group, 0}, {4, 2}), replicator::BuildError);
  const auto collective = communicator->prepare(spec_of(rc::Kind::all_reduce, 1), schedule);
  collective->start();
  CHECK_THROWS_AS(collective->start(), replicator::BuildError);
}

}  // namespace test_run
