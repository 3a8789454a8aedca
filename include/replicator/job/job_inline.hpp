// SPDX-License-Identifier: Apache-2.0
// The code of job.hpp: the functions that a program calls.
#pragma once

#include <sys/eventfd.h>
#include <unistd.h>

#include <cstdio>
#include <string>

#include <replicator/core/deadline_wait.hpp>
#include <replicator/devices/thread_without_signals.hpp>
#include <replicator/job/job.hpp>
#include <replicator/job/job_thread.hpp>
#include <replicator/job/meet.hpp>

namespace replicator::detail::transport {

template <class>
Job::Job(const ProcessEnvironment& environment, const JobOptions& options)
    : Job{detail::meet(environment, options), environment.rank, environment.interface, options} {}

template <class>
Job::Job(detail::Membership membership, int rank, const std::string& interface, const JobOptions& options)
    : options_{options}, rank_{rank}, token_{membership.token}, processes_{std::move(membership.processes)} {
  if (size() == 1) return;
  if (!interface.empty()) interface_ = detail::addresses_of(interface).front().interface;
  wakeup_ = FileDescriptor{::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
  const auto now = Clock::now();
  for (auto& link : membership.links) {
    peers_.emplace_back();
    peers_.back().link = std::move(link);
    peers_.back().heard = now;
  }
  thread_ = thread_without_signals([this] { run(); });
}

template <class>
std::string Job::address() {
  const Lock lock{mutex_};
  std::string found;
  for (const auto& peer : peers_) {
    if (!peer.link.open()) continue;
    found = detail::address_of(peer.link.descriptor()).text();
    if (!detail::loopback_address(found)) break;  // processes of this machine may have come by loopback
  }
  return found;
}

template <class>
void Job::end() noexcept {
  if (!thread_.joinable()) return;
  try {
    if (!aborted() && std::uncaught_exceptions() > exceptions_at_start_)
      abort(describe(rank_) + " left because of an error of its own", rank_);
    else
      leave();
  } catch (const CommunicationError&) {  // a caller that waited has seen the error
  }
  {
    const Lock lock{mutex_};
    stop_ = true;
  }
  wake_thread();
  thread_.join();
}

template <class>
std::vector<detail::Bytes> Job::exchange(std::span<const std::byte> mine, std::string_view what) {
  check();
  detail::Bytes blob{mine.begin(), mine.end()};
  if (size() == 1) return {std::move(blob)};
  Lock lock{mutex_};
  const auto number = asked_++;
  if (is_hub())
    contribute(0, calls(), std::string{what}, std::move(blob));
  else
    peers_[0].link.push(call_frame(detail::FrameKind::gather, calls()).text(what).blob(blob).finish());
  wake_thread();
  wait_and_tell(
      lock, [&] { return gathered_.contains(number) || aborted(); }, [&] { return describe(rank_) + " waits at the exchange \"" + std::string{what} + "\" for " + those([](const Peer& peer) { return !peer.present; }); });
  const auto found = gathered_.find(number);
  if (found == gathered_.end()) check();
  auto result = std::move(found->second);
  gathered_.erase(found);
  return result;
}

template <class>
void Job::abort(const std::string& message, int culprit) {
  Lock lock{mutex_};
  if (is_hub()) {
    declare(message, culprit);
    wake_thread();
    return;
  }
  if (aborted()) return;
  peers_[0].link.push(
      detail::FrameWriter{detail::FrameKind::abort}.number(static_cast<std::uint64_t>(culprit)).text(message).finish());
  wake_thread();
  changed_.wait_for(lock, options_.dead_after + options_.grace, [&] { return aborted(); });
  adopt(message, culprit);
}

template <class>
void Job::suspect(int process, const std::string& why) {
  const Lock lock{mutex_};
  if (size() == 1 || aborted()) return;
  if (!is_hub()) {
    peers_[0].link.push(
        detail::FrameWriter{detail::FrameKind::suspect}.number(static_cast<std::uint64_t>(process)).text(why).finish());
  } else if (auto& peer = peers_.at(static_cast<std::size_t>(process)); peer.suspected == Clock::time_point{}) {
    peer.suspected = Clock::now();
    peer.suspicion = why;
  }
  wake_thread();
}

template <class>
void Job::give_up_on(int process, const std::string& why) {
  suspect(process, why);
  {
    Lock lock{mutex_};
    changed_.wait_for(lock, options_.dead_after + options_.grace, [&] { return aborted(); });
  }
  abort(why, process);  // in case no verdict has come
  throw CommunicationError{failure_, culprit_};
}

template <class>
Job::Hook Job::on_abort(std::function<void()> wake) {
  const std::scoped_lock lock{hooks_mutex_};
  if (aborted()) {
    wake();
    return {};
  }
  const auto id = next_hook_++;
  hooks_.emplace(id, std::move(wake));
  return Hook{this, id};
}

template <class>
void Job::unhook(std::uint64_t id) {
  const std::scoped_lock lock{hooks_mutex_};
  hooks_.erase(id);
}

template <class>
void Job::leave() {
  Lock lock{mutex_};
  check();
  if (size() == 1 || farewell_) return;
  leaving_ = true;
  if (is_hub()) {
    depart(0, calls());
  } else {
    peers_[0].link.push(call_frame(detail::FrameKind::bye, calls()).finish());
  }
  wake_thread();
  const auto parted = [&] { return farewell_ || aborted(); };
  wait_and_tell(lock, parted, [&] {
    return describe(rank_) + " has finished, and waits for " + those([](const Peer& peer) { return !peer.departed; }) + ", alive, to finish too";
  });
  if (!farewell_) check();
}

template <class Predicate, class Text>
void Job::wait_and_tell(Lock& lock, Predicate done, Text text) {
  DeadlineWait{{.late = options_.late}}.wait(changed_, lock, done, [&] {
    const auto line = "replicator: " + text() + "\n";
    lock.unlock();  // heartbeats need the lock, and stderr may be slow
    std::fputs(line.c_str(), stderr);
    lock.lock();
  });
}

template <class Predicate>
std::string Job::those(Predicate awaited) const {
  if (!is_hub()) return "others";
  std::string text;
  for (int process = 0; process < size(); ++process)
    if (awaited(peers_[static_cast<std::size_t>(process)])) text += (text.empty() ? "" : ", ") + describe(process);
  return text;
}

inline void Job::wake_thread() {
  const std::uint64_t one = 1;
  if (wakeup_) static_cast<void>(!::write(wakeup_.get(), &one, sizeof one));
}

}  // namespace replicator::detail::transport
