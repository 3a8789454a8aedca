// SPDX-License-Identifier: Apache-2.0
// Messages of a misbehaving process of the job: neither a partial result nor one of another size is accepted.
#include <poll.h>

#include <catch2/catch.hpp>

#include <chrono>
#include <functional>
#include <replicator/engine/placement.hpp>
#include <replicator/job/rendezvous_client.hpp>
#include <string>
#include <thread>
#include <vector>

#include "strangers.hpp"

namespace test_gone_wrong {

using namespace replicator;
using namespace replicator::detail;
using namespace replicator::test;
using transport::Job;

namespace {

// Process 1 of a job of two, whose process 0 is at this listener.
transport::ProcessEnvironment process_1_at(const transport::FileDescriptor& listener) {
  transport::ProcessEnvironment environment;
  environment.rank = 1;
  environment.world_size = 2;
  environment.master_address = "127.0.0.1";
  environment.master_port = transport::detail::port_of(listener.get());
  return environment;
}
// As process 0: waits for process 1, greets it and hears its hello.
Link receive_process_1(const transport::FileDescriptor& listener) {
  pollfd event{listener.get(), POLLIN, 0};
  ::poll(&event, 1, 10000);
  Link link{FileDescriptor{::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK)}};
  send_frame(link, FrameWriter{FrameKind::heartbeat}.finish());  // the greeting
  await_frame(link, FrameKind::hello);
  return link;
}

// A job of two with a process 0 that answers a hello with these frames; what `body` throws, or "nothing".
std::string with_process_0(const std::vector<Bytes>& frames, const std::function<void(Job&)>& body) {
  const auto listener = transport::detail::listen_on(0);
  const auto environment = process_1_at(listener);
  std::jthread process_0{[&] {
    Link link = receive_process_1(listener);
    send_frame(link, FrameWriter{FrameKind::welcome}.number(5).number(1).text("a").number(2).text("b").blob({}).finish());
    await_frame(link, FrameKind::gather);
    for (const auto& frame : frames) send_frame(link, frame);
    await_frame(link, FrameKind::abort);  // until the other one has had enough
  }};
  try {
    Job job{environment, quick_options()};
    body(job);
    job.abort("the test is over", 1);
  } catch (const CommunicationError& error) {
    return error.what();
  }
  return "nothing";
}
FrameWriter gathered(std::uint64_t number) { return FrameWriter{FrameKind::gathered}.number(number); }

}  // namespace

TEST_CASE("half of an exchange, or one that nobody asked for, is no result: process 0 is left") {
  const Bytes part(3);
  const auto exchange = [](Job& job) {
    const auto all = job.exchange({});
    CHECK(all.size() == 2);
  };
  CHECK(with_process_0({gathered(0).blob(part).blob(part).finish()}, exchange) == "nothing");
  const auto left = Catch::Contains("process 0 (pid 1 on a) broke the protocol: ");
  CHECK_THAT(with_process_0({gathered(0).blob(part).finish()}, exchange), left);
  CHECK_THAT(with_process_0({gathered(1).blob(part).blob(part).finish()}, exchange), left);
  CHECK_THAT(with_process_0({gathered(0).blob(part).blob(part).finish(), gathered(1).blob({}).finish()},
                            [](Job& job) { job.exchange({}), job.exchange({}); }),
             left);
}

TEST_CASE("a process that receives the survivors and falls silent is left after the detection time, and one that shows that it lives is not") {
  const bool beats = GENERATE(false, true);
  const auto listener = transport::detail::listen_on(0);
  const auto environment = process_1_at(listener);
  auto options = quick_options();
  options.dead_after = std::chrono::milliseconds{400};
  options.connect_deadline = std::chrono::milliseconds{60000};
  bool left = false;
  std::jthread receiver{[&] {
    Link link = receive_process_1(listener);
    for (int i = 0; i < (beats ? 8 : 1); ++i) {  // "you are at the right address", and that again for 1.6 s
      send_frame(link, FrameWriter{FrameKind::heartbeat}.finish());
      ::usleep(200000);
    }
    if (beats) send_frame(link, FrameWriter{FrameKind::welcome}.number(5).number(1).text("a").number(2).text("b").blob({}).finish());
    for (int i = 0; i < 1000 && !beats && !left; ++i) {
      left = !link.pump_in();
      ::usleep(10000);
    }
  }};
  const auto membership = transport::detail::RendezvousClient{environment, options}.try_connect();
  CHECK(membership.has_value() == beats);
  receiver.join();
  CHECK(left == !beats);  // by the other end, which did not wait for this one to close the connection
}

TEST_CASE("a farewell to a process that has not left ends its waits") {
  CHECK_THAT(with_process_0({gathered(0).blob({}).blob({}).finish(), FrameWriter{FrameKind::farewell}.finish()},
                            [](Job& job) { job.exchange({}), job.exchange({}); }),
             Catch::Contains("process 0 (pid 1 on a) broke the protocol: process 0 took leave of a process that has not left"));
}

TEST_CASE("who is blamed by a number that no process has is nobody") {
  int culprit = 0;
  with_process_0({FrameWriter{FrameKind::abort}.number(77).text("a sentence").finish()}, [&](Job& job) {
    try {
      job.exchange({});
    } catch (const CommunicationError& error) {
      culprit = error.culprit();
    }
  });
  CHECK(culprit == -1);
}

TEST_CASE("a part of an exchange that has another size is refused by its process") {
  Deployment four;
  four.replicas = 4;
  const auto place = [&](Job& job) { Placement{job, four}; };
  const auto part = [](std::uint64_t teams) {
    const std::uint64_t counts[] = {teams, 1};
    const auto bytes = std::as_bytes(std::span{counts});
    return Bytes{bytes.begin(), bytes.end()};
  };
  CHECK(with_process_0({gathered(0).blob(part(1)).blob(part(1)).finish()}, place) == "nothing");
  CHECK(with_process_0({gathered(0).blob(Bytes(12)).blob(part(1)).finish()}, place) ==
        "process 0 gave 12 bytes to the exchange of device counts, which cannot be: it runs another program, or its memory is damaged");
  CHECK_THAT(with_process_0({gathered(0).blob(part(1)).blob(part(std::uint64_t{1} << 60)).finish()}, place),
             Catch::StartsWith("process 1 (pid 2 on b) says that it has 1152921504606846976 groups of devices; 1 to "));
}

}  // namespace test_gone_wrong
