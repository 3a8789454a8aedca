// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <bit>
#include <catch2/catch.hpp>
#include <cstddef>
#include <cstdint>
#include <map>
#include <replicator/job/elastic/folder_arbiter.hpp>
#include <replicator/job/epochs.hpp>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "../input/temporary_folder.hpp"
#include "../support/cases.hpp"
#include "../support/programs.hpp"
#include "claims.hpp"

namespace test_epochs {

using namespace replicator;
using namespace replicator::detail;
using namespace replicator::detail::transport;
using namespace replicator::detail::transport::detail;

namespace {

constexpr std::size_t most = 5;
using Set = unsigned;  // of processes, a bit each

Epoch epoch_of(std::size_t processes, Set members) {
  Epoch result{0, std::vector<std::uint64_t>(processes, Epoch::absent)};
  for (std::size_t r = 0; r < processes; ++r)
    if (members >> r & 1) result.lives[r] = 0;
  return result;
}

// A whole job, as nobody in it sees it. Processes meet in any part, lose each other at any moment, and die.
struct World {
  std::size_t processes;
  Set dead = 0;
  std::array<Epochs, most> known{};
  std::array<int, most> in{};              // the formation that each process entered last
  std::array<int, most> worked{};          // the last one of its formations that could do a step
  std::array<Set, 1 + most> formations{};  // members of each formation
  int count = 1, last_at_work = 0;
  bool forked = false;  // a formation could do a step, and knew nothing of the steps of another one before it

  explicit World(std::size_t n) : processes{n} {
    for (std::size_t r = 0; r < n; ++r) known[r] = Epochs{n};
    formations[0] = (Set{1} << n) - 1;
  }
  // The processes of `part` meet at the lowest of them, and those of `entered` learn of the new epoch. Where that is all of
  // them, those of `told` learn that it is all of them. Returns false where the part may not go on.
  bool meet(Set part, Set entered, Set told) {
    const auto gatherer = static_cast<std::size_t>(std::countr_zero(part));
    auto& at = known[gatherer];
    for (std::size_t r = 0; r < processes; ++r)
      if (part >> r & 1) at.learn(Epochs{known[r]});
    const auto here = epoch_of(processes, part);
    if (!at.may_go_on(here, [&](std::size_t r) { return dead >> r & 1 ? Outside::gone : Outside::unknown; })) return false;
    at.propose(here);
    formations[static_cast<std::size_t>(count)] = part;
    for (std::size_t r = 0; r < processes; ++r) {
      if (!(entered >> r & 1)) continue;
      known[r].learn(Epochs{at});
      in[r] = count;
    }
    for (std::size_t r = 0; r < processes; ++r)
      if (entered == part && (told >> r & 1)) known[r].confirm();
    if (entered == part) {
      bool follows = false;
      for (std::size_t r = 0; r < processes; ++r) follows |= (part >> r & 1) && worked[r] == last_at_work;
      forked |= !follows;
      last_at_work = count;
      for (std::size_t r = 0; r < processes; ++r)
        if (part >> r & 1) worked[r] = count;
    }
    ++count;
    return true;
  }
  // How many parts can do a step: all members of a formation live and have entered it, and none has left it.
  int parts_at_work() const {
    int result = 0;
    for (int f = 0; f < count; ++f) {
      const auto members = formations[static_cast<std::size_t>(f)];
      bool all = (members & dead) == 0;
      for (std::size_t r = 0; r < processes; ++r)
        if (members >> r & 1) all &= in[r] == f;
      result += all;
    }
    return result;
  }
  std::vector<std::uint64_t> key() const {
    std::vector<std::uint64_t> result{dead, forked};
    std::map<int, std::uint64_t> names;
    for (std::size_t r = 0; r < processes; ++r) {
      result.push_back(names.emplace(in[r], names.size()).first->second);
      result.push_back(formations[static_cast<std::size_t>(in[r])]);
      result.push_back(worked[r] == last_at_work);
      FrameWriter frame{FrameKind::hello};
      for (const auto byte : known[r].write(frame).fields()) result.push_back(static_cast<std::uint64_t>(byte));
    }
    return result;
  }
};

struct Search {
  std::set<std::vector<std::uint64_t>> seen{};
  std::size_t worlds = 0, went_on = 0, forked = 0;
  int most_parts = 0;

  void look(const World& world, int meetings, int deaths) {
    auto key = world.key();
    key.push_back(static_cast<std::uint64_t>(meetings));
    key.push_back(static_cast<std::uint64_t>(deaths));
    if (!seen.insert(std::move(key)).second) return;
    ++worlds;
    most_parts = std::max(most_parts, world.parts_at_work());
    forked += world.forked;
    const Set living = ((Set{1} << world.processes) - 1) & ~world.dead;
    for (std::size_t r = 0; deaths > 0 && r < world.processes; ++r)
      if (living >> r & 1) {
        auto next = world;
        next.dead |= Set{1} << r;
        look(next, meetings, deaths - 1);
      }
    if (meetings == 0) return;
    for (Set part = living; part != 0; part = (part - 1) & living)
      for (Set entered = part; entered != 0; entered = (entered - 1) & part) {
        const Set first = part & (~part + 1);
        if (!(entered & first)) continue;
        for (const Set told : {part, first}) {
          if (entered != part && told != part) continue;
          auto next = world;
          if (next.meet(part, entered, told)) ++went_on, look(next, meetings - 1, deaths);
        }
      }
  }
};

bool goes_on(const Epochs& epochs, std::size_t processes, Set part, Set gone = 0, Outside how = Outside::gone) {
  return epochs.may_go_on(epoch_of(processes, part), [=](std::size_t r) { return gone >> r & 1 ? how : Outside::unknown; });
}

}  // namespace

TEST_CASE("whatever links are cut and heal, and whoever dies while the others meet, at most one part of a job goes on") {
  struct Size {
    std::size_t processes;
    int meetings, deaths;
  };
  for (const auto& [processes, meetings, deaths] : test::cases<Size>({{2, 4, 2}, {3, 3, 2}, {4, 3, 0}, {4, 2, 2}, {5, 3, 0}}, {{2, 4, 2}, {3, 3, 2}, {4, 2, 1}})) {
    Search search;
    search.look(World{processes}, meetings, deaths);
    INFO(processes << " processes, " << search.worlds << " worlds");
    CHECK(search.most_parts == 1);
    CHECK(search.forked == 0);
    CHECK(search.went_on > 0);
  }
}

TEST_CASE("of every cut the part with more than half of the last members goes on, and of two equal parts neither") {
  for (std::size_t processes = 2; processes <= most; ++processes)
    for (Set part = 1; part < (Set{1} << processes); ++part) {
      Epochs epochs{processes};
      CHECK(goes_on(epochs, processes, part) == (2 * static_cast<std::size_t>(std::popcount(part)) > processes));
    }
}

TEST_CASE("half of the members go on where the others are dead, a smaller part only where they were on its machine") {
  for (std::size_t processes = 2; processes <= most; ++processes)
    for (Set part = 1; part < (Set{1} << processes) - 1; ++part) {
      const Set others = ((Set{1} << processes) - 1) & ~part;
      const Epochs epochs{processes};
      const auto size = 2 * static_cast<std::size_t>(std::popcount(part));
      CHECK(goes_on(epochs, processes, part, others) == (size >= processes));
      CHECK(goes_on(epochs, processes, part, others, Outside::gone_here));
      for (std::size_t r = 0; r < processes; ++r)
        if (others >> r & 1 && size <= processes) {
          CHECK_FALSE(goes_on(epochs, processes, part, others & ~(Set{1} << r)));
          CHECK_FALSE(goes_on(epochs, processes, part, others & ~(Set{1} << r), Outside::gone_here));
        }
    }
}

TEST_CASE("a majority may live outside of a part if more than half of the members are outside and not known to be dead") {
  for (std::size_t processes = 2; processes <= most; ++processes)
    for (Set part = 1; part < (Set{1} << processes); ++part)
      for (Set dead = 0; dead < (Set{1} << processes); ++dead) {
        const Epochs epochs{processes};
        const Set all = (Set{1} << processes) - 1;
        const auto outside = static_cast<std::size_t>(std::popcount(all & ~part & ~dead));
        CHECK(epochs.majority_may_live_outside(epoch_of(processes, part), [&](std::size_t r) { return dead >> r & 1 ? Outside::gone : Outside::unknown; }) ==
              (2 * outside > processes));
      }
  Epochs epochs{5};  // counted in the last confirmed epoch
  epochs.propose(epoch_of(5, 0b00111));
  epochs.confirm();
  const auto unknown = [](std::size_t) { return Outside::unknown; };
  CHECK(epochs.majority_may_live_outside(epoch_of(5, 0b00001), unknown));
  CHECK_FALSE(epochs.majority_may_live_outside(epoch_of(5, 0b00011), unknown));
}

TEST_CASE("the majority of an epoch counts only when all its members have entered it") {
  Epochs epochs{5};
  epochs.propose(epoch_of(5, 0b00111));
  CHECK_FALSE(goes_on(epochs, 5, 0b00011));  // the third may have entered another one
  auto entered = epochs;
  entered.confirm();
  CHECK(goes_on(entered, 5, 0b00011));
  CHECK(entered.confirmed().number == 1);
  Epochs late{5};  // and who hears of it does not count as of the old one
  CHECK(goes_on(late, 5, 0b11100));
  late.learn(epochs);
  CHECK_FALSE(goes_on(late, 5, 0b11100));
  late.learn(entered);
  CHECK_FALSE(goes_on(late, 5, 0b11100));
}

TEST_CASE("a process that was started again is a member in its new life only") {
  Epochs epochs{3};
  auto part = epoch_of(3, 0b011);
  part.lives[1] = 1;
  CHECK_FALSE(epochs.may_go_on(part, [](std::size_t) { return Outside::unknown; }));
  auto all = epoch_of(3, 0b111);
  all.lives[1] = 1;
  epochs.propose(all);
  epochs.confirm();
  CHECK(epochs.may_go_on(part, [](std::size_t) { return Outside::unknown; }));
  CHECK_FALSE(goes_on(epochs, 3, 0b010));
}

TEST_CASE("what a process knows of epochs arrives as it was sent, and not cut short") {
  Epochs epochs{3};
  epochs.propose(epoch_of(3, 0b110));
  FrameWriter frame{FrameKind::hello};
  const auto fields = epochs.write(frame).fields();
  FrameReader reader{fields};
  auto read = Epochs::read(3, reader);
  CHECK(read.confirmed() == epochs.confirmed());
  CHECK(read.latest() == 1);
  CHECK_FALSE(goes_on(read, 3, 0b011));
  FrameReader cut{fields.first(fields.size() - 1)};
  CHECK_THROWS_AS(Epochs::read(3, cut), CommunicationError);
}

TEST_CASE("of processes that claim an epoch in a folder at once, one has it, and all read the same name") {
  const TemporaryFolder folder;
  test::check_claims_at_once(5, [&] { return FolderArbiter{folder.path(), 42}; });
}

TEST_CASE("a folder that cannot hold claims, and a file that is none, are named") {
  const TemporaryFolder folder;
  const FolderArbiter nowhere{folder.path() + "/no", 42}, somewhere{folder.path(), 42};
  const Claim wanted{{0, {0, 0}}, "process 0"};
  CHECK_THROWS_WITH(nowhere(wanted), Catch::Contains("--elastic-arbiter " + folder.path() + "/no: this process cannot write"));
  CHECK_FALSE(nowhere.read(0));
  CHECK(somewhere(wanted) == wanted);
  CHECK_FALSE(FolderArbiter{folder.path(), 43}.read(0));  // another job
  const auto found = test::run_program("ls " + folder.path());
  const auto file = folder.path() + "/" + found.text.substr(0, found.text.find('\n'));
  CHECK(file.ends_with("-epoch-0.claim"));
  test::run_program("echo something > " + file);
  CHECK_THROWS_WITH(somewhere(wanted), Catch::Contains(file + " is no claim of an elastic job"));
}

}  // namespace test_epochs
