// SPDX-License-Identifier: Apache-2.0
// Jobs that meet through an etcd. The cases start an etcd on this machine.
#include <fcntl.h>
#include <sys/file.h>
#include <catch2/catch.hpp>
#include <chrono>
#include <functional>
#include <memory>
#include <replicator/job/elastic/elastic_job.hpp>
#include <replicator/job/elastic/etcd_arbiter.hpp>
#include <replicator/job/etcd/curl.hpp>
#include <replicator/job/etcd/directory.hpp>
#include <string>
#include <thread>

#include "../support/etcd_server.hpp"
#include "../support/processes.hpp"
#include "claims.hpp"
#include "elastic_jobs.hpp"
#include "jobs.hpp"

namespace test_etcd {

using namespace replicator;
using namespace replicator::detail;
using namespace replicator::detail::transport;
using Catch::Matchers::Contains;
using replicator::detail::transport::detail::Claim;
using replicator::detail::transport::detail::Etcd;
using replicator::detail::transport::detail::EtcdArbiter;
using replicator::test::EtcdServer;
using namespace std::chrono_literals;

namespace {

// Waits until the condition holds, ten seconds at most.
bool soon(const std::function<bool()>& holds, std::chrono::milliseconds limit = 10s) {
  for (const auto until = std::chrono::steady_clock::now() + limit; std::chrono::steady_clock::now() < until; std::this_thread::sleep_for(20ms))
    try {
      if (holds()) return true;
    } catch (const Error&) {  // the etcd is slow on a busy machine
    }
  return false;
}

}  // namespace

TEST_CASE("an etcd keeps what is written once, and a lease ends its keys") {
  REPLICATOR_NEEDS_ETCD();
  EtcdServer server;
  const Etcd etcd{"http://127.0.0.1:1," + server.url() + "/"};  // nobody listens at the first
  CHECK_FALSE(etcd.read("key"));
  CHECK(etcd.write_unless_changed("key", 0, "first\n\xff"));
  CHECK_FALSE(etcd.write_unless_changed("key", 0, "second"));
  const auto held = etcd.read("key");
  REQUIRE(held);
  CHECK(held->text == "first\n\xff");
  CHECK(held->lease == 0);
  CHECK(etcd.write_unless_changed("key", held->revision, "third"));
  CHECK_FALSE(etcd.write_unless_changed("key", held->revision, "fourth"));
  CHECK(etcd.read("key")->text == "third");
  CHECK(etcd.write_unless_changed("empty", 0, ""));
  CHECK(etcd.read("empty")->text.empty());

  const auto lease = etcd.grant(5);
  CHECK(etcd.keep_alive(lease));
  CHECK(etcd.write_unless_changed("leased", 0, "text", lease));
  CHECK(etcd.read("leased")->lease == lease);
  etcd.revoke(lease);
  CHECK_FALSE(etcd.read("leased"));
  CHECK_FALSE(etcd.keep_alive(lease));
  CHECK_THROWS_AS(etcd.write_unless_changed("leased", 0, "text", lease), CommunicationError);

  server.kill();
  CHECK_THROWS_WITH(etcd.read("key"), Contains("gives no answer") && Contains("127.0.0.1:1/v3/kv/range") && Contains(server.url()));
  server.start();
  CHECK(etcd.read("key")->text == "third");
}

TEST_CASE("a directory leads to the latest first process of a run, and to nobody when that one is gone") {
  REPLICATOR_NEEDS_ETCD();
  EtcdServer server;
  Directory reader{server.url(), "job"};
  const Directory::Entry gathering{"", 0, 1, "a"}, first{"run", 1, 2, "b"}, second{"run", 2, 3, "c"}, other{"another", 9, 4, "d"};
  const auto leads_to = [&](const Directory::Entry& entry) { return soon([&] { return reader.look() == entry; }, 6s); };
  CHECK_FALSE(reader.look());
  {
    Directory waiting{server.url(), "job"}, one{server.url(), "job"}, two{server.url(), "job"}, stranger{server.url(), "job"};
    waiting.publish(gathering);
    CHECK(leads_to(gathering));
    one.publish(first);  // at once, while the other's lease lives
    CHECK(leads_to(first));
    CHECK(soon([&] { return waiting.overtaken(); }));
    stranger.publish(other);
    CHECK(soon([&] { return stranger.overtaken(); }));
    two.publish(second);
    CHECK(leads_to(second));
    CHECK_FALSE(two.overtaken());
    one.withdraw();
    std::this_thread::sleep_for(200ms);
    CHECK(reader.look() == second);  // it belongs to another lease
    two.withdraw();
    CHECK(leads_to(other));
  }
  CHECK_FALSE(reader.look());  // destroyed: at once
  CHECK_FALSE((Directory{server.url(), "another job"}.look()));
}

TEST_CASE("a directory enters its key again when the etcd has lost it, and says once that the etcd is away") {
  REPLICATOR_NEEDS_ETCD();
  EtcdServer server;
  const auto results = test::run_processes(1, [&](int) -> std::string {
    Directory directory{server.url(), "job"};
    directory.publish({"run", 1, 2, "b"});
    if (!soon([&] { return directory.look().has_value(); })) return "not entered";
    const auto lease = directory.etcd().read(directory.folder() + "first")->lease;
    directory.etcd().revoke(lease);
    if (directory.look()) return "still there";
    if (!soon([&] { return directory.look().has_value(); })) return "not entered again";
    server.pause();
    std::this_thread::sleep_for(6s);
    server.go_on();
    return soon([&] { return directory.look().has_value(); }) ? "good" : "lost";
  });
  INFO(test::describe(results));
  CHECK(results[0].text.ends_with("good"));
  const std::string sentence = "other processes may not find this job";
  const auto at = results[0].text.find(sentence);
  CHECK(at != std::string::npos);
  CHECK(results[0].text.find(sentence, at + 1) == std::string::npos);
}

TEST_CASE("of processes that claim an epoch in an etcd at once, one has it, and all read the same name") {
  REPLICATOR_NEEDS_ETCD();
  EtcdServer server;
  test::check_claims_at_once(3, [&] { return EtcdArbiter{std::make_shared<Directory>(server.url(), "job"), 42}; });
  const auto directory = std::make_shared<Directory>(server.url(), "job");
  CHECK((EtcdArbiter{directory, 42}.read(3)));
  CHECK_FALSE((EtcdArbiter{directory, 42}.read(4)));
  CHECK_FALSE((EtcdArbiter{directory, 43}.read(3)));
  directory->etcd().write_unless_changed(directory->folder() + transport::detail::claim_name(42, 9), 0, "something");
  CHECK_THROWS_WITH((EtcdArbiter{directory, 42}.read(9)), Contains("is no claim of an elastic job"));
  server.kill();
  int beats = 0;
  CHECK_THROWS_WITH((EtcdArbiter{directory, 42}({{5, {0, 0}}, "process 0"}, [&] { ++beats; })), Contains("gives no answer"));
  CHECK(beats > 3);
}

// Without MASTER_ADDR. The lost process 0 takes its lease with it: the next first process must not wait for its end.
TEST_CASE("processes meet through an etcd, and a process 0 that died or was stopped is replaced by one that finds the job there") {
  REPLICATOR_NEEDS_ETCD();
  EtcdServer server;
  const test::Bytes state(300000, std::byte{7});
  for (const int signal : {SIGKILL, SIGSTOP}) {
    const test::Pipe lost;
    const auto left = [&](ElasticJob& elastic, pid_t victim) {
      const bool first = elastic.job()->rank() == 0;
      if (first) lost.say("x");
      const auto wake = [&] {
        if (first) ::kill(victim, SIGCONT);
      };
      return test::await_return(elastic, state, {.joined = wake});
    };
    const auto results = test::lose_one(
        0, 4, left,
        [&](int, const auto& environment) {
          lost.await();
          ElasticJob elastic{environment, test::quick_options(), test::admission("same")};
          return test::come_back(elastic, "step", state);
        },
        signal, server.url());
    INFO(test::describe(results));
    CHECK(results[1].text.ends_with("1 of 3, newest 0"));
    CHECK(results[2].text.ends_with("2 of 3, newest 0"));
    CHECK(results[3].text.ends_with("0 of 3, all"));
    if (signal == SIGSTOP) CHECK_THAT(results[0].text, Contains("the others go on without it"));
    CHECK(soon([&] { return !Directory{server.url(), "job"}.look(); }));
  }
}

// The survivors wait at the one that asks the etcd. It must tell them meanwhile that it lives.
TEST_CASE("survivors go on together though the etcd is away for some seconds while they claim their epoch") {
  REPLICATOR_NEEDS_ETCD();
  EtcdServer server;
  const auto results = test::run_processes(4, [&](int rank) -> std::string {
    const auto environment = test::environment_by_etcd(rank, 4, server.url());
    ElasticJob elastic{environment, test::quick_options()};
    const auto job = elastic.job();
    test::meet(*job);
    if (rank == 0) {
      server.pause();
      ::raise(SIGKILL);
    }
    std::jthread wake;
    if (rank == 3)
      wake = std::jthread{[&] {
        std::this_thread::sleep_for(4s);
        server.go_on();
      }};
    while (!job->aborted()) std::this_thread::sleep_for(5ms);
    const auto next = elastic.after(*job);
    next->barrier();
    std::uint64_t number = 0;  // 2: of the second epoch
    soon([&] {
      const auto entry = environment.directory->look();
      return entry && (number = entry->number) > 1;
    });
    next->barrier();
    next->leave();
    return std::to_string(next->rank()) + " of " + std::to_string(next->size()) + ", number " + std::to_string(number);
  });
  INFO(test::describe(results));
  for (int rank = 1; rank < 4; ++rank) CHECK(results[static_cast<std::size_t>(rank)].text.ends_with(std::to_string(rank - 1) + " of 3, number 2"));
}

// A running job had lost its key, say because the etcd was away for long. So process 0 found nobody, and waits for a job to begin.
TEST_CASE("a process 0 that waits for a job to begin learns from the etcd that it runs already") {
  REPLICATOR_NEEDS_ETCD();
  EtcdServer server;
  const auto results = test::run_processes(2, [&](int child) -> std::string {
    const auto environment = test::environment_by_etcd(0, 2, server.url());
    const auto& directory = environment.directory;
    if (child == 1) {
      const bool waits = soon([&] {
        const auto entry = directory->look();
        return entry && entry->run.empty();
      });
      directory->publish({"run", 1, 9, "127.0.0.1"});
      std::this_thread::sleep_for(8s);
      return waits ? "told" : "nobody waits";
    }
    return transport::detail::meet_or_find_running_job(environment, test::quick_options()).going_on ? "it runs" : "begun";
  });
  INFO(test::describe(results));
  CHECK(results[0].text.ends_with("it runs"));
  CHECK(results[1].text.ends_with("told"));
}

TEST_CASE("a process that waits at a process 0 which was stopped goes where the etcd leads then") {
  REPLICATOR_NEEDS_ETCD();
  EtcdServer server;
  const auto results = test::run_processes(3, [&](int child) -> std::string {
    const auto environment = test::environment_by_etcd(child, 3, server.url());
    auto options = test::quick_options();
    options.connect_deadline = 5s;
    if (child == 0) {
      std::thread{[] {
        std::this_thread::sleep_for(1500ms);
        ::raise(SIGSTOP);
      }}.detach();
      transport::detail::meet_or_find_running_job(environment, options);
    }
    if (child == 2) {
      std::this_thread::sleep_for(2s);
      environment.directory->publish({"run", 1, 9, "127.0.0.1"});  // nobody listens there
      std::this_thread::sleep_for(5s);
      return {};
    }
    transport::detail::meet_or_find_running_job(environment, options);
    return {};
  });
  INFO(test::describe(results));
  CHECK_THAT(results[1].text, Contains("process 1 cannot reach the first process of the job at 127.0.0.1, port 9 in the etcd") && Contains("can this machine connect to that one?"));
}

TEST_CASE("a job whose processes all died begins anew under its name, once the key of the old one has ended") {
  REPLICATOR_NEEDS_ETCD();
  EtcdServer server;
  const TemporaryFolder folder;
  const auto results = test::run_processes(4, [&](int child) -> std::string {
    const auto environment = test::environment_by_etcd(child % 2, 2, server.url());
    auto options = test::quick_options();
    options.connect_deadline = 30s;
    // The processes of the first job hold a lock until they are dead.
    const int lock = ::open((folder.path() + "/lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (child < 2) {
      ::flock(lock, LOCK_SH);
    } else {
      const bool known = soon([&] {
        const auto entry = environment.directory->look();
        return entry && !entry->run.empty();
      });
      if (!known) return "no job";
      ::flock(lock, LOCK_EX);
      ::flock(lock, LOCK_UN);
    }
    ElasticJob elastic{environment, options};
    elastic.job()->barrier();
    if (child < 2) {
      const bool known = soon([&] {
        const auto entry = environment.directory->look();
        return entry && entry->number == 1;
      });
      elastic.job()->barrier();
      if (known) ::raise(SIGKILL);
      return "not entered";
    }
    elastic.job()->leave();
    return std::to_string(elastic.job()->rank()) + " of " + std::to_string(elastic.job()->size());
  });
  INFO(test::describe(results));
  CHECK(results[2].text.ends_with("0 of 2"));
  CHECK(results[3].text.ends_with("1 of 2"));
}

TEST_CASE("a process that meets nobody through an etcd says what it looked for") {
  REPLICATOR_NEEDS_ETCD();
  EtcdServer server;
  auto options = test::quick_options();
  options.connect_deadline = 1500ms;
  const auto error_of = [&](int rank) -> std::string {
    const auto environment = test::environment_by_etcd(rank, 2, server.url());
    try {
      ElasticJob{environment, options};
    } catch (const Error& error) {
      return error.what();
    }
    return {};
  };
  CHECK_THAT(error_of(1), Contains("process 1 cannot reach process 0 at the address in the etcd at " + server.url() + " (/replicator/job/first), within 1.5 s (tried: nobody has entered an address)"));
  CHECK_THAT(error_of(0), Contains("process 1 did not come to port"));
  server.kill();
  CHECK_THAT(error_of(1), Contains("the etcd of --elastic-arbiter gives no answer"));
  CHECK_THAT(error_of(0), Contains("process 0 cannot learn where the job is from the etcd at " + server.url()) && Contains("does it run, and is its address right?"));
}

}  // namespace test_etcd
