// SPDX-License-Identifier: Apache-2.0
// Whom a job without a token believes: only processes of its user on its machine. Strangers of another user need root.
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <optional>
#include <random>
#include <replicator/job/elastic/elastic_job.hpp>
#include <replicator/job/trust.hpp>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "../support/programs.hpp"
#include "strangers.hpp"

namespace test_trust {

using namespace replicator;
using namespace replicator::detail;
using namespace replicator::test;
using namespace replicator::detail::transport;
using Catch::Matchers::Contains;
using Catch::Matchers::EndsWith;
using transport::detail::user_of_peer;

namespace {

constexpr uid_t nobody = 65534;
const std::string foreign = "belongs to user 65534. Without a job token only processes of one user on one machine believe each other (this one is of user 0)";

bool skipped() {
  if (::geteuid() == 0) return false;
  WARN("skipped: only root can start a process of another user");
  return true;
}

void become_nobody() {
  if (::setgid(nobody) != 0 || ::setuid(nobody) != 0) throw std::runtime_error{"cannot become another user"};
}

std::size_t count_of(const std::string& text, const std::string& part) {
  std::size_t result = 0;
  for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++result;
  return result;
}

// What the other side says to a hello: the sentence of its refusal, or "silence".
std::string answer_to(std::uint16_t port, const JoinRequest& request) {
  Link link{connect_stranger(port)};
  if (!link.open()) return "nobody is there";
  send_frame(link, hello(request));
  const auto refused = await_frame(link, FrameKind::refuse);
  return refused ? transport::detail::read_refusal(FrameReader{*refused}).sentence : "silence";
}

// Two ends of a TCP connection, from `from` to a listener at `at`.
struct Connection {
  FileDescriptor listener, there, here;
  Connection(const std::string& at, const std::string& to) {
    listener = transport::detail::listen_on(0, transport::detail::numeric_address(at));
    std::string error;
    there = transport::detail::connect_to(to, transport::detail::port_of(listener.get()), std::chrono::milliseconds{500}, error);
    here = FileDescriptor{::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC)};
  }
};

// An address of this machine that others may know; empty where it has none.
std::string outer_address() {
  for (const auto& entry : transport::detail::interface_addresses())
    if (!entry.loopback && entry.address.family() == AF_INET) return entry.address.text();
  return {};
}

// A message that somebody may send first: noise, a header with noise, or an honest hello that was cut or changed.
std::string first_message(std::mt19937& random) {
  const auto below = [&](std::size_t n) { return static_cast<std::size_t>(random() % n); };
  const JoinRequest request{"", below(5), below(5), {1, "stranger"}, Bytes(below(2) * 32), below(3), Bytes(below(40))};
  const auto honest = hello(request);
  std::string result{reinterpret_cast<const char*>(honest.data()), honest.size()};
  const auto kind = below(5);
  if (kind == 0) result.resize(1 + below(200));
  if (kind <= 1)
    for (std::size_t i = kind * 16; i < result.size(); ++i) result[i] = static_cast<char>(random());
  if (kind == 2) result.resize(1 + below(result.size()));
  if (kind == 3) result[below(result.size())] = static_cast<char>(random());
  if (kind == 1) result[4] = static_cast<char>(1 + below(20));  // any kind of frame
  return result;
}

// A stranger sends 1000 first messages; two processes that come meanwhile and later meet nevertheless.
void check_flood(const std::function<void()>& stranger, const std::string& token) {
  auto all = environments(3);
  for (auto& environment : all) environment.job_token = token;
  const auto port = all[0].master_port;
  const auto results = run_processes(4, [&](int rank) -> std::string {
    const auto environment = all[static_cast<std::size_t>(std::min(rank, 2))];
    all.clear();
    if (rank < 3) {
      if (rank == 2) ::usleep(1500000);
      Job job{environment, quick_options()};
      job.barrier();
      job.leave();
      return "met";
    }
    stranger();
    std::mt19937 random{20261125};
    std::size_t sent = 0;
    for (int i = 0; i < 1000; ++i)
      if (send_garbage(port, first_message(random))) ++sent;
    return std::to_string(sent);
  });
  INFO(describe(results));
  for (std::size_t r = 0; r < 3; ++r) CHECK_THAT(results[r].text, EndsWith("met"));
  CHECK(std::atoi(results[3].text.c_str()) > 100);
  CHECK(count_of(results[0].text, "that did not speak as a process of a job (said once)") == 1);
  CHECK(count_of(results[0].text, "turned away") <= 4);
}

}  // namespace

TEST_CASE("the kernel says whose the other end of a connection is, as long as it is open") {
  for (const auto& [at, to] : {std::pair{"127.0.0.1", "127.0.0.1"}, {"::", "127.0.0.1"}, {"::", "::ffff:127.0.0.1"}, {"::1", "::1"}}) {
    INFO(at << " " << to);
    std::optional<Connection> both;
    try {
      both.emplace(at, to);
    } catch (const CommunicationError&) {
      WARN("skipped: no IPv6 on this machine");
      continue;
    }
    REQUIRE(both->here);
    CHECK(user_of_peer(both->here.get()) == ::geteuid());
    CHECK(user_of_peer(both->there.get()) == ::geteuid());
    both->there.close();
    CHECK(user_of_peer(both->here.get()) == std::nullopt);
  }
  const Connection waiting{"127.0.0.1", "127.0.0.1"};
  std::string error;
  const auto second = transport::detail::connect_to("127.0.0.1", transport::detail::port_of(waiting.listener.get()), std::chrono::milliseconds{500}, error);
  REQUIRE(second);
  CHECK(user_of_peer(second.get()) == std::nullopt);  // not accepted yet: it is nobody's
}

TEST_CASE("without a token a process of another user takes no place, ends nothing, and is told why") {
  if (skipped()) return;
  auto all = environments(2);
  const auto port = all[0].master_port;
  int ends[2];
  REQUIRE(::pipe(ends) == 0);
  const auto results = run_processes(3, [&](int rank) -> std::string {
    const auto environment = all[static_cast<std::size_t>(std::min(rank, 1))];
    all.clear();
    char byte = 0;
    if (rank == 2) {
      become_nobody();
      std::string text;
      for (const auto& request : {JoinRequest{"", 2, 1, {1, "x"}, {}}, JoinRequest{"", 7, 1, {1, "x"}, {}}, JoinRequest{"", 2, 0, {1, "x"}, {}},
                                  JoinRequest{"", 2, 1, {1, "x"}, Bytes(32)}, JoinRequest{"", 2, 1, {1, "x"}, {}, JoinRequest::running_job}})
        text += answer_to(port, request) + "\n";
      static_cast<void>(!::write(ends[1], &byte, 1));
      return text;
    }
    if (rank == 1) static_cast<void>(!::read(ends[0], &byte, 1));  // the stranger comes first
    Job job{environment, quick_options()};
    job.barrier();
    job.leave();
    return "met";
  });
  ::close(ends[0]);
  ::close(ends[1]);
  INFO(describe(results));
  CHECK(count_of(results[2].text, "a process at 127.0.0.1 " + foreign) == 5);
  CHECK_THAT(results[0].text, EndsWith("met"));
  CHECK(results[1].text == "met");
  CHECK(count_of(results[0].text, "replicator: turned away: a process at 127.0.0.1 " + foreign) == 1);  // said once
}

TEST_CASE("a process of another user is let in with --insecure alone, and otherwise ends at once with the way to a token") {
  if (skipped()) return;
  const bool insecure = GENERATE(false, true);
  auto all = environments(2);
  for (auto& environment : all) environment.insecure = insecure;
  auto options = quick_options();
  if (!insecure) options.connect_deadline = std::chrono::milliseconds{1500};
  const auto results = run_processes(2, [&](int rank) -> std::string {
    if (rank == 1) become_nobody();
    Job job{all[static_cast<std::size_t>(rank)], options};
    job.barrier();
    job.leave();
    return "met";
  });
  INFO(describe(results));
  if (insecure) {
    for (const auto& result : results) CHECK(result.text == "met");
    return;
  }
  CHECK_THAT(results[1].text, Contains("error: the process that answers at 127.0.0.1 belongs to user 0. Without a job token only processes of one user on one "
                                       "machine believe each other (this one is of user 65534): ") &&
                                  Contains("export REPLICATOR_JOB_TOKEN=$(openssl rand -hex 32)"));
  CHECK(results[1].seconds < 1);
  CHECK_THAT(results[0].text, Contains("error: process 1 did not come"));
}

TEST_CASE("a newcomer without a token says nothing to a process 0 of another user, and believes nothing") {
  if (skipped()) return;
  const bool refuses = GENERATE(false, true);
  auto all = environments(2);
  all[0].listener.reset();
  all[1].listener.reset();
  auto options = quick_options();
  options.connect_deadline = std::chrono::milliseconds{1000};
  int ends[2];
  REQUIRE(::pipe(ends) == 0);
  const auto results = run_processes(2, [&](int rank) -> std::string {
    std::uint16_t port = 0;
    if (rank == 0) {
      become_nobody();
      const auto listener = transport::detail::listen_on(0);
      port = transport::detail::port_of(listener.get());
      static_cast<void>(!::write(ends[1], &port, sizeof port));
      const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds{1500};
      while (std::chrono::steady_clock::now() < until) {
        Link link{FileDescriptor{::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK)}};
        if (link.open()) {
          send_frame(link, FrameWriter{FrameKind::heartbeat}.finish());
          if (refuses) send_frame(link, transport::detail::refusal(transport::detail::Refusal::failure, 0, "all is lost"));
          FrameWriter frame{FrameKind::welcome};
          frame.number(1);
          for (int r = 0; r < 2; ++r) frame.number(1).text("x");
          send_frame(link, frame.blob({}).finish());
          if (await_frame(link, FrameKind::hello)) return "heard a hello";
        }
        ::usleep(2000);
      }
      return "heard nothing";
    }
    static_cast<void>(!::read(ends[0], &port, sizeof port));
    auto environment = all[1];
    environment.master_port = port;
    Job job{environment, options};
    return "met";
  });
  ::close(ends[0]);
  ::close(ends[1]);
  INFO(describe(results));
  CHECK(results[0].text == "heard nothing");
  CHECK_THAT(results[1].text, Contains("error: the process that answers at 127.0.0.1 " + foreign));
}

TEST_CASE("after a death a process of another user is not taken in, and one of this user is") {
  if (skipped()) return;
  auto all = environments(3);
  const auto port = all[0].master_port;
  int went_on[2], over[2];
  REQUIRE(::pipe(went_on) == 0);
  REQUIRE(::pipe(over) == 0);
  const auto results = run_processes(4, [&](int rank) -> std::string {
    const auto environment = all[static_cast<std::size_t>(std::min(rank, 2))];
    all.clear();
    char byte = 0;
    if (rank == 3) {
      static_cast<void>(!::read(went_on[0], &byte, 1));
      const JoinRequest request{"", 3, 2, {1, "x"}, {}};
      const auto taken_in = [&] {
        Link link{connect_stranger(port)};
        send_frame(link, hello(request));
        return await_frame(link, FrameKind::going_on).has_value();
      };
      std::string text = taken_in() ? "own: taken in\n" : "own: refused\n";
      become_nobody();
      text += "foreign: " + answer_to(port, request) + (taken_in() ? " taken in" : " refused");
      static_cast<void>(!::write(over[1], "xx", 2));
      return text;
    }
    ElasticJob elastic{environment, quick_options()};
    auto job = elastic.job();
    job->barrier();
    if (rank == 2) ::usleep(300000), ::raise(SIGKILL);
    while (!job->aborted()) std::this_thread::sleep_for(std::chrono::milliseconds{5});
    job = elastic.after(*job);
    if (job->rank() == 0) static_cast<void>(!::write(went_on[1], &byte, 1));
    static_cast<void>(!::read(over[0], &byte, 1));
    job->leave();
    return std::to_string(job->rank()) + " of " + std::to_string(job->size());
  });
  for (const int end : {went_on[0], went_on[1], over[0], over[1]}) ::close(end);
  INFO(describe(results));
  CHECK_THAT(results[3].text, Contains("own: taken in") && Contains("foreign: a process at 127.0.0.1 " + foreign) && EndsWith(" refused"));
  CHECK_THAT(results[0].text, EndsWith("0 of 2"));
  CHECK_THAT(results[1].text, EndsWith("1 of 2"));
}

TEST_CASE("1000 random first messages end no job with a token") {
  check_flood([] {}, "a token that nobody guesses");
}

TEST_CASE("1000 random first messages of another user end no job without a token") {
  if (skipped()) return;
  check_flood(become_nobody, "");
}

TEST_CASE("without a token process 0 listens on the loopback interface only, and processes of its machine find it there") {
  const auto outer = outer_address();
  if (outer.empty()) {
    WARN("skipped: this machine has no address beside the loopback");
    return;
  }
  for (const std::string kind : {"plain", "token", "insecure"}) {
    INFO(kind);
    const auto port = static_cast<std::uint16_t>(free_port());
    const auto results = run_processes(3, [&](int rank) -> std::string {
      ProcessEnvironment environment;
      environment.rank = rank;
      environment.world_size = 2;
      environment.master_address = outer;
      environment.master_port = port;
      environment.insecure = kind == "insecure";
      if (kind == "token") environment.job_token = "a token that nobody guesses";
      if (rank == 2) {
        for (int i = 0; i < 500 && !connect_stranger(port); ++i) ::usleep(2000);
        std::string error;
        return transport::detail::connect_to(outer, port, std::chrono::milliseconds{500}, error) ? "open" : error;
      }
      if (rank == 1) ::usleep(700000);
      Job job{environment, quick_options()};
      job.barrier();
      job.leave();
      return "met";
    });
    INFO(describe(results));
    for (std::size_t r = 0; r < 2; ++r) CHECK_THAT(results[r].text, EndsWith("met"));
    CHECK_THAT(results[2].text, kind == "plain" ? EndsWith("Connection refused") : EndsWith("open"));
  }
}

TEST_CASE("without a token what needs another machine is an error at once, which says how to make a token") {
  ProcessEnvironment environment;
  environment.rank = 1;
  environment.world_size = 2;
  environment.master_port = 29500;
  environment.master_address = "192.0.2.1";  // of nobody (RFC 5737)
  const auto way = Contains(
      "run `export REPLICATOR_JOB_TOKEN=$(openssl rand -hex 32)` once, and start each process with that value (or with --job-token-file). "
      "Or give all --insecure (REPLICATOR_INSECURE=1), if you trust");
  const auto start = std::chrono::steady_clock::now();
  CHECK_THROWS_WITH(Job(environment), way && Contains("process 1 has no job token, so it meets only processes of this machine, over the loopback interface; but "
                                                      "process 0 is on another one, at 192.0.2.1 (MASTER_ADDR). To run on several machines, give all"));
  CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds{1});
  const auto outer = outer_address();
  if (outer.empty()) return;
  environment.master_address = outer;
  environment.interface = outer;
  for (const int rank : {0, 1}) {
    environment.rank = rank;
    CHECK_THROWS_WITH(Job(environment), way && Contains("but --interface (or REPLICATOR_INTERFACE) is \"" + outer + "\". Leave it out, or give all"));
  }
}

}  // namespace test_trust
