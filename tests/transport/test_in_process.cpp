// SPDX-License-Identifier: Apache-2.0
#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <replicator/transport/in_process.hpp>
#include <string>
#include <thread>

#include "../support/memory_in_use.hpp"

namespace test_in_process {

namespace rt = replicator::detail::transport;

namespace {

std::span<const std::byte> bytes_of(const int& value) { return std::as_bytes(std::span{&value, 1}); }
std::span<std::byte> writable(int& value) { return std::as_writable_bytes(std::span{&value, 1}); }
rt::Clock::time_point in(std::chrono::milliseconds time) { return rt::Clock::now() + time; }

}  // namespace

TEST_CASE("messages meet by source, destination and slot, whichever end comes first") {
  rt::InProcessGroup group{3};
  rt::InProcess a{group, 0}, b{group, 1}, c{group, 2};
  const int one = 1, two = 2, three = 3;
  int x = 0, y = 0, z = 0;
  const rt::Slot slot{1, 0, 0}, other{1, 0, 1};
  const auto from_c = b.recv(writable(z), 2, slot);
  const auto sent = a.send(bytes_of(one), 1, other);
  CHECK_FALSE(a.done(sent));
  const auto second = a.send(bytes_of(two), 1, slot);
  const auto got_y = b.recv(writable(y), 0, slot);
  const auto got_x = b.recv(writable(x), 0, other);
  CHECK_FALSE(b.done(from_c));
  const auto third = c.send(bytes_of(three), 1, slot);
  for (const auto ticket : {sent, second}) CHECK(a.done(ticket));
  for (const auto ticket : {got_x, got_y, from_c}) CHECK(b.done(ticket));
  CHECK(c.done(third));
  CHECK(x == 1);
  CHECK(y == 2);
  CHECK(z == 3);
}

TEST_CASE("messages of one slot keep their order") {
  rt::InProcessGroup group{2};
  rt::InProcess a{group, 0}, b{group, 1};
  const int values[] = {10, 11, 12};
  for (const int& value : values) (void)a.send(bytes_of(value), 1, {0, 0, 0});
  for (const int value : values) {
    int found = 0;
    CHECK(b.done(b.recv(writable(found), 0, {0, 0, 0})));
    CHECK(found == value);
  }
}

TEST_CASE("ends of different sizes are an error") {
  rt::InProcessGroup group{2};
  rt::InProcess a{group, 0}, b{group, 1};
  const int value = 1;
  int pair[2];
  (void)a.send(bytes_of(value), 1, {0, 0, 0});
  CHECK_THROWS_WITH(b.recv(std::as_writable_bytes(std::span{pair}), 0, {0, 0, 0}),
                    "a message from rank 0 to rank 1 has different sizes at its ends: 8 and 4 B");
}

TEST_CASE("regions are zero, aligned, readable by peers, and equal in size on every rank") {
  rt::InProcessGroup group{2};
  rt::InProcess a{group, 0}, b{group, 1};
  const rt::Region first = a.allocate(100), same = b.allocate(100);
  CHECK(first.id == same.id);
  CHECK(first.data != same.data);
  CHECK(reinterpret_cast<std::uintptr_t>(first.data) % 64 == 0);
  CHECK(first.data[99] == std::byte{0});
  CHECK(a.peer(first, 1) == same.data);
  CHECK(b.peer(same, 1) == same.data);
  (void)a.allocate(64);
  CHECK_THROWS_AS(b.allocate(65), replicator::BuildError);
}

TEST_CASE("a sleeper wakes when a peer publishes a word, and not before") {
  rt::InProcessGroup group{2};
  rt::InProcess a{group, 0}, b{group, 1};
  std::atomic<int> word{0};
  std::thread peer{[&] {
    for (int i = 1; i <= 200; ++i) {
      if (!b.wait([&] { return word.load() == 2 * i - 1; }, in(std::chrono::seconds{10}))) return;
      if (i % 40 == 0) std::this_thread::sleep_for(std::chrono::milliseconds{1});
      word.store(2 * i);
      b.notify();
    }
  }};
  bool all = true;
  for (int i = 1; i <= 200; ++i) {
    word.store(2 * i - 1);
    a.notify();
    all = all && a.wait([&] { return word.load() == 2 * i; }, in(std::chrono::seconds{10}));
  }
  peer.join();
  CHECK(all);
}

TEST_CASE("a region lives until all ranks have released it, and then gives its memory back") {
  rt::InProcessGroup group{2};
  rt::InProcess a{group, 0}, b{group, 1};
  constexpr std::size_t bytes = 16 << 20;
  const auto before = replicator::test::resident_bytes();
  for (std::uint32_t round = 0; round < 20; ++round) {
    const auto mine = a.allocate(bytes), theirs = b.allocate(bytes);
    CHECK(mine.id == round);
    CHECK(theirs.id == round);
    CHECK(mine.data[7] == std::byte{0});
    std::memset(mine.data, 5, bytes);
    a.release(mine);
    CHECK(b.peer(theirs, 0)[bytes - 1] == std::byte{5});
    b.release(theirs);
  }
  CHECK(replicator::test::resident_bytes() - before < static_cast<std::int64_t>(3 * bytes));
}

TEST_CASE("a wait ends at its time and says that it was in vain") {
  rt::InProcessGroup group{1};
  rt::InProcess a{group, 0};
  const auto begin = rt::Clock::now();
  CHECK_FALSE(a.wait([] { return false; }, in(std::chrono::milliseconds{30})));
  CHECK(rt::Clock::now() - begin >= std::chrono::milliseconds{30});
}

TEST_CASE("after an abort every call of every endpoint throws the first error, and sleepers wake") {
  rt::InProcessGroup group{2};
  rt::InProcess a{group, 0}, b{group, 1};
  std::thread culprit{[&] {
    std::this_thread::sleep_for(std::chrono::milliseconds{10});
    b.abort({"device 1 failed", 1});
    b.abort({"a second error", 0});
  }};
  try {
    (void)a.wait([] { return false; }, in(std::chrono::seconds{10}));
    FAIL("the wait went on");
  } catch (const replicator::CommunicationError& error) {
    CHECK(error.what() == std::string{"device 1 failed"});
    CHECK(error.culprit() == 1);
  }
  culprit.join();
  int value = 0;
  CHECK_THROWS_WITH(a.progress(), "device 1 failed");
  CHECK_THROWS_WITH(b.allocate(1), "device 1 failed");
  CHECK_THROWS_WITH(b.send(bytes_of(value), 0, {0, 0, 0}), "device 1 failed");
  CHECK_THROWS_WITH(a.recv(writable(value), 1, {0, 0, 0}), "device 1 failed");
}

TEST_CASE("a group needs ranks, and an endpoint a rank of its group") {
  CHECK_THROWS_AS(rt::InProcessGroup{0}, replicator::BuildError);
  rt::InProcessGroup group{2};
  CHECK_THROWS_AS((rt::InProcess{group, 2}), replicator::BuildError);
}

}  // namespace test_in_process
