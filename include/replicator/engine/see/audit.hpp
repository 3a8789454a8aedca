// SPDX-License-Identifier: Apache-2.0
// Audit: computes every N-th step twice, on different devices, and compares all bits before a variable changes
// (--audit N). It finds devices that compute wrongly.
//
// The work of each team is done a second time by the next team of the job, with the same program, inputs and variables.
// Both leave a trail, with a mark of everything that each instruction wrote. Placement never changes a bit, so the two
// trails are equal unless a device is faulty.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <replicator/core/content_mark.hpp>
#include <replicator/core/parse.hpp>
#include <replicator/engine/fingerprint.hpp>
#include <replicator/engine/host_step.hpp>
#include <replicator/engine/see/audit_guests.hpp>
#include <replicator/engine/see/audit_verdict.hpp>
#include <replicator/engine/see/drift_check.hpp>
#include <replicator/engine/step_listener.hpp>
#include <replicator/job/contribution.hpp>
#include <replicator/job/job.hpp>
#include <replicator/replicate/deployment.hpp>

namespace replicator::detail {

class Audit {
 public:
  // Throws BuildError on every process if the job has nothing to compare with, or if kernels do not repeat their bits. An
  // elastic job that has shrunk to one device goes on without audits: then this is false.
  static bool possible(const Deployment& deployment, const transport::Job& job, const Placement& placement) {
    const auto flag = "--audit " + std::to_string(deployment.see.audit);
    if (deployment.kernel_choice.fastest)
      throw BuildError{flag + " compares the bits of two computations, but --fastest-kernels lets them differ from run to run: leave one of them out"};
    if (placement.blocks().ranks() > 1) return true;
    const auto each = placement.devices_per_team();
    const auto why = flag + " computes steps again on other devices, but the job has only one" + (each > 1 ? " group of devices that share replicas" : "") +
                     ", so there is none to compare it with";
    if (!deployment.elastic)
      throw BuildError{why + ": name at least " + std::to_string(2 * each) + " --devices, as cpu:0-" + std::to_string(2 * each - 1) +
                       " does, or start more processes, or leave --audit out"};
    if (job.rank() == 0) std::fprintf(stderr, "replicator: %s; the steps are no longer audited\n", why.c_str());
    return false;
  }
  // Collective.
  Audit(const Deployment& deployment, transport::Job& job, const Placement& placement)
      : deployment_{deployment}, job_{job}, placement_{placement}, drift_{1, job, deployment, placement}, guests_{deployment, job, placement} {
    std::vector<std::string> mine;
    for (const auto& device : deployment.devices) mine.push_back(device.text() + (job.size() > 1 ? " of " + job.describe(job.rank()) : std::string{}));
    const auto all = job.exchange(pack_texts(mine), "the exchange of device names");
    for (int process = 0; process < job.size(); ++process)
      for (auto& name : unpack_texts(all[static_cast<std::size_t>(process)], process)) names_.push_back(std::move(name));
  }

  // Calls work(device) for each device of this process, at the same time.
  using OnDevices = std::function<void(const std::function<void(int)>& work)>;

  bool due(std::uint64_t step) const { return (step + 1) % deployment_.see.audit == 0; }
  AuditGuests& guests() { return guests_; }

  // Collective. Runs the step by original(), and compares it with what second() computes. Both return when all devices
  // of this process are done. `words`: about the next elements of this process's replicas. Throws the same error on every
  // process if bits differ, and variables are then as before the step: DeviceError, or, if the job is elastic,
  // CommunicationError with the faulty process as its culprit.
  void run(const HostStep& step, const StepMoment& moment, std::span<const std::uint64_t> words, const std::function<void()>& original, const std::function<void()>& second,
           const OnDevices& on_devices) {
    const Computing computing{step, moment, original, second, on_devices};
    const auto before = keep(computing);
    if (const auto drift = drift_.find(moment.variables, before, "before step " + std::to_string(moment.number))) accuse(*drift);
    guests_.exchange(*step.second, moment, words);
    const auto inputs = marks_of_inputs(step, moment);
    const auto seen = compute(computing);
    const auto drift = drift_.find(moment.variables, seen.mirrored, "after step " + std::to_string(moment.number) + ", which was computed twice,");
    const bool equal = equal_everywhere(seen);
    if (equal && !drift) return;
    restore(moment.variables);
    guests_.exchange(*step.second, moment, words);
    const auto again = compute(computing);
    restore(moment.variables);
    require_sound_memory(moment, marks_of_inputs(step, moment) == inputs && std::all_of(kept_.begin(), kept_.end(), [](const Kept& each) { return content_mark(each.value.bytes()) == each.mark; }));
    const auto differences = gather(equal ? differences_in_variables(moment, seen, again) : differences_of(step, seen, again));
    if (differences.empty()) accuse(*drift);
    const auto [text, faulty] = Judge{differences, names_}.verdict(moment.number);
    accuse(text, faulty < 0 ? -1 : placement_.process_of(faulty / placement_.devices_per_team()));
  }

 private:
  using Marks = std::vector<std::uint64_t>;
  struct Computing {
    const HostStep& step;
    const StepMoment& moment;
    const std::function<void()>&original, &second;
    const OnDevices& on_devices;
  };
  // A variable before the step: a mirrored one once, a replica-local one for a replica of this process.
  struct Kept {
    std::string name;
    int copy = 0;  // -1: all copies
    AnyArray value;
    std::uint64_t mark = 0;
  };
  // The marks of the two computations on this process.
  struct Seen {
    std::vector<Marks> original, second;  // the trails, by device
    std::vector<Marks> mirrored;          // after the original: by team, of each mirrored variable
  };

  // --- variables before the step -------------------------------------------------------------------------------------------
  // Keeps the values of all variables, and marks each right after it was copied. Returns the marks of the mirrored ones, by team.
  std::vector<Marks> keep(const Computing& what) {
    const auto& variables = what.moment.variables;
    std::vector<std::size_t> mirrored_ones, local_ones;  // positions in kept_
    std::size_t used = 0;
    for (const auto& name : variables.names()) {
      const bool mirrored = variables.declaration(name).kind == VariableKind::mirrored;
      for (int copy = 0; copy < (mirrored ? 1 : variables.copies(name)); ++copy) {
        if (used == kept_.size()) kept_.emplace_back();
        (mirrored ? mirrored_ones : local_ones).push_back(used);
        auto& kept = kept_[used++];
        const auto& type = variables.declaration(name).type;
        if (kept.name.empty() || kept.value.type() != type) kept.value = AnyArray{type};
        kept.name = name;
        kept.copy = mirrored ? -1 : copy;
      }
    }
    kept_.resize(used);
    const auto teams = static_cast<std::size_t>(placement_.teams());
    std::vector<Marks> marks(teams, Marks(mirrored_ones.size()));
    what.on_devices([&](int device) {
      if (placement_.place_of(device) != 0) return;
      const auto team = static_cast<std::size_t>(placement_.team_of(device));
      for (std::size_t v = 0; v < mirrored_ones.size(); ++v) {
        auto& kept = kept_[mirrored_ones[v]];
        const auto& value = variables.value(kept.name, static_cast<int>(team));
        if (v % teams == team) keep_value(value, kept);
        marks[team][v] = content_mark(value.bytes());
      }
      for (auto at = team; at < local_ones.size(); at += teams) {
        auto& kept = kept_[local_ones[at]];
        keep_value(variables.value(kept.name, kept.copy), kept);
        kept.mark = content_mark(kept.value.bytes());
      }
    });
    for (std::size_t v = 0; v < mirrored_ones.size(); ++v) kept_[mirrored_ones[v]].mark = marks[0][v];
    return marks;
  }
  static void keep_value(const AnyArray& value, Kept& kept) {
    if (value.size_bytes() > 0) std::memcpy(kept.value.data(), value.data(), value.size_bytes());
  }
  void restore(VariableStore& variables) const {
    for (const auto& [name, copy, value, mark] : kept_) {
      const int first = std::max(copy, 0), end = copy < 0 ? variables.copies(name) : copy + 1;
      for (int each = first; each < end && value.size_bytes() > 0; ++each)
        std::memcpy(variables.overwrite(name, each).data(), value.data(), value.size_bytes());
    }
  }
  std::vector<Marks> marks_of_teams(const Computing& what) const {
    std::vector<Marks> marks(static_cast<std::size_t>(placement_.teams()));
    what.on_devices([&](int device) {
      const int team = placement_.team_of(device);
      if (placement_.place_of(device) == 0) marks[static_cast<std::size_t>(team)] = DriftCheck::marks_of(what.moment.variables, team);
    });
    return marks;
  }
  // Both computations read the inputs from the memory of the host.
  static Marks marks_of_inputs(const HostStep& step, const StepMoment& moment) {
    Marks result;
    const auto add = [&](std::span<const std::vector<AnyArray>> elements) {
      for (const auto& element : elements)
        for (const auto& array : element) result.push_back(content_mark(array.bytes()));
    };
    add(moment.inputs);
    add(step.second->guest_inputs);
    return result;
  }
  // If that memory has changed, no device computed wrongly.
  void require_sound_memory(const StepMoment& moment, bool sound) {
    const auto all = job_.exchange(std::as_bytes(std::span{&sound, 1}), "the comparison of memory after an audited step");
    for (int process = 0; process < job_.size(); ++process) {
      const auto& theirs = all[static_cast<std::size_t>(process)];
      transport::require_contribution(theirs.size() == 1, process, theirs.size(), "the comparison of memory after an audited step");
      if (theirs[0] != std::byte{0}) continue;
      accuse("step " + std::to_string(moment.number) +
                 ", which was computed twice: its input, or the variables that were kept to compare, changed meanwhile in the memory of " +
                 job_.describe(process) +
                 ", so that memory is faulty, or the program writes into an element that it has given away. No variable has changed. Test this host, and go on from a checkpoint",
             process);
    }
  }

  // --- computing twice -----------------------------------------------------------------------------------------------------
  Seen compute(const Computing& what) const {
    Seen seen;
    what.second();  // changes no variable
    for (const auto& trail : what.step.second->trails) seen.second.push_back(trail->marks());
    try {
      what.original();
      seen.mirrored = marks_of_teams(what);
    } catch (...) {
      restore(what.moment.variables);
      throw;
    }
    for (const auto& trail : what.step.second->original_trails) seen.original.push_back(trail->marks());
    return seen;
  }

  // --- comparing -----------------------------------------------------------------------------------------------------------
  std::size_t first_device(int team) const { return static_cast<std::size_t>(team * placement_.devices_per_team()); }
  // The team of this process that repeats the work of its team `team`; -1: it is on another process.
  int local_auditor(int team) const {
    const int next = (placement_.first_team() + team + 1) % placement_.blocks().ranks() - placement_.first_team();
    return next >= 0 && next < placement_.teams() ? next : -1;
  }
  // Calls f(device, auditor) for each device of this process whose work another one of it repeats.
  template <class F>
  void for_each_local_pair(F f) const {
    for (int team = 0; team < placement_.teams(); ++team)
      for (int place = 0; place < placement_.devices_per_team() && local_auditor(team) >= 0; ++place)
        f(first_device(team) + static_cast<std::size_t>(place), first_device(local_auditor(team)) + static_cast<std::size_t>(place));
  }
  std::uint64_t mark_of_team(const std::vector<Marks>& trails, int team) const {
    Marks all;
    for (int place = 0; place < placement_.devices_per_team(); ++place) {
      const auto& trail = trails[first_device(team) + static_cast<std::size_t>(place)];
      all.insert(all.end(), trail.begin(), trail.end());
    }
    return content_mark(std::as_bytes(std::span{all}));
  }
  // Collective: true if no process sees a difference. What crosses processes is compared by all of them.
  bool equal_everywhere(const Seen& seen) {
    struct Word {
      std::uint64_t equal = 1, given = 0, repeated = 0;  // given: the work of the last team; repeated: the work of the process before
    } mine;
    for_each_local_pair([&](std::size_t device, std::size_t auditor) { mine.equal &= seen.original[device] == seen.second[auditor]; });
    if (guests_.here()) {
      mine.given = mark_of_team(seen.original, placement_.teams() - 1);
      mine.repeated = mark_of_team(seen.second, 0);
    }
    static constexpr const char* what = "the comparison of an audited step";
    const auto all = job_.exchange(std::as_bytes(std::span{&mine, 1}), what);
    std::vector<Word> words(all.size());
    for (std::size_t process = 0; process < all.size(); ++process) {
      transport::require_contribution(all[process].size() == sizeof(Word), static_cast<int>(process), all[process].size(), what);
      std::memcpy(&words[process], all[process].data(), sizeof(Word));
    }
    bool equal = true;
    for (std::size_t process = 0; process < words.size(); ++process)
      equal = equal && words[process].equal == 1 && words[process].given == words[(process + 1) % words.size()].repeated;
    return equal;
  }

  // What differs in the work of this process's devices. Collective: the trails of those that repeat it come from there.
  std::vector<Difference> differences_of(const HostStep& step, const Seen& seen, const Seen& again) {
    std::vector<Difference> differences;
    const auto compare = [&](std::size_t device, int auditor, const Marks& second, const Marks& second_again) {
      const auto &first = seen.original[device], &first_again = again.original[device];
      const auto at = static_cast<std::size_t>(std::mismatch(first.begin(), first.end(), second.begin(), second.end()).first - first.begin());
      if (at >= first.size() || at >= second.size() || at >= second_again.size()) return;
      const auto kind = step.programs[device].code[at].kind;
      differences.push_back({what(step, device, at), kind != Instruction::Kind::wait && kind != Instruction::Kind::take, of_job(device), auditor,
                             first_again[at] == first[at], second_again[at] == second[at]});
    };
    for_each_local_pair([&](std::size_t device, std::size_t auditor) { compare(device, of_job(auditor), seen.second[auditor], again.second[auditor]); });
    std::vector<std::string> mine;
    for (std::size_t place = 0; guests_.here() && place < first_device(1); ++place)
      for (const auto* const trails : {&seen.second, &again.second}) {
        const auto bytes = std::as_bytes(std::span{(*trails)[place]});
        mine.emplace_back(reinterpret_cast<const char*>(bytes.data()), bytes.size());
      }
    const auto all = job_.exchange(pack_texts(mine), "the exchange of an audited step's marks");
    if (guests_.here()) {
      const auto theirs = unpack_texts(all[static_cast<std::size_t>(guests_.sent_to())], guests_.sent_to());
      transport::require_contribution(theirs.size() == 2 * first_device(1), guests_.sent_to(), theirs.size(), "the exchange of an audited step's marks");
      const auto last = first_device(placement_.teams() - 1);
      for (std::size_t place = 0; place < first_device(1); ++place)
        compare(last + place, (of_job(last + place) + placement_.devices_per_team()) % static_cast<int>(names_.size()), marks_in(theirs[2 * place]), marks_in(theirs[2 * place + 1]));
    }
    return differences;
  }
  static Marks marks_in(const std::string& text) {
    Marks marks(text.size() / sizeof(std::uint64_t));
    std::memcpy(marks.data(), text.data(), marks.size() * sizeof(std::uint64_t));
    return marks;
  }
  // A device of this process, counted over the job.
  int of_job(std::size_t device) const { return placement_.first_team() * placement_.devices_per_team() + static_cast<int>(device); }
  // New values of variables that a device did not repeat, although all that they are computed from is equal.
  std::vector<Difference> differences_in_variables(const StepMoment& moment, const Seen& seen, const Seen& again) const {
    std::vector<Difference> differences;
    const auto names = DriftCheck::mirrored(moment.variables);
    for (int team = 0; team < placement_.teams(); ++team)
      for (std::size_t v = 0; v < names.size(); ++v) {
        const auto t = static_cast<std::size_t>(team);
        if (seen.mirrored[t][v] == again.mirrored[t][v]) continue;
        const auto device = of_job(first_device(team));
        differences.push_back({"the new value of the variable \"" + names[v] + "\", declared at " + moment.variables.declaration(names[v]).where.text() + ",", true, device, device});
      }
    return differences;
  }
  // The differences of all processes.
  std::vector<Difference> gather(const std::vector<Difference>& mine) {
    std::vector<std::string> texts;
    for (const auto& each : mine) {
      texts.push_back(each.what);
      for (const int number : {static_cast<int>(each.own), each.original, each.second, static_cast<int>(each.original_repeats), static_cast<int>(each.second_repeats)})
        texts.push_back(std::to_string(number));
    }
    static constexpr const char* what = "the exchange of what an audit has found";
    const auto all = job_.exchange(pack_texts(texts), what);
    std::vector<Difference> result;
    for (int process = 0; process < job_.size(); ++process) {
      const auto theirs = unpack_texts(all[static_cast<std::size_t>(process)], process);
      transport::require_contribution(theirs.size() % 6 == 0, process, theirs.size(), what);
      for (std::size_t i = 0; i < theirs.size(); i += 6) {
        const auto number = [&](std::size_t k, int highest) {
          const auto value = whole_number<int>(theirs[i + k], 0, highest);
          transport::require_contribution(value.has_value(), process, theirs.size(), what);
          return *value;
        };
        const int devices = static_cast<int>(names_.size()) - 1;
        result.push_back({theirs[i], number(1, 1) == 1, number(2, devices), number(3, devices), number(4, 1) == 1, number(5, 1) == 1});
      }
    }
    return result;
  }
  // An instruction as a reader of the program knows it: "matmul#17 at train.cpp:31 of replica 3".
  static std::string what(const HostStep& step, std::size_t device, std::size_t at) {
    const auto& program = step.programs[device];
    const auto& instruction = program.code[at];
    if (instruction.kind == Instruction::Kind::wait) return program.collectives[instruction.collective].text;
    if (instruction.kind == Instruction::Kind::take) return program.handoffs->text(instruction.place);
    std::string text = instruction.graph == Instruction::none ? "a copy"
                                                              : located_text(step.resolution.classes[instruction.graph].graph, instruction.node);
    if (instruction.relayout) text = "the layout for " + text;
    return text + " of " + (instruction.replica < 0 ? "all replicas" : "replica " + std::to_string(instruction.replica));
  }

  // --- the end -------------------------------------------------------------------------------------------------------------
  [[noreturn]] void accuse(const Drift& drift) {
    accuse(drift.odd.empty() ? drift.text : drift.text + ". Most devices have other bits than " + drift.odd, drift.odd.empty() ? -1 : drift.odd_process);
  }
  // `process`: that of the faulty device; -1: unknown.
  [[noreturn]] void accuse(const std::string& text, int process) {
    if (!deployment_.elastic || process < 0 || job_.size() == 1) throw DeviceError{text};
    job_.abort(text, process);
    throw CommunicationError{job_.failure(), job_.culprit()};
  }

  const Deployment& deployment_;
  transport::Job& job_;
  const Placement& placement_;
  DriftCheck drift_;
  AuditGuests guests_;
  std::vector<std::string> names_;  // of the devices of the job
  std::vector<Kept> kept_;
};

}  // namespace replicator::detail
