// SPDX-License-Identifier: Apache-2.0
// Elastic jobs under faults: rendezvous, heartbeats, verdicts, regroups, epochs, the arbiter, admission and rollback are the
// library's own code. Only the steps are made up: each process computes its replicas' numbers, and all exchange them.
#include <algorithm>
#include <cstring>
#include <exception>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>

#include <replicator/elastic/rollback.hpp>
#include <replicator/job/elastic/elastic_job.hpp>

#include "etcd.hpp"
#include "simulation.hpp"

namespace simulate {

namespace {

using namespace replicator;
using namespace replicator::detail::transport;
using replicator::detail::Rollback;
using replicator::detail::transport::detail::Bytes;

constexpr int replicas = 12;

// What nobody in the job sees: which part has worked when.
class Oracle {
 public:
  Oracle(Kernel& kernel, int steps) : kernel_{kernel} {
    digests_.push_back(1);
    for (int step = 0; step < steps; ++step) digests_.push_back(next(digests_.back()));
  }
  static std::uint64_t part_of(std::uint64_t state, int replica) { return mixed(state, static_cast<std::uint64_t>(replica) + 77); }
  static std::uint64_t sum(const std::vector<std::uint64_t>& parts) {
    std::uint64_t result = 3;
    for (const auto part : parts) result = mixed(result, part);
    return result;
  }
  std::uint64_t digest(std::uint64_t done) const { return done < digests_.size() ? digests_[done] : 0; }

  // A process gives its part to an exchange of the job `token`, and later has the result.
  void contributes(std::uint64_t token, std::uint64_t number) {
    auto& part = parts_[token];
    part.members.insert(kernel_.process().number);
    part.given.emplace(number, kernel_.now());
    kernel_.trace("gives its part to exchange " + std::to_string(number) + " of job " + std::to_string(token % 10000));
  }
  // An exchange to which a process of the later part contributed before it left may still be completed: that is the one step
  // by which two processes may differ.
  void completes(std::uint64_t token, std::uint64_t number) {
    auto& part = parts_[token];
    kernel_.trace("has the result of exchange " + std::to_string(number) + " of job " + std::to_string(token % 10000));
    if (!part.completed.insert(number).second) return;
    const bool anew = order_ == 0 || part.given[number] > last_began_;
    if (part.order == 0 && anew) begins(token, part);
    else if (part.order != 0 && part.order < order_ && anew)
      kernel_.violation("two parts of the job go on: an exchange of part " + std::to_string(part.order) + " is complete, while part " + std::to_string(order_) + " works");
  }
  int parts() const { return order_; }

 private:
  struct Part {
    int order = 0;  // from 1; 0: has completed nothing
    std::set<int> members{};
    std::map<std::uint64_t, Time> given{};  // when the first process gave its part, by number of the exchange
    std::set<std::uint64_t> completed{};
  };
  void begins(std::uint64_t token, Part& part) {
    part.order = ++order_;
    kernel_.trace("part " + std::to_string(order_) + " begins to work, job " + std::to_string(token % 10000));
    const bool fresh = std::none_of(part.members.begin(), part.members.end(), [&](int member) { return worked_.contains(member); });
    const bool follows = std::any_of(part.members.begin(), part.members.end(), [&](int member) { return worked_.contains(member) && worked_[member] == order_ - 1; });
    // A job of processes that were all started again begins anew.
    if (order_ > 1 && !follows && !fresh) kernel_.violation("two parts of the job go on: part " + std::to_string(order_) + " has nobody of the part that worked before it");
    for (const int member : part.members) worked_[member] = order_;
    last_began_ = kernel_.now();
  }
  static std::uint64_t next(std::uint64_t state) {
    std::vector<std::uint64_t> parts;
    for (int replica = 0; replica < replicas; ++replica) parts.push_back(part_of(state, replica));
    return sum(parts);
  }

  Kernel& kernel_;
  std::vector<std::uint64_t> digests_;  // by steps done
  std::map<std::uint64_t, Part> parts_;
  std::map<int, int> worked_;  // by process: the last part that it worked in
  int order_ = 0;
  Time last_began_ = 0;
};

struct Plan {
  int processes = 0, hosts = 0, steps = 0;
  std::vector<int> host_of{};
  bool arbiter = false;
  bool etcd = false;        // the arbiter is an etcd, by which they also meet; otherwise it is a folder
  std::size_t padding = 0;  // bytes that are handed over besides the state
  bool divided = false;     // the network is cut in two once, until all is decided
  bool comes_back = false;  // long enough for a process that is lost and started again
  Time step_time = 0;
};

// What the program of a process does besides its work.
struct Habit {
  enum class Kind {
    none,
    late,
    fails,
    ends
  };
  Kind kind = Kind::none;
  std::uint64_t step = 0;
};

// The outcome of one process.
struct Outcome {
  Process* process = nullptr;
  int rank = 0;
  bool restarted = false, done = false, ended = false;
  Habit habit{};
  Time end = 0;
  std::string error{};
};

struct Scenario {
  Kernel& kernel;
  Plan plan;
  Oracle oracle;
  Counts& counts;
  SimulatedEtcd etcd{kernel};
  std::vector<std::unique_ptr<Outcome>> outcomes{};
  std::map<int, Habit> habits{};  // by rank, of processes that are not started again

  Process& start(int rank, bool restarted);
};

// The program of one process. Its calls, rollbacks and hand-overs are those of ElasticEngine.
class Program {
 public:
  struct OwnError {};

  Program(Scenario& scenario, int rank, const Habit& habit, JobOptions options)
      : scenario_{scenario}, rank_{rank}, habit_{habit}, environment_{environment(scenario, rank)}, elastic_{environment_, options, {}, scenario.plan.arbiter && !scenario.plan.etcd ? "/sim/claims" : ""}, job_{elastic_.job()} {
    perform([] {}, [] {});
  }
  void run() {
    while (state_.done < static_cast<std::uint64_t>(scenario_.plan.steps)) {
      if (habit_.kind != Habit::Kind::none && state_.done == habit_.step) {
        if (habit_.kind == Habit::Kind::ends) break;
        if (habit_.kind == Habit::Kind::fails) throw OwnError{};
        scenario_.kernel.trace("is late");
        scenario_.kernel.sleep(scenario_.kernel.now() + 40 * second);
        habit_ = {};
      }
      std::uint64_t done = 0;
      perform([&] { step(), done = state_.done; }, [this] { step(); });
      auto& kernel = scenario_.kernel;
      kernel.trace("step " + std::to_string(done - 1) + " is done");
      if (state_.value != scenario_.oracle.digest(done))
        kernel.violation(kernel.process().name + " has another digest after step " + std::to_string(done - 1) + " than the undisturbed run");
      if (printed_ != 0 && done != printed_ + 1) kernel.violation(kernel.process().name + " prints step " + std::to_string(done - 1) + " after step " + std::to_string(printed_ - 1));
      printed_ = done;
    }
    try {
      perform([this] { job_->leave(); }, {});
    } catch (...) {  // the program has all results
    }
  }

 private:
  struct State {
    std::uint64_t done = 0, value = 1;
  };
  struct Moved {};

  static ProcessEnvironment environment(const Scenario& scenario, int rank) {
    ProcessEnvironment result;
    result.rank = rank;
    result.world_size = scenario.plan.processes;
    if (scenario.plan.etcd) {
      result.job_name = "job";
      result.directory = std::make_shared<Directory>("http://etcd:2379", "job");
    } else {
      for (int host = 0; host < scenario.plan.hosts; ++host) result.master_address += (host > 0 ? "," : "") + address_of_host(host);
      result.master_port = 29500;
    }
    result.insecure = true;  // the simulated kernel does not say whose a connection is
    return result;
  }

  template <class Work>
  void perform(const Work& work, const Rollback<State>::Work& again) {
    while (!attempt(work)) {
    }
    history_.end_call(again, job_->size() > 1);
  }
  template <class Work>
  bool attempt(const Work& work) {
    try {
      if (!hosted_) establish();
      history_.begin_call();
      work();
      return true;
    } catch (const Moved&) {
    } catch (const CommunicationError&) {
      if (left_out_ || !job_->aborted() || job_->culprit() < 0 || job_->culprit() == job_->rank()) throw;
    }
    hosted_ = false;
    return false;
  }
  void establish() {
    if (job_->aborted() || moved_) {
      left_out_ = true;
      job_ = elastic_.after(*job_);
      left_out_ = moved_ = newcomer_waits_ = false;
      newest_ = elastic_.newest();
    }
    hosted_ = true;
    state_ = {};
    if (const auto* const moment = history_.go_back_to(oldest_moment())) state_ = *moment;
    history_.repeat();
  }
  std::uint64_t oldest_moment() {
    int signal = 0;
    if (elastic_.outside()) return replicator::detail::oldest_moment(*job_, history_.latest_call(), signal);
    const auto number = exchanges_[job_->token()]++;
    scenario_.oracle.contributes(job_->token(), number);
    const auto result = replicator::detail::oldest_moment(*job_, history_.latest_call(), signal);
    scenario_.oracle.completes(job_->token(), number);
    return result;
  }
  void step() {
    if (elastic_.outside()) {
      const auto bytes = elastic_.enter({});
      std::uint64_t call = 0;
      const auto rubbish = std::count_if(bytes.begin() + static_cast<std::ptrdiff_t>(std::min(bytes.size(), sizeof call + sizeof state_)), bytes.end(), [](std::byte b) { return b != std::byte{7}; });
      if (bytes.size() != sizeof call + sizeof state_ + scenario_.plan.padding || rubbish > 0)
        scenario_.kernel.violation("a process is given another state than the others have");
      std::memcpy(&call, bytes.data(), sizeof call);
      std::memcpy(&state_, bytes.data() + sizeof call, sizeof state_);
      history_.go_on_from(call, state_);
      scenario_.counts.add("processes taken in");
      move();
    }
    const bool newcomer = std::exchange(newcomer_waits_, false);
    if (job_->size() > 1 || newcomer)
      history_.remember([this](State& moment, std::uint64_t) {
        job_->barrier("the snapshot of a step");
        moment = state_;
      });
    if (newcomer && take_in()) {
      job_->leave();
      move();
    }
    compute();
    if (std::exchange(newest_, -1) >= 0) elastic_.trust_newest();
  }
  bool take_in() {
    std::optional<AdmissionOffer> offer;
    if (job_->rank() == 0)
      offer = elastic_.hand_over([](const auto&) { return true; },
                                 [this] {
                                   Bytes bytes(sizeof(std::uint64_t) + sizeof state_ + scenario_.plan.padding, std::byte{7});
                                   const auto call = history_.latest_call();
                                   std::memcpy(bytes.data(), &call, sizeof call);
                                   std::memcpy(bytes.data() + sizeof call, &state_, sizeof state_);
                                   return bytes;
                                 });
    const auto mine = AdmissionOffer::pack(offer);
    return elastic_.decide([&] { return AdmissionOffer::unpack(job_->exchange(mine, "the taking in of a process")[0]); });
  }
  [[noreturn]] void move() {
    moved_ = true;
    throw Moved{};
  }
  void compute() {
    job_->begin("step", state_.done);
    auto& kernel = scenario_.kernel;
    ::timespec time{};
    const Time length = kernel.random().between(scenario_.plan.step_time / 2, scenario_.plan.step_time);
    time.tv_sec = length / second, time.tv_nsec = length % second;
    ::nanosleep(&time, nullptr);
    std::vector<std::uint64_t> mine{state_.done, elastic_.somebody_waits()};
    const int size = job_->size(), rank = job_->rank();
    for (int replica = rank * replicas / size; replica < (rank + 1) * replicas / size; ++replica) mine.push_back(Oracle::part_of(state_.value, replica));
    const auto number = exchanges_[job_->token()]++;
    scenario_.oracle.contributes(job_->token(), number);
    const auto all = job_->exchange(std::as_bytes(std::span{mine}), "the results of a step");
    scenario_.oracle.completes(job_->token(), number);
    std::vector<std::uint64_t> parts;
    for (int process = 0; process < size; ++process) {
      const auto& bytes = all[static_cast<std::size_t>(process)];
      std::vector<std::uint64_t> theirs(bytes.size() / sizeof(std::uint64_t));
      std::memcpy(theirs.data(), bytes.data(), bytes.size());
      if (theirs[0] != state_.done) kernel.violation(kernel.process().name + " does step " + std::to_string(state_.done) + " with a process that does step " + std::to_string(theirs[0]));
      if (process == 0) newcomer_waits_ = theirs[1] != 0;
      parts.insert(parts.end(), theirs.begin() + 2, theirs.end());
    }
    state_ = {state_.done + 1, Oracle::sum(parts)};
  }

  Scenario& scenario_;
  int rank_;
  Habit habit_;
  ProcessEnvironment environment_;
  ElasticJob elastic_;
  std::shared_ptr<Job> job_;
  bool hosted_ = false, left_out_ = false, moved_ = false, newcomer_waits_ = false;
  int newest_ = -1;
  State state_;
  Rollback<State> history_;
  std::map<std::uint64_t, std::uint64_t> exchanges_;
  std::uint64_t printed_ = 0;
};

Process& Scenario::start(int rank, bool restarted) {
  auto& outcome = *outcomes.emplace_back(std::make_unique<Outcome>());
  outcome.rank = rank;
  outcome.restarted = restarted;
  if (const auto habit = habits.find(rank); !restarted && habit != habits.end()) outcome.habit = habit->second;
  outcome.process = &kernel.start(plan.host_of[static_cast<std::size_t>(rank)], "process " + std::to_string(rank) + (restarted ? "'" : ""), [this, &outcome, rank] {
    JobOptions options;
    options.connect_deadline = std::chrono::seconds{20};
    options.exchange_deadline = std::chrono::seconds{20};
    options.late = std::chrono::milliseconds{0};
    try {
      Program program{*this, rank, outcome.habit, options};
      program.run();
      outcome.done = true;
    } catch (const Program::OwnError&) {
      outcome.error = "an error of the program";
    } catch (const Error& error) {
      outcome.error = error.what();
    } catch (const std::exception& error) {
      kernel.violation(kernel.process().name + " throws an error that is none of the library: " + error.what());
    }
    outcome.ended = true;
    outcome.end = kernel.now();
    kernel.trace(outcome.done ? "ends well" : "ends: " + outcome.error);
  });
  return *outcome.process;
}

// Which processes of a run can be told to misbehave, and when all is well again.
class Faults {
 public:
  explicit Faults(Scenario& scenario) : scenario_{scenario}, kernel_{scenario.kernel}, counts_{scenario.counts} {}

  // Started within a second, all have met by then.
  static constexpr Time met_by = 2 * second;

  // Whether all processes must end well.
  bool harmless() const { return harmless_ && network_is_good(); }
  // The only process that is lost, in a job in which all others must end well; -1: there is no such process.
  int only_loss() const { return network_is_good() && other_losses_ == 0 && lost_.size() == 1 && scenario_.plan.processes > 2 && first_loss_ > met_by ? lost_[0] : -1; }
  // Whether this process must end well, because no fault reaches it, and it belongs to a majority, or the others were killed on
  // its own machine.
  // A link that heals soon carries blame: who was cut off for 3 s may blame a process that the others still hear.
  bool must_end_well(int rank) const {
    const bool others_are_killed_here = scenario_.plan.hosts == 1 && only_kills_;
    return network_is_good() && first_loss_ > met_by && !affected_.contains(rank) && !heals_soon_ &&
           (others_are_killed_here || 2 * static_cast<int>(affected_.size()) < scenario_.plan.processes);
  }
  Time noticed() const { return noticed_; }
  Time end() const { return end_; }

  void draw() {
    auto& random = kernel_.random();
    const auto count = random.below(5);
    if (random.chance(0.15)) {
      kernel_.loss = 0.02 * static_cast<double>(1 + random.below(5));
      counts_.add("lossy network");
    }
    if (random.chance(0.15)) {
      kernel_.slowest_link = random.between(1, 400) * ms;
      counts_.add("slow network");
    }
    if (scenario_.plan.divided) return cut_in_two(random.between(2100 * ms, 8 * second), 40 * second);
    if (scenario_.plan.comes_back) {
      const Time when = random.between(3 * second, 10 * second);
      kill(any_rank(), when, when + random.between(0, random.chance(0.5) ? second : 8 * second));
      if (random.chance(0.5)) return;
    }
    if (scenario_.plan.hosts == 1 && random.chance(0.5)) return kill_in_turn();
    if (random.chance(0.1)) send_stranger();
    if (scenario_.plan.etcd && random.chance(0.3)) {
      harmless_ = false, ++other_losses_, heals_soon_ = true;
      auto& etcd = scenario_.etcd;
      etcd.slowest = random.between(10 * ms, 900 * ms);
      if (random.chance(0.5)) {
        counts_.add("lossy etcd");
        etcd.lost = 0.02 * static_cast<double>(1 + random.below(10));
      } else {
        counts_.add("etcd away");
        const Time length = random.between(100 * ms, 20 * second);
        begin(
            moment(), [&etcd] { etcd.away = true; }, length, [&etcd] { etcd.away = false; });
      }
    }
    if (scenario_.plan.arbiter && !scenario_.plan.etcd && random.chance(0.3)) {
      counts_.add("arbiter without power");
      // Often while a claim is on its way to the disk.
      harmless_ = false, ++other_losses_, heals_soon_ = true;
      claims_ = 1 + random.below(4);
      kernel_.on_link = [this, delay = random.between(0, random.chance(0.5) ? 50 * us : 2 * second)] {
        if (--claims_ != 0) return;
        kernel_.after(delay, [this] {
          kernel_.trace("POWER OFF at the arbiter");
          kernel_.files().lose_power(kernel_.random());
        });
      };
    }
    for (std::uint64_t i = 0; i < count; ++i) draw_one();
    if (count == 0) counts_.add("no fault");
  }

 private:
  bool network_is_good() const { return kernel_.loss == 0 && kernel_.slowest_link < 200 * ms; }
  void loses(int rank, Time when) {
    harmless_ = false;
    lost_.push_back(rank);
    affected_.insert(rank);
    first_loss_ = std::min(first_loss_, when);
  }
  // All processes of these hosts may be lost, and are cut off for so long.
  void may_lose_hosts(const std::set<int>& hosts, Time when, Time length) {
    harmless_ = false, ++other_losses_;
    first_loss_ = std::min(first_loss_, when);
    heals_soon_ |= length < 25 * second;
    for (int rank = 0; rank < scenario_.plan.processes; ++rank)
      if (hosts.contains(scenario_.plan.host_of[static_cast<std::size_t>(rank)])) affected_.insert(rank);
  }
  Time moment() {
    auto& random = kernel_.random();
    // Often close to an earlier fault: the others meet at that moment.
    if (last_ > 0 && random.chance(0.6)) return last_ = last_ + random.between(0, random.chance(0.5) ? 600 * ms : 9 * second);
    return last_ = random.between(0, scenario_.plan.steps * scenario_.plan.step_time + second);
  }
  // Calls change() at `when`, or later, in the middle of something: when processes tell each other that they have entered an
  // epoch, say. Calls undo() so much later.
  void begin(
      Time when, std::function<void()> change, Time length = 0, std::function<void()> undo = [] {}) {
    auto& random = kernel_.random();
    const auto both = [this, change = std::move(change), length, undo = std::move(undo)] {
      change();
      kernel_.after(length, undo);
    };
    until(when + length);
    if (!random.chance(0.3)) return kernel_.at(when, both);
    struct Place {
      const char *text, *name;
    };
    static constexpr Place places[] = {{"epoch ", "fault while processes enter an epoch"}, {"the moment to go back to", "fault while processes go back"}, {"the taking in of a process", "fault while a process is taken in"}, {"the snapshot of a step", "fault before a step"}};
    const auto& place = places[random.chance(0.5) ? 0 : random.below(4)];
    counts_.add(place.name);
    until(when + length + 60 * second);
    const Time delay = random.between(0, random.chance(0.5) ? 300 * us : 3 * ms);
    kernel_.at(when, [this, both, delay, text = place.text] {
      kernel_.on_message = [this, both, delay, text](const std::string& bytes) {
        if (bytes.find(text) == std::string::npos || kernel_.now() > end_ - second) return;
        kernel_.after(delay, both);
        kernel_.on_message = {};
      };
    });
  }
  void until(Time when) { end_ = std::max(end_, when); }
  Process* living(int rank) {
    for (auto outcome = scenario_.outcomes.rbegin(); outcome != scenario_.outcomes.rend(); ++outcome)
      if ((*outcome)->rank == rank) return (*outcome)->process->alive ? (*outcome)->process : nullptr;
    return nullptr;
  }
  int any_rank() { return static_cast<int>(kernel_.random().below(static_cast<std::uint64_t>(scenario_.plan.processes))); }
  int any_host() { return static_cast<int>(kernel_.random().below(static_cast<std::uint64_t>(scenario_.plan.hosts))); }

  void draw_one() {
    auto& random = kernel_.random();
    const auto kind = random.below(scenario_.plan.hosts > 1 ? 11 : 5);
    const Time when = moment();
    const int rank = any_rank();
    until(when);
    switch (kind) {
      case 0:
        return kill(rank, when, random.chance(0.5) ? when + random.between(0, random.chance(0.5) ? second : 8 * second) : never);
      case 1: {
        counts_.add("process killed at a system call");
        loses(rank, when);
        const auto calls = static_cast<std::uint64_t>(random.between(1, random.chance(0.5) ? 60 : 1000));
        begin(when, [this, rank, calls] {
          if (auto* const process = living(rank)) process->dies_at_call = process->calls + calls;
        });
        if (random.chance(0.3)) restart(rank, when + random.between(second, 10 * second));
        return;
      }
      case 2: {
        const Time length = random.chance(0.4) ? random.between(10 * ms, 1200 * ms) : random.between(second, 30 * second);
        counts_.add(length > 1200 * ms ? "process stopped" : "process paused");
        only_kills_ = false;
        if (length > 1200 * ms) loses(rank, when);
        begin(
            when, [this, rank] {
              if (auto* const process = living(rank)) kernel_.stop(*process); },
            length, [this] { proceed_all(); });
        return;
      }
      case 3: {
        counts_.add("process slowed");
        const Time slowness = random.between(100 * us, 20 * ms);
        harmless_ = only_kills_ = false, ++other_losses_;
        affected_.insert(rank);
        kernel_.at(when, [this, rank, slowness] {
          if (auto* const process = living(rank)) process->slowness = slowness;
        });
        return;
      }
      case 4: return misbehave(rank);
      case 5:
      case 6: return cut_host(when);
      case 7: return cut_link(when);
      case 8: return cut_in_two(when, cut_length());
      case 9: {
        counts_.add("host without power");
        const int host = any_host();
        may_lose_hosts({host}, when, never);
        const Time length = random.between(second, 20 * second);
        begin(
            when, [this, host] { kernel_.power(host, false); }, length, [this, host] { kernel_.power(host, true); });
        if (random.chance(0.5))
          for (int r = 0; r < scenario_.plan.processes; ++r)
            if (scenario_.plan.host_of[static_cast<std::size_t>(r)] == host) restart(r, when + length + random.between(0, 4 * second));
        return;
      }
      default: {
        counts_.add("one direction cut");
        const int from = any_host(), to = any_host();
        const Time length = cut_length();
        may_lose_hosts({from, to}, when, length);
        set(when, length, {{from, to}});
        return;
      }
    }
  }
  // A program that is none of the job connects to its ports, and says something or nothing. That harms nobody.
  void send_stranger() {
    counts_.add("stranger at the ports");
    auto& random = kernel_.random();
    const auto connections = 1 + random.below(20);
    kernel_.at(random.between(0, scenario_.plan.steps * scenario_.plan.step_time), [this, connections] {
      kernel_.start(any_host(), "stranger", [this, connections] {
        auto& own = kernel_.random();
        std::vector<int> sockets;
        for (std::uint64_t i = 0; i < connections; ++i) {
          const auto places = kernel_.listening();
          if (places.empty()) continue;
          const auto [host, port] = places[own.below(places.size())];
          auto address = *replicator::detail::transport::detail::numeric_address(address_of_host(host));
          address.set_port(port);
          sockets.push_back(kernel_.socket());
          kernel_.connect(sockets.back(), address.get());
          kernel_.sleep(kernel_.now() + own.between(ms, second));
          std::string bytes(own.below(200), '\0');
          for (auto& byte : bytes) byte = static_cast<char>(own.next());
          if (own.chance(0.3)) {  // or it is of another job
            replicator::detail::transport::detail::JoinRequest request;
            request.job_name = "another job";
            request.world_size = static_cast<std::uint64_t>(scenario_.plan.processes);
            request.rank = own.below(request.world_size);
            replicator::detail::transport::detail::FrameWriter frame{replicator::detail::transport::detail::FrameKind::hello};
            request.write(frame);
            const auto& whole = frame.finish();
            bytes.assign(reinterpret_cast<const char*>(whole.data()), whole.size());
          }
          if (!bytes.empty()) kernel_.send(sockets.back(), bytes.data(), bytes.size());
          if (own.chance(0.5)) kernel_.close(sockets.back());
        }
        kernel_.sleep(kernel_.now() + 5 * second);
      });
    });
  }
  void misbehave(int rank) {
    static constexpr const char* names[] = {"", "program late", "program fails", "program ends before the others"};
    auto& random = kernel_.random();
    const auto kind = static_cast<Habit::Kind>(random.between(1, 3));
    counts_.add(names[static_cast<int>(kind)]);
    const auto step = static_cast<std::uint64_t>(random.between(0, scenario_.plan.steps - 1));
    only_kills_ = false;
    loses(rank, step > 0 ? met_by + 1 : 0);
    if (kind == Habit::Kind::late) noticed_ = std::max(noticed_, 20 * second);  // by the deadline of exchanges
    scenario_.habits[rank] = {kind, step};
    until(60 * second);
  }
  // The lowest process dies, which decides who goes on, then the next one, and so on.
  void kill_in_turn() {
    const auto others = static_cast<std::uint64_t>(scenario_.plan.processes - 1);
    const auto count = static_cast<int>(1 + kernel_.random().below(others));
    for (int rank = 0; rank < count; ++rank) kill(rank, moment(), never);
  }
  // `again`: when it is started again, if at all.
  void kill(int rank, Time when, Time again) {
    counts_.add("process killed");
    loses(rank, when);
    begin(when, [this, rank] {
      if (auto* const process = living(rank)) kernel_.kill(*process);
    });
    if (again != never) restart(rank, again);
  }
  Time cut_length() {
    auto& random = kernel_.random();
    if (random.chance(0.25)) return random.between(30 * second, 60 * second);
    return random.chance(0.5) ? random.between(2 * second, 7 * second) : random.between(50 * ms, 30 * second);
  }
  void set(Time when, Time length, const std::vector<std::pair<int, int>>& links) {
    begin(
        when, [this, links] {
          for (const auto& [from, to] : links) kernel_.cut(from, to, true); },
        length, [this, links] {
          for (const auto& [from, to] : links) kernel_.cut(from, to, false); });
  }
  void cut_host(Time when) {
    counts_.add("host cut off");
    const int host = any_host();
    const Time length = cut_length();
    may_lose_hosts({host}, when, length);
    std::vector<std::pair<int, int>> links;
    for (int other = 0; other < scenario_.plan.hosts; ++other)
      if (other != host) links.insert(links.end(), {{host, other}, {other, host}});
    set(when, length, links);
  }
  void cut_link(Time when) {
    counts_.add("link cut");
    const int a = any_host(), b = any_host();
    const Time length = cut_length();
    may_lose_hosts({a, b}, when, length);
    set(when, length, {{a, b}, {b, a}});
  }
  void cut_in_two(Time when, Time length) {
    counts_.add("network cut in two");
    const auto side = kernel_.random().next();
    std::set<int> sides[2];
    for (int host = 0; host < scenario_.plan.hosts; ++host) sides[side >> host & 1].insert(host);
    may_lose_hosts(sides[sides[0].size() > sides[1].size()], when, length);
    std::vector<std::pair<int, int>> links;
    for (int a = 0; a < scenario_.plan.hosts; ++a)
      for (int b = 0; b < scenario_.plan.hosts; ++b)
        if ((side >> a & 1) != (side >> b & 1)) links.emplace_back(a, b);
    set(when, length, links);
  }
  void restart(int rank, Time when) {
    counts_.add("process started again");
    until(when);
    kernel_.at(when, [this, rank] {
      if (living(rank) == nullptr) scenario_.start(rank, true);
    });
  }
  void proceed_all() {
    for (const auto& process : kernel_.processes()) kernel_.proceed(*process);
  }

  Scenario& scenario_;
  Kernel& kernel_;
  Counts& counts_;
  bool harmless_ = true, only_kills_ = true;
  Time noticed_ = 3 * second;  // so long after a loss at most
  std::vector<int> lost_{};
  std::set<int> affected_{};
  bool heals_soon_ = false;
  std::uint64_t claims_ = 0;  // until the arbiter loses its power
  int other_losses_ = 0;
  Time first_loss_ = never;
  Time last_ = 0, end_ = 0;
};

Plan draw_plan(Random& random) {
  Plan plan;
  plan.processes = 2 + static_cast<int>(random.below(5));
  plan.hosts = random.chance(0.2) ? 1 : random.chance(0.3) ? 2
                                                           : plan.processes;
  plan.hosts = std::min(plan.hosts, plan.processes);
  for (int rank = 0; rank < plan.processes; ++rank) plan.host_of.push_back(rank * plan.hosts / plan.processes);
  plan.arbiter = random.chance(0.3);
  plan.steps = 4 + static_cast<int>(random.chance(0.3) ? random.below(90) : random.below(12));
  plan.step_time = random.between(20, 600) * ms;
  plan.comes_back = random.chance(0.08);
  if (plan.comes_back) plan.steps = 80, plan.step_time = 600 * ms;
  plan.divided = !plan.comes_back && plan.hosts > 1 && random.chance(0.08);
  if (plan.divided) plan.steps = 60, plan.step_time = 300 * ms;
  if (random.chance(0.3)) plan.padding = random.below(2 << 20);
  return plan;
}

}  // namespace

std::string simulate_job(std::uint64_t seed, bool traced, Counts& counts) {
  Kernel kernel{seed, traced};
  auto plan = draw_plan(kernel.random());
  plan.etcd = plan.arbiter && Random{~seed}.chance(0.5);  // of chance of its own, so that seeds without an etcd stay what they were
  Scenario scenario{kernel, plan, Oracle{kernel, plan.steps}, counts};
  kernel.files().make_folder("/sim");
  kernel.files().make_folder("/sim/claims");
  for (const char* folder : {"/", "/sim"})
    if (OpenFile file; kernel.files().open(folder, 0, file) == 0) kernel.files().sync(file);
  kernel.trace(std::to_string(plan.processes) + " processes on " + std::to_string(plan.hosts) + " hosts, " + std::to_string(plan.steps) + " steps" + (plan.etcd ? ", with an etcd" : plan.arbiter ? ", with an arbiter"
                                                                                                                                                                                                  : ""));
  for (int rank = 0; rank < plan.processes; ++rank)
    kernel.at(kernel.random().between(0, kernel.random().chance(0.5) ? 10 * ms : second), [&scenario, rank] { scenario.start(rank, false); });
  Faults faults{scenario};
  faults.draw();

  // Every wait ends: the longest chain of deadlines is far below this.
  const Time work = plan.steps * plan.step_time;
  kernel.run(faults.end() + work + 300 * second);
  int done = 0;
  for (const auto& outcome : scenario.outcomes) {
    done += outcome->done;
    if (outcome->process->alive && !outcome->ended && kernel.violated().empty())
      kernel.violation(outcome->process->name + " (pid " + std::to_string(outcome->process->pid) + ") still waits long after the last fault");
  }
  if (kernel.violated().empty() && faults.harmless() && done != plan.processes)
    kernel.violation("without a loss only " + std::to_string(done) + " of " + std::to_string(plan.processes) + " processes end well");
  for (const auto& outcome : scenario.outcomes) {
    if (!kernel.violated().empty() || outcome->restarted || !faults.must_end_well(outcome->rank)) continue;
    counts.add("processes that must end well");
    if (!outcome->done) kernel.violation("no fault reaches " + outcome->process->name + " and a majority with it, but it does not end well: " + outcome->error);
  }
  if (const int lost = faults.only_loss(); kernel.violated().empty() && lost >= 0) {
    counts.add("jobs in which all but one process must end well");
    // A process that was started again is taken in if the others work for long enough.
    Time others_end = 0;
    for (const auto& outcome : scenario.outcomes)
      if (outcome->rank != lost) others_end = std::max(others_end, outcome->end);
    for (const auto& outcome : scenario.outcomes) {
      if (!outcome->restarted || others_end < outcome->process->began + 20 * second) continue;
      counts.add("processes that must be taken in");
      if (!outcome->done) kernel.violation("process " + std::to_string(lost) + " was started again, and is not taken in: " + outcome->error);
    }
    // The others meet within 8 s.
    const Time latest = work + Faults::met_by + faults.noticed() + 11 * second + (scenario.outcomes.size() > static_cast<std::size_t>(plan.processes) ? 14 * second : 0);
    for (const auto& outcome : scenario.outcomes)
      if (outcome->rank != lost && outcome->end > latest) kernel.violation("only process " + std::to_string(lost) + " is lost, but " + outcome->process->name + " ends late");
      else if (outcome->rank != lost && !outcome->done) kernel.violation("only process " + std::to_string(lost) + " is lost, but " + outcome->process->name + " does not end well: " + outcome->error);
  }
  counts.add("jobs");
  counts.add("events", kernel.events());
  counts.add("parts that worked", static_cast<std::uint64_t>(scenario.oracle.parts()));
  counts.add("processes that ended well", static_cast<std::uint64_t>(done));
  if (done == 0) counts.add("jobs in which no process ended well");
  return kernel.violated();
}

}  // namespace simulate
