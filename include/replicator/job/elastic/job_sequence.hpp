// SPDX-License-Identifier: Apache-2.0
// JobSequence: the jobs in which a process takes part, one after the other. Each has another membership.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <replicator/job/elastic/admission.hpp>
#include <replicator/job/elastic/admission_offer.hpp>
#include <replicator/job/job.hpp>
#include <replicator/job/job_options.hpp>
#include <replicator/job/process_environment.hpp>
#include <string>

namespace replicator::detail::transport {

// One object for each process. A Job ends for all when it loses a process; here the survivors then meet in a new Job. A
// thread does that at once, whatever the program does meanwhile. So no process is left out because it is busy. All
// functions are for one thread, except somebody_waits().
//
// A restarted process is outside at first. It enters where all other processes are at the same place of their programs:
//
//   newcomer            first process              the others
//   enter               somebody_waits
//                       hand_over: an offer   ->   all: decide (an exchange spreads the offer), leave the job, after
class JobSequence {
 public:
  JobSequence() = default;
  JobSequence(const JobSequence&) = delete;
  JobSequence& operator=(const JobSequence&) = delete;
  virtual ~JobSequence() = default;

  // The current job.
  virtual std::shared_ptr<Job> job() const = 0;
  // Waits for the job that follows `before`, which is aborted or was left for another one. Throws CommunicationError where
  // this process does not belong to the next job.
  virtual std::shared_ptr<Job> after(const Job& before) = 0;

  // Whether this process was restarted and has not entered the running job yet. job() is then a job of this process alone.
  virtual bool outside() const = 0;
  // Waits until the job is at a place where a process with this wish can continue. Returns the state that hand_over got
  // there. Throws as AdmissionClient does.
  virtual detail::Bytes enter(const detail::Bytes& wish) = 0;

  // True on the first process of the job while a process waits outside. Any thread may call it.
  virtual bool somebody_waits() const = 0;
  // For the first process. Sends state() to a waiting process whose wish fits. Returns nothing where there is none, or it
  // does not take the state. After an offer all processes must call decide.
  virtual std::optional<AdmissionOffer> hand_over(const std::function<bool(const detail::Bytes&)>& fits, const std::function<detail::Bytes()>& state) = 0;
  // Calls `agree`, an exchange in which all processes learn of the offer, if any. They then expect that process at their
  // next rendezvous, which may come through after() or through a loss. Until all know the offer, nobody acts on a loss.
  // Returns true if there is an offer.
  virtual bool decide(const std::function<std::optional<AdmissionOffer>()>& agree) = 0;
  // The rank in job() of the process that was admitted last; -1 where it is absent, or already trusted.
  virtual int newest() const = 0;
  // Says that the newest process has done its part.
  virtual void trust_newest() = 0;
};

// Meets the other processes, as Job does. `admission`: the conditions for processes that come back. `arbiter`: a folder that
// all hosts share, see FolderArbiter; empty: none, or the etcd of the environment's directory.
template <class = void>
std::unique_ptr<JobSequence> open_job_sequence(const ProcessEnvironment& environment, const JobOptions& options, Admission admission = {}, std::string arbiter = {});

}  // namespace replicator::detail::transport
