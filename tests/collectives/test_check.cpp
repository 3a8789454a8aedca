// SPDX-License-Identifier: Apache-2.0
// The checker accepts every schedule of the library, and refuses every single mutation of small ones.
#include <catch2/catch.hpp>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <replicator/collectives/check/check.hpp>
#include <replicator/collectives/choose/choose_schedule.hpp>
#include <replicator/collectives/run/loads_to_messages.hpp>
#include <replicator/core/philox.hpp>
#include <string>
#include <tuple>
#include <vector>

#include "../support/cases.hpp"

namespace test_check {

namespace rc = replicator::detail::collectives;
using replicator::test::counts_to;

namespace {

// As square as the number of ranks allows.
std::vector<int> grid_of(int ranks) {
  int devices = 1;
  for (int d = 1; d * d <= ranks; ++d)
    if (ranks % d == 0) devices = ranks / d;
  return {devices, ranks / devices};
}

std::vector<rc::Schedule> all_reduces(const rc::ReplicaBlocks& blocks) {
  std::vector<rc::Schedule> result;
  for (const auto name : rc::all_reduce_names)
    result.push_back(rc::all_reduce_by_name({std::string{name}, grid_of(blocks.ranks())}, blocks));
  return result;
}

// Replica r is in group r % count, so every group lies on several ranks.
replicator::Groups dealt(int replicas, int count) {
  std::vector<std::vector<int>> members(static_cast<std::size_t>(count));
  for (int replica = 0; replica < replicas; ++replica) members[static_cast<std::size_t>(replica % count)].push_back(replica);
  return members;
}

std::vector<rc::Schedule> grouped_schedules(const rc::ReplicaBlocks& blocks) {
  if (blocks.replicas() < 3) return {};
  const auto in = dealt(blocks.replicas(), 2);
  std::vector<rc::Schedule> result{rc::owner_computes(blocks, in), rc::direct(blocks, in), rc::broadcast(blocks, 0, false, in)};
  if (in.equal_sizes())
    for (const auto& other : {rc::all_gather(blocks, in), rc::reduce_scatter(blocks, in), rc::all_to_all(blocks, in)})
      result.push_back(other);
  return result;
}

std::vector<rc::Schedule> all_schedules(const rc::ReplicaBlocks& blocks) {
  std::vector<rc::Schedule> result = all_reduces(blocks);
  for (const auto& other : {rc::all_gather(blocks), rc::reduce_scatter(blocks),
                            rc::broadcast(blocks, blocks.replicas() / 2), rc::broadcast(blocks, 0, true), rc::all_to_all(blocks)})
    result.push_back(other);
  for (const auto& other : grouped_schedules(blocks)) result.push_back(other);
  return result;
}

// Finished chunks are passed on from rank to rank.
bool relays(const rc::Schedule& schedule) {
  for (const std::string name : {"ring", "halving_doubling", "binary_tree", "hierarchical"})
    if (schedule.name == name) return true;
  return false;
}

// An independent oracle for the result of a schedule. It runs the schedule in a random order, with text as values and
// messages that wait for each other. Empty if it gets stuck.
class RandomRun {
 public:
  RandomRun(const rc::Schedule& schedule, std::uint64_t seed) : s_{schedule}, random_{seed, 1} {}

  std::vector<std::string> outputs() {
    std::vector<std::vector<std::size_t>> next;
    for (const auto& program : s_.programs) next.emplace_back(program.size(), 0);
    next_ = &next;
    while (step()) {
    }
    std::vector<std::string> result;
    for (int rank = 0; rank < s_.ranks(); ++rank) {
      for (std::size_t c = 0; c < next[static_cast<std::size_t>(rank)].size(); ++c)
        if (next[static_cast<std::size_t>(rank)][c] != s_.programs[static_cast<std::size_t>(rank)][c].size()) return {};
      for (int chunk = 0; chunk < s_.output_blocks(rank) * s_.chunks; ++chunk)
        result.push_back(load({rc::Buffer::output, rank, 0, chunk, 1}, 0));
    }
    return result;
  }

 private:
  std::string load(const rc::Operand& o, int k) {
    if (o.buffer == rc::Buffer::input) {
      const auto node = s_.inputs(o.rank)[static_cast<std::size_t>(o.index)];
      return node.text() + "#" + std::to_string(o.chunk + k);
    }
    return memory_[{o.rank, o.buffer, o.index, o.buffer == rc::Buffer::scratch ? 0 : o.chunk + k}];
  }
  void store(const rc::Operand& o, int k, const std::string& value) {
    memory_[{o.rank, o.buffer, o.index, o.buffer == rc::Buffer::scratch ? 0 : o.chunk + k}] = value;
  }
  bool ready(const rc::Instruction& i) const {
    for (const auto& d : i.after)
      if ((*next_)[static_cast<std::size_t>(d.rank)][static_cast<std::size_t>(d.channel)] <=
          static_cast<std::size_t>(d.instruction))
        return false;
    return true;
  }
  const rc::Instruction* head(int rank, std::size_t channel) const {
    const auto& program = s_.programs[static_cast<std::size_t>(rank)][channel];
    const std::size_t at = (*next_)[static_cast<std::size_t>(rank)][channel];
    return at < program.size() && ready(program[at]) ? &program[at] : nullptr;
  }
  // Which message to its peer this is, counted over the rank's program.
  int ordinal(int rank, std::size_t channel, const rc::Instruction* of) const {
    int count = 0;
    for (std::size_t c = 0; c <= channel; ++c)
      for (const auto& i : s_.programs[static_cast<std::size_t>(rank)][c]) {
        if (&i == of) return count;
        count += i.action == of->action && i.peer == of->peer;
      }
    return count;
  }

  bool step() {
    std::vector<std::pair<int, std::size_t>> can;
    for (int rank = 0; rank < s_.ranks(); ++rank)
      for (std::size_t c = 0; c < s_.programs[static_cast<std::size_t>(rank)].size(); ++c)
        if (const auto* i = head(rank, c);
            i && i->action != rc::Action::recv && (i->action != rc::Action::send || receiver(rank, c)))
          can.emplace_back(rank, c);
    if (can.empty()) return false;
    const auto [rank, channel] = can[random_.below(static_cast<std::uint32_t>(can.size()))];
    const rc::Instruction& i = *head(rank, channel);
    std::vector<std::string> values;
    for (int k = 0; k < i.left.count; ++k) {
      std::string value = load(i.left, k);
      if (i.action == rc::Action::reduce) value = "(" + value + "+" + load(i.right, k) + ")";
      values.push_back(i.root ? "root" + value : value);
    }
    rc::Operand dst = i.dst;
    if (i.action == rc::Action::send) {
      const auto [peer, other] = *receiver(rank, channel);
      dst = head(peer, other)->dst;
      ++(*next_)[static_cast<std::size_t>(peer)][other];
    }
    for (std::size_t k = 0; k < values.size(); ++k) store(dst, static_cast<int>(k), values[k]);
    ++(*next_)[static_cast<std::size_t>(rank)][channel];
    return true;
  }

  std::optional<std::pair<int, std::size_t>> receiver(int rank, std::size_t channel) const {
    const rc::Instruction* send = head(rank, channel);
    const int mine = ordinal(rank, channel, send);
    for (std::size_t c = 0; c < s_.programs[static_cast<std::size_t>(send->peer)].size(); ++c)
      if (const auto* i = head(send->peer, c);
          i && i->action == rc::Action::recv && i->peer == rank && ordinal(send->peer, c, i) == mine)
        return std::pair{send->peer, c};
    return std::nullopt;
  }

  const rc::Schedule& s_;
  replicator::PhiloxStream random_;
  std::map<std::tuple<int, rc::Buffer, int, int>, std::string> memory_;
  std::vector<std::vector<std::size_t>>* next_ = nullptr;
};

enum class Change {
  instruction,
  source_rank,
  neighbours,
  dependency
};
using Report = std::function<void(Change, const std::string&, const rc::Schedule&)>;

void mutate_operand(rc::Schedule& mutant, rc::Operand& o, const Report& report, const std::string& name) {
  const rc::Operand original = o;
  const auto with = [&](auto change, const std::string& what) {
    change(o);
    if (o != original)
      report(what == ".rank" && name != "dst" ? Change::source_rank : Change::instruction, name + what, mutant);
    o = original;
  };
  for (const auto buffer : {rc::Buffer::input, rc::Buffer::output, rc::Buffer::scratch})
    with([&](rc::Operand& x) { x.buffer = buffer; }, ".buffer");
  for (int rank = -1; rank <= mutant.ranks(); ++rank) with([&](rc::Operand& x) { x.rank = rank; }, ".rank");
  for (int index = -1; index <= 4; ++index) with([&](rc::Operand& x) { x.index = index; }, ".index");
  for (int chunk = -1; chunk <= mutant.chunks * mutant.blocks.replicas(); ++chunk)
    with([&](rc::Operand& x) { x.chunk = chunk; }, ".chunk");
  for (int count = 0; count <= 3; ++count) with([&](rc::Operand& x) { x.count = count; }, ".count");
}

void mutate_dependencies(rc::Schedule& mutant, rc::Instruction& i, const Report& report) {
  for (std::size_t d = 0; d < i.after.size(); ++d) {
    const auto all = i.after;
    i.after.erase(i.after.begin() + static_cast<std::ptrdiff_t>(d));
    report(Change::dependency, "dependency dropped", mutant);
    i.after = all;
    for (int rank = 0; rank < mutant.ranks(); ++rank)
      for (int channel = 0; channel < static_cast<int>(mutant.programs[static_cast<std::size_t>(rank)].size());
           ++channel)
        for (int k = 0; k <= 3; ++k) {
          const rc::Dependency other{rank, channel, k};
          if (other == all[d]) continue;
          i.after[d] = other;
          report(Change::dependency, "dependency changed", mutant);
        }
    i.after = all;
  }
}

void mutate_instruction(rc::Schedule& mutant, rc::Instruction& i, const Report& report) {
  mutate_operand(mutant, i.dst, report, "dst");
  mutate_operand(mutant, i.left, report, "left");
  mutate_operand(mutant, i.right, report, "right");
  if (i.action == rc::Action::reduce) {
    std::swap(i.left, i.right);
    report(Change::instruction, "left and right swapped", mutant);
    std::swap(i.left, i.right);
  }
  const int peer = i.peer;
  for (i.peer = -1; i.peer <= mutant.ranks(); ++i.peer)
    if (i.peer != peer) report(Change::instruction, "peer", mutant);
  i.peer = peer;
  const rc::Action action = i.action;
  for (const auto other : {rc::Action::copy, rc::Action::reduce, rc::Action::send, rc::Action::recv}) {
    i.action = other;
    if (other != action) report(Change::instruction, "action", mutant);
  }
  i.action = action;
  i.root = !i.root;
  report(Change::instruction, "root", mutant);
  i.root = !i.root;
  mutate_dependencies(mutant, i, report);
}

// Every single mutation: each instruction dropped, doubled, swapped with the next one, and each of its fields changed
// to every other value in and just outside the range.
void for_each_mutant(const rc::Schedule& schedule, const Report& report) {
  rc::Schedule mutant = schedule;
  for (std::size_t r = 0; r < schedule.programs.size(); ++r)
    for (std::size_t c = 0; c < schedule.programs[r].size(); ++c)
      for (std::size_t k = 0; k < schedule.programs[r][c].size(); ++k) {
        auto& channel = mutant.programs[r][c];
        const auto original = channel;
        channel.erase(channel.begin() + static_cast<std::ptrdiff_t>(k));
        report(Change::instruction, "dropped", mutant);
        channel = original;
        if (k + 1 < channel.size()) {
          std::swap(channel[k], channel[k + 1]);
          report(Change::neighbours, "swapped with the next", mutant);
          channel = original;
        }
        mutate_instruction(mutant, channel[k], report);
      }
  for (auto& slots : mutant.scratch) {
    if (slots == 0) continue;
    --slots;
    report(Change::instruction, "scratch", mutant);
    ++slots;
  }
}

}  // namespace

TEST_CASE("every all-reduce is right for every rank count up to 64 and several replica counts") {
  for (const int ranks : counts_to(64))
    for (const int replicas : {ranks, ranks + 1, 2 * ranks, 2 * ranks + 3, 64}) {
      if (replicas < ranks) continue;
      for (const auto& schedule : all_reduces({replicas, ranks})) {
        INFO(schedule.name << ", " << ranks << " ranks, " << replicas << " replicas");
        REQUIRE(rc::find_fault(schedule) == "");
      }
    }
}

TEST_CASE("a schedule gives up the tree only where it really adds in another order") {
  for (int ranks = 2; ranks <= 24; ++ranks)
    for (const int replicas : {ranks, ranks + 1, 2 * ranks, 2 * ranks + 3, 3 * ranks, 48})
      for (auto& schedule : all_reduces({replicas, ranks})) {
        INFO(schedule.name << ", " << ranks << " ranks, " << replicas << " replicas");
        if (!schedule.any_order) continue;
        REQUIRE((schedule.name == "ring" || schedule.name == "halving_doubling" || schedule.name == "hierarchical"));
        schedule.any_order = false;
        REQUIRE(rc::find_fault(schedule) != "");
      }
}

TEST_CASE("halving-doubling keeps the tree for one replica on each rank, and for replicas dealt evenly on 2^k ranks") {
  for (int ranks = 1; ranks <= 64; ++ranks) {
    CHECK_FALSE(rc::halving_doubling({ranks, ranks}).any_order);
    const bool power = (ranks & (ranks - 1)) == 0;
    for (const int each : {2, 3, 5})
      if (power) CHECK_FALSE(rc::halving_doubling({each * ranks, ranks}).any_order);
  }
  CHECK(rc::halving_doubling({6, 3}).any_order);
  CHECK(rc::halving_doubling({14, 4}).any_order);
}

TEST_CASE("a hierarchy keeps the tree where the tree divides at the borders of hosts") {
  for (const int hosts : {1, 2, 4, 8}) {
    for (int devices = 1; devices <= 8; ++devices)
      CHECK_FALSE(rc::hierarchical({devices * hosts, devices * hosts}, {devices, hosts}).any_order);
    for (const int devices : {1, 2, 4})
      CHECK_FALSE(rc::hierarchical({3 * devices * hosts, devices * hosts}, {devices, hosts}).any_order);
  }
  CHECK_FALSE(rc::hierarchical({24, 24}, {3, 2, 1, 4}).any_order);
  CHECK(rc::hierarchical({6, 6}, {2, 3}).any_order);
  CHECK(rc::hierarchical({12, 6}, {3, 2}).any_order);
  CHECK_THROWS_WITH(rc::hierarchical({8, 8}, {4, 3}),
                    "a hierarchical all_reduce was asked for with the dimensions \"4x3\", but there are 8 devices: name "
                    "the devices of a host, then the hosts; their product must be all devices");
  CHECK_THROWS_AS(rc::hierarchical({8, 8}, {}), replicator::BuildError);
  CHECK_THROWS_AS(rc::hierarchical({8, 8}, {-2, -4}), replicator::BuildError);
  CHECK_THROWS_AS(rc::hierarchical({8, 8}, {65536, 65536, 65536, 65536}), replicator::BuildError);
}

TEST_CASE("every algorithm is right, as loads and lowered to messages") {
  for (const int ranks : counts_to(9))
    for (const int replicas : {ranks, ranks + 1, 2 * ranks + 3, 16})
      for (const auto& schedule : all_schedules({replicas, ranks})) {
        INFO(schedule.name << ", " << ranks << " ranks, " << replicas << " replicas");
        REQUIRE(rc::find_fault(schedule) == "");
        REQUIRE(rc::find_fault(rc::lower(schedule)) == "");
      }
}

TEST_CASE("a wrong schedule is refused with the place of the fault") {
  rc::Schedule schedule = rc::owner_computes({4, 2});
  std::swap(schedule.programs[1][1][0].left, schedule.programs[1][1][0].right);
  CHECK_THROWS_WITH(
      rc::check(schedule),
      "all_reduce by the schedule \"owner_computes\" is wrong: rank 1, channel 1, instruction 0: does not "
      "make a node of the tree from its two children");
}

TEST_CASE("writing again what a peer may still read is refused, even with the same value") {
  rc::Schedule schedule = rc::owner_computes({2, 2});
  auto& channel = schedule.programs[0][0];
  channel.push_back(channel.front());
  CHECK(rc::find_fault(schedule) == "rank 0, channel 0, instruction 1: overwrites what may still be read or written");
  // After the peer's copy it is right.
  channel.back().after.push_back({1, 0, 0});
  CHECK(rc::find_fault(schedule) == "");
}

TEST_CASE("scratch slots that are written together cannot be read apart") {
  rc::Schedule schedule = rc::hierarchical({16, 16}, {4, 4});
  CHECK(rc::find_fault(schedule) == "");
  auto& sum = schedule.programs[0][0][2];
  REQUIRE(sum.left == (rc::Operand{rc::Buffer::scratch, 0, 0, 0, 4}));
  for (const rc::Operand part : {rc::Operand{rc::Buffer::scratch, 0, 0, 0, 2}, {rc::Buffer::scratch, 0, 2, 2, 2}}) {
    sum.left = part;
    sum.right.count = sum.dst.count = 2;
    CHECK(rc::find_fault(schedule) ==
          "rank 0, channel 0, instruction 2: uses scratch slots together that are not elsewhere");
  }
}

TEST_CASE("messages that wait for each other in a circle are a deadlock") {
  rc::Schedule schedule = rc::lower(rc::all_gather({2, 2}));
  // Both ranks: first the recv, then the send, in one channel.
  for (auto& program : schedule.programs) {
    rc::Channel recv = program[1], send = program[2];
    recv.insert(recv.end(), send.begin(), send.end());
    program = {program[0], recv};
  }
  CHECK(rc::find_fault(schedule) == "a deadlock: instructions wait for each other in a circle");
}

// Mutations that change nothing may be accepted:
// - Neighbours swapped, if neither touches what the other writes.
// - Removed dependencies that other ones imply.
// - Where ranks relay finished chunks, a copy from another rank that is known to have the chunk already. Then 20 runs
//   in random orders must give the result of the schedule.
// - Left and right swapped under any_order: addition commutes.
//
// All others must be refused.
TEST_CASE("every single mutation of a schedule is refused unless it changes nothing") {
  int mutants = 0, accepted = 0;
  for (const auto& blocks : {rc::ReplicaBlocks{2, 2}, {3, 2}, {3, 3}, {5, 3}, {4, 4}, {6, 4}})
    for (const auto& loads : all_schedules(blocks))
      for (const auto& schedule : {loads, rc::lower(loads)}) {
        const auto wanted = RandomRun{schedule, 0}.outputs();
        REQUIRE_FALSE(wanted.empty());
        for_each_mutant(schedule, [&](Change change, const std::string& what, const rc::Schedule& mutant) {
          ++mutants;
          if (!rc::find_fault(mutant).empty()) return;
          ++accepted;
          if (schedule.any_order && what == "left and right swapped") return;
          INFO(schedule.name << ", " << blocks.replicas() << " replicas, " << blocks.ranks() << " ranks: " << what);
          REQUIRE(change != Change::instruction);
          if (change == Change::source_rank) REQUIRE(relays(schedule));
          for (std::uint64_t seed = 1; seed <= 20; ++seed) REQUIRE(RandomRun{mutant, seed}.outputs() == wanted);
        });
      }
  CHECK(mutants > 100000);
  CHECK(accepted < mutants / 50);
}

}  // namespace test_check
