// SPDX-License-Identifier: Apache-2.0
// Second part of the proof of a schedule: the happens-before order. It consists of the order in a channel, `after`, and
// send before recv. Messages must match one to one. There must also be no deadlock without any buffering, that is, where
// every send waits for its recv.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <replicator/collectives/check/check_form.hpp>
#include <string>
#include <utility>
#include <vector>

namespace replicator::detail::collectives::detail {

// The happens-before order of a schedule's events.
class Order {
 public:
  explicit Order(const Events& events) : events_{events} {
    if (!match_messages()) return;
    before_.assign(static_cast<std::size_t>(events.count()), {});
    for (int e = 0; e < events.count(); ++e) {
      auto& before = before_[static_cast<std::size_t>(e)];
      if (!events.first_of_channel(e)) before.push_back(e - 1);
      for (const Dependency& d : events[e].after) before.push_back(events.find(d));
    }
    if (sort_events()) close_order();
  }

  // The first fault found, or empty. After a fault nothing below may be called.
  const std::string& fault() const { return fault_; }
  // All events, in one order in which they can run.
  const std::vector<int>& sequence() const { return order_; }
  // The other end of a message, or -1.
  int partner(int event) const { return partner_[static_cast<std::size_t>(event)]; }
  // Whether `first` comes before `second` in every possible order. An event counts as before itself.
  bool happens_before(int first, int second) const {
    return first == second ||
           (ancestors_[static_cast<std::size_t>(second) * words_ + static_cast<std::size_t>(first) / 64] >>
            (first % 64)) &
               1;
  }

 private:
  bool fail(const std::string& what) {
    fault_ = what;
    return false;
  }

  bool match_messages() {
    partner_.assign(static_cast<std::size_t>(events_.count()), -1);
    std::map<std::pair<int, int>, std::vector<int>> sends, recvs;
    for (int e = 0; e < events_.count(); ++e) {
      const Instruction& i = events_[e];
      if (i.action == Action::send) sends[{events_.rank_of(e), i.peer}].push_back(e);
      if (i.action == Action::recv) recvs[{i.peer, events_.rank_of(e)}].push_back(e);
    }
    if (sends.size() != recvs.size()) return fail("a message has only one end");
    for (const auto& [link, from] : sends) {
      const auto to = recvs.find(link);
      if (to == recvs.end() || to->second.size() != from.size())
        return fail("rank " + std::to_string(link.first) + " does not send to rank " + std::to_string(link.second) +
                    " as many messages as are received there");
      for (std::size_t k = 0; k < from.size(); ++k) {
        partner_[static_cast<std::size_t>(from[k])] = to->second[k];
        partner_[static_cast<std::size_t>(to->second[k])] = from[k];
      }
    }
    return true;
  }

  // Sorts the events topologically. A send and its recv are one event here: neither ends before both have begun.
  bool sort_events() {
    const auto events = static_cast<std::size_t>(events_.count());
    std::vector<int> missing(events, 0);
    std::vector<std::vector<int>> behind(events);
    const auto group = [&](int e) {
      const int other = partner_[static_cast<std::size_t>(e)];
      return other >= 0 && other < e ? other : e;
    };
    for (std::size_t e = 0; e < events; ++e)
      for (const int b : before_[e]) {
        behind[static_cast<std::size_t>(group(b))].push_back(group(static_cast<int>(e)));
        ++missing[static_cast<std::size_t>(group(static_cast<int>(e)))];
      }
    std::vector<int> ready;
    for (int e = 0; e < static_cast<int>(events); ++e)
      if (group(e) == e && missing[static_cast<std::size_t>(e)] == 0) ready.push_back(e);
    while (!ready.empty()) {
      const int e = ready.back();
      ready.pop_back();
      const int other = partner_[static_cast<std::size_t>(e)];
      const bool recv_first = other >= 0 && events_[e].action == Action::recv;
      if (recv_first) order_.push_back(other);
      order_.push_back(e);
      if (other >= 0 && !recv_first) order_.push_back(other);
      for (const int next : behind[static_cast<std::size_t>(e)])
        if (--missing[static_cast<std::size_t>(next)] == 0) ready.push_back(next);
    }
    return order_.size() == events || fail("a deadlock: instructions wait for each other in a circle");
  }

  void close_order() {
    words_ = (order_.size() + 63) / 64;
    ancestors_.assign(order_.size() * words_, 0);
    const auto inherit = [&](int e, int b) {
      std::uint64_t* to = &ancestors_[static_cast<std::size_t>(e) * words_];
      const std::uint64_t* from = &ancestors_[static_cast<std::size_t>(b) * words_];
      for (std::size_t w = 0; w < words_; ++w) to[w] |= from[w];
      to[static_cast<std::size_t>(b) / 64] |= std::uint64_t{1} << (b % 64);
    };
    for (const int e : order_) {
      for (const int b : before_[static_cast<std::size_t>(e)]) inherit(e, b);
      if (events_[e].action == Action::recv) inherit(e, partner_[static_cast<std::size_t>(e)]);
    }
  }

  const Events& events_;
  std::string fault_;
  std::vector<int> partner_;
  std::vector<std::vector<int>> before_;  // direct predecessors
  std::vector<int> order_;
  std::size_t words_ = 0;
  std::vector<std::uint64_t> ancestors_;  // a bit for every event that happens before
};

}  // namespace replicator::detail::collectives::detail
