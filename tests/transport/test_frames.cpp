// SPDX-License-Identifier: Apache-2.0
// Randomly changed frames: any bytes on a connection are refused or understood, without harm.
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdint>
#include <cstring>
#include <replicator/job/membership.hpp>
#include <string>
#include <vector>

#include "strangers.hpp"

namespace test_frames {

using namespace replicator;
using namespace replicator::detail;
using namespace replicator::test;
using namespace replicator::detail::transport;

namespace {

// The same sequence everywhere (splitmix64).
class Dice {
 public:
  explicit Dice(std::uint64_t seed) : state_{seed} {}
  std::uint64_t roll() {
    std::uint64_t z = (state_ += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  std::size_t below(std::size_t limit) { return static_cast<std::size_t>(roll() % limit); }

 private:
  std::uint64_t state_;
};

// One of each kind, as processes send them in a job of three.
std::vector<Bytes> genuine_frames() {
  const Bytes nonce(32, std::byte{7});
  const JoinRequest who{"job", 3, 1, {4711, "host"}, nonce};
  std::vector<Bytes> result{hello(who)};
  result.push_back(FrameWriter{FrameKind::challenge}.blob(nonce).finish());
  result.push_back(FrameWriter{FrameKind::proof}.blob(nonce).finish());
  result.push_back(
      FrameWriter{FrameKind::welcome}.number(5).number(1).text("a").number(2).text("b").number(3).text("c").blob({}).finish());
  result.push_back(transport::detail::refusal(transport::detail::Refusal::failure, 1, "a sentence"));
  result.push_back(FrameWriter{FrameKind::heartbeat}.number(3).text("step 2").text("train.cpp:40").finish());
  result.push_back(FrameWriter{FrameKind::gather}.number(3).text("step 2").text("train.cpp:40").text("exchange").blob(nonce).finish());
  result.push_back(FrameWriter{FrameKind::gathered}.number(0).blob(nonce).blob(nonce).blob({}).finish());
  result.push_back(FrameWriter{FrameKind::suspect}.number(2).text("why").finish());
  result.push_back(FrameWriter{FrameKind::abort}.number(1).text("a sentence").finish());
  result.push_back(FrameWriter{FrameKind::bye}.number(3).text("step 2").text("train.cpp:40").finish());
  result.push_back(FrameWriter{FrameKind::farewell}.finish());
  return result;
}

void mutate_once(Bytes& bytes, Dice& dice) {
  const auto at = dice.below(bytes.size());
  const auto place = bytes.begin() + static_cast<std::ptrdiff_t>(at);
  switch (dice.below(6)) {
    case 0:
      *place ^= static_cast<std::byte>(1u << dice.below(8));
      break;
    case 1:
      *place = static_cast<std::byte>(dice.roll());
      break;
    case 2:
      bytes.resize(at + 1);
      break;
    case 3:
      bytes.insert(place, 1 + dice.below(9), static_cast<std::byte>(dice.roll()));
      break;
    case 4:
      bytes.erase(place, place + static_cast<std::ptrdiff_t>(std::min(bytes.size() - at, 1 + dice.below(9))));
      break;
    default: {  // a length or number of a word, near a border
      const std::uint64_t values[] = {0, 1, ~std::uint64_t{0}, std::uint64_t{1} << 63, std::uint64_t{1} << 32, 65537};
      std::memcpy(&bytes[at], &values[dice.below(6)], std::min<std::size_t>(8, bytes.size() - at));
    }
  }
  if (bytes.empty()) bytes.push_back({});
}

// A few frames one after the other, some of them changed.
Bytes mutated(const std::vector<Bytes>& frames, Dice& dice) {
  Bytes result;
  for (auto n = 1 + dice.below(3); n > 0; --n) {
    auto frame = frames[dice.below(frames.size())];
    for (auto changes = dice.below(4); changes > 0; --changes) mutate_once(frame, dice);
    result.insert(result.end(), frame.begin(), frame.end());
  }
  return result;
}

// Reads the fields as each kind of frame; false where they are too short for all.
bool understand(const Bytes& fields) {
  int understood = 0;
  const auto attempt = [&](auto read) {
    try {
      FrameReader reader{fields};
      read(reader);
      ++understood;
    } catch (const CommunicationError&) {
    }
  };
  attempt([](FrameReader& reader) { JoinRequest::read(reader); });
  attempt([](FrameReader& reader) { transport::detail::read_refusal(reader); });
  attempt([](FrameReader& reader) {
    reader.number();
    for (int r = 0; r < 3; ++r) reader.blob();
  });
  return understood > 0;
}

}  // namespace

TEST_CASE("every mutation of a frame is understood, refused, or waited for, within the memory that the limit allows") {
  constexpr std::uint64_t limit = 1000;
  const auto frames = genuine_frames();
  Dice dice{1};
  int understood = 0;
  int refused = 0;
  for (int round = 0; round < 20000; ++round) {
    int ends[2];
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
    FileDescriptor sender{ends[0]};
    Link link{FileDescriptor{ends[1]}, limit};
    const auto bytes = mutated(frames, dice);
    bool good = true;
    std::size_t taken = 0;
    for (std::size_t sent = 0; sent < bytes.size() && good;) {
      const auto part = std::min(bytes.size() - sent, 1 + dice.below(64));
      REQUIRE(::send(sender.get(), &bytes[sent], part, 0) == static_cast<ssize_t>(part));
      sent += part;
      good = link.pump_in();
      FrameKind kind{};
      Bytes fields;
      while (link.next(kind, fields)) {
        taken += fields.size() + sizeof(transport::detail::FrameHeader);
        if (fields.size() > limit || taken > sent) FAIL("more was understood than was sent");
        understand(fields) ? ++understood : ++refused;
      }
    }
    if (!good) ++refused;
  }
  CHECK(understood > 100);
  CHECK(refused > 1000);
}

TEST_CASE("a sender that is faster than the reader does not fill the memory") {
  int ends[2];
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends) == 0);
  FileDescriptor sender{ends[0]};
  Link link{FileDescriptor{ends[1]}, 1000};
  const auto frame = FrameWriter{FrameKind::heartbeat}.finish();
  Bytes many;
  while (many.size() < 200000) many.insert(many.end(), frame.begin(), frame.end());
  std::size_t sent = 0;
  for (int i = 0; i < 20; ++i) {
    const auto n = ::send(sender.get(), many.data() + sent, many.size() - sent, MSG_NOSIGNAL);
    if (n > 0) sent += static_cast<std::size_t>(n);
    CHECK(link.pump_in());
    CHECK(link.received() <= static_cast<std::uint64_t>(i + 1) * 16384);  // one read each time, however much there is
  }
  FrameKind kind{};
  Bytes fields;
  std::size_t frames = 0;
  do {
    while (link.next(kind, fields)) ++frames;
    if (!link.pump_in()) break;
  } while (link.received() < sent || frames * frame.size() < link.received());
  CHECK(frames == sent / frame.size());
}

TEST_CASE("mutated frames from strangers do not stop a job from starting, with a token") {
  auto all = environments(3);
  for (auto& environment : all) environment.job_token = "a token that nobody guesses";
  const auto port = all[0].master_port;
  const auto results = run_processes(4, [&](int rank) -> std::string {
    const auto environment = all[static_cast<std::size_t>(std::min(rank, 2))];
    all.clear();
    if (rank < 3) {
      if (rank == 2) ::usleep(500000);
      Job job{environment, quick_options()};
      job.barrier();
      job.leave();
      return "met";
    }
    environment.listener->close();
    const auto frames = genuine_frames();
    Dice dice{2};
    int connected = 0;
    for (int i = 0; i < 1500; ++i) {
      const auto socket = send_garbage(port, mutated(frames, dice));
      if (!socket) break;
      ++connected;
      if (i % 8 == 0) ::usleep(1000);
    }
    return std::to_string(connected);
  });
  INFO(describe(results));
  for (std::size_t r = 0; r < 3; ++r) CHECK(results[r].text.ends_with("met"));
  CHECK(std::stoi(results[3].text) > 100);
}

TEST_CASE("mutated frames from a process that was welcome end the job with a sentence at worst") {
  auto options = quick_options();
  options.grace = std::chrono::milliseconds{10};
  options.exchange_deadline = std::chrono::milliseconds{100};
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    auto all = environments(2);
    const auto port = all[0].master_port;
    const auto results = run_processes(
        2,
        [&](int rank) -> std::string {
          if (rank == 0) {
            Job job{all[0], options};
            job.barrier();
            job.leave();
            return "met";
          }
          all[0].listener->close();
          Link link{connect_stranger(port)};
          send_frame(link, hello({"", 2, 1, {1, "mad"}, {}}));
          if (!await_frame(link, FrameKind::welcome)) return "not welcome";
          Dice dice{seed};
          auto frames = genuine_frames();
          frames.erase(frames.begin(), frames.begin() + 5);
          for (int i = 0; i < 20; ++i) send_frame(link, mutated(frames, dice));
          await_frame(link, FrameKind::farewell);
          return "sent";
        },
        std::chrono::seconds{20});
    INFO("seed " << seed << "\n"
                 << describe(results));
    CHECK(results[0].signal == 0);
    CHECK_FALSE(results[0].timed_out);
    CHECK(results[1].text == "sent");
    CHECK((results[0].text.ends_with("met") || results[0].text.find("error: ") != std::string::npos));
  }
}

TEST_CASE("a link moves so much at once, however much there is: who serves several, and beats, comes to the others in time") {
  int ends[2];
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends) == 0);
  for (const int end : ends) {
    const int wanted = 1 << 20;
    ::setsockopt(end, SOL_SOCKET, SO_SNDBUF, &wanted, sizeof wanted);
  }
  Link from{FileDescriptor{ends[0]}}, to{FileDescriptor{ends[1]}};
  const auto frame = FrameWriter{FrameKind::state}.blob(Bytes(std::size_t{1} << 20, std::byte{3})).finish();
  from.push(frame);
  std::size_t sent = 0;
  do {
    const auto before = from.unsent();
    CHECK(from.pump_out());
    sent = before - from.unsent();
    CHECK(sent <= Link::most_at_once);
  } while (sent > 0);
  REQUIRE(frame.size() - from.unsent() > Link::most_at_once);  // the socket holds more
  FrameKind kind{};
  Bytes fields;
  while (!to.next(kind, fields)) {
    const auto before = to.received();
    REQUIRE(to.pump_in());
    CHECK(to.received() - before <= Link::most_at_once);
    from.pump_out();
  }
  CHECK(fields.size() == frame.size() - sizeof(transport::detail::FrameHeader));
}

}  // namespace test_frames
