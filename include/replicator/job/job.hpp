// SPDX-License-Identifier: Apache-2.0
// Job: the membership and liveness of a group of processes. It detects failures, agrees on one verdict, and exchanges small
// messages between all processes.
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
#include <optional>
#include <replicator/core/error.hpp>
#include <replicator/core/location.hpp>
#include <replicator/job/job_options.hpp>
#include <replicator/job/membership.hpp>
#include <replicator/job/process_environment.hpp>
#include <replicator/job/wire/frame.hpp>
#include <replicator/job/wire/link.hpp>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

namespace replicator::detail::transport {

// One object for each process. Every process but 0 holds a connection to process 0. Every process has a thread that sends
// heartbeats, listens and detects failures. A job of one process has neither.
//
// When something fails, process 0 gives the verdict: all processes end with the same sentence and the same culprit. When
// process 0 itself dies, all others blame it.
//
//       1   2   3
//        \  |  /       inwards: heartbeats, exchanges, suspicions; outwards: verdicts
//           0
//
// Any thread may call any function. Only exchange, barrier and leave are for one thread at a time.
class Job {
 public:
  // Meets the other processes. Throws CommunicationError when options.connect_deadline has passed; it names who is missing
  // or which address was tried. Throws BuildError when the processes contradict each other, or differ in their job tokens.
  template <class = void>
  explicit Job(const ProcessEnvironment& environment = {}, const JobOptions& options = {});
  // A job of processes that have met already.
  template <class = void>
  Job(detail::Membership membership, int rank, const std::string& interface, const JobOptions& options);
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;
  // Leaves in good order. While an exception unwinds, it reports that this process failed instead. Never throws.
  ~Job() { end(); }

  // The index of this process ("host" in docs and design), and the number of processes.
  int rank() const noexcept { return rank_; }
  int size() const noexcept { return static_cast<int>(processes_.size()); }
  // A random number, the same on every process of this job and on no other.
  std::uint64_t token() const noexcept { return token_; }
  const ProcessInfo& process(int rank) const { return processes_.at(static_cast<std::size_t>(rank)); }
  // "process 2 (pid 4711 on host-a)"
  std::string describe(int rank) const { return detail::describe_process(rank, process(rank)); }
  // The network interface that this process keeps to; empty: any.
  const std::string& interface() const noexcept { return interface_; }
  // The address by which the others reach this process, as seen in its own connections; empty in a job of one.
  template <class = void>
  std::string address();
  const JobOptions& options() const noexcept { return options_; }

  // All-gather: result[p] is process p's contribution. Every process calls it in the same order with the same `what`, which
  // errors name. Throws CommunicationError when the job is aborted, when a process has left, asks for another exchange, or
  // does not come within options.exchange_deadline.
  template <class = void>
  std::vector<detail::Bytes> exchange(std::span<const std::byte> mine, std::string_view what = "exchange");
  void barrier(std::string_view what = "barrier") { exchange({}, what); }

  // Ends the job on every process with this sentence. The first failure wins. Returns when a verdict is known here, at the
  // latest after dead_after. It may be another verdict: see failure().
  template <class = void>
  void abort(const std::string& message, int culprit);
  // Reports, without waiting, that `process` seems broken (a failed endpoint, say). The job is aborted with `why` unless a
  // better explanation arrives within options.grace.
  template <class = void>
  void suspect(int process, const std::string& why);
  // For a caller that cannot continue without `process`: suspects it, waits, and throws the verdict.
  template <class = void>
  [[noreturn]] void give_up_on(int process, const std::string& why);
  // Says that this process begins a call that all processes make together, such as "step" 12. Error messages name it. The
  // job is aborted within a second where another process makes fewer calls, because it has left or asks for an exchange,
  // and where it makes another call. Cheap: the words must be literals.
  // `where`: the program's line; it may differ. `step`: of which replicated step; the first one has the number 0.
  void begin(const char* what, std::uint64_t number, const char* detail = "", Location where = {}, int step = 0) noexcept {
    const auto begun = begun_.load(std::memory_order_relaxed) + 1;
    beginning_.store(begun, std::memory_order_relaxed);
    what_.store(what, std::memory_order_release);
    number_.store(number, std::memory_order_release);
    detail_.store(detail, std::memory_order_release);
    file_.store(where.file, std::memory_order_release);
    line_.store(where.line, std::memory_order_release);
    step_.store(step, std::memory_order_release);
    begun_.store(begun, std::memory_order_release);
  }

  bool aborted() const noexcept { return aborted_.load(std::memory_order_acquire); }
  // Throws the job's CommunicationError once it is aborted. One atomic load.
  void check() const {
    if (aborted()) throw CommunicationError{failure_, culprit_};
  }
  // The verdict's sentence and culprit, once aborted.
  std::string failure() const { return aborted() ? failure_ : std::string{}; }
  int culprit() const noexcept { return aborted() ? culprit_ : -1; }

  // Calls `wake` once when the job is aborted, from any thread, or at once if it is aborted already. Lasts as long as the
  // hook. `wake` must be short and must not call the job.
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
  template <class = void>
  [[nodiscard]] Hook on_abort(std::function<void()> wake);

  // Waits until every process has called it, then disconnects. A process that dies ends the wait with an error. Call it
  // after everything that communicates is gone. Throws CommunicationError when the job is aborted.
  template <class = void>
  void leave();

 private:
  using Clock = std::chrono::steady_clock;
  using Lock = std::unique_lock<std::mutex>;
  // The calls of a process: see begin().
  struct Calls {
    std::uint64_t begun = 0;
    std::string last;   // step 12; empty: none
    std::string where;  // train.cpp:40; empty: not known

    std::string text() const { return where.empty() ? last : last + " at " + where; }
  };
  // A process that makes no further call until the others come.
  struct Outside {
    int process = 0;
    Calls calls;
    std::string what;  // the exchange that it asks for; empty: it has left
  };
  // What a process asks for. All processes must have an equal `what`; `text` names it in a message.
  struct Asked {
    int process = 0;
    std::string what, text;
  };
  // State of the process at the other end of a link.
  struct Peer {
    detail::Link link;
    Clock::time_point heard{};
    Clock::time_point lost{};       // when the connection broke; zero while it holds
    Clock::time_point suspected{};  // zero while nobody suspects it
    std::string suspicion;
    std::string broke;            // what was wrong with a message; empty: nothing
    bool departed = false;        // has said bye
    bool present = false;         // has contributed to the current exchange
    Calls calls;                  // when it left or contributed
    Calls latest;                 // at its latest heartbeat
    Clock::time_point differs{};  // when its latest call was first seen to differ from that of process 0; zero: it does not
    Clock::time_point outside{};
    std::string what;
    detail::Bytes blob;
  };

  template <class = void>
  void end() noexcept;
  bool is_hub() const noexcept { return rank_ == 0; }
  // Waits until `done`. After `late` it prints text() on stderr; text() is called with the lock held.
  template <class Predicate, class Text>
  void wait_and_tell(Lock& lock, Predicate done, Text text);
  // The processes for which awaited(peer). Needs the lock. Only process 0 knows them; elsewhere the text is "others".
  template <class Predicate>
  std::string those(Predicate awaited) const;
  void wake_thread();
  template <class = void>
  void run();
  Clock::time_point pause(Lock& lock);
  void listen(Peer& peer, int from, Clock::time_point now);
  void forgive_after_a_stop(Clock::time_point expected, Clock::time_point now);
  void handle(int from, detail::FrameKind kind, detail::FrameReader fields);
  void beat(Clock::time_point now);
  void judge(Clock::time_point now);
  void judge_exchange(Clock::time_point now);
  static detail::FrameWriter call_frame(detail::FrameKind kind, const Calls& calls);
  static Calls read_calls(detail::FrameReader& fields);
  Calls calls() const;
  std::string call_text() const;
  std::optional<Outside> first_outside() const;
  std::string ahead_text(const Outside& waits, int asks, const Calls& calls) const;
  void judge_calls();
  void compare_calls(Clock::time_point now);
  void tell_who_is_outside(Clock::time_point now);
  void depart(int who, Calls calls);
  void contribute(int from, Calls calls, std::string what, detail::Bytes blob);
  bool compare_exchanges(Clock::time_point now);
  void declare_difference(const std::vector<Asked>& asked, const std::string& kind, const std::string& mend);
  void complete_exchange();
  void check_departures();
  void check_farewell();
  void send_to_all(const detail::Bytes& frame);
  void declare(const std::string& message, int culprit);
  void adopt(const std::string& message, int culprit);
  std::string with_context(const std::string& message) const;
  std::string also_lost(int who, Clock::time_point now) const;
  void finish_output();
  template <class = void>
  void unhook(std::uint64_t id);

  JobOptions options_;
  int rank_ = 0;
  std::uint64_t token_ = 0;
  std::string interface_;
  std::vector<ProcessInfo> processes_{1};
  int exceptions_at_start_ = std::uncaught_exceptions();

  std::mutex mutex_;  // guards all below
  std::condition_variable changed_;
  std::vector<Peer> peers_;      // process 0: one for each process (its own has no link); others: process 0 only
  std::uint64_t gathering_ = 0;  // the exchange that process 0 collects
  Clock::time_point gather_began_{};
  Clock::time_point exchanges_differ_{};  // when this was first seen; zero: they do not
  std::uint64_t asked_ = 0;               // number of exchanges that this process has begun
  std::map<std::uint64_t, std::vector<detail::Bytes>> gathered_;
  std::optional<Outside> outside_;  // who makes fewer calls than others may have begun: known to process 0, and told by it
  bool complained_ = false;         // of `outside_`
  bool leaving_ = false;
  bool farewell_ = false;
  bool stop_ = false;
  Clock::time_point next_beat_{};

  // The latest call. It is whole where `beginning_`, read after the others, equals `begun_`, read before them.
  std::atomic<const char*> what_{""};  // empty: none yet
  std::atomic<std::uint64_t> number_{0};
  std::atomic<const char*> detail_{""};
  std::atomic<const char*> file_{""};
  std::atomic<std::uint32_t> line_{0};
  std::atomic<int> step_{0};
  std::atomic<std::uint64_t> beginning_{0}, begun_{0};

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
