// SPDX-License-Identifier: Apache-2.0
// Audit: computes every N-th step twice, on different devices, and compares all bits before a variable changes
// (--audit N). It finds devices that compute wrongly.
//
// The work of each team is done a second time by the next team of its process, with the same program, inputs and
// variables. Both leave a trail, with a mark of everything that each instruction wrote. Placement never changes a bit,
// so the two trails are equal unless a device is faulty.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <replicator/core/content_mark.hpp>
#include <replicator/engine/host_step.hpp>
#include <replicator/engine/see/audit_verdict.hpp>
#include <replicator/engine/see/drift_check.hpp>
#include <replicator/engine/step_listener.hpp>
#include <replicator/job/job.hpp>
#include <replicator/replicate/deployment.hpp>

namespace replicator::detail {

class Audit {
 public:
  // Every process of the job makes one, with the same number of steps. Throws the same BuildError on every process if
  // some process has no second device, or if kernels do not repeat their bits.
  Audit(const Deployment& deployment, transport::Job& job, const Placement& placement)
      : deployment_{deployment}, job_{job}, placement_{placement}, drift_{1, job, deployment, placement} {
    require_possible();
  }

  bool due(std::uint64_t step) const { return (step + 1) % deployment_.see.audit == 0; }

  // Collective. Runs the step by original(), and compares it with what second() computes. Both return when all devices
  // of this process are done. Throws the same error on every process if bits differ, and variables are then as before
  // the step: DeviceError, or, if the job is elastic, CommunicationError with the faulty process as its culprit.
  void run(const HostStep& step, const StepMoment& moment, const std::function<void()>& original, const std::function<void()>& second) {
    if (const auto drift = drift_.find(moment.variables, "before step " + std::to_string(moment.number)))
      accuse({drift->odd.empty() ? drift->text : drift->text + ". Most devices have other bits than " + drift->odd, drift->odd.empty() ? -1 : drift->odd_process});
    keep(moment);
    const auto host_memory = marks_of_host_memory(moment);
    const auto seen = observe(step, moment, original, second);
    const auto mine = finding_of(step, moment, seen, nullptr);
    const auto severity = static_cast<std::byte>(mine.severity);
    const auto all = job_.exchange({&severity, 1}, "the comparison of an audited step");
    if (std::all_of(all.begin(), all.end(), [](const auto& theirs) { return !theirs.empty() && theirs[0] == std::byte{Finding::none}; })) return;
    restore(moment.variables);
    const auto again = observe(step, moment, original, second);
    restore(moment.variables);
    const auto changed = changed_on_host(moment, host_memory);
    accuse(agree(job_, changed.severity == Finding::none ? finding_of(step, moment, seen, &again) : changed));
  }

 private:
  // A value of a variable before the step: one for all devices, or one for a replica.
  struct Kept {
    std::string name;
    int copy = 0;  // -1: all copies
    AnyArray value;
  };
  using Marks = std::vector<std::uint64_t>;
  // All marks of a step that was computed twice, by the device whose work it is. `variables`: after it, for each entry
  // of copies().
  struct Side {
    std::vector<Marks> trails;
    Marks variables;
  };
  struct Seen {
    Side original, second;
  };

  void require_possible() const {
    const auto& owners = placement_.process_of_team();
    for (int process = 0; process < job_.size(); ++process)
      if (std::count(owners.begin(), owners.end(), process) < 2)
        throw BuildError{"--audit " + std::to_string(deployment_.see.audit) + " computes steps again on other devices of a process, but process " +
                         std::to_string(process) + " has only one" + (placement_.devices_per_team() > 1 ? " group of devices that share replicas" : "") +
                         ", so there is none to compare it with: give every process at least " +
                         std::to_string(2 * placement_.devices_per_team()) + " --devices, as cpu:0-" +
                         std::to_string(2 * placement_.devices_per_team() - 1) + " does, or leave --audit out"};
    if (deployment_.kernel_choice.fastest)
      throw BuildError{"--audit compares the bits of two computations, but --fastest-kernels lets them differ from run to run: leave one of them out"};
  }

  // --- variables before the step -------------------------------------------------------------------------------------------
  // f(name, copy) for each copy of each variable of this process.
  template <class F>
  static void for_each_copy(const VariableStore& variables, F f) {
    for (const auto& name : variables.names())
      for (int copy = 0; copy < variables.copies(name); ++copy) f(name, copy);
  }
  void keep(const StepMoment& moment) {
    std::size_t used = 0;
    for_each_copy(moment.variables, [&](const std::string& name, int copy) {
      const bool mirrored = moment.variables.declaration(name).kind == VariableKind::mirrored;
      if (mirrored && copy > 0) return;
      if (used == kept_.size()) kept_.emplace_back();
      auto& kept = kept_[used++];
      const auto& value = moment.variables.value(name, copy);
      if (kept.name.empty() || kept.value.type() != value.type()) kept.value = AnyArray{value.type()};
      kept.name = name;
      kept.copy = mirrored ? -1 : copy;
      if (value.size_bytes() > 0) std::memcpy(kept.value.data(), value.data(), value.size_bytes());
    });
    kept_.resize(used);
  }
  void restore(VariableStore& variables) const {
    for (const auto& [name, copy, value] : kept_) {
      const int first = std::max(copy, 0), end = copy < 0 ? variables.copies(name) : copy + 1;
      for (int each = first; each < end && value.size_bytes() > 0; ++each)
        std::memcpy(variables.overwrite(name, each).data(), value.data(), value.size_bytes());
    }
  }

  // Of all values that both computations read from the memory of the host.
  Marks marks_of_host_memory(const StepMoment& moment) const {
    Marks result;
    for (const auto& element : moment.inputs)
      for (const auto& array : element) result.push_back(content_mark(array.bytes()));
    for (const auto& kept : kept_) result.push_back(content_mark(kept.value.bytes()));
    return result;
  }
  // If that memory has changed, no device computed wrongly.
  Finding changed_on_host(const StepMoment& moment, const Marks& before) const {
    if (marks_of_host_memory(moment) == before) return {};
    return {Finding::computed, true,
            "step " + std::to_string(moment.number) + ", which was computed twice: its input, or the variables that were kept to compare, changed meanwhile in the memory of " +
                job_.describe(job_.rank()) + ", so that memory is faulty, or the program writes into an element that it has given away. No variable has changed. Test this host, and go on from a checkpoint"};
  }

  // --- computing twice -----------------------------------------------------------------------------------------------------
  // The original comes last, so its new variables stay.
  Seen observe(const HostStep& step, const StepMoment& moment, const std::function<void()>& original, const std::function<void()>& second) {
    try {
      Seen seen;
      second();
      seen.second = side(step.second->trails, moment.variables);
      restore(moment.variables);
      original();
      seen.original = side(step.second->original_trails, moment.variables);
      return seen;
    } catch (...) {
      restore(moment.variables);
      throw;
    }
  }
  static Side side(const std::vector<std::shared_ptr<Trail>>& trails, const VariableStore& variables) {
    Side result;
    for (const auto& trail : trails) result.trails.push_back(trail->marks());
    for_each_copy(variables, [&](const std::string& name, int copy) { result.variables.push_back(content_mark(variables.value(name, copy).bytes())); });
    return result;
  }

  // --- comparing -----------------------------------------------------------------------------------------------------------
  // What this process has found. `again`: the marks of a repetition, if there was one.
  Finding finding_of(const HostStep& step, const StepMoment& moment, const Seen& seen, const Seen* again) const {
    std::vector<Difference> differences;
    for (std::size_t device = 0; device < step.programs.size(); ++device) {
      const auto &a = seen.original.trails[device], &b = seen.second.trails[device];
      const auto at = static_cast<std::size_t>(std::mismatch(a.begin(), a.end(), b.begin()).first - a.begin());
      if (at == a.size()) continue;
      const auto kind = step.programs[device].code[at].kind;
      Difference difference;
      difference.own = kind != Instruction::Kind::wait && kind != Instruction::Kind::take;
      difference.original = static_cast<int>(device);
      difference.second = placement_.auditor_of(static_cast<int>(device));
      difference.what = what(step, moment, device, at);
      difference.original_repeats = again && again->original.trails[device][at] == a[at];
      difference.second_repeats = again && again->second.trails[device][at] == b[at];
      differences.push_back(std::move(difference));
    }
    if (differences.empty()) add_variables(moment, seen, again, differences);
    std::vector<std::string> names;
    for (const auto& device : deployment_.devices) names.push_back(device.text() + (job_.size() > 1 ? " of " + job_.describe(job_.rank()) : std::string{}));
    return judge(differences, names, moment.number, job_.size() == 1);
  }
  // Variables that differ although all instructions wrote the same: their memory has changed by itself.
  void add_variables(const StepMoment& moment, const Seen& seen, const Seen* again, std::vector<Difference>& differences) const {
    std::size_t v = 0;
    for_each_copy(moment.variables, [&](const std::string& name, int copy) {
      const auto at = v++;
      if (seen.original.variables[at] == seen.second.variables[at]) return;
      const bool mirrored = moment.variables.declaration(name).kind == VariableKind::mirrored;
      Difference difference;
      const int team = mirrored ? copy : moment.team(placement_.begin() + copy);
      difference.original = team * placement_.devices_per_team();
      // A mirrored copy belongs to one device, which wrote it both times.
      difference.second = mirrored ? difference.original : placement_.auditor_of(difference.original);
      difference.what = "the variable \"" + name + "\"" + (mirrored ? "" : " of replica " + std::to_string(placement_.begin() + copy)) +
                        ", declared at " + moment.variables.declaration(name).where.text() + ",";
      difference.original_repeats = again && again->original.variables[at] == seen.original.variables[at];
      difference.second_repeats = again && again->second.variables[at] == seen.second.variables[at];
      differences.push_back(std::move(difference));
    });
  }
  // The instruction as a reader of the program knows it: "matmul#17 at train.cpp:31 of replica 3".
  static std::string what(const HostStep& step, const StepMoment& moment, std::size_t device, std::size_t at) {
    const auto& program = step.programs[device];
    const auto& instruction = program.code[at];
    if (instruction.kind == Instruction::Kind::wait) return program.collectives[instruction.collective].text;
    if (instruction.kind == Instruction::Kind::take) return program.handoffs->text(instruction.place);
    std::string text = instruction.graph == Instruction::none ? "a copy"
                                                              : located_text(step.resolution.classes[instruction.graph].graph, instruction.node);
    if (instruction.relayout) text = "the layout for " + text;
    if (const auto variable = variable_written(moment.variables, program, instruction); !variable.empty()) text += ", the new value of \"" + variable + "\",";
    return text + " of " + (instruction.replica < 0 ? "all replicas" : "replica " + std::to_string(instruction.replica));
  }
  // Empty if the instruction writes no variable, or on devices with their own memory.
  static std::string variable_written(const VariableStore& variables, const Program& program, const Instruction& instruction) {
    std::string found;
    const auto* const outputs = program.pointers.data() + instruction.pointers + (instruction.kind == Instruction::Kind::run ? instruction.inputs : 1);
    const auto count = instruction.kind == Instruction::Kind::run ? instruction.executable->output_layouts.size() : 1;
    for_each_copy(variables, [&](const std::string& name, int copy) {
      if (std::find(outputs, outputs + count, variables.data(name, copy)) != outputs + count) found = name;
    });
    return found;
  }

  // --- the end -------------------------------------------------------------------------------------------------------------
  [[noreturn]] void accuse(const Accusation& accusation) {
    if (!deployment_.elastic || accusation.process < 0 || job_.size() == 1) throw DeviceError{accusation.text};
    job_.abort(accusation.text, accusation.process);
    throw CommunicationError{job_.failure(), job_.culprit()};
  }

  const Deployment& deployment_;
  transport::Job& job_;
  const Placement& placement_;
  DriftCheck drift_;
  std::vector<Kept> kept_;
};

}  // namespace replicator::detail
