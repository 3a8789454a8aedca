// SPDX-License-Identifier: Apache-2.0
// The processes of a job and their fate: who is alive, what went wrong first, small exchanges between all.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <mutex>
#include <replicator/core/error.hpp>
#include <replicator/job/job_options.hpp>
#include <replicator/job/meet.hpp>
#include <replicator/job/rendezvous.hpp>
#include <replicator/job/wire/frame.hpp>
#include <replicator/job/wire/link.hpp>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

namespace replicator::detail::transport {

// One per process. Processes 1.. each hold a connection to process 0, and every process a thread that beats,
// listens and judges; a job of one process has neither. Process 0 gives the verdict when something fails, so that
// all processes end with the same sentence and the same culprit; when process 0 itself dies, all others blame it.
//
//       1   2   3
//        \  |  /       heartbeats, exchanges, suspicions inwards; verdicts outwards
//           0
//
// Any thread may call any function, except that exchange, barrier and leave are for one thread at a time.
class Job {
 public:
  // Meets the other processes. Throws CommunicationError naming who is missing or what address was tried when
  // options.connect_deadline has passed; BuildError when the processes contradict each other,
  // or do not have the same job token.
  explicit Job(const ProcessEnvironment& environment = {}, const JobOptions& options = {});
  // Of processes that have met already.
  Job(detail::Membership meeting, int rank, const std::string& interface, const JobOptions& options);
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;
  // Leaves in good order, or, while an exception unwinds, says that this process failed. Never throws.
  ~Job();

  // This process (a host in the words of the design), and how many there are.
  int rank() const noexcept { return rank_; }
  int size() const noexcept { return static_cast<int>(processes_.size()); }
  // A random number, the same on every process of this job and on no other.
  std::uint64_t token() const noexcept { return token_; }
  const ProcessInfo& process(int rank) const { return processes_.at(static_cast<std::size_t>(rank)); }
  // "process 2 (pid 4711 on host-a)"
  std::string describe(int rank) const { return detail::describe_process(rank, process(rank)); }
  // The name of the network interface to which this process keeps; empty: any.
  const std::string& interface() const noexcept { return interface_; }
  // By which the others reach this process, as far as its own connections show; empty in a job of one.
  std::string address();
  const JobOptions& options() const noexcept { return options_; }

  // All-gather: result[p] is what process p gave. Every process calls it in the same order; `what` must be the same
  // and is named in errors. Throws CommunicationError when the job is aborted, when a process has left, asks for
  // something else, or does not come within options.exchange_deadline.
  std::vector<detail::Bytes> exchange(std::span<const std::byte> mine, std::string_view what = "exchange");
  void barrier(std::string_view what = "barrier") { exchange({}, what); }

  // Ends the job on every process with this sentence; the first failure wins. Returns when a verdict is known here
  // (it may be another one: see failure()), at the latest after dead_after.
  void abort(const std::string& message, int culprit);
  // Reports that `process` seems broken (an endpoint failed, say) without waiting. Unless a better explanation
  // arrives within options.grace, the job is aborted with `why`.
  void suspect(int process, const std::string& why);
  // For whoever cannot go on without `process`, which seems broken: suspects it, and throws the verdict when it is known.
  [[noreturn]] void give_up_on(int process, const std::string& why);
  // What this process is doing, as in "during step" 12: added to the sentences that process 0 makes. Cheap; the words are
  // literals.
  void set_context(const char* what, std::uint64_t number, const char* detail = "") noexcept {
    what_.store(what, std::memory_order_relaxed);
    number_.store(number, std::memory_order_relaxed);
    detail_.store(detail, std::memory_order_relaxed);
  }

  bool aborted() const noexcept { return aborted_.load(std::memory_order_acquire); }
  // Throws the job's CommunicationError once it is aborted. One atomic load.
  void check() const {
    if (aborted()) throw CommunicationError{failure_, culprit_};
  }
  // The sentence and the culprit, once aborted.
  std::string failure() const { return aborted() ? failure_ : std::string{}; }
  int culprit() const noexcept { return aborted() ? culprit_ : -1; }

  // Calls `wake` once when the job is aborted (at once if it is already), from any thread, as long as the hook lives.
  // `wake` must be short and must not call the job.
  class Hook {
   public:
    Hook() = default;
    Hook(Hook&& other) noexcept : job_{std::exchange(other.job_, nullptr)}, id_{other.id_} {}
    Hook& operator=(Hook&& other) noexcept {
      std::swap(job_, other.job_);
      std::swap(id_, other.id_);
      return *this;
    }
    ~Hook() {
      if (job_ != nullptr) job_->unhook(id_);
    }

   private:
    friend class Job;
    Hook(Job* job, std::uint64_t id) : job_{job}, id_{id} {}
    Job* job_ = nullptr;
    std::uint64_t id_ = 0;
  };
  [[nodiscard]] Hook on_abort(std::function<void()> wake);

  // Waits until every process has called it (they are alive, or the wait ends with an error), then parts. To be
  // called after everything that communicates is gone. Throws CommunicationError when the job is aborted.
  void leave();

 private:
  using Clock = std::chrono::steady_clock;
  using Lock = std::unique_lock<std::mutex>;
  // What is known of the process at the other end of a link.
  struct Peer {
    detail::Link link;
    Clock::time_point heard{};
    Clock::time_point lost{};       // when the connection broke; zero while it holds
    Clock::time_point suspected{};  // zero while nobody suspects it
    std::string suspicion;
    bool departed = false;  // has said bye
    bool present = false;   // has contributed to the current exchange
    std::string what;
    detail::Bytes blob;
  };

  bool is_hub() const noexcept { return rank_ == 0; }
  // Until `done`; after `late` stderr has text(), made with the lock.
  template <class Predicate, class Text>
  void wait_and_tell(Lock& lock, Predicate done, Text text);
  // With the lock: the processes for which awaited(peer). Process 0 alone knows who.
  template <class Predicate>
  std::string those(Predicate awaited) const;
  void wake_thread();
  void run();
  void pause(Lock& lock);
  void listen(Peer& peer, int from, Clock::time_point now);
  void forgive_after_a_stop(Clock::time_point expected);
  void handle(int from, detail::FrameKind kind, detail::FrameReader fields);
  void beat(Clock::time_point now);
  void judge(Clock::time_point now);
  void judge_exchange(Clock::time_point now);
  void contribute(int from, std::string what, detail::Bytes blob);
  void declare_disagreement(int a, const std::string& what_a, int b, const std::string& what_b);
  void complete_exchange();
  void check_departures();
  void check_farewell();
  void send_to_all(const detail::Bytes& frame);
  void declare(const std::string& message, int culprit);
  void adopt(const std::string& message, int culprit);
  std::string with_context(const std::string& message) const;
  void finish_output();
  void unhook(std::uint64_t id);

  JobOptions options_;
  int rank_ = 0;
  std::uint64_t token_ = 0;
  std::string interface_;
  std::vector<ProcessInfo> processes_{1};
  int exceptions_at_start_ = std::uncaught_exceptions();

  std::mutex mutex_;  // guards all below
  std::condition_variable changed_;
  std::vector<Peer> peers_;      // process 0: one per process (its own has no link); others: process 0 alone
  std::uint64_t gathering_ = 0;  // the exchange that process 0 collects for
  Clock::time_point gather_began_{};
  std::uint64_t asked_ = 0;  // exchanges this process has begun
  std::map<std::uint64_t, std::vector<detail::Bytes>> gathered_;
  bool leaving_ = false;
  bool farewell_ = false;
  bool stop_ = false;
  Clock::time_point next_beat_{};

  // The context. A sentence that is made while it changes may have a part of each.
  std::atomic<const char*> what_{""};  // empty: nothing yet
  std::atomic<std::uint64_t> number_{0};
  std::atomic<const char*> detail_{""};

  std::string failure_;  // written once, before aborted_
  int culprit_ = -1;
  std::atomic<bool> aborted_{false};

  std::mutex hooks_mutex_;
  std::uint64_t next_hook_ = 0;
  std::map<std::uint64_t, std::function<void()>> hooks_;

  FileDescriptor wakeup_;
  std::thread thread_;
};

}  // namespace replicator::detail::transport

#include <replicator/job/job_inline.hpp>
#include <replicator/job/job_thread.hpp>
