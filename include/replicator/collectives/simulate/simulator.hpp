// SPDX-License-Identifier: Apache-2.0
// The event loop of a simulation. A link serves messages one after the other, first come, first served, and forwards a
// message from the first byte on. The thread of a rank posts messages and reduces, and runs kernels in between.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <queue>
#include <replicator/collectives/run/region_layout.hpp>
#include <replicator/collectives/simulate/simulated_network.hpp>
#include <replicator/collectives/simulate/simulation.hpp>
#include <replicator/collectives/simulate/task_graph.hpp>
#include <replicator/collectives/topology.hpp>
#include <string>
#include <utility>
#include <vector>

namespace replicator::detail::collectives::detail {

// One run of a simulation.
class Simulator {
  using Id = TaskGraph::Id;

 public:
  Simulator(const std::vector<SimulatedCollective>& collectives, const std::vector<std::vector<SimulatedAction>>& actions,
            const Topology& topology, const SimulationOptions& options)
      : topology_{topology},
        options_{options},
        actions_{actions},
        ranks_{topology.ranks()},
        network_{topology},
        chance_{options.jitter, options.seed} {
    const auto ranks = static_cast<std::size_t>(ranks_);
    const Chance of_devices{options.device_jitter, options.seed};
    for (std::size_t rank = 0; rank < ranks; ++rank) slowness_.push_back(of_devices.factor(rank, ~1u));
    threads_.resize(ranks);
    position_.assign(ranks, 0);
    waiting_.assign(ranks, -1);
    result_.finish.assign(ranks, 0);
    last_.assign(ranks, nothing);
    for (const SimulatedCollective& each : collectives) add(each);
  }

  Simulation run() && {
    for (int rank = 0; rank < ranks_; ++rank) proceed(rank, nothing);
    while (!events_.empty()) {
      const Event event = events_.top();
      events_.pop();
      now_ = event.time;
      handle(event);
    }
    for (int rank = 0; rank < ranks_; ++rank)
      if (position_[static_cast<std::size_t>(rank)] < actions_of(rank).size())
        throw BuildError{"the simulated rank " + std::to_string(rank) +
                         " waits for ever: a collective is not started everywhere, or its schedule does not pass check"};
    trace_back();
    result_.links = std::move(network_.uses);
    return std::move(result_);
  }

 private:
  struct Running {
    std::shared_ptr<const TaskGraph> graph;  // shared by all uses of a schedule
    Layout layout;
    int pieces;
    std::vector<std::int32_t> missing;     // [piece][task]; only while it runs
    std::vector<std::int64_t> unfinished;  // tasks of each rank
    std::vector<bool> started;
    std::int64_t left;  // tasks of all ranks
  };
  // An event of a collective's task; collective -1: of the rank's own actions.
  struct Event {
    double time;
    std::uint64_t sequence;
    double last_byte;  // of a message: when its last byte has passed the links so far
    Cause cause;       // its entry in the log; of a message in flight: the entry that delays it
    int collective;
    int piece;
    Id task;
    int stage;  // own actions: the rank; otherwise what happens to the task, or the link that a message has reached
    bool operator<(const Event& other) const {
      return time != other.time ? time > other.time : sequence > other.sequence;
    }
  };
  static constexpr int delivered = -1;
  static constexpr int left = -2;  // the sender's part of a message is done
  static constexpr int reduced = -3;
  // The thread of a rank. What takes no time (posting a message, seeing that one has arrived) is done before the next piece
  // of work.
  struct Thread {
    bool busy = false;
    Cause last = nothing;
    std::deque<Event> posts = {};
    std::deque<Event> work = {};
  };
  struct Entry {
    SimulatedSpan span;
    Cause cause;
  };

  void add(const SimulatedCollective& each) {
    auto& graph = graphs_[each.schedule];
    if (!graph) graph = std::make_shared<const TaskGraph>(*each.schedule);
    std::vector<std::int64_t> unfinished;
    for (int rank = 0; rank < ranks_; ++rank) unfinished.push_back(graph->tasks_of(rank) * each.pieces);
    const auto all = std::int64_t{graph->count()} * each.pieces;
    running_.push_back({graph, Layout{each.spec, *each.schedule, each.pieces}, each.pieces, {}, std::move(unfinished), std::vector<bool>(static_cast<std::size_t>(ranks_), false), all});
  }

  const std::vector<SimulatedAction>& actions_of(int rank) const {
    return actions_[actions_.size() == 1 ? 0 : static_cast<std::size_t>(rank)];
  }
  void push(double time, const Event& like, int stage, Cause cause, double last_byte = 0) {
    events_.push({time, sequence_++, last_byte, cause, like.collective, like.piece, like.task, stage});
  }
  Cause log(const SimulatedSpan& span, Cause cause) {
    if (!options_.critical_path && !options_.spans) return nothing;
    log_.push_back({span, cause});
    return static_cast<Cause>(log_.size()) - 1;
  }
  void end_span(Cause entry, double end) {
    if (entry != nothing) log_[static_cast<std::size_t>(entry)].span.end = end;
  }

  void handle(const Event& event) {
    if (event.collective < 0) end_kernel(event);
    else if (event.stage == left) finish_task(event.collective, task_of(event).rank, event.cause);
    else if (event.stage == delivered) deliver(event);
    else if (event.stage == reduced) end_work(event);
    else pass(event);
  }
  const Task& task_of(const Event& event) const {
    return (*running_[static_cast<std::size_t>(event.collective)].graph)[event.task];
  }

  // --- the rank's own actions ---

  void proceed(int rank, Cause cause) {
    const auto r = static_cast<std::size_t>(rank);
    const auto& actions = actions_of(rank);
    for (; position_[r] < actions.size(); ++position_[r]) {
      const SimulatedAction& action = actions[position_[r]];
      if (action.kind == SimulatedAction::Kind::compute) return compute(rank, cause);
      Running& c = running_[static_cast<std::size_t>(action.collective)];
      if (action.kind == SimulatedAction::Kind::start) {
        start(c, action.collective, rank, cause);
      } else if (!c.started[r] || c.unfinished[r] > 0) {
        waiting_[r] = action.collective;
        return;
      }
    }
    result_.finish[r] = now_;
    last_[r] = cause;
  }
  void compute(int rank, Cause cause) {
    const Event event{now_, 0, 0, cause, -1, 0, 0, rank};
    if (options_.kernels_aside) return run_kernel(event);
    Thread& thread = threads_[static_cast<std::size_t>(rank)];
    thread.work.push_back(event);
    if (!thread.busy) serve(thread);
  }
  void run_kernel(const Event& event) {
    const auto r = static_cast<std::size_t>(event.stage);
    const double microseconds = actions_of(event.stage)[position_[r]].microseconds;
    const double end = now_ + microseconds * slowness_[r] * chance_.factor(position_[r] << 24 | r, ~0u);
    push(end, event, event.stage, log({SimulatedSpan::Kind::compute, event.stage, -1, -1, 0, now_, end}, event.cause));
  }
  void end_kernel(const Event& event) {
    ++position_[static_cast<std::size_t>(event.stage)];
    proceed(event.stage, event.cause);
    if (!options_.kernels_aside) release_thread(threads_[static_cast<std::size_t>(event.stage)], event.cause);
  }
  void start(Running& c, int index, int rank, Cause cause) {
    c.started[static_cast<std::size_t>(rank)] = true;
    if (c.missing.empty() && c.left > 0)
      for (int piece = 0; piece < c.pieces; ++piece) c.missing.insert(c.missing.end(), c.graph->missing().begin(), c.graph->missing().end());
    for (int piece = 0; piece < c.pieces; ++piece)
      for (const Id* head = c.graph->heads_begin(rank); head != c.graph->heads_end(rank); ++head) release(index, piece, *head, cause);
  }

  // --- tasks ---

  void release(int index, int piece, Id task, Cause cause) {
    Running& c = running_[static_cast<std::size_t>(index)];
    if (--c.missing[static_cast<std::size_t>(piece) * c.graph->count() + task] > 0) return;
    ready({now_, 0, 0, cause, index, piece, task, 0});
  }
  std::int64_t bytes_of(const Event& event) const {
    const Task& task = task_of(event);
    const Layout& layout = running_[static_cast<std::size_t>(event.collective)].layout;
    return static_cast<std::int64_t>(layout.bytes(layout.locate({Buffer::input, 0, 0, task.chunk, task.count}, event.piece).elements));
  }
  // All inputs of the task are there.
  void ready(const Event& event) {
    const Task& task = task_of(event);
    Thread& thread = threads_[static_cast<std::size_t>(task.rank)];
    const bool works = task.arithmetic && topology_.reduced_bytes_per_microsecond > 0 && bytes_of(event) > 0;
    if (!works && !thread.busy) return post(event);
    (works ? thread.work : thread.posts).push_back(event);
    if (!thread.busy) serve(thread);
  }
  // Serves posts and work until the thread is busy again, or has nothing to do.
  void serve(Thread& thread) {
    while (!thread.busy && !(thread.posts.empty() && thread.work.empty())) {
      auto& from = thread.posts.empty() ? thread.work : thread.posts;
      Event event = from.front();
      from.pop_front();
      if (thread.last != nothing) event.cause = thread.last;
      if (&from == &thread.posts) {
        post(event);
      } else {
        thread.busy = true;
        if (event.collective < 0) run_kernel(event);
        else reduce(event);
      }
    }
    thread.last = nothing;
  }
  // Work has ended. It is the cause for whatever waited for the thread.
  void release_thread(Thread& thread, Cause last) {
    thread.busy = false;
    thread.last = last;
    serve(thread);
  }
  void reduce(const Event& event) {
    const double end = now_ + static_cast<double>(bytes_of(event)) / topology_.reduced_bytes_per_microsecond * factor_of(event);
    push(end, event, reduced, log({SimulatedSpan::Kind::reduce, task_of(event).rank, -1, event.collective, event.piece, now_, end}, event.cause));
  }
  void end_work(const Event& event) {
    deliver(event);
    release_thread(threads_[static_cast<std::size_t>(task_of(event).rank)], event.cause);
  }
  // Starts what takes no time of the thread.
  void post(Event event) {
    event.stage = 0;
    event.last_byte = now_;
    const bool message = task_of(event).message();
    if (message && bytes_of(event) > 0) return pass(event);
    if (message) push(now_, event, left, event.cause);
    push(now_, event, delivered, event.cause);
  }
  // The first byte of a message has reached its next link.
  void pass(Event event) {
    const Task& task = task_of(event);
    const std::int64_t bytes = bytes_of(event);
    const double factor = factor_of(event);
    for (const int hops = network_.hops(task.rank, task.peer); event.stage < hops; ++event.stage) {
      const std::size_t index = network_.link(task.rank, task.peer, event.stage);
      auto& link = network_[index];
      const double begin = std::max(now_, link.free);
      const bool queued = begin > now_;
      // From here on the link's last message causes the delay, and not the path of this message.
      if (queued || event.stage == 0) {
        if (event.stage > 0) end_span(event.cause, event.last_byte);
        const SimulatedSpan span{SimulatedSpan::Kind::message, task.rank, task.peer, event.collective, event.piece, begin, begin};
        event.cause = log(span, queued ? link.last : event.cause);
      }
      const double busy = network_.use(index, bytes, factor);
      event.last_byte = std::max(event.last_byte, begin + busy);
      link = {begin + busy, event.cause};
      if (queued) return push(begin, event, event.stage + 1, event.cause, event.last_byte);
    }
    const double end = event.last_byte + network_.latency(task.rank, task.peer) * factor;
    end_span(event.cause, end);
    push(event.last_byte, event, left, event.cause);
    push(end, event, delivered, event.cause);
  }
  void deliver(const Event& event) {
    const TaskGraph& graph = *running_[static_cast<std::size_t>(event.collective)].graph;
    for (const Id* next = graph.begin(event.task); next != graph.end(event.task); ++next)
      release(event.collective, event.piece, *next, event.cause);
    if (!graph[event.task].message()) finish_task(event.collective, graph[event.task].rank, event.cause);
  }
  void finish_task(int index, int rank, Cause cause) {
    const auto r = static_cast<std::size_t>(rank);
    Running& c = running_[static_cast<std::size_t>(index)];
    if (--c.left == 0) std::vector<std::int32_t>{}.swap(c.missing);
    if (--c.unfinished[r] > 0 || waiting_[r] != index || !c.started[r]) return;
    waiting_[r] = -1;
    ++position_[r];
    proceed(rank, cause);
  }

  // --- random factors and the critical path ---

  double factor_of(const Event& event) const {
    const auto tasks = std::uint64_t{running_[static_cast<std::size_t>(event.collective)].graph->count()};
    return chance_.factor(static_cast<std::uint64_t>(event.piece) * tasks + event.task, static_cast<std::uint32_t>(event.collective));
  }

  void trace_back() {
    if (options_.critical_path) {
      const auto& finish = result_.finish;
      const auto latest = std::max_element(finish.begin(), finish.end()) - finish.begin();
      double end = finish[static_cast<std::size_t>(latest)];
      for (Cause at = last_[static_cast<std::size_t>(latest)]; at != nothing; at = log_[static_cast<std::size_t>(at)].cause) {
        SimulatedSpan span = log_[static_cast<std::size_t>(at)].span;
        span.end = std::exchange(end, span.begin);
        result_.critical_path.push_back(span);
      }
      std::reverse(result_.critical_path.begin(), result_.critical_path.end());
    }
    if (options_.spans)
      for (const Entry& entry : log_) result_.spans.push_back(entry.span);
  }

  const Topology& topology_;
  const SimulationOptions& options_;
  const std::vector<std::vector<SimulatedAction>>& actions_;
  int ranks_;
  SimulatedNetwork network_;
  Chance chance_;
  std::vector<double> slowness_;  // factor of each rank's kernels
  double now_ = 0;
  std::uint64_t sequence_ = 0;
  std::priority_queue<Event> events_;
  std::map<const Schedule*, std::shared_ptr<const TaskGraph>> graphs_;
  std::vector<Running> running_;
  std::vector<Thread> threads_;        // [rank]
  std::vector<std::size_t> position_;  // [rank]: index of its next action
  std::vector<int> waiting_;           // [rank]: the collective it waits for, or -1
  std::vector<Cause> last_;            // [rank]: the cause of its finish
  std::vector<Entry> log_;
  Simulation result_;
};

}  // namespace replicator::detail::collectives::detail
