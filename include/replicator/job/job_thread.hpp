// SPDX-License-Identifier: Apache-2.0
// The code of job.hpp that runs on the thread of a Job: heartbeats, listening, failure detection, exchanges. job_inline.hpp
// includes it.
#pragma once

#include <poll.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <replicator/job/job.hpp>

namespace replicator::detail::transport {

// The loop of the thread. It sleeps until a frame arrives, the program wakes it, or a timeout is due.
template <class>
void Job::run() {
  Lock lock{mutex_};
  while (!stop_) {
    const auto now = pause(lock);
    for (std::size_t i = 0; i < peers_.size(); ++i) listen(peers_[i], static_cast<int>(i), now);
    if (!aborted() && !farewell_) judge(now);
    beat(now);
    for (auto& peer : peers_) peer.link.pump_out();  // ignores errors: the next read reveals a broken connection
  }
  finish_output();
}

// Returns the time at which it ended. The loop judges by that moment: a stop that comes later is forgiven by the next pause.
inline Job::Clock::time_point Job::pause(Lock& lock) {
  std::vector<pollfd> events{{wakeup_.get(), POLLIN, 0}};
  for (const auto& peer : peers_)
    if (peer.link.open())
      events.push_back(
          {peer.link.descriptor(), static_cast<short>(peer.link.has_output() ? POLLIN | POLLOUT : POLLIN), 0});
  auto expected = std::min(next_beat_, Clock::now() + options_.heartbeat);
  if (exchanges_differ_ != Clock::time_point{}) expected = std::min(expected, Clock::now() + options_.grace / 4);
  for (const auto& peer : peers_)  // a process is about to be blamed
    if (peer.lost != Clock::time_point{} || peer.suspected != Clock::time_point{})
      expected = std::min(expected, Clock::now() + options_.grace / 4);
  lock.unlock();
  ::poll(events.data(), events.size(), detail::remaining_ms(expected, 1000));
  std::uint64_t count;
  static_cast<void>(!::read(wakeup_.get(), &count, sizeof count));
  lock.lock();
  const auto now = Clock::now();
  forgive_after_a_stop(expected, now);
  return now;
}

// A process that was stopped itself finds every timeout expired. It must not blame the others for its own absence.
inline void Job::forgive_after_a_stop(Clock::time_point expected, Clock::time_point now) {
  if (now - expected < options_.dead_after / 2) return;
  for (auto& peer : peers_) peer.heard = now;
}

inline void Job::listen(Peer& peer, int from, Clock::time_point now) {
  if (!peer.link.open()) return;
  const auto before = peer.link.received();
  bool good = peer.link.pump_in();
  if (peer.link.received() != before) peer.heard = now;
  detail::FrameKind kind{};
  detail::Bytes fields;
  try {
    while (peer.link.next(kind, fields)) handle(from, kind, detail::FrameReader{fields});
  } catch (const CommunicationError& error) {
    peer.broke = error.what();
    good = false;
  }
  if (good) return;
  peer.link.close();
  peer.lost = now;
}

inline void Job::handle(int from, detail::FrameKind kind, detail::FrameReader fields) {
  if (kind == detail::FrameKind::abort) {
    const auto blamed = fields.number();
    const int culprit = blamed < processes_.size() ? static_cast<int>(blamed) : -1;
    const auto message = fields.text();
    is_hub() ? declare(message, culprit) : adopt(message, culprit);
  } else if (kind == detail::FrameKind::heartbeat && is_hub()) {
    peers_[static_cast<std::size_t>(from)].latest = read_calls(fields);
  } else if (kind == detail::FrameKind::gather && is_hub()) {
    auto calls = read_calls(fields);
    auto what = fields.text();
    contribute(from, std::move(calls), std::move(what), fields.blob());
  } else if (kind == detail::FrameKind::gathered && !is_hub()) {
    const auto number = fields.number();
    std::vector<detail::Bytes> result;
    for (int r = 0; r < size(); ++r) result.push_back(fields.blob());
    // Accept only complete results of an exchange that this process asked for. Otherwise a waiting thread would read half
    // of one, or nobody would ever fetch it.
    if (number >= asked_ || !gathered_.emplace(number, std::move(result)).second)
      throw CommunicationError{"process 0 sent the result of an exchange that is not going on", 0};
    outside_.reset();  // it waited for this exchange
    changed_.notify_all();
  } else if (kind == detail::FrameKind::suspect && is_hub()) {
    auto& peer = peers_.at(std::min(static_cast<std::size_t>(fields.number()), peers_.size() - 1));
    auto why = fields.text();
    if (peer.suspected == Clock::time_point{}) peer.suspected = Clock::now();
    if (peer.suspicion.empty()) peer.suspicion = std::move(why);
  } else if (kind == detail::FrameKind::bye && is_hub()) {
    depart(from, read_calls(fields));
  } else if (kind == detail::FrameKind::outside && !is_hub()) {
    auto calls = read_calls(fields);
    const auto process = std::min(fields.number(), std::uint64_t{processes_.size() - 1});
    outside_ = Outside{static_cast<int>(process), std::move(calls), fields.text()};
  } else if (kind == detail::FrameKind::farewell && !is_hub()) {
    // After the farewell process 0 is no longer watched, so a wait that continued would never end.
    if (!leaving_) throw CommunicationError{"process 0 took leave of a process that has not left", 0};
    farewell_ = true;
    changed_.notify_all();
  }
}

inline void Job::beat(Clock::time_point now) {
  if (now < next_beat_) return;
  next_beat_ = now + options_.heartbeat;
  send_to_all(is_hub() ? detail::FrameWriter{detail::FrameKind::heartbeat}.finish() : call_frame(detail::FrameKind::heartbeat, calls()).finish());
}

inline void Job::judge(Clock::time_point now) {
  const auto never = Clock::time_point{};
  if (is_hub()) peers_[0].heard = now;  // process 0 can be suspected, but is alive
  for (std::size_t i = 0; i < peers_.size() && !aborted(); ++i) {
    const Peer& peer = peers_[i];
    const int who = static_cast<int>(i);
    if (peer.departed) continue;
    if (peer.lost != never && now - peer.lost >= options_.grace)
      declare(with_context(describe(who) + (peer.broke.empty() ? " died: its connection closed" : " broke the protocol: " + peer.broke)) + also_lost(who, now), who);
    else if (peer.lost == never && peer.suspected != never && now - peer.suspected >= options_.grace)
      declare(with_context(peer.suspicion), who);
    else if (peer.lost == never && now - peer.heard > options_.dead_after)
      declare(with_context(describe(who) + " died or was stopped: no heartbeat for " +
                           detail::seconds_text(options_.dead_after)) +
                  also_lost(who, now),
              who);
  }
  if (aborted() || (is_hub() && compare_exchanges(now))) return;
  judge_calls();
  if (is_hub() && !aborted()) compare_calls(now);
  if (is_hub() && !aborted()) tell_who_is_outside(now);
  if (is_hub() && !aborted()) judge_exchange(now);
}

inline void Job::judge_exchange(Clock::time_point now) {
  if (gather_began_ == Clock::time_point{} || options_.exchange_deadline.count() == 0) return;
  if (now - gather_began_ < options_.exchange_deadline) return;
  const auto missing = std::find_if(peers_.begin(), peers_.end(), [](const Peer& peer) { return !peer.present; });
  const auto first = std::find_if(peers_.begin(), peers_.end(), [](const Peer& peer) { return peer.present; });
  const int who = static_cast<int>(missing - peers_.begin());
  declare(with_context(describe(who) + " is late: it has not come to the exchange \"" + first->what + "\" within " +
                       detail::seconds_text(options_.exchange_deadline)),
          who);
}

inline detail::FrameWriter Job::call_frame(detail::FrameKind kind, const Calls& calls) {
  detail::FrameWriter frame{kind};
  frame.number(calls.begun).text(calls.last).text(calls.where);
  return frame;
}
inline Job::Calls Job::read_calls(detail::FrameReader& fields) {
  Calls calls{fields.number(), {}, {}};
  calls.last = fields.text();
  calls.where = fields.text();
  return calls;
}

inline Job::Calls Job::calls() const {
  for (;; ::sched_yield()) {
    Calls calls{begun_.load(std::memory_order_acquire), {}, {}};
    if (calls.begun == 0) return calls;
    calls.last = call_text();
    const Location where{file_.load(), line_.load()};
    if (*where.file) calls.where = where.text();
    if (beginning_.load() == calls.begun) return calls;
  }
}
inline std::string Job::call_text() const {
  const std::string what = what_.load(), detail = detail_.load();
  if (what.empty()) return {};
  const int step = step_.load();
  return what + " " + std::to_string(number_.load()) + (step > 0 ? " of replicated step " + std::to_string(step) : "") +
         (detail.empty() ? "" : " (" + detail + ")");
}

// Process 0 only: of the processes that have left or ask for an exchange, the one with the fewest calls.
inline std::optional<Job::Outside> Job::first_outside() const {
  const Peer* first = nullptr;
  for (const auto& peer : peers_)
    if ((peer.departed || peer.present) && (!first || peer.calls.begun < first->calls.begun)) first = &peer;
  if (!first) return {};
  return Outside{static_cast<int>(first - peers_.data()), first->calls, first->departed ? std::string{} : first->what};
}

inline std::string Job::ahead_text(const Outside& waits, int asks, const Calls& calls) const {
  const auto call = calls.last.substr(0, calls.last.find(' '));
  const auto after = waits.calls.last.empty() ? " before its first " + call : " after " + waits.calls.text();
  const auto asked = "; " + describe(asks) + " asked for " + calls.text() + ": all processes must make the same ";
  if (waits.what.empty())
    return describe(waits.process) + " ended" + after + asked + "number of " + call + "s, so stop by a condition that all of them share";
  return describe(waits.process) + " asks for the exchange \"" + waits.what + "\"" + after + asked + "calls in the same order, and stop by a condition that all of them share";
}

// No process may begin a call for which another one does not come.
inline void Job::judge_calls() {
  if (!is_hub()) {
    const auto mine = calls();
    if (!outside_ || mine.begun <= outside_->calls.begun || std::exchange(complained_, true)) return;
    peers_[0].link.push(detail::FrameWriter{detail::FrameKind::abort}
                            .number(static_cast<std::uint64_t>(outside_->process))
                            .text(ahead_text(*outside_, rank_, mine))
                            .finish());
    return;
  }
  const auto outside = first_outside();
  if (!outside) return;
  for (int process = 0; process < size(); ++process) {
    const auto& peer = peers_[static_cast<std::size_t>(process)];
    const auto known = peer.departed || peer.present ? peer.calls : process == 0 ? calls()
                                                                                 : Calls{};
    if (known.begun > outside->calls.begun) return declare(ahead_text(*outside, process, known), outside->process);
  }
}

// Process 0 only. Its own latest call must be that of every process that has begun as many. A difference waits for `grace`,
// because an exchange that finds it can say more, and because the calls of further processes can show a majority.
inline void Job::compare_calls(Clock::time_point now) {
  const auto mine = calls();
  bool differ = false;
  for (std::size_t process = 1; process < peers_.size(); ++process) {
    auto& peer = peers_[process];
    if (peer.latest.begun != mine.begun || peer.latest.last == mine.last) peer.differs = {};
    else if (peer.differs == Clock::time_point{}) peer.differs = now;
    else if (now - peer.differs >= options_.grace) differ = true;
  }
  if (!differ) return;
  std::vector<Asked> asked{{0, mine.last, mine.text()}};
  for (std::size_t process = 1; process < peers_.size(); ++process)
    if (const auto& latest = peers_[process].latest; latest.begun == mine.begun) asked.push_back({static_cast<int>(process), latest.last, latest.text()});
  declare_difference(asked, "", "all processes must make the same calls in the same order");
}

// Blames a process that asks for something else than the majority. Without a majority nobody is to blame: then the sentence
// names the first two that differ. It must not depend on which process came first.
inline void Job::declare_difference(const std::vector<Asked>& asked, const std::string& kind, const std::string& mend) {
  const auto alike = [&](const Asked& a) { return std::count_if(asked.begin(), asked.end(), [&](const Asked& b) { return a.what == b.what; }); };
  auto most = std::find_if(asked.begin(), asked.end(), [&](const Asked& each) { return 2 * alike(each) > std::ssize(asked); });
  const bool majority = most != asked.end();
  if (!majority) most = asked.begin();
  const auto odd = std::find_if(asked.begin(), asked.end(), [&](const Asked& each) { return each.what != most->what; });
  const auto& [first, second] = majority ? std::pair{*odd, *most} : std::pair{*most, *odd};
  declare(describe(first.process) + " asks for " + kind + first.text + (majority ? " where " : ", and ") + describe(second.process) + " asks for " +
              second.text + ": " + mend,
          majority ? odd->process : -1);
}

// Process 0 only. The others begin calls without a word to process 0, so each must know who is outside and compare.
inline void Job::tell_who_is_outside(Clock::time_point now) {
  const auto outside = first_outside();
  if (!outside || now - peers_[static_cast<std::size_t>(outside->process)].outside < options_.grace) return;
  if (outside_ && outside_->calls.begun <= outside->calls.begun) return;
  outside_ = outside;
  send_to_all(call_frame(detail::FrameKind::outside, outside->calls).number(static_cast<std::uint64_t>(outside->process)).text(outside->what).finish());
}

// Process 0 only.
inline void Job::depart(int who, Calls calls) {
  auto& peer = peers_[static_cast<std::size_t>(who)];
  peer.departed = true;
  peer.calls = std::move(calls);
  peer.outside = Clock::now();
  check_departures();
}

// Process 0 only: stores a process's contribution to the current exchange.
inline void Job::contribute(int from, Calls calls, std::string what, detail::Bytes blob) {
  if (aborted()) return;
  if (gather_began_ == Clock::time_point{}) gather_began_ = Clock::now();
  const auto other = std::find_if(peers_.begin(), peers_.end(), [](const Peer& peer) { return peer.present; });
  if (other != peers_.end() && other->what != what && exchanges_differ_ == Clock::time_point{}) exchanges_differ_ = Clock::now();
  auto& mine = peers_[static_cast<std::size_t>(from)];
  mine.present = true;
  mine.calls = std::move(calls);
  mine.outside = Clock::now();
  mine.what = std::move(what);
  mine.blob = std::move(blob);
  if (compare_exchanges(Clock::now())) return;
  judge_calls();
  if (aborted()) return;
  if (std::all_of(peers_.begin(), peers_.end(), [](const Peer& peer) { return peer.present; }))
    complete_exchange();
  else
    check_departures();
}

// Process 0 only. Returns true where processes ask for different exchanges. The verdict then waits for the other processes,
// at most for `grace`, because they can show a majority.
inline bool Job::compare_exchanges(Clock::time_point now) {
  if (exchanges_differ_ == Clock::time_point{}) return false;
  std::vector<Asked> asked;
  for (int process = 0; process < size(); ++process)
    if (const auto& peer = peers_[static_cast<std::size_t>(process)]; peer.present) asked.push_back({process, peer.what, "\"" + peer.what + "\""});
  if (std::ssize(asked) == size() || now - exchanges_differ_ >= options_.grace)
    declare_difference(asked, "the exchange ", "all processes must ask for the same exchanges in the same order");
  return true;
}

inline void Job::complete_exchange() {
  detail::FrameWriter frame{detail::FrameKind::gathered};
  frame.number(gathering_);
  auto& result = gathered_[gathering_++];
  for (auto& peer : peers_) {
    frame.blob(peer.blob);
    result.push_back(std::move(peer.blob));
    peer.present = false;
  }
  gather_began_ = {};
  outside_.reset();
  send_to_all(frame.finish());
  changed_.notify_all();
}

// Process 0 only. No process may wait for one that has left. When all have left, the job ends.
inline void Job::check_departures() {
  if (compare_exchanges(Clock::now())) return;
  judge_calls();
  if (aborted()) return;
  const auto gone = std::find_if(peers_.begin(), peers_.end(), [](const Peer& p) { return p.departed && !p.present; });
  const auto waiting = std::find_if(peers_.begin(), peers_.end(), [](const Peer& peer) { return peer.present; });
  const int who = static_cast<int>(gone - peers_.begin());
  if (gone != peers_.end() && waiting != peers_.end())
    return declare(describe(who) + " has left the job, but " + describe(static_cast<int>(waiting - peers_.begin())) +
                       " asks for the exchange \"" + waiting->what + "\"",
                   who);
  if (!std::all_of(peers_.begin(), peers_.end(), [](const Peer& peer) { return peer.departed; })) return;
  farewell_ = true;
  send_to_all(detail::FrameWriter{detail::FrameKind::farewell}.finish());
  changed_.notify_all();
}

inline void Job::send_to_all(const detail::Bytes& frame) {
  for (auto& peer : peers_) peer.link.push(frame);
}

// Process 0 decides for all. Another process decides only where process 0 is gone. If process 0 was only stopped, it finds
// the sentence when it wakes.
inline void Job::declare(const std::string& message, int culprit) {
  if (aborted()) return;
  adopt(message, culprit);
  send_to_all(
      detail::FrameWriter{detail::FrameKind::abort}.number(static_cast<std::uint64_t>(culprit)).text(message).finish());
}

inline void Job::adopt(const std::string& message, int culprit) {
  if (aborted()) return;
  failure_ = message;
  culprit_ = culprit;
  aborted_.store(true, std::memory_order_release);
  changed_.notify_all();
  const std::scoped_lock lock{hooks_mutex_};
  for (const auto& [id, wake] : hooks_) wake();
}

// Only process 0 adds its context. When process 0 dies, the others may be at different places, but their sentences must be
// equal.
inline std::string Job::with_context(const std::string& message) const {
  const auto call = call_text();
  return !is_hub() || call.empty() ? message : message + " during " + call;
}

// The other processes that are known to be lost, as an addition to the verdict on `who`. Empty without any.
inline std::string Job::also_lost(int who, Clock::time_point now) const {
  std::string text;
  for (int process = 0; process < static_cast<int>(peers_.size()); ++process) {
    const auto& peer = peers_[static_cast<std::size_t>(process)];
    if (process == who || peer.departed) continue;
    if (peer.lost != Clock::time_point{}) text += "; " + describe(process) + " died too";
    else if (now - peer.heard > options_.dead_after) text += "; " + describe(process) + " died or was stopped too";
  }
  return text;
}

// The last messages must arrive. Closing a socket with unread input would discard them. So send, shut down, read to the
// end.
inline void Job::finish_output() {
  const auto until = Clock::now() + options_.grace;
  const bool linger = is_hub() || aborted();
  for (auto& peer : peers_) {
    while (peer.link.pump_out() && peer.link.has_output() && Clock::now() < until) {
      pollfd event{peer.link.descriptor(), POLLOUT, 0};
      ::poll(&event, 1, detail::remaining_ms(until, 10));
    }
    peer.link.shut_output();
  }
  for (auto& peer : peers_)
    while (linger && peer.link.open() && peer.link.pump_in() && Clock::now() < until) {
      pollfd event{peer.link.descriptor(), POLLIN, 0};
      ::poll(&event, 1, detail::remaining_ms(until, 10));
    }
}

}  // namespace replicator::detail::transport
