// SPDX-License-Identifier: Apache-2.0
// The asynchronous regime under faults. These parts are the library's own code, with its threads:
// - the gates of shards, and the bound of staleness
// - the protocol between clients and servers
// - the progress of calls, the agreement to stop, and the end
// substitutes/ replaces what computes: programs, inputs and the transport.
#include <algorithm>
#include <cstring>
#include <exception>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <replicator/async/async_workers.hpp>
#include <replicator/async/running_steps.hpp>
#include <replicator/async/stop_agreement.hpp>

#include "messages.hpp"
#include "simulation.hpp"

namespace simulate {

namespace {

using namespace replicator;
using namespace replicator::detail;
using transport::Job;
using transport::JobOptions;
using transport::ProcessEnvironment;

struct AsyncPlan {
  int processes = 0, hosts = 0, devices = 0, groups = 0;
  std::optional<std::int64_t> bound{};
  std::uint64_t calls = 0;
  std::uint64_t digest_after = 0;        // 0: none
  std::vector<int> owners{};             // of shards
  std::vector<std::uint64_t> lengths{};  // of the inputs
  Time step_time = 0;
  int slow_group = -1;
};

struct AsyncOutcome {
  Process* process = nullptr;
  bool done = false, ended = false;
  std::string error{};
  std::uint64_t calls = 0;
  int signal = 0;
  std::vector<std::int64_t> values{};
};

struct AsyncScenario {
  Kernel& kernel;
  AsyncPlan plan;
  ShardOracle oracle;
  Post post;
  std::vector<std::unique_ptr<AsyncOutcome>> outcomes{};
  std::vector<int> signals{};  // by process of the kernel

  static AsyncScenario* current;
};
AsyncScenario* AsyncScenario::current = nullptr;

// What AsyncStep does, around its own parts.
class SimulatedStep final : private RunningStep {
 public:
  SimulatedStep(const Host& host, Deployment& deployment, StopAgreement& stop, RunningSteps& running, AsyncScenario& scenario)
      : host_{host}, stop_{stop}, running_{running}, programs_{deployment, AsyncPlacement{deployment, Placement{scenario.plan.processes, scenario.plan.devices, scenario.plan.groups}, host_.job().rank()}, scenario.plan.owners, scenario.oracle} {
    if (host_.job().size() > 1) peers_ = std::make_unique<AsyncPeers>(host_, programs_, stop_, running_, 0);
    workers_ = std::make_unique<AsyncWorkers>(
        deployment, programs_, peers_.get(), [this](const std::exception_ptr& error) { release(error); }, AsyncElements{scenario.plan.lengths});
    running_.add(*this);
  }
  // Returns the error, if there was one.
  std::exception_ptr end() {
    if (!running_.remove(*this) && peers_) peers_->leave_variables();
    try {
      if (peers_) running_.pause();
    } catch (...) {
    }
    const auto error = workers_->end();
    workers_.reset();
    stop_.end_barrier();
    return error;
  }
  void run() {
    running_.begin(*this);
    workers_->step(stop_.barriers());
    if (stop_.is_due()) {
      workers_->rest();
      peers_->agree_on_stop();
    }
    stop_.end_call();
  }
  bool finished() const { return workers_->ended(); }
  const AsyncPrograms& programs() const { return programs_; }
  std::uint64_t steps() const {
    std::uint64_t sum = 0;
    for (const auto steps : workers_->steps()) sum += steps;
    return sum;
  }

 private:
  void release(const std::exception_ptr& error) {
    auto& job = host_.job();
    try {
      std::rethrow_exception(error);
    } catch (const CommunicationError& failure) {
      if (!job.aborted()) job.abort(failure.what(), failure.culprit());
    } catch (...) {
      job.abort(job.describe(job.rank()) + " failed: " + text_of(error), job.rank());
    }
  }
  void rest() override { workers_->rest(); }
  void pause() override { workers_->pause(stop_.barriers()); }
  void meet(bool latest, const char* why) override {
    if (peers_) peers_->meet(latest, why);
  }
  const AnyArray* newest(const std::string&) override { return nullptr; }
  bool is_left_by(int process) const override { return peers_ && peers_->has_left(process); }
  int ordinal() const override { return 0; }

  Host host_;
  StopAgreement& stop_;
  RunningSteps& running_;
  AsyncPrograms programs_;
  std::unique_ptr<AsyncPeers> peers_;
  std::unique_ptr<AsyncWorkers> workers_;
};

void run_process(AsyncScenario& scenario, int rank, AsyncOutcome& outcome) {
  ProcessEnvironment environment;
  environment.rank = rank;
  environment.world_size = scenario.plan.processes;
  environment.master_address = address_of_host(0);
  environment.master_port = 29500;
  environment.insecure = true;  // the simulated kernel does not say whose a connection is
  JobOptions options;
  options.connect_deadline = std::chrono::seconds{20};
  options.exchange_deadline = std::chrono::seconds{20};
  options.late = std::chrono::milliseconds{0};
  Job job{environment, options};
  Deployment deployment;
  deployment.replicas = scenario.plan.groups;
  deployment.devices.resize(static_cast<std::size_t>(scenario.plan.devices));
  deployment.staleness = scenario.plan.bound;
  deployment.deadline = std::chrono::seconds{20};
  deployment.late = std::chrono::milliseconds{0};
  StopAgreement stop{job, {deployment.deadline, deployment.late}};
  RunningSteps running{stop};
  SimulatedStep step{Host{deployment, job}, deployment, stop, running, scenario};
  auto& kernel = scenario.kernel;
  std::exception_ptr error;
  try {
    while (outcome.calls < scenario.plan.calls && !step.finished() && stop.signal() == 0) {
      step.run();
      ++outcome.calls;
      kernel.trace("call " + std::to_string(outcome.calls) + " is done");
      if (step.steps() < outcome.calls * static_cast<std::uint64_t>(scenario.plan.groups) && !step.finished())
        kernel.violation("a call is done after " + std::to_string(step.steps()) + " steps of all groups");
      if (outcome.calls == scenario.plan.digest_after && !step.finished()) {
        running.rest_together("a digest is made");
        const auto values = step.programs().all_values();
        for (const auto& theirs : job.exchange(std::as_bytes(std::span{values}), "digest"))
          if (theirs.size() != values.size() * sizeof values[0] || std::memcmp(theirs.data(), values.data(), theirs.size()) != 0)
            kernel.violation("the processes have different values in a digest");
      }
    }
  } catch (...) {
    error = std::current_exception();
  }
  const auto at_end = step.end();
  if (error) std::rethrow_exception(error);
  if (at_end) std::rethrow_exception(at_end);
  outcome.signal = stop.signal();
  outcome.values = step.programs().all_values();
  job.leave();
  outcome.done = true;
}

void start(AsyncScenario& scenario, int rank) {
  auto& outcome = *scenario.outcomes[static_cast<std::size_t>(rank)];
  const int host = rank * scenario.plan.hosts / scenario.plan.processes;
  outcome.process = &scenario.kernel.start(host, "process " + std::to_string(rank), [&scenario, rank, &outcome] {
    try {
      run_process(scenario, rank, outcome);
    } catch (const Error& error) {
      outcome.error = error.what();
    } catch (const std::exception& error) {
      scenario.kernel.violation(scenario.kernel.process().name + " throws an error that is none of the library: " + error.what());
    }
    outcome.ended = true;
    scenario.kernel.trace(outcome.done ? "ends well" : "ends: " + outcome.error);
  });
}

AsyncPlan draw_async_plan(Random& random) {
  AsyncPlan plan;
  plan.processes = 2 + static_cast<int>(random.below(3));
  plan.hosts = random.chance(0.3) ? 1 : plan.processes;
  plan.devices = 1 + static_cast<int>(random.below(2));
  const int all = plan.processes * plan.devices;
  plan.groups = all * (1 + static_cast<int>(random.below(2)));
  if (random.chance(0.7)) plan.bound = all - 1 + static_cast<std::int64_t>(random.below(4));
  plan.calls = 1 + random.below(8);
  if (random.chance(0.3)) plan.digest_after = 1 + random.below(plan.calls);
  const auto shards = 1 + random.below(static_cast<std::uint64_t>(all));
  for (std::uint64_t s = 0; s < shards; ++s) plan.owners.push_back(static_cast<int>(random.below(static_cast<std::uint64_t>(plan.processes))));
  std::sort(plan.owners.begin(), plan.owners.end());
  const bool ends = random.chance(0.3);
  for (int group = 0; group < plan.groups; ++group) plan.lengths.push_back(ends ? 1 + random.below(12) : UINT64_MAX);
  plan.step_time = random.between(ms, 60 * ms);
  if (random.chance(0.4)) plan.slow_group = static_cast<int>(random.below(static_cast<std::uint64_t>(plan.groups)));
  return plan;
}

}  // namespace

std::uint64_t mixed_bits(std::uint64_t a, std::uint64_t b) { return mixed(a, b); }
void let_others_run() {
  if (auto* const kernel = Kernel::running()) kernel->step(true);
}
void pass_time_of_a_step(int group) {
  auto& kernel = *Kernel::running();
  const auto& plan = AsyncScenario::current->plan;
  Time time = kernel.random().between(plan.step_time / 4, plan.step_time);
  if (group == plan.slow_group) time *= 1 + static_cast<Time>(kernel.random().below(20));
  kernel.sleep(kernel.now() + time);
}
int signal_of_this_process() {
  const auto& signals = AsyncScenario::current->signals;
  const auto number = static_cast<std::size_t>(Kernel::running()->process().number);
  return number < signals.size() ? signals[number] : 0;
}

std::string simulate_shards(std::uint64_t seed, bool traced, Counts& counts) {
  Kernel kernel{seed, traced};
  auto& random = kernel.random();
  const auto plan = draw_async_plan(random);
  AsyncScenario scenario{kernel, plan, ShardOracle{kernel, static_cast<int>(plan.owners.size()), plan.groups, plan.bound}, Post{kernel}};
  AsyncScenario::current = &scenario;
  scenario.signals.resize(16);
  kernel.trace(std::to_string(plan.processes) + " processes on " + std::to_string(plan.hosts) + " hosts with " + std::to_string(plan.devices) + " devices each, " + std::to_string(plan.groups) + " groups, " +
               std::to_string(plan.owners.size()) + " shards, " + std::to_string(plan.calls) + " calls" + (plan.bound ? ", bound " + std::to_string(*plan.bound) : ""));
  for (int rank = 0; rank < plan.processes; ++rank) scenario.outcomes.push_back(std::make_unique<AsyncOutcome>());
  for (int rank = 0; rank < plan.processes; ++rank) kernel.at(random.between(0, 50 * ms), [&scenario, rank] { start(scenario, rank); });

  bool harmless = true, signalled = false;
  Time end = 0;
  const Time work = static_cast<Time>(plan.calls) * plan.step_time * 4 * plan.groups;
  const Time busy = 60 * ms + static_cast<Time>(plan.calls) * plan.step_time * plan.groups / (plan.processes * plan.devices);  // about so long
  const auto any = [&] { return static_cast<int>(random.below(static_cast<std::uint64_t>(plan.processes))); };
  const auto living = [&scenario](int rank) {
    auto* const process = scenario.outcomes[static_cast<std::size_t>(rank)]->process;
    return process != nullptr && process->alive ? process : nullptr;
  };
  if (random.chance(0.3)) {
    signalled = true;
    counts.add("signal");
    for (auto signals = 1 + random.below(2); signals > 0; --signals) {
      const int rank = any();
      kernel.at(random.between(0, busy), [&scenario, &kernel, rank, living] {
        kernel.trace("SIGNAL for process " + std::to_string(rank));
        if (auto* const process = living(rank)) scenario.signals[static_cast<std::size_t>(process->number)] = 15;
      });
    }
  }
  for (auto faults = random.below(3); faults > 0; --faults) {
    const Time when = random.between(0, busy);
    const int rank = any();
    const auto kind = random.below(5);
    if (kind == 0) {
      counts.add("process killed");
      harmless = false;
      kernel.at(when, [&kernel, rank, living] {
        if (auto* const process = living(rank)) kernel.kill(*process);
      });
    } else if (kind == 1) {
      counts.add("process killed at a system call");
      harmless = false;
      const auto calls = 1 + random.below(500);
      kernel.at(when, [rank, calls, living] {
        if (auto* const process = living(rank)) process->dies_at_call = process->calls + calls;
      });
    } else if (kind == 2 || plan.hosts == 1) {
      const Time length = random.chance(0.5) ? random.between(ms, 1200 * ms) : random.between(2 * second, 30 * second);
      counts.add(length > 1200 * ms ? "process stopped" : "process paused");
      harmless = harmless && length <= 1200 * ms;
      end = std::max(end, when + length);
      kernel.at(when, [&kernel, rank, living] {
        if (auto* const process = living(rank)) kernel.stop(*process);
      });
      kernel.at(when + length, [&kernel] {
        for (const auto& process : kernel.processes()) kernel.proceed(*process);
      });
    } else if (kind == 3) {
      const Time length = random.between(10 * ms, 10 * second);
      counts.add("link cut");
      harmless = false;
      end = std::max(end, when + length);
      const int other = any();
      kernel.at(when, [&kernel, rank, other] { kernel.cut(rank, other, true), kernel.cut(other, rank, true); });
      kernel.at(when + length, [&kernel, rank, other] { kernel.cut(rank, other, false), kernel.cut(other, rank, false); });
    } else {
      counts.add("process slowed");
      const Time slowness = random.between(100 * us, 5 * ms);
      kernel.at(when, [rank, slowness, living] {
        if (auto* const process = living(rank)) process->slowness = slowness;
      });
    }
  }

  kernel.run(end + 20 * work + 200 * second);
  int done = 0;
  const AsyncOutcome* first = nullptr;
  for (const auto& outcome : scenario.outcomes) {
    if (!kernel.violated().empty() || outcome->process == nullptr) break;
    if (outcome->process->alive && !outcome->ended) kernel.violation(outcome->process->name + " still waits long after the last fault");
    if (!outcome->done) continue;
    ++done;
    if (first == nullptr) first = outcome.get();
    if (outcome->calls != first->calls) kernel.violation(outcome->process->name + " ends after " + std::to_string(outcome->calls) + " calls, " + first->process->name + " after " + std::to_string(first->calls));
    if (outcome->values != first->values) kernel.violation(outcome->process->name + " ends with other values than " + first->process->name);
    if (!signalled && outcome->signal != 0) kernel.violation("a process stops without a signal");
  }
  if (kernel.violated().empty() && harmless && done != plan.processes) {
    for (const auto& outcome : scenario.outcomes)
      if (!outcome->done) kernel.violation("without a loss " + outcome->process->name + " does not end well: " + outcome->error);
  }
  if (kernel.violated().empty() && done == plan.processes)
    for (std::size_t s = 0; s < plan.owners.size(); ++s)
      for (int group = 0; group < plan.groups; ++group)
        if (scenario.oracle.steps(static_cast<int>(s), group) != scenario.oracle.steps(0, group)) kernel.violation("a step of group " + std::to_string(group) + " has updated some shards only");
  counts.add("jobs");
  counts.add("events", kernel.events());
  counts.add("processes that ended well", static_cast<std::uint64_t>(done));
  if (!plan.owners.empty()) counts.add("updates of shard 0", static_cast<std::uint64_t>(scenario.oracle.updates(0)));
  AsyncScenario::current = nullptr;
  return kernel.violated();
}

}  // namespace simulate

namespace replicator::detail::collectives {

std::vector<std::unique_ptr<transport::Messenger>> connect_messengers(const std::string&, transport::Job& job, const std::vector<int>& process_of_rank) {
  std::vector<std::unique_ptr<transport::Messenger>> result;
  auto& scenario = *simulate::AsyncScenario::current;
  for (int rank = 0; rank < static_cast<int>(process_of_rank.size()); ++rank)
    if (process_of_rank[static_cast<std::size_t>(rank)] == job.rank()) result.push_back(std::make_unique<simulate::SimulatedMessenger>(scenario.kernel, scenario.post, job, rank));
  job.barrier("messengers");
  return result;
}

}  // namespace replicator::detail::collectives
