// SPDX-License-Identifier: Apache-2.0
// AsyncWorkers: the threads of this process's devices in the asynchronous regime. Each makes the steps of its groups of
// replicas in turn, at its own pace.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <functional>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include <replicator/async/async_elements.hpp>
#include <replicator/async/async_peers.hpp>
#include <replicator/async/async_programs.hpp>
#include <replicator/async/group_worker.hpp>
#include <replicator/async/shared_progress.hpp>
#include <replicator/cpu/environment.hpp>
#include <replicator/devices/thread_without_signals.hpp>
#include <replicator/engine/failure.hpp>
#include <replicator/engine/input_watch.hpp>

namespace replicator::detail {

class AsyncWorkers {
 public:
  // `peers`: null if the job has one process. `release` tells other processes of an error. The first three arguments
  // outlive this object. Throws DeviceError where the system gives no more threads.
  AsyncWorkers(const Deployment& deployment, AsyncPrograms& programs, AsyncPeers* peers, std::function<void(const std::exception_ptr&)> release,
               AsyncElements elements)
      : deployment_{deployment}, programs_{programs}, peers_{peers}, release_{std::move(release)}, elements_{std::move(elements)}, progress_{deployment, programs, [this](const std::exception_ptr& error) { release_all(error); }} {
    const int devices = programs_.placement().devices();
    for (int device = 0; device < devices; ++device) watches_.push_back(std::make_unique<InputWatch>(deployment_.late));
    for (const auto& group : programs_.groups())
      workers_.push_back(std::make_unique<GroupWorker>(*group, programs_, peers_, progress_, elements_, watches_));
    try {
      start(devices);
    } catch (...) {
      progress_.fail(std::current_exception());
      for (auto& thread : threads_) thread.join();
      if (peers_) peers_->stop_serving();
      throw;
    }
  }
  AsyncWorkers(const AsyncWorkers&) = delete;
  AsyncWorkers& operator=(const AsyncWorkers&) = delete;
  ~AsyncWorkers() { end(); }

  // Called while the program unwinds an exception: no other process may then wait for this one. Returns true in that
  // case.
  bool leave_by_error() {
    if (!peers_ || std::uncaught_exceptions() <= exceptions_at_start_) return false;
    progress_.fail_thrown(std::make_exception_ptr(BuildError{"the program left its steps by an error of its own"}));
    return true;
  }
  // Lets every step that has begun finish, also on the other processes. Returns the error, if any. Prints an error to
  // stderr that no call has thrown.
  std::exception_ptr end() {
    if (threads_.empty()) return progress_.error();
    progress_.stop();
    for (auto& thread : threads_) thread.join();
    threads_.clear();
    if (peers_) part();
    if (progress_.is_untold()) std::fprintf(stderr, "replicator: at the end of a step object: %s\n", text_of(progress_.error()).c_str());
    return progress_.error();
  }

  // See the functions of SharedProgress.
  void step(std::uint64_t barriers) { progress_.step(barriers); }
  void rest() { progress_.rest(); }
  void error_was_thrown() { progress_.error_was_thrown(); }
  bool ended() const { return progress_.ended(); }
  std::vector<std::vector<AnyArray>> results() const { return progress_.results(); }
  std::vector<std::uint64_t> steps() const { return progress_.steps(); }

  // Call it at rest. The caller begins no step before all processes have met once more, so the others need not wait for
  // one.
  void pause(std::uint64_t barriers) const {
    if (peers_) peers_->client(0).pause(progress_.steps_here(), barriers);
  }
  // True if the calling thread belongs to a device, and so runs within a step.
  bool within_step() const {
    return std::any_of(threads_.begin(), threads_.end(), [](const auto& thread) { return thread.get_id() == std::this_thread::get_id(); });
  }

 private:
  void start(int devices) {
    if (peers_) peers_->serve(progress_);
    for (int device = 0; device < devices; ++device)
      threads_.push_back(start_thread([this, device] {
        serve(device);
        progress_.end_serving(device);
      }));
  }
  void serve(int device) {
    const cpu::KernelEnvironment environment{deployment_.threads_per_device};
    for (const auto& worker : workers_)
      if (auto* member = worker->follower(device)) return worker->follow(*member);
    lead(device);
  }
  void lead(int device) {
    for (;;) {
      GroupWorker* worker = nullptr;
      std::uint64_t number = 0;
      const auto begin_next = [&] {
        if (progress_.stops()) return true;
        if (!(worker = next_worker(device))) return false;
        progress_.groups().begin(worker->group());
        number = progress_.groups().steps(worker->group());
        return true;
      };
      if (!progress_.await(begin_next) || !worker) return;
      worker->lead_step(number);
      progress_.change([&] { progress_.groups().rest(worker->group()); });
    }
  }
  // Needs the lock of progress_. Of the groups that this device leads and that should make a step, returns the one with
  // the fewest steps.
  GroupWorker* next_worker(int device) {
    auto& groups = progress_.groups();
    GroupWorker* chosen = nullptr;
    for (const auto& worker : workers_)
      if (worker->leading_device() == device && groups.wants(worker->group()) &&
          (!chosen || groups.steps(worker->group()) < groups.steps(chosen->group())))
        chosen = worker.get();
    return chosen;
  }
  // Ends every wait at a shard, inside a group, and in other processes.
  void release_all(const std::exception_ptr& error) {
    for (auto& shard : programs_.shards())
      if (shard->gate) shard->gate->abort(error);
    for (auto& group : programs_.groups()) group->wire.abort({"another replica failed", 0});
    if (peers_) release_(error);
  }
  // Leaves the other processes, which may still have steps to make.
  void part() {
    try {
      if (!progress_.error()) peers_->part();
    } catch (const CommunicationError&) {
      progress_.fail(std::current_exception());
    }
    peers_->stop_serving();
  }

  const Deployment& deployment_;
  AsyncPrograms& programs_;
  AsyncPeers* peers_;
  std::function<void(const std::exception_ptr&)> release_;
  int exceptions_at_start_ = std::uncaught_exceptions();
  AsyncElements elements_;                            // the elements of a replica belong to the thread of its device
  std::vector<std::unique_ptr<InputWatch>> watches_;  // by device
  SharedProgress progress_;
  std::vector<std::unique_ptr<GroupWorker>> workers_;  // by group of this process
  std::vector<std::thread> threads_;
};

}  // namespace replicator::detail
