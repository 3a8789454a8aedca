// SPDX-License-Identifier: Apache-2.0
// An etcd of one member on this machine, with its data in a temporary folder.
#pragma once

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <cstdio>
#include <replicator/job/etcd/curl.hpp>
#include <replicator/job/etcd/etcd.hpp>
#include <stdexcept>
#include <string>
#include <thread>

#include "../input/temporary_folder.hpp"
#include "programs.hpp"

namespace replicator::test {

class EtcdServer {
 public:
  static bool installed() { return run_program("etcd --version").exit_code == 0; }

  EtcdServer() { start(); }
  EtcdServer(const EtcdServer&) = delete;
  EtcdServer& operator=(const EtcdServer&) = delete;
  ~EtcdServer() { kill(); }

  std::string url() const { return "http://127.0.0.1:" + std::to_string(port_); }
  // Starts it, again with the same data and port, and waits until it answers.
  void start() {
    const auto peers = "http://127.0.0.1:" + std::to_string(free_port());
    pid_ = ::fork();
    if (pid_ == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      const auto log = folder_.path() + "/log", data = folder_.path() + "/data", cluster = "default=" + peers;
      if (!std::freopen(log.c_str(), "a", stderr)) ::_exit(126);
      ::execlp("etcd", "etcd", "--data-dir", data.c_str(), "--listen-client-urls", url().c_str(), "--advertise-client-urls", url().c_str(), "--listen-peer-urls", peers.c_str(),
               "--initial-advertise-peer-urls", peers.c_str(), "--initial-cluster", cluster.c_str(), static_cast<char*>(nullptr));
      ::_exit(127);
    }
    for (int look = 0; look < 200 && !answers(); ++look) std::this_thread::sleep_for(std::chrono::milliseconds{50});
    if (!answers()) throw std::runtime_error{"etcd does not start: " + run_program("tail -n 5 " + folder_.path() + "/log").text};
  }
  void kill() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }
  void pause() const { ::kill(pid_, SIGSTOP); }
  void go_on() const { ::kill(pid_, SIGCONT); }

 private:
  bool answers() const {
    try {
      replicator::detail::transport::detail::Etcd{url()}.read("ready");
      return true;
    } catch (const Error&) {
      return false;
    }
  }

  TemporaryFolder folder_;
  int port_ = free_port();
  pid_t pid_ = -1;
};

}  // namespace replicator::test

// Ends the test case, which ctest shows as skipped, where this machine has no etcd.
#define REPLICATOR_NEEDS_ETCD()                           \
  if (!replicator::test::EtcdServer::installed()) {       \
    WARN("skipped: it needs etcd (Debian: etcd-server)"); \
    return;                                               \
  }
