// SPDX-License-Identifier: Apache-2.0
// Hosts that are network namespaces on one bridge, with links that can be cut and heal. Needs root and the program `ip`.
#pragma once

#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <unistd.h>

#include <cstdlib>
#include <stdexcept>
#include <string>

#include "programs.hpp"

namespace replicator::test {

class NetworkHosts {
 public:
  explicit NetworkHosts(int count) : count_{count} {
    ip("netns add " + bridge());
    ip("-n " + bridge() + " link add bridge type bridge");
    ip("-n " + bridge() + " link set bridge up");
    for (int h = 0; h < count; ++h) {
      ip("netns add " + name(h));
      ip("-n " + bridge() + " link add port" + std::to_string(h) + " type veth peer name eth0 netns " + name(h));
      ip("-n " + bridge() + " link set port" + std::to_string(h) + " master bridge up");
      ip("-n " + name(h) + " addr add " + address(h) + "/24 dev eth0");
      ip("-n " + name(h) + " link set eth0 up");
      ip("-n " + name(h) + " link set lo up");
    }
  }
  NetworkHosts(const NetworkHosts&) = delete;
  NetworkHosts& operator=(const NetworkHosts&) = delete;
  ~NetworkHosts() {
    for (int h = 0; h < count_; ++h) run_program("ip netns del " + name(h));
    run_program("ip netns del " + bridge());
  }

  // Why this machine cannot have such hosts; empty where it can.
  static std::string missing() {
    if (::geteuid() != 0) return "only root can make network namespaces";
    const std::string name = "replicator-" + std::to_string(::getpid()) + "-try";
    const auto tried = run_program("ip netns add " + name + " && ip -n " + name + " link add bridge type bridge && ip -n " + name + " link add try0 type veth peer name try1");
    run_program("ip netns del " + name);
    return tried.exit_code == 0 ? "" : "this machine makes no network namespaces with bridges: " + tried.text;
  }

  static std::string address(int host) { return "10.77.0." + std::to_string(host + 1); }
  // This process moves to the host. It also sees the host's interfaces in /sys, where UCX looks for them.
  void enter(int host) const {
    const int space = ::open(("/run/netns/" + name(host)).c_str(), O_RDONLY | O_CLOEXEC);
    if (space < 0 || ::setns(space, CLONE_NEWNET) != 0) throw std::runtime_error{"cannot enter " + name(host)};
    ::close(space);
    if (::unshare(CLONE_NEWNS) != 0 || ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 || ::mount("sysfs", "/sys", "sysfs", 0, nullptr) != 0)
      throw std::runtime_error{"cannot show the interfaces of " + name(host) + " in /sys"};
  }
  void cut(int host) const { ip("-n " + bridge() + " link set port" + std::to_string(host) + " down"); }
  void heal(int host) const { ip("-n " + bridge() + " link set port" + std::to_string(host) + " up"); }

 private:
  static void ip(const std::string& words) {
    const auto result = run_program("ip " + words);
    if (result.exit_code != 0) throw std::runtime_error{"ip " + words + ": " + result.text};
  }
  std::string bridge() const { return prefix_ + "bridge"; }
  std::string name(int host) const { return prefix_ + std::to_string(host); }

  int count_;
  std::string prefix_ = "replicator-" + std::to_string(::getpid()) + "-";
};

}  // namespace replicator::test
