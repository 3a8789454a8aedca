// SPDX-License-Identifier: Apache-2.0
// Process 0 receives the other processes of its job.
#pragma once

#include <poll.h>
#include <sys/random.h>
#include <sys/socket.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <replicator/core/error.hpp>
#include <replicator/transport/acquaintance.hpp>
#include <replicator/transport/frame.hpp>
#include <replicator/transport/job_options.hpp>
#include <replicator/transport/link.hpp>
#include <replicator/transport/rendezvous.hpp>
#include <replicator/transport/tcp.hpp>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace replicator::transport::detail {

// Listens until all are here; whoever does not speak as one of them is sent away.
class Reception {
 public:
  Reception(const ProcessEnvironment& environment, const JobOptions& options)
      : environment_{environment}, options_{options}, here_(static_cast<std::size_t>(environment.world_size)) {
    if (!environment_.listener)
      environment_.listener = std::make_shared<FileDescriptor>(listen_on(environment_.master_port));
    meeting_.processes.resize(here_.size());
    meeting_.links.resize(here_.size());
    here_[0] = true;
    meeting_.processes[0] = this_process();
  }

  Meeting receive() {
    const auto until = MeetingClock::now() + options_.connect_deadline;
    while (std::find(here_.begin(), here_.end(), false) != here_.end()) {
      if (MeetingClock::now() >= until) fail<CommunicationError>(Refusal::failure, missing_sentence(), first_missing());
      wait(until);
      admit();
      forget_lost();
      hear_newcomers();
    }
    return welcome();
  }

 private:
  struct Newcomer {
    Link link;
    MeetingClock::time_point since;
  };
  static constexpr std::size_t most_newcomers = 256;  // those that say nothing must not use up our descriptors
  static constexpr std::uint64_t longest_hello = 65536;

  void wait(MeetingClock::time_point until) {
    std::vector<pollfd> events{{environment_.listener->get(), POLLIN, 0}};
    for (const auto& link : meeting_.links)
      if (link.open()) events.push_back({link.descriptor(), POLLIN, 0});
    for (const auto& newcomer : newcomers_) events.push_back({newcomer.link.descriptor(), POLLIN, 0});
    ::poll(events.data(), events.size(), remaining_ms(until, 200));
  }

  void admit() {
    for (;;) {
      FileDescriptor socket{::accept4(environment_.listener->get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK)};
      if (!socket) return;
      set_no_delay(socket.get());
      if (newcomers_.size() >= most_newcomers) newcomers_.erase(newcomers_.begin());
      newcomers_.push_back({Link{std::move(socket), longest_hello}, MeetingClock::now()});
    }
  }

  // A process that broke its connection may come again.
  void forget_lost() {
    for (std::size_t r = 1; r < here_.size(); ++r)
      if (here_[r] && !meeting_.links[r].pump_in()) {
        here_[r] = false;
        meeting_.links[r].close();
      }
  }

  void hear_newcomers() {
    for (auto& newcomer : newcomers_) {
      const bool good = newcomer.link.pump_in();
      FrameKind kind{};
      Bytes fields;
      if (newcomer.link.next(kind, fields)) {
        try {
          if (kind == FrameKind::hello) greet(newcomer.link, FrameReader{fields});
        } catch (const CommunicationError&) {  // cut short: not one of us
        }
        newcomer.link.close();
      } else if (!good || MeetingClock::now() - newcomer.since > options_.connect_deadline) {
        newcomer.link.close();  // no frame of ours: somebody else's program
      }
    }
    std::erase_if(newcomers_, [](const Newcomer& newcomer) { return !newcomer.link.open(); });
  }

  void greet(Link& link, FrameReader fields) {
    const std::string job = fields.text();
    const std::uint64_t world = fields.number();
    const std::uint64_t rank = fields.number();
    ProcessInfo info{static_cast<std::int64_t>(fields.number()), fields.text()};
    if (job != environment_.job_name) {
      link.push(refusal(Refusal::elsewhere, 0, "process 0 there belongs to the job \"" + environment_.job_name + "\""));
      link.pump_out();
      return;
    }
    meeting_.links.push_back(std::move(link));  // so that fail() tells this one too
    if (world != here_.size() || rank == 0 || rank >= world)
      fail<BuildError>(Refusal::contradiction,
                       "process " + std::to_string(rank) + " (pid " + std::to_string(info.pid) + " on " + info.host +
                           ") was started with WORLD_SIZE=" + std::to_string(world) + ", process 0 with WORLD_SIZE=" +
                           std::to_string(here_.size()) + ": all processes of a job need the same, and a RANK each",
                       static_cast<int>(rank));
    auto& place = meeting_.links[rank];
    if (here_[rank] && place.pump_in())
      fail<BuildError>(Refusal::contradiction,
                       "two processes were started with RANK=" + std::to_string(rank) + ": pid " +
                           std::to_string(meeting_.processes[rank].pid) + " on " + meeting_.processes[rank].host +
                           " and pid " + std::to_string(info.pid) + " on " + info.host + "; each needs its own",
                       static_cast<int>(rank));
    place = std::move(meeting_.links.back());
    meeting_.links.pop_back();
    place.raise_limit();
    place.push(FrameWriter{FrameKind::heartbeat}.finish());  // "you are at the right address"
    place.pump_out();
    here_[rank] = true;
    meeting_.processes[rank] = std::move(info);
  }

  template <class Failure>
  [[noreturn]] void fail(Refusal kind, const std::string& sentence, int culprit) {
    for (auto& link : meeting_.links) {
      link.push(refusal(kind, culprit, sentence));
      link.pump_out();
      link.shut_output();
    }
    if constexpr (std::is_same_v<Failure, CommunicationError>) throw CommunicationError{sentence, culprit};
    throw BuildError{sentence};
  }

  int first_missing() const { return static_cast<int>(std::find(here_.begin(), here_.end(), false) - here_.begin()); }

  std::string missing_sentence() const {
    std::string missing;
    std::string present;
    for (std::size_t r = 0; r < here_.size(); ++r) {
      std::string& list = here_[r] ? present : missing;
      list += (list.empty() ? "" : ", ") + std::to_string(r);
    }
    const auto port = std::to_string(port_of(environment_.listener->get()));
    return "process " + missing + " did not come to port " + port + " of " + meeting_.processes[0].host + " within " +
           seconds_text(options_.connect_deadline) + " (here: " + present + " of " + std::to_string(here_.size()) +
           "): start it with its RANK and WORLD_SIZE=" + std::to_string(here_.size()) +
           ", or raise the connect deadline";
  }

  Meeting welcome() {
    while (::getrandom(&meeting_.token, sizeof meeting_.token, 0) != sizeof meeting_.token) {
    }
    FrameWriter frame{FrameKind::welcome};
    frame.number(meeting_.token);
    for (const auto& info : meeting_.processes) frame.number(static_cast<std::uint64_t>(info.pid)).text(info.host);
    for (auto& link : meeting_.links) {
      link.push(frame.finish());
      link.pump_out();  // what does not fit now goes with the first heartbeat
    }
    return std::move(meeting_);
  }

  ProcessEnvironment environment_;
  JobOptions options_;
  std::vector<bool> here_;
  Meeting meeting_;
  std::vector<Newcomer> newcomers_;
};

}  // namespace replicator::transport::detail
