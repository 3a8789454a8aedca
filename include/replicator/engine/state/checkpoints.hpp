// SPDX-License-Identifier: Apache-2.0
// Checkpoints: writes the checkpoints of a run and resumes a run from one. It keeps the progress of all steps, and
// knows when the next checkpoint is due. Process 0 writes one file; all processes read it.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <replicator/core/printable.hpp>
#include <replicator/core/processor.hpp>
#include <replicator/devices/kernel_library_text.hpp>
#include <replicator/engine/all_variables.hpp>
#include <replicator/engine/fingerprint.hpp>
#include <replicator/engine/state/checkpoint.hpp>
#include <replicator/engine/state/checkpoint_folder.hpp>
#include <replicator/replicate/deployment.hpp>
#include <replicator/resolve/resolution.hpp>

namespace replicator::detail {

// The point from which a step of a resumed run continues.
struct Resumption {
  std::uint64_t done = 0;                              // steps done
  bool finished = false;                               // the input has ended
  std::shared_ptr<const int> life;                     // the step holds it, so that Checkpoints knows whether the step is alive
  std::shared_ptr<std::vector<std::uint64_t>> breaks;  // see CheckpointedStep; null where no checkpoints are kept
};

class Checkpoints {
 public:
  // Throws BuildError for options that need --checkpoint.
  Checkpoints(const Deployment& deployment, transport::Job& job, const Placement& placement)
      : options_{deployment.checkpoint}, job_{job}, placement_{placement}, folder_{options_.folder}, replicas_{deployment.replicas} {
    require_folder();
    if (options_.folder.empty()) return;
    state_.experiment = {{"replicas", std::to_string(deployment.replicas)},
                         {"seed", std::to_string(deployment.seed)},
                         {"threads per device", std::to_string(deployment.threads_per_device)},
                         {"choice of kernels", deployment.kernel_choice.text()},
                         {"kind of devices", std::string{name_of(deployment.devices[0].kind)}},
                         {"instruction set", instruction_set()},
                         {"library of kernels", kernel_library(deployment.devices[0].kind)},
                         {"program", build_digest().text()}};
  }

  // Collective: every process calls it before the first step is built. Throws BuildError if the folder has checkpoints
  // of another run, or, with --resume, of another experiment, or if another job writes there. Throws DataError if the
  // folder is not writable or its newest file is damaged.
  void open() {
    if (options_.folder.empty()) return;
    std::string newest;
    if (job_.rank() == 0) {
      prepare_folder();
      const auto files = folder_.newest_first();
      if (!files.empty() && !options_.resume)
        throw BuildError{"--checkpoint: " + folder_.path() + " holds checkpoints already, the newest is " + files[0] +
                         ": go on from it with --resume, or name another folder"};
      if (!files.empty()) newest = files[0];
    }
    const auto chosen = job_.exchange(std::as_bytes(std::span{newest}), "the choice of a checkpoint")[0];
    newest.assign(reinterpret_cast<const char*>(chosen.data()), chosen.size());
    if (!newest.empty()) read(newest);
    else if (options_.resume) say("there is no checkpoint in " + folder_.path() + " yet, so there is nothing to --resume: this run begins at step 0");
  }

  // The number of the step that the next replicate() call builds. In a resumed run the checkpointed steps get their old
  // numbers.
  int next_ordinal(bool checkpointed) const {
    if (checkpointed)
      for (const auto& [ordinal, step] : state_.steps)
        if (!lives_.contains(ordinal)) return ordinal;
    return state_.next_ordinal;
  }
  // Registers the step. A step that is not checkpointed starts from the beginning.
  Resumption begin(int ordinal, bool checkpointed) {
    state_.next_ordinal = std::max(state_.next_ordinal, ordinal + 1);
    if (!checkpointed || options_.folder.empty()) return {};
    auto life = std::make_shared<int>(ordinal);
    lives_[ordinal] = life;
    const auto& step = state_.steps[ordinal];
    return {step.done, step.finished, std::move(life), step.breaks};
  }

  // Declares the variables of a step, with their values from the checkpoint, if any. The graphs of the replicas agree
  // on these variables. Throws BuildError if the step differs from the one in the checkpoint.
  void declare(VariableStore& store, const Resolution& resolution, int ordinal) {
    std::set<std::string> names;
    for (const auto& one : resolution.classes)
      for (const auto& variable : one.graph.variables()) {
        names.insert(variable.name);
        const bool known = store.contains(variable.name);
        store.declare(variable);
        if (!known) restore(store, variable);
      }
    const auto step = state_.steps.find(ordinal);
    const bool first = step != state_.steps.end() && declared_.insert(ordinal).second;
    if (first && read_.contains(ordinal)) compare(names, resolution, ordinal);
    if (!goes_on_.empty()) say(std::exchange(goes_on_, {}));
    if (!first) return;
    step->second.collectives = resolution.collectives.size();
    for (const auto& name : names) state_.variables[name].steps.insert(ordinal);
  }

  // The progress of the experiment at this moment. Its values are those that no variable has received yet.
  struct Memory {
    Checkpoint state;
    std::string path;
    std::set<int> read, declared, due;
    std::map<int, std::weak_ptr<const int>> lives;
  };
  Memory memory() const { return {state_, path_, read_, declared_, due_, lives_}; }
  void recall(const Memory& memory) {
    state_ = memory.state;
    path_ = memory.path;
    read_ = memory.read;
    declared_ = memory.declared;
    due_ = memory.due;
    lives_ = memory.lives;
  }

  // True if a checkpoint must be written before this step runs again.
  bool due(int ordinal) const { return due_.contains(ordinal); }
  void done(int ordinal, std::uint64_t steps, bool finished) {
    const auto step = state_.steps.find(ordinal);
    if (step == state_.steps.end()) return;
    step->second.done = steps;
    step->second.finished = finished;
    if (options_.every > 0 && steps % options_.every == 0) due_.insert(ordinal);
  }

  // Collective: every process calls it, and a folder was given. Returns the file's name once it is on the disk.
  // Throws DataError if the file cannot be written, and BuildError if a resumed run could not build the steps again.
  std::string save(const VariableStore& store) {
    require_steps_that_return();
    due_.clear();
    const AllVariables all{store, job_, placement_};
    const auto path = folder_.file(state_.total());
    if (job_.rank() == 0) {
      folder_.take_over();
      folder_.require_regular(path);
      write(path, all);
      folder_.keep(options_.keep);
    }
    if (job_.size() > 1) job_.barrier("the writing of a checkpoint");
    return path;
  }

 private:
  void require_folder() const {
    if (!options_.folder.empty()) return;
    const std::pair<bool, const char*> needs[] = {
        {options_.every > 0, "--every"}, {options_.resume, "--resume"}, {options_.keep != CheckpointOptions{}.keep, "--keep"}};
    for (const auto& [given, flag] : needs)
      if (given) throw BuildError{std::string{flag} + " was given without --checkpoint: name the folder of checkpoints too"};
  }
  void prepare_folder() {
    try {
      folder_.prepare();
    } catch (const DataError& error) {
      throw DataError{"--checkpoint: " + std::string{error.what()}};
    }
  }
  void read(const std::string& path) {
    Checkpoint found;
    try {
      found = read_checkpoint(path);
    } catch (const DataError& error) {
      throw DataError{"--resume: " + std::string{error.what()} + ". " + whole_one_before(path)};
    }
    if (job_.size() > 1) {
      Hasher hasher;
      for (const auto& [name, value] : found.values) hasher.bytes(value.bytes());
      compare_fingerprints(job_, {{path, hasher.result().text(), {}}});
    }
    path_ = path;
    compare(found.experiment);
    for (const auto& [ordinal, step] : found.steps) read_.insert(ordinal);
    found.experiment = state_.experiment;
    state_ = std::move(found);
    goes_on_ = "goes on from " + path + ", in which " + std::to_string(state_.total()) + (state_.total() == 1 ? " step is done" : " steps are done");
  }
  std::string whole_one_before(const std::string& damaged) const {
    for (const auto& file : folder_.newest_first()) {
      if (file == damaged) continue;
      try {
        read_checkpoint(file);
        return "No older file is used unasked: to resume from one, move the damaged file away; the newest good one is " + file;
      } catch (const DataError&) {
      }
    }
    return "There is no other undamaged one";
  }

  void restore(VariableStore& store, const VariableDeclaration& variable) {
    auto& known = state_.variables.try_emplace(variable.name, CheckpointedVariable{variable.kind, {}}).first->second;
    const auto found = state_.values.find(variable.name);
    if (found == state_.values.end()) return;
    const auto here = "the variable \"" + variable.name + "\" is ";
    if (known.kind != variable.kind)
      throw another_experiment(here + std::string{name_of(variable.kind)} + " (declared at " + variable.where.text() + "), there " +
                               std::string{name_of(known.kind)});
    const auto type = checkpointed_type(variable.type, variable.kind, replicas_);
    if (found->second.type() != type)
      throw another_experiment(here + type.text() + " (declared at " + variable.where.text() + "), there " + found->second.type().text());
    const auto bytes = variable.type.bytes();
    for (int copy = 0; copy < store.copies(variable.name) && bytes > 0; ++copy) {
      const auto replica = variable.kind == VariableKind::mirrored ? 0 : static_cast<std::size_t>(placement_.begin() + copy);
      std::memcpy(store.overwrite(variable.name, copy).data(), found->second.data() + replica * bytes, bytes);
    }
    state_.values.erase(found);
  }
  void compare(std::map<std::string, std::string>& theirs) const {
    for (const std::string key : {"replicas", "seed", "threads per device"})
      if (theirs[key] != state_.experiment.at(key))
        throw BuildError{"--resume: " + path_ + " is of another experiment: its " + key + ": " + printable(theirs[key], 300) + ", of this run: " +
                         state_.experiment.at(key) + ". Resume it with the arguments it was begun with"};
    for (const auto& [key, value] : state_.experiment)
      if (theirs[key] != value)
        say(path_ + " was written with another " + key + (key == "program" ? "" : " (" + printable(theirs[key], 300) + ", here " + value + ")") +
            ": bits may differ from here on");
  }
  void compare(const std::set<std::string>& names, const Resolution& resolution, int ordinal) const {
    const auto which = "step " + std::to_string(ordinal) + " of this program ";
    for (const auto& name : names)
      if (!state_.variables.at(name).steps.contains(ordinal))
        throw another_experiment(which + "declares the variable \"" + name + "\", there it does not");
    for (const auto& [name, variable] : state_.variables)
      if (variable.steps.contains(ordinal) && !names.contains(name))
        throw another_experiment(which + "does not declare the variable \"" + name + "\", there it does");
    const auto collectives = state_.steps.at(ordinal).collectives;
    if (collectives != resolution.collectives.size())
      throw another_experiment(which + "asks for " + std::to_string(resolution.collectives.size()) + " collectives, there for " +
                               std::to_string(collectives));
  }
  BuildError another_experiment(const std::string& difference) const {
    return BuildError{"--resume: " + path_ + " is of another experiment: " + difference +
                      ". Resume it with the program, and the arguments, that wrote it"};
  }

  // Checks that a resumed run can build the steps again. It builds them in the order of their numbers, so no destroyed
  // step may come after one that is still alive.
  void require_steps_that_return() const {
    std::optional<int> running;
    for (const auto& [ordinal, step] : state_.steps) {
      const auto life = lives_.find(ordinal);
      if (life == lives_.end()) continue;
      if (!life->second.expired()) running = ordinal;
      else if (running)
        throw BuildError{"a checkpoint is to be written, but step " + std::to_string(ordinal) + " is gone, while step " + std::to_string(*running) +
                         ", which was made before it, is not: a resumed run could not make both again. Make a temporary step, such as a "
                         "validation, with replicate(input_fn, step_fn, {.checkpointed = false})"};
    }
  }
  // Also writes the variables from the old file that the resumed run has not declared yet.
  void write(const std::string& path, const AllVariables& all) const {
    std::vector<io::NamedTensor> tensors;
    std::vector<AnyArray> stacked;
    for (const auto& [name, value] : state_.values) tensors.push_back({name, value.type(), value.data()});
    all.for_each([&](const std::string& name, const VariableDeclaration& declaration, const std::vector<std::span<const std::byte>>& pieces) {
      const auto type = checkpointed_type(declaration.type, declaration.kind, replicas_);
      if (pieces.size() == 1) return tensors.push_back({name, type, pieces[0].data()});
      auto* to = stacked.emplace_back(type).data();
      tensors.push_back({name, type, to});
      for (const auto piece : pieces) {
        if (!piece.empty()) std::memcpy(to, piece.data(), piece.size());
        to += piece.size();
      }
    });
    write_checkpoint(path, state_, std::move(tensors));
  }
  void say(const std::string& sentence) const {
    if (job_.rank() == 0) std::fprintf(stderr, "replicator: %s\n", sentence.c_str());
  }

  CheckpointOptions options_;
  transport::Job& job_;
  const Placement& placement_;
  CheckpointFolder folder_;
  int replicas_;
  std::string path_;                               // the file that was read
  std::string goes_on_;                            // what to say once a step has accepted that file; empty: nothing
  std::set<int> read_;                             // the steps in that file
  Checkpoint state_;                               // the present state; its values are those from the file that no variable has received yet
  std::map<int, std::weak_ptr<const int>> lives_;  // of the steps that were built
  std::set<int> declared_, due_;                   // numbers of steps
};

}  // namespace replicator::detail
