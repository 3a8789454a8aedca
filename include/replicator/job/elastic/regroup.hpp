// SPDX-License-Identifier: Apache-2.0
// The rendezvous of the survivors: how the processes of a job meet again after a loss.
#pragma once

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <replicator/core/error.hpp>
#include <replicator/job/elastic/etcd_arbiter.hpp>
#include <replicator/job/elastic/folder_arbiter.hpp>
#include <replicator/job/job.hpp>
#include <replicator/job/membership.hpp>
#include <replicator/job/public_name.hpp>
#include <replicator/job/rendezvous.hpp>
#include <replicator/job/rendezvous_client.hpp>
#include <replicator/job/rendezvous_server.hpp>
#include <replicator/job/survivors.hpp>
#include <replicator/job/trust.hpp>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace replicator::detail::transport::detail {

// From the beginning every process listens at its own port, its regroup address. When the job has failed, the lowest
// process that lives receives the others there, as process 0 did at first (token proofs included). Processes keep their
// first numbers; their ranks in the remaining job follow the same order. They meet in the same way to admit a restarted
// process.
//
//   0 x   1 <-- 2,3      process 0 is dead: nobody listens there. 2 and 3 connect to 1, which waits until it has heard of all
class Regroup {
 public:
  // Collective over the processes of the job, which has just met. `arbiter`: a folder, see FolderArbiter; empty: none, or the etcd of the
  // environment's directory. Throws CommunicationError, and BuildError where not all processes share the arbiter.
  Regroup(Job& job, const ProcessEnvironment& environment, const JobOptions& options, const std::string& arbiter = {})
      : environment_{environment}, options_{options}, survivors_{open(job)} {
    with_arbiter(arbiter, [&](const auto& one) { share(one, job); });
    for (int process = 0; process < job.size(); ++process) members_.push_back(process);
  }
  // For a process that comes back. Its environment has its regroup address as listener; `fields` come from another
  // process's write(). Throws as above.
  Regroup(const ProcessEnvironment& environment, const JobOptions& options, FrameReader fields, const std::string& arbiter = {})
      : environment_{environment}, options_{patient(options)}, survivors_{read(fields)} {
    with_arbiter(arbiter, [&](const auto& one) { ask(one); });
  }

  const Survivors& survivors() const { return survivors_; }
  // All processes of the current job have met in it.
  void confirm() { survivors_.confirm(); }
  // A listener at a free port: the regroup address of this process.
  static std::shared_ptr<FileDescriptor> open_regroup_listener(const ProcessEnvironment& environment) {
    return std::make_shared<FileDescriptor>(listen_on(0, listening_address(environment), environment.rank));
  }
  FrameWriter& write(FrameWriter& frame) const { return survivors_.write(frame.text(environment_.job_name)); }
  // Expects a restarted process at the next rendezvous.
  void admit(int process, RegroupAddress regroup_address, std::uint64_t life) { survivors_.admit(process, std::move(regroup_address), life); }

  // The current job lost the process of this rank: the others meet. Throws CommunicationError, with this process as
  // culprit, where the others continue without it.
  Membership without(int rank) {
    survivors_.lose(members_.at(static_cast<std::size_t>(rank)));
    return again();
  }
  // All expected processes meet.
  Membership again() {
    auto membership = meet();
    members_.clear();
    for (std::size_t r = 0; r < membership.processes.size(); ++r)
      if (membership.processes[r].pid != 0) members_.push_back(static_cast<int>(r));
    return compacted(std::move(membership));
  }
  // Ranks in the latest rendezvous: of this process, and of the process with this first number; -1 where it is absent.
  int rank() const { return rank_of(environment_.rank); }
  int rank_of(int process) const {
    const auto found = std::find(members_.begin(), members_.end(), process);
    return found == members_.end() ? -1 : static_cast<int>(found - members_.begin());
  }

 private:
  // A process that is late may be left out. This is longer than the wait for a stopped process before another one is tried.
  static constexpr std::chrono::milliseconds regroup_limit{8000};

  static JobOptions patient(JobOptions options) {
    options.connect_deadline = regroup_limit;
    options.report_after = std::chrono::milliseconds{0};
    return options;
  }

  Survivors read(FrameReader& fields) {
    environment_.job_name = fields.text();
    auto survivors = Survivors::read(environment_.rank, static_cast<std::size_t>(environment_.world_size), fields);
    environment_.life = survivors.life(static_cast<std::size_t>(environment_.rank));
    return survivors;
  }

  Survivors open(Job& job) {
    environment_.listener = open_regroup_listener(environment_);
    if (environment_.job_name.empty()) environment_.job_name = "elastic " + public_name(job.token());
    options_ = patient(options_);
    const std::string mine = std::to_string(port_of(environment_.listener->get())) + ":" + job.address();
    std::vector<RegroupAddress> regroup_addresses;
    for (const auto& bytes : job.exchange(std::as_bytes(std::span{mine}), "where processes are found again")) {
      const std::string text{reinterpret_cast<const char*>(bytes.data()), bytes.size()};
      const auto colon = std::min(text.find(':'), text.size());
      auto& regroup_address = regroup_addresses.emplace_back();
      std::from_chars(text.data(), text.data() + colon, regroup_address.port);
      regroup_address.address = text.substr(std::min(colon + 1, text.size()));
    }
    require_reachable(regroup_addresses);
    return {environment_.rank, job.token(), std::move(regroup_addresses)};
  }

  template <class Body>
  void with_arbiter(const std::string& folder, const Body& body) {
    if (environment_.directory) body(EtcdArbiter{environment_.directory, survivors_.secret()});
    else if (!folder.empty()) body(FolderArbiter{folder, survivors_.secret()});
  }
  // Process 0 takes epoch 0, and the others look whether they see that.
  template <class Any>
  void share(const Any& arbiter, Job& job) {
    if (job.rank() == 0) arbiter({survivors_.epochs().confirmed(), job.describe(0)}, [] {});
    job.barrier("the arbiter of --elastic-arbiter");
    ask(arbiter);
  }
  template <class Any>
  void ask(const Any& arbiter) {
    if (!arbiter.read(survivors_.epochs().confirmed().number))
      throw BuildError{"process " + std::to_string(environment_.rank) + " does not find this job " + arbiter.where()};
    survivors_.ask(arbiter);
  }

  // A loopback address means nothing to other machines. A process that is unreachable there would be taken for dead.
  void require_reachable(const std::vector<RegroupAddress>& regroup_addresses) const {
    const auto loopback = [](const RegroupAddress& regroup_address) { return loopback_address(regroup_address.address).has_value(); };
    const auto known_here = static_cast<std::size_t>(std::count_if(regroup_addresses.begin(), regroup_addresses.end(), loopback));
    if (known_here != 0 && known_here != regroup_addresses.size())
      throw BuildError{"--elastic: " + std::to_string(known_here) + " of " + std::to_string(regroup_addresses.size()) +
                       " processes came to process 0 by a loopback address, where the others cannot find them: " + address_advice(environment_)};
  }

  Membership meet() {
    const auto until = RendezvousClock::now() + regroup_limit;
    for (;;) {
      if (auto membership = meet_lower()) return std::move(*membership);
      auto options = options_;
      options.connect_deadline = std::chrono::milliseconds{remaining_ms(until, static_cast<int>(regroup_limit.count()))};
      if (auto membership = RendezvousServer{environment_, options, &survivors_}.receive(); !membership.lower) return membership;
    }
  }
  // Meets the others at a lower process. Returns nothing where no lower process receives this one.
  std::optional<Membership> meet_lower() {
    for (int process = 0; process < environment_.rank; ++process) {
      if (survivors_.gone(static_cast<std::size_t>(process))) continue;
      auto there = environment_;
      there.master_address = survivors_.regroup_address(process).address;
      there.master_port = survivors_.regroup_address(process).port;
      there.listener.reset();
      there.directory.reset();
      if (auto membership = RendezvousClient{there, options_, survivors_.knowledge()}.try_connect(); membership && !membership->going_on) {
        std::vector<bool> here;
        for (const auto& one : membership->processes) here.push_back(one.pid != 0);
        survivors_.settle(here);
        survivors_.learn(membership->epochs);
        return membership;
      }
      survivors_.lose(process);
    }
    return {};
  }

  // Drops the absent processes, so that positions become ranks.
  Membership compacted(Membership membership) const {
    Membership result;
    result.token = membership.token;
    const bool receives = membership.links.size() == membership.processes.size();
    for (const int member : members_) {
      const auto index = static_cast<std::size_t>(member);
      result.processes.push_back(std::move(membership.processes[index]));
      if (receives) result.links.push_back(std::move(membership.links[index]));
    }
    if (!receives) result.links = std::move(membership.links);
    return result;
  }

  ProcessEnvironment environment_;
  JobOptions options_;
  Survivors survivors_;
  std::vector<int> members_;  // of the current job, by rank
};

}  // namespace replicator::detail::transport::detail
