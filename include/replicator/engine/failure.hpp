// SPDX-License-Identifier: Apache-2.0
// Failure: the first error of this process. It wakes every thread and process that waits for this one, and all later
// calls throw it again.
#pragma once

#include <exception>
#include <string>
#include <utility>

#include <replicator/core/error.hpp>
#include <replicator/engine/host_communicators.hpp>
#include <replicator/engine/placement.hpp>
#include <replicator/job/job.hpp>

namespace replicator::detail {

// The message of an exception.
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
  // All arguments outlive this object.
  Failure(transport::Job& job, const Placement& placement, HostCommunicators& communicators)
      : job_{job}, placement_{placement}, communicators_{communicators} {}

  explicit operator bool() const { return first_ != nullptr; }
  const std::exception_ptr& error() const { return first_; }
  // Throws the first error, if there was one.
  void answer() const {
    if (first_) std::rethrow_exception(first_);
  }

  // From now on answer() throws this error.
  void keep(std::exception_ptr error) { first_ = std::move(error); }
  // Keeps an error that only this process has, and tells the other processes, because they must not wait for it. Does
  // nothing in a job of one process, or after a first error.
  void alone(const std::exception_ptr& error) {
    if (job_.size() == 1 || first_) return;
    first_ = error;
    release(error);
  }
  // Runs work that may fail on this process alone, and reports its error by alone(). Errors that all processes find by
  // comparing need no report.
  template <class Work>
  decltype(auto) told(Work work) {
    try {
      return work();
    } catch (...) {
      alone(std::current_exception());
      throw;
    }
  }
  // Runs work that no other process does. Keeps its error as the answer, even in a job of one process.
  template <class Work>
  decltype(auto) kept(Work work) {
    try {
      return work();
    } catch (...) {
      keep(std::current_exception());
      throw;
    }
  }

  // Reports the error of a device, so that no thread or process waits for it. May be called from any thread.
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
  // As release(), but the culprit of a CommunicationError is a process of the job, not a device.
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
