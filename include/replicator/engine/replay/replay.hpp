// SPDX-License-Identifier: Apache-2.0
// Replay: runs the recorded steps of one replica again, alone. Input, collective results and variables come from the
// file; the rest is computed as usual. Then results and variables are compared with the recorded ones, bit for bit.
#pragma once

#include <cstdio>
#include <cstring>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <replicator/core/printable.hpp>
#include <replicator/core/processor.hpp>
#include <replicator/devices/kernel_library_text.hpp>
#include <replicator/engine/fingerprint.hpp>
#include <replicator/engine/replay/recording.hpp>
#include <replicator/engine/see/bit_difference.hpp>
#include <replicator/engine/step_listener.hpp>
#include <replicator/replicate/input_source.hpp>

namespace replicator::detail {

// The recorded elements of one step of the Replicator, in step order.
class RecordedInput final : public InputSource {
 public:
  explicit RecordedInput(std::vector<const RecordedStep*> steps) : steps_{std::move(steps)} {}
  std::optional<std::vector<AnyArray>> next() override {
    if (at_ == steps_.size()) return std::nullopt;
    return steps_[at_++]->inputs;
  }
  bool seek(std::int64_t) override { return false; }
  std::optional<std::uint64_t> recorded_from() const override { return steps_.empty() ? 0 : steps_[0]->number; }

 private:
  std::vector<const RecordedStep*> steps_;
  std::size_t at_ = 0;
};

class Replay final : public StepListener {
 public:
  // Throws DataError if the file is missing, damaged, or not a recording.
  explicit Replay(const std::string& path) : path_{path}, recording_{load(path)}, left_{recording_.steps.size()} {}

  int replica() const { return recording_.replica; }
  int replicas() const { return recording_.replicas; }

  // The recorded experiment, on the first of the requested devices. Throws BuildError if that is of another kind, or if
  // --record was given too.
  Deployment deployment(Deployment asked) const {
    asked.devices.resize(1);  // an empty list becomes cpu:0
    if (name_of(asked.devices[0].kind) != recording_.device_kind)
      throw BuildError{"--replay: " + path_ + " was recorded on a " + printable(recording_.device_kind, 100) +
                       " device, but --devices names " + asked.devices[0].text() +
                       ": only devices of one kind give the same bits; name " + printable(recording_.device_kind, 100) + ":0"};
    if (asked.see.record) throw BuildError{"--record and --replay were both given: a replay receives only what is in its file already"};
    asked.replicas = recording_.replicas;
    asked.seed = recording_.seed;
    asked.logical_devices = recording_.logical_devices;
    asked.threads_per_device = recording_.threads_per_device;
    asked.kernel_choice = recording_.kernel_choice;
    asked.schedule = "auto";
    asked.checkpoint = {};
    asked.see.audit = 0;  // there is one device
    return asked;
  }

  // The recorded input of a step, which is empty if none of its steps was recorded. `components`: the types of an
  // element's components. Throws DataError if the recorded elements have other types.
  std::unique_ptr<InputSource> input(int ordinal, const std::vector<DType>& components) const {
    std::vector<const RecordedStep*> steps;
    for (const auto& step : recording_.steps) {
      if (step.ordinal != ordinal) continue;
      bool fits = step.inputs.size() == components.size();
      for (std::size_t i = 0; fits && i < components.size(); ++i) fits = step.inputs[i].dtype() == components[i];
      if (!fits) throw another_program(step, "its input element has other components");
      steps.push_back(&step);
    }
    return std::make_unique<RecordedInput>(std::move(steps));
  }

  // Throws DataError if the step's graph does not fit the recording.
  void before(const StepMoment& moment) override {
    current_ = find(moment);
    const auto& step = recording_.steps[current_];
    give_collectives(moment, step);
    for (const auto& variable : moment.source(replica()).graph.variables()) {
      const auto* recorded = recording_.before(current_, variable.name);
      if (!recorded) throw another_program(step, "it has no variable \"" + variable.name + "\", declared at " + variable.where.text());
      if (recorded->type() != variable.type)
        throw another_program(step, "the variable \"" + variable.name + "\" is " + variable.type.text() +
                                        " (declared at " + variable.where.text() + "), there " +
                                        recorded->type().text());
      auto& value = moment.value(variable, replica()).overwrite();
      if (value.size_bytes() > 0) std::memcpy(value.data(), recorded->data(), value.size_bytes());
    }
  }
  // Returns the small results of the other replicas as recorded. Throws DataError after the last step if any step
  // differed.
  void after(const StepMoment& moment, StepResults& results) override {
    const auto& step = recording_.steps[current_];
    --left_;
    if (!step.error.empty()) {
      say(step, "succeeds with the data that was recorded until it failed: " + step.error);
    } else {
      compare(moment, step, results);
      for (std::size_t k = 0; k < results.values.size(); ++k) add_others(step, k, results);
    }
    results.all_have_next = moment.number != last_of(moment.ordinal);
    if (left_ == 0 && differing_ > 0)
      throw DataError{"replay of replica " + std::to_string(replica()) + ": " + std::to_string(differing_) + " of " +
                      std::to_string(recording_.steps.size()) + " steps have other bits than " + path_ + ", first " +
                      first_fault_ + origin()};
  }
  void failed(const StepMoment&, const std::exception_ptr& error) noexcept override {
    const auto& step = recording_.steps[current_];
    if (!step.error.empty()) say(step, "fails; when it was recorded: " + step.error);
    else if (is_check(error)) say(step, "is ended by a check, of --find-nan for instance; it did not fail when it was recorded");
    else say(step, "fails, but did not fail when it was recorded");
  }

 private:
  static Recording load(const std::string& path) {
    try {
      return load_recording(path);
    } catch (const DataError& error) {
      throw DataError{std::string{"--replay: "} + error.what()};
    }
  }
  static bool is_check(const std::exception_ptr& error) noexcept {
    try {
      std::rethrow_exception(error);
    } catch (const CheckError&) {
      return true;
    } catch (...) {
      return false;
    }
  }
  std::size_t find(const StepMoment& moment) const {
    for (std::size_t i = 0; i < recording_.steps.size(); ++i)
      if (recording_.steps[i].ordinal == moment.ordinal && recording_.steps[i].number == moment.number) return i;
    throw DataError{path_ + " has no step " + std::to_string(moment.number) + ": its steps are not in a row"};
  }
  std::uint64_t last_of(int ordinal) const {
    std::uint64_t last = 0;
    for (const auto& step : recording_.steps)
      if (step.ordinal == ordinal) last = step.number;
    return last;
  }

  void give_collectives(const StepMoment& moment, const RecordedStep& step) const {
    const auto& source = moment.source(replica());
    const auto& asked = moment.resolution.collectives;
    for (std::size_t k = 0; k < std::min(asked.size(), step.collectives.size()); ++k) {
      const auto& type = source.graph.node(source.collective[k]).outputs[0];
      if (type != step.collectives[k].type())
        throw another_program(step, asked[k].text + " gives " + type.text() + ", collective " + std::to_string(k) +
                                        " there " + step.collectives[k].type().text());
    }
    if (asked.size() != step.collectives.size())
      throw another_program(step, "the step asks for " + std::to_string(asked.size()) + " collectives, there it was " +
                                      std::to_string(step.collectives.size()));
    moment.for_each_collected(replica(), [&](std::uint32_t ordinal, std::byte* data, const Queue& queue) {
      const auto& recorded = step.collectives[ordinal];
      queue.enter();
      queue.copy(data, recorded.data(), recorded.size_bytes());
      queue.synchronise();
    });
  }

  void compare(const StepMoment& moment, const RecordedStep& step, const StepResults& results) {
    std::string fault;
    const auto check = [&](const std::string& what, const AnyArray& value, const AnyArray& recorded) {
      if (!fault.empty()) return;
      if (value.type() != recorded.type()) fault = what + " is " + value.type().text() + ", recorded " + recorded.type().text();
      else if (const auto difference = first_difference(value, recorded))
        fault = what + " differs: element " + std::to_string(difference->first) + " is " + difference->a + ", recorded " + difference->b + "; " +
                std::to_string(difference->count) + " of " + std::to_string(value.shape().elements()) + " differ";
    };
    if (results.values.size() != step.results.size())
      fault = "there are " + std::to_string(results.values.size()) + " results, recorded " + std::to_string(step.results.size());
    for (std::size_t k = 0; k < std::min(results.values.size(), step.results.size()); ++k)
      check("result " + std::to_string(k), own(results, k), step.results[k]);
    const auto& variables = moment.source(replica()).graph.variables();
    for (const auto& variable : variables)
      check("the variable \"" + variable.name + "\"", moment.value(variable, replica()).read(), *recording_.after(current_, variable.name));
    if (fault.empty())
      return say(step, "has the recorded bits: " + count(results.values.size(), "result") + " and " + count(variables.size(), "variable"));
    say(step, fault);
    if (differing_++ == 0) first_fault_ = "in step " + step.key() + ": " + fault;
  }
  const AnyArray& own(const StepResults& results, std::size_t k) const {
    return results.values[k][static_cast<std::size_t>(replica() - results.first[k])];
  }
  void add_others(const RecordedStep& step, std::size_t k, StepResults& results) const {
    const auto found = step.all_results.find(k);
    const auto& mine = own(results, k);
    if (found == step.all_results.end() || found->second.size_bytes() != mine.size_bytes() * static_cast<std::size_t>(replicas())) return;
    std::vector<AnyArray> all;
    for (int r = 0; r < replicas(); ++r) {
      auto& value = all.emplace_back(mine);
      if (r != replica() && value.size_bytes() > 0)
        std::memcpy(value.data(), found->second.data() + static_cast<std::size_t>(r) * value.size_bytes(), value.size_bytes());
    }
    results.values[k] = std::move(all);
    results.first[k] = 0;
  }

  DataError another_program(const RecordedStep& step, const std::string& what) const {
    return DataError{"--replay: " + path_ + " was recorded by another program, step " + step.key() + ": " + what +
                     ". Replay it with the program, and the arguments, that recorded it"};
  }
  // A likely reason for different bits; empty if there is none.
  std::string origin() const {
    if (recording_.instruction_set != instruction_set())
      return "\nIt was recorded on a processor with " + recording_.instruction_set + ", this one has " +
             instruction_set() + ": that alone changes bits";
    const auto kind = recording_.device_kind == name_of(DeviceKind::cuda) ? DeviceKind::cuda : DeviceKind::cpu;
    if (const auto here = kernel_library(kind); recording_.kernel_library != here)
      return "\nIt was recorded with other kernels: " + recording_.kernel_library + ", here " + here + ": that alone may change bits";
    if (recording_.program != build_digest().text()) return "\nIt was recorded by another build of the program: that alone may change bits";
    return {};
  }
  void say(const RecordedStep& step, const std::string& what) const noexcept {
    std::fprintf(stderr, "replay of replica %d, step %s: %s\n", replica(), step.key().c_str(), printable(what, 2000, LineEnds::keep).c_str());
  }
  static std::string count(std::size_t n, const std::string& noun) { return std::to_string(n) + " " + noun + (n == 1 ? "" : "s"); }

  std::string path_;
  Recording recording_;
  std::size_t left_;         // steps still to replay
  std::size_t current_ = 0;  // index into recording_.steps
  std::size_t differing_ = 0;
  std::string first_fault_;
};

}  // namespace replicator::detail
