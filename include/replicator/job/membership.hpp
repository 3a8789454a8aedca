// SPDX-License-Identifier: Apache-2.0
// The membership of a job: what every process knows after the rendezvous. Also helpers to describe peers in messages.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <replicator/job/job_options.hpp>
#include <replicator/job/join_request.hpp>
#include <replicator/job/wire/frame.hpp>
#include <replicator/job/wire/link.hpp>
#include <string>
#include <vector>

namespace replicator::detail::transport::detail {

using RendezvousClock = std::chrono::steady_clock;

// The result of a rendezvous. Process 0 has a link to every other process (links[0] is closed). The others have one link,
// to process 0.
struct Membership {
  std::uint64_t token = 0;
  std::vector<ProcessInfo> processes;
  std::vector<Link> links;
  Bytes epochs = {};      // in a regroup: see Epochs
  bool lower = false;     // in a regroup: a lower process can be reached again, and may receive this one; nothing else is set
  bool going_on = false;  // the job runs already, without this process; links: at most one, to the job's first process
};

// The address at which a process listens for a regroup after a loss.
struct RegroupAddress {
  std::string address;
  std::uint16_t port = 0;
};

// Why process 0 turns a connection away. It decides which error the other side throws.
enum class Refusal : std::uint64_t {
  elsewhere,
  contradiction,
  failure,
  token
};

// A refusal as received.
struct Refused {
  Refusal kind{};
  int culprit = -1;
  std::string sentence;
};

inline std::string describe_process(int rank, const ProcessInfo& info) {
  return "process " + std::to_string(rank) + " (pid " + std::to_string(info.pid) + " on " + info.host + ")";
}

// "3 s", "0.2 s"
inline std::string seconds_text(std::chrono::milliseconds time) {
  const auto tenths = time.count() / 100;
  const auto rest = tenths % 10 == 0 ? std::string{} : "." + std::to_string(tenths % 10);
  return std::to_string(tenths / 10) + rest + " s";
}

inline ProcessInfo this_process() {
  char name[256] = {};
  ::gethostname(name, sizeof name - 1);
  return {static_cast<std::int64_t>(::getpid()), printable(name)};
}

inline int remaining_ms(RendezvousClock::time_point until, int most) {
  const auto rest = std::chrono::duration_cast<std::chrono::milliseconds>(until - RendezvousClock::now()).count();
  return static_cast<int>(std::clamp<long long>(rest + 1, 0, most));
}

// Reports on stderr what a process still waits for, at growing intervals.
class WaitReport {
 public:
  explicit WaitReport(std::chrono::milliseconds after) : next_{start_ + after}, silent_{after.count() == 0} {}
  // Calls `sentence` and prints it when a report is due.
  template <class Sentence>
  void look(const Sentence& sentence) {
    const auto now = RendezvousClock::now();
    if (silent_ || now < next_) return;
    next_ = start_ + 2 * (now - start_);
    const auto waited = std::chrono::duration_cast<std::chrono::milliseconds>(now - start_);
    say("after " + seconds_text(waited) + " " + sentence());
  }
  static void say(const std::string& sentence) { std::fprintf(stderr, "replicator: %s\n", sentence.c_str()); }

 private:
  RendezvousClock::time_point start_ = RendezvousClock::now();
  RendezvousClock::time_point next_;
  bool silent_;
};

inline Bytes refusal(Refusal kind, int culprit, const std::string& sentence) {
  return FrameWriter{FrameKind::refuse}
      .number(static_cast<std::uint64_t>(kind))
      .number(static_cast<std::uint64_t>(culprit))
      .text(sentence)
      .finish();
}

inline Refused read_refusal(FrameReader fields) {
  Refused result;
  result.kind = static_cast<Refusal>(fields.number());
  result.culprit = static_cast<int>(fields.number());
  result.sentence = fields.text();
  return result;
}

}  // namespace replicator::detail::transport::detail
