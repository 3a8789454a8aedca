// SPDX-License-Identifier: Apache-2.0
// The first error of this host. It releases every thread and process that waits for this one; all later calls throw it again.
#pragma once

#include <exception>
#include <string>
#include <utility>

#include <replicator/core/error.hpp>
#include <replicator/engine/host_communicators.hpp>
#include <replicator/engine/placement.hpp>
#include <replicator/job/job.hpp>

namespace replicator::detail {

// What it says.
inline std::string text_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& known) {
    return known.what();
  } catch (...) {
    return "an exception that is no std::exception";
  }
}

class Failure {
 public:
  // All outlive this.
  Failure(transport::Job& job, const Placement& placement, HostCommunicators& communicators)
      : job_{job}, placement_{placement}, communicators_{communicators} {}

  explicit operator bool() const { return first_ != nullptr; }
  const std::exception_ptr& error() const { return first_; }
  // Throws it, if there was one.
  void answer() const {
    if (first_) std::rethrow_exception(first_);
  }

  // From now on this is the answer.
  void keep(std::exception_ptr error) { first_ = std::move(error); }
  // Failed in this process alone: in a job of several nobody may wait for it.
  void alone(const std::exception_ptr& error) {
    if (job_.size() == 1 || first_) return;
    first_ = error;
    release(error);
  }
  // Does what may fail in this process alone. (What all processes compare, all refuse.)
  template <class Work>
  decltype(auto) told(Work work) {
    try {
      return work();
    } catch (...) {
      alone(std::current_exception());
      throw;
    }
  }
  // The same where no other process does this work: what it throws is the answer from then on, in a job of one process, too.
  template <class Work>
  decltype(auto) kept(Work work) {
    try {
      return work();
    } catch (...) {
      keep(std::current_exception());
      throw;
    }
  }

  // A device failed: nobody may wait for it. From any thread.
  void release(const std::exception_ptr& error) {
    try {
      std::rethrow_exception(error);
    } catch (const CommunicationError& failure) {
      if (communicators_.in_process()) communicators_.abort(failure);
      else if (!job_.aborted()) job_.abort(failure.what(), placement_.process_of(failure.culprit()));
    } catch (...) {
      release(text_of(error));
    }
  }
  // The same, where the culprit of a CommunicationError is a process of the job, not a device.
  void release_process(const std::exception_ptr& error) {
    try {
      std::rethrow_exception(error);
    } catch (const CommunicationError& failure) {
      if (!job_.aborted()) job_.abort(failure.what(), failure.culprit());
    } catch (...) {
      release(error);
    }
  }

 private:
  void release(const std::string& why) {
    const std::string text = job_.describe(job_.rank()) + " failed: " + why;
    if (communicators_.in_process()) communicators_.abort({text, 0});
    else job_.abort(text, job_.rank());
  }

  transport::Job& job_;
  const Placement& placement_;
  HostCommunicators& communicators_;
  std::exception_ptr first_;
};

}  // namespace replicator::detail
