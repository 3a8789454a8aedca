// SPDX-License-Identifier: Apache-2.0
// Messages through shared memory that a peer, or another process, has overwritten.
#include <catch2/catch.hpp>

#include <cstring>
#include <memory>
#include <replicator/core/error.hpp>
#include <replicator/transport/message_matcher.hpp>
#include <vector>

namespace test_mailbox {

using namespace replicator;
using namespace replicator::detail;
using transport::Slot;
using transport::detail::MessageMatcher;
using transport::detail::SharedRing;

namespace {

// Rank 0 with its rings to and from rank 1.
struct Pair {
  std::unique_ptr<SharedRing> own = std::make_unique<SharedRing>(), in = std::make_unique<SharedRing>(),
                              out = std::make_unique<SharedRing>();
  MessageMatcher mailbox{0, {own.get(), in.get()}, {own.get(), out.get()}};

  const std::vector<int>& progress() { return mailbox.progress(); }
  void place(std::uint64_t slot, std::uint64_t bytes) {
    const std::uint64_t header[] = {slot, bytes};
    std::memcpy(in->data + in->written, header, sizeof header);
    in->written += sizeof header;
  }
};

const auto damaged =
    Catch::Contains("the shared memory of rank 0 is damaged: the ring that it shares with rank 1 counts more bytes than it can hold");

}  // namespace

TEST_CASE("a ring that counts more bytes than it can hold is refused, with both ranks") {
  for (const std::uint64_t written : {std::uint64_t{SharedRing::capacity + 1}, ~std::uint64_t{0}, std::uint64_t{1} << 63}) {
    Pair pair;
    pair.in->written = written;
    CHECK_THROWS_WITH(pair.progress(), damaged);
  }
  const std::vector<std::byte> message(2 * SharedRing::capacity);
  for (const std::uint64_t read : {std::uint64_t{5}, std::uint64_t{SharedRing::capacity + 1}, std::uint64_t{1} << 63}) {
    Pair pair;
    pair.mailbox.send(message, 1, {0, 0, 1});
    pair.out->read = read;
    CHECK_THROWS_WITH(pair.progress(), damaged);
  }
}

TEST_CASE("a ring is neither read nor written beyond its end, whatever its counters say") {
  const auto ring = std::make_unique<SharedRing>();
  std::vector<std::byte> bytes(4 * SharedRing::capacity);
  ring->written = ~std::uint64_t{0} / 2;
  CHECK(read_some(*ring, bytes) == SharedRing::capacity);
  ring->written = 0, ring->read = 5;
  CHECK(write_some(*ring, bytes) <= SharedRing::capacity);
}

TEST_CASE("a message that nobody has asked for takes the memory that has arrived, not what its header claims") {
  Pair pair;
  pair.place(Slot{0, 0, 7}.value(), std::uint64_t{1} << 60);
  pair.progress();
  pair.in->written += 100;
  pair.progress();
  std::vector<std::byte> four(4);
  CHECK_THROWS_WITH(pair.mailbox.recv(four, 1, {0, 0, 7}),
                    Catch::Contains("rank 1 sent 1152921504606846976 bytes") && Catch::Contains("rank 0 expects 4"));
}

TEST_CASE("the peers to wake are named after the rings to all of them have been written") {
  const auto ring = [] { return std::make_unique<SharedRing>(); };
  const auto own = ring(), in_1 = ring(), in_2 = ring(), out_1 = ring(), out_2 = ring();
  MessageMatcher mailbox{0, {own.get(), in_1.get(), in_2.get()}, {own.get(), out_1.get(), out_2.get()}};
  const std::vector<std::byte> message(4);
  CHECK(mailbox.progress().empty());
  mailbox.send(message, 1, {0, 0, 1});
  mailbox.send(message, 2, {0, 0, 1});
  CHECK(mailbox.progress() == std::vector{1, 2});
  CHECK(out_1->written == 20);
  CHECK(out_2->written == 20);
  CHECK(mailbox.progress().empty());
  in_2->written = 8;  // half a header
  CHECK(mailbox.progress().empty());
  in_2->written = 16;
  CHECK(mailbox.progress() == std::vector{2});  // its writer may wait for room
}

TEST_CASE("a message that comes before it is asked for, in pieces, is whole when it is handed over") {
  Pair pair;
  pair.place(Slot{0, 0, 3}.value(), 6);
  for (const char* part : {"ab", "cd", "ef"}) {
    std::memcpy(pair.in->data + pair.in->written, part, 2);
    pair.in->written += 2;
    pair.progress();
  }
  std::vector<std::byte> six(6);
  CHECK(pair.mailbox.done(pair.mailbox.recv(six, 1, {0, 0, 3})));
  CHECK(std::memcmp(six.data(), "abcdef", 6) == 0);
}

}  // namespace test_mailbox
