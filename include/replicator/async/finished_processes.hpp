// SPDX-License-Identifier: Apache-2.0
// FinishedProcesses: the set of processes that have made their last step. A process serves its shards until the set is
// complete.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <functional>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include <replicator/core/deadline_wait.hpp>
#include <replicator/job/job.hpp>
#include <replicator/transport/messenger.hpp>

namespace replicator::detail {

// The server's thread fills it; the program's thread waits for it.
class FinishedProcesses {
 public:
  // `job` outlives this object.
  FinishedProcesses(const transport::Job& job, int processes) : job_{job}, processes_{processes} {}

  void add(int process) {
    {
      const std::lock_guard lock{mutex_};
      finished_.insert(process);
    }
    changed_.notify_all();
  }
  // Ends every wait: the server has failed, so no more messages arrive.
  void fail() {
    {
      const std::lock_guard lock{mutex_};
      failed_ = true;
    }
    changed_.notify_all();
  }
  bool contains(int process) const {
    const std::lock_guard lock{mutex_};
    return finished_.contains(process);
  }

  // Waits for all processes of the job. It needs no deadline: either they are alive, or the job is aborted. After
  // `late` it prints the missing processes to stderr. It calls look(process) for each missing process every 100 ms; an
  // exception from that ends the wait.
  void await_all(std::chrono::milliseconds late, const std::function<void(int process)>& look) const {
    DeadlineWait wait{{.late = late}};
    std::unique_lock lock{mutex_};
    while (!changed_.wait_for(lock, std::chrono::milliseconds{100}, [this] { return failed_ || missing().empty(); })) {
      const auto awaited = missing();
      lock.unlock();
      for (const int process : awaited) look(process);
      if (wait.becomes_late(DeadlineWait::Clock::now())) tell(awaited);
      lock.lock();
    }
  }

 private:
  // Needs the lock.
  std::vector<int> missing() const {
    std::vector<int> processes;
    for (int p = 0; p < processes_; ++p)
      if (!finished_.contains(p)) processes.push_back(p);
    return processes;
  }
  void tell(const std::vector<int>& awaited) const {
    std::string text;
    for (const int process : awaited) text += (text.empty() ? "" : ", ") + job_.describe(process);
    std::fprintf(stderr, "replicator: %s has made its steps, and waits for %s, alive, to make theirs\n", job_.describe(job_.rank()).c_str(), text.c_str());
  }

  const transport::Job& job_;
  int processes_;
  mutable std::mutex mutex_;  // guards the members below
  mutable std::condition_variable changed_;
  std::set<int> finished_;
  bool failed_ = false;
};

}  // namespace replicator::detail
