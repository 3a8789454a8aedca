// SPDX-License-Identifier: Apache-2.0
// Every process but 0 finds process 0 of its job.
#pragma once

#include <poll.h>

#include <chrono>
#include <cstdint>
#include <replicator/core/error.hpp>
#include <replicator/transport/acquaintance.hpp>
#include <replicator/transport/frame.hpp>
#include <replicator/transport/job_options.hpp>
#include <replicator/transport/link.hpp>
#include <replicator/transport/rendezvous.hpp>
#include <replicator/transport/tcp.hpp>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace replicator::transport::detail {

// Tries the addresses in turn until process 0 has welcomed this process.
class Arrival {
 public:
  Arrival(const ProcessEnvironment& environment, const JobOptions& options)
      : environment_{environment}, options_{options}, addresses_{split_addresses(environment.master_address)} {}

  Meeting arrive() {
    const auto until = MeetingClock::now() + options_.connect_deadline;
    while (MeetingClock::now() < until) {
      for (const auto& address : addresses_) {
        Link link{connect_to(address, environment_.master_port,
                             std::chrono::milliseconds{remaining_ms(until, attempt_ms)}, error_)};
        if (!link.open()) continue;
        say_hello(link);
        if (listen(link, until)) return std::move(meeting_);
      }
      std::this_thread::sleep_for(std::chrono::milliseconds{remaining_ms(until, 20)});
    }
    throw CommunicationError{"process " + std::to_string(environment_.rank) + " cannot reach process 0 at " +
                                 environment_.master_address + ", port " + std::to_string(environment_.master_port) +
                                 ", within " + seconds_text(options_.connect_deadline) + " (last: " + error_ +
                                 "): is the process with RANK=0 running there?",
                             0};
  }

 private:
  static constexpr int attempt_ms = 2000;

  void say_hello(Link& link) {
    const auto info = this_process();
    link.push(FrameWriter{FrameKind::hello}
                  .text(environment_.job_name)
                  .number(static_cast<std::uint64_t>(environment_.world_size))
                  .number(static_cast<std::uint64_t>(environment_.rank))
                  .number(static_cast<std::uint64_t>(info.pid))
                  .text(info.host)
                  .finish());
    link.pump_out();
  }

  // True once welcome. Process 0 waits for the others up to its own deadline and then says who was missing.
  bool listen(Link& link, MeetingClock::time_point until) {
    const bool only = addresses_.size() == 1;
    auto patience = only ? until + options_.dead_after : MeetingClock::now() + std::chrono::milliseconds{attempt_ms};
    for (;;) {
      pollfd event{link.descriptor(), POLLIN, 0};
      ::poll(&event, 1, remaining_ms(patience, 200));
      const bool good = link.pump_in();
      FrameKind kind{};
      Bytes fields;
      while (link.next(kind, fields)) {
        patience = until + options_.dead_after;
        if (kind == FrameKind::welcome) return accept(link, FrameReader{fields});
        if (kind == FrameKind::refuse && !bear(FrameReader{fields})) return false;
      }
      if (!good) error_ = "the connection was closed";
      if (good && MeetingClock::now() >= patience) error_ = "somebody answered, but did not speak as a process 0";
      if (!good || MeetingClock::now() >= patience) return false;
    }
  }

  bool accept(Link& link, FrameReader fields) {
    meeting_.token = fields.number();
    for (int r = 0; r < environment_.world_size; ++r) {
      const auto pid = static_cast<std::int64_t>(fields.number());
      meeting_.processes.push_back({pid, fields.text()});
    }
    meeting_.links.push_back(std::move(link));
    return true;
  }

  bool bear(FrameReader fields) {
    const auto kind = static_cast<Refusal>(fields.number());
    const auto culprit = static_cast<int>(fields.number());
    error_ = fields.text();
    if (kind == Refusal::contradiction) throw BuildError{error_};
    if (kind == Refusal::failure) throw CommunicationError{error_, culprit};
    return false;
  }

  ProcessEnvironment environment_;
  JobOptions options_;
  std::vector<std::string> addresses_;
  Meeting meeting_;
  std::string error_ = "not tried";
};

}  // namespace replicator::transport::detail
