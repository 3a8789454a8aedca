// SPDX-License-Identifier: Apache-2.0
// Fuzzes messages through shared memory. The peer writes anything into its ring and into the counters of both.
// covers: transport/message_matcher.hpp transport/shared_ring.hpp
#include <memory>
#include <replicator/transport/message_matcher.hpp>

#include "target.hpp"

namespace replicator::fuzz {

using namespace replicator::detail;
using namespace transport;
using transport::detail::MessageMatcher;
using transport::detail::SharedRing;

namespace {

// The two rings of rank 0 and its peer.
struct Rings {
  SharedRing in{}, out{};
};

void place(SharedRing& ring, Bytes bytes) {
  for (const std::byte b : bytes) ring.data[ring.written++ % SharedRing::capacity] = b;
}

void run(Input script) {
  static Rings rings_of_peer;
  static SharedRing own;  // of rank 0 to itself
  Rings* const rings = &rings_of_peer;
  std::memset(rings, 0, sizeof *rings);
  MessageMatcher mailbox{0, {&own, &rings->in}, {&own, &rings->out}};
  std::vector<std::unique_ptr<std::vector<std::byte>>> buffers;
  std::vector<Ticket> tickets;
  const auto buffer = [&](std::size_t size) -> std::vector<std::byte>& {
    return *buffers.emplace_back(std::make_unique<std::vector<std::byte>>(size));
  };
  for (int step = 0; !script.empty() && step < 64; ++step) {
    switch (script.number<std::uint8_t>() % 8) {
      case 0: {  // a message as it should be
        const auto slot = script.number<std::uint8_t>();
        const auto size = script.number<std::uint8_t>();
        if (rings->in.written - rings->in.read > 32768) break;
        place(rings->in, bytes_of(little(Slot{0, 0, slot}.value()) + little(std::uint64_t{size})));
        place(rings->in, std::vector<std::byte>(size));
        break;
      }
      case 1:  // a header, or a part of one
        place(rings->in, script.take(16));
        break;
      case 2:
        rings->in.written = script.number<std::uint64_t>();
        break;
      case 3:
        rings->out.read = script.number<std::uint64_t>();
        break;
      case 4: {
        const auto slot = script.number<std::uint8_t>();
        tickets.push_back(mailbox.recv(buffer(script.number<std::uint8_t>()), 1, {0, 0, slot}));
        break;
      }
      case 5: {
        const auto slot = script.number<std::uint8_t>();
        tickets.push_back(mailbox.send(buffer(script.number<std::uint16_t>()), 1, {0, 0, slot}));
        break;
      }
      case 6:
        rings->out.read = rings->out.written;
        break;  // the peer takes all
      default:
        mailbox.progress();
    }
  }
  mailbox.progress();
  for (const auto ticket : tickets) static_cast<void>(mailbox.done(ticket));
}

}  // namespace

void one(Bytes input) {
  documented<CommunicationError>("rank ", [&] { run(Input{input}); });
}

std::vector<std::string> seeds() {
  using std::string;
  return {string{"\4\1\5\0\1\5\7\5\2\7\0\7\6\7", 14}, string{"\0\1\5\7\4\1\5\7", 8},
          string{"\1\1\0\0\0\0\0\0\0\4\0\0\0\0\0\0\0\7\1"
                 "abcd",
                 23},
          string{"\2\xff\xff\0\0\0\0\0\0\7", 10}, string{"\5\1\7\1\7\3\1\0\0\0\0\0\0\0\7", 15}};
}

}  // namespace replicator::fuzz
