// SPDX-License-Identifier: Apache-2.0
// CollectiveTask: a task that all processes of a job do together, such as building a step. If it fails on all of them,
// each throws its own error and the job continues. If it fails only on some, the job ends.
#pragma once

#include <algorithm>
#include <cstddef>
#include <exception>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <replicator/core/error.hpp>
#include <replicator/engine/failure.hpp>
#include <replicator/job/contribution.hpp>
#include <replicator/job/job.hpp>

namespace replicator::detail {

// A process that fails reports it in its next exchange. There the other processes find the report, or make their own:
//
//   process 0   trace, exchange, fails, tells           throws its own error
//   process 1   trace, exchange, fails, tells           throws its own error: nothing has moved, and both can go on
//
//   process 0   trace, exchange, resolve, exchange      ends the job: process 1 failed
//   process 1   trace, exchange, fails, tells           throws its own error, from now on the only answer
class CollectiveTask {
 public:
  // `job` and `failure` outlive this object.
  CollectiveTask(transport::Job& job, Failure& failure) : job_{job}, failure_{failure} {}

  const transport::Job& job() const { return job_; }

  // Collective: every process calls it with its part of the task. The part returns a value, and communicates only by
  // exchange(). Throws any error of the part, and CommunicationError if the task failed on another process. Must not be
  // nested.
  template <class Part>
  decltype(auto) run(Part&& part) {
    failure_.answer();
    if (job_.size() == 1) return part();
    try {
      decltype(auto) result = part();
      exchange({});  // finds an error that another process reports at its end
      return result;
    } catch (const CommunicationError&) {
      throw;
    } catch (...) {
      tell(std::current_exception());
      throw;
    }
  }
  // For use in a part of the task; otherwise like Job::exchange.
  std::vector<std::vector<std::byte>> exchange(std::span<const std::byte> mine) {
    auto all = gather(well, mine);
    for (int process = 0; process < job_.size(); ++process) {
      auto& theirs = all[static_cast<std::size_t>(process)];
      const auto sign = theirs[0];
      theirs.erase(theirs.begin());
      if (sign == well) continue;
      job_.abort(job_.describe(process) + " failed: " + std::string(reinterpret_cast<const char*>(theirs.data()), theirs.size()), process);
      job_.check();
    }
    return all;
  }

 private:
  static constexpr std::byte well{0}, failed{1};

  // All exchanges share one name: a process that fails does not know which exchange comes next.
  std::vector<std::vector<std::byte>> gather(std::byte sign, std::span<const std::byte> mine) {
    static constexpr const char* what = "the building of a step";
    std::vector<std::byte> signed_{sign};
    signed_.insert(signed_.end(), mine.begin(), mine.end());
    auto all = job_.exchange(signed_, what);
    for (int process = 0; process < job_.size(); ++process)
      transport::require_contribution(!all[static_cast<std::size_t>(process)].empty(), process, 0, what);
    return all;
  }
  // Reports an error that a part of this process threw.
  void tell(const std::exception_ptr& error) {
    if (failure_) return;  // a device has reported it
    const auto why = text_of(error);
    try {
      const auto all = gather(failed, std::as_bytes(std::span{why}));
      if (std::all_of(all.begin(), all.end(), [](const auto& theirs) { return theirs[0] == failed; })) return;
    } catch (const CommunicationError&) {  // the error of this process says more
    }
    failure_.alone(error);
  }

  transport::Job& job_;
  Failure& failure_;
};

}  // namespace replicator::detail
