// SPDX-License-Identifier: Apache-2.0
// A job that goes on with the processes that are left when it loses some.
#pragma once

#include <pthread.h>
#include <signal.h>

#include <condition_variable>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <replicator/core/error.hpp>
#include <replicator/transport/job.hpp>
#include <replicator/transport/job_options.hpp>
#include <replicator/transport/regroup.hpp>
#include <replicator/transport/rendezvous.hpp>
#include <thread>
#include <utility>

namespace replicator::transport {

// One per process. A Job ends for all when it loses a process; here those that are left then meet in another one. A thread sees to
// that at once, whatever the program is doing meanwhile, so that a process is never left out for being busy.
// All functions are for one thread.
class ElasticJob {
 public:
  // As Job.
  ElasticJob(const ProcessEnvironment& environment, const JobOptions& options)
      : options_{options}, interface_{environment.interface}, job_{std::make_shared<Job>(environment, options)} {
    if (job_->size() == 1) return;
    regroup_.emplace(*job_, environment, options);
    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);  // the program's signals are for the program's threads
    thread_ = std::thread{[this] { follow(); }};
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
  }
  ElasticJob(const ElasticJob&) = delete;
  ElasticJob& operator=(const ElasticJob&) = delete;
  ~ElasticJob() {
    {
      const std::scoped_lock lock{mutex_};
      stop_ = true;
    }
    changed_.notify_all();
    if (thread_.joinable()) thread_.join();
  }

  // The job as it is now.
  std::shared_ptr<Job> job() const {
    const std::scoped_lock lock{mutex_};
    return job_;
  }
  // The one that follows `failed`, which is aborted. Throws CommunicationError where this process is not of it.
  std::shared_ptr<Job> after(const Job& failed) {
    std::unique_lock lock{mutex_};
    changed_.wait(lock, [&] { return end_ || job_.get() != &failed; });
    if (job_.get() == &failed) std::rethrow_exception(end_);
    return job_;
  }

 private:
  void follow() {
    for (auto job = this->job(); job->size() > 1;) {
      auto hook = job->on_abort([this] {
        const std::scoped_lock lock{mutex_};
        changed_.notify_all();
      });
      {
        std::unique_lock lock{mutex_};
        changed_.wait(lock, [&] { return stop_ || job->aborted(); });
        if (stop_) return;
      }
      hook = {};
      try {
        job = without_lost(*job);
      } catch (...) {
        const std::scoped_lock lock{mutex_};
        end_ = std::current_exception();
        changed_.notify_all();
        return;
      }
      const std::scoped_lock lock{mutex_};
      job_ = job;
      changed_.notify_all();
    }
  }
  std::shared_ptr<Job> without_lost(const Job& job) {
    const int culprit = job.culprit();
    if (culprit < 0) job.check();
    if (culprit == job.rank()) throw CommunicationError{job.failure() + "; the others go on without it", culprit};
    auto meeting = regroup_->without(culprit);
    return std::make_shared<Job>(std::move(meeting), regroup_->rank(), interface_, options_);
  }

  JobOptions options_;
  std::string interface_;
  std::optional<detail::Regroup> regroup_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::shared_ptr<Job> job_;
  std::exception_ptr end_;  // why there is none that follows
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace replicator::transport
