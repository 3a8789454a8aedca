// SPDX-License-Identifier: Apache-2.0
// Elastic jobs that lose a process, and the process that is started in its place.
#pragma once

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <replicator/job/elastic/elastic_job.hpp>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "../support/processes.hpp"
#include "../support/programs.hpp"
#include "jobs.hpp"

namespace replicator::test {

// Whoever was to be lost may be so before the others know that all were here.
inline void meet(transport::Job& job) {
  try {
    job.barrier();
  } catch (const CommunicationError&) {
  }
}

using Bytes = transport::detail::Bytes;

inline Bytes bytes_of(const std::string& text) {
  const auto bytes = std::as_bytes(std::span{text});
  return {bytes.begin(), bytes.end()};
}

// Identities are compared as they are.
inline transport::Admission admission(const std::string& program) {
  const auto mine = bytes_of(program);
  return {mine, [mine](const Bytes& theirs, const std::string& who) { return theirs == mine ? "" : who + " is another"; }};
}

struct Steps {
  std::function<bool(const Bytes&)> fits = [](const Bytes&) { return true; };
  std::function<void(bool taken)> handing = [](bool) {};  // while the state is handed over, and when it was taken
  std::function<void()> joined = [] {};
};

// Behaves like a program whose steps are exchanges, while all processes know that one waits to join: until it has
// joined, or many steps have passed.
inline std::string await_return(transport::ElasticJob& elastic, const Bytes& state, const Steps& steps) {
  auto job = elastic.job();
  for (int step = 0; step < 1000; ++step) {
    std::this_thread::sleep_for(std::chrono::milliseconds{10});
    const auto waits = job->exchange(bytes_of(job->rank() == 0 && elastic.somebody_waits() ? "yes" : ""), "a step")[0];
    if (waits.empty()) continue;
    std::optional<transport::AdmissionOffer> mine;
    const auto handed = [&] {
      steps.handing(false);
      return state;
    };
    if (job->rank() == 0) mine = elastic.hand_over(steps.fits, handed);
    if (mine) steps.handing(true);
    if (!elastic.decide([&] { return transport::AdmissionOffer::unpack(job->exchange(transport::AdmissionOffer::pack(mine), "an offer")[0]); })) continue;
    job->leave();
    job = elastic.after(*job);
    if (job->size() < 3) continue;
    job->barrier();
    steps.joined();
    auto text = std::to_string(job->rank()) + " of " + std::to_string(job->size()) + ", newest " + std::to_string(elastic.newest());
    elastic.trust_newest();
    if (elastic.newest() != -1) text += ", not trusted";
    job->leave();
    return text;
  }
  return "nobody came";
}

inline std::string come_back(transport::ElasticJob& elastic, const std::string& wish, const Bytes& state) {
  const auto handed = elastic.enter(bytes_of(wish));
  const auto job = elastic.job();
  job->barrier();
  auto text = std::to_string(job->rank()) + " of " + std::to_string(job->size());
  if (handed == state) text += ", all";
  job->leave();
  return text;
}

struct Pipe {
  Pipe() { REQUIRE(::pipe2(ends, O_CLOEXEC) == 0); }
  ~Pipe() {
    ::close(ends[0]);
    ::close(ends[1]);
  }
  void say(const char* words) const { static_cast<void>(!::write(ends[1], words, std::strlen(words))); }
  void await() const {
    char nothing = 0;
    static_cast<void>(!::read(ends[0], &nothing, 1));
  }
  int ends[2];
};

// The environment of a process of the job "job" that meets through the etcd at this URL.
inline transport::ProcessEnvironment environment_by_etcd(int rank, int count, const std::string& url) {
  transport::ProcessEnvironment result;
  result.rank = rank;
  result.world_size = count;
  result.job_name = "job";
  result.directory = std::make_shared<transport::Directory>(url, "job");
  return result;
}

// Of a job of three the victim dies, or is stopped; then `left` is done by the others. The processes from 3 on are started in its
// place. They meet through the etcd, if one is given.
inline std::vector<ProcessResult> lose_one(int victim, int children, const std::function<std::string(transport::ElasticJob&, pid_t)>& left,
                                           const std::function<std::string(int, const transport::ProcessEnvironment&)>& started_again, int signal = SIGKILL,
                                           const std::string& etcd = {}) {
  const int port = free_port();
  return run_processes(children, [&](int child) -> std::string {
    const int rank = child < 3 ? child : victim;
    transport::ProcessEnvironment environment;
    if (etcd.empty()) {
      environment.rank = rank;
      environment.world_size = 3;
      environment.master_address = "127.0.0.1";
      environment.master_port = static_cast<std::uint16_t>(port);
    } else {
      environment = environment_by_etcd(rank, 3, etcd);
    }
    if (child >= 3) return started_again(child, environment);
    transport::ElasticJob elastic{environment, quick_options(), admission("same")};
    auto job = elastic.job();
    meet(*job);
    const auto pid = static_cast<pid_t>(job->process(victim).pid);
    if (child == victim) ::raise(signal);
    while (!job->aborted()) std::this_thread::sleep_for(std::chrono::milliseconds{5});
    elastic.after(*job);
    return left(elastic, pid);
  });
}

}  // namespace replicator::test
