// SPDX-License-Identifier: Apache-2.0
// ReplicaRecorder: records the input, collective results and variables of one replica, for --replay. It works only
// before and after a step, so recording does not change the steps.
#pragma once

#include <cstdio>
#include <cstring>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include <replicator/core/processor.hpp>
#include <replicator/devices/kernel_library_text.hpp>
#include <replicator/engine/fingerprint.hpp>
#include <replicator/engine/replay/recording.hpp>
#include <replicator/engine/step_listener.hpp>
#include <replicator/io/file.hpp>

namespace replicator::detail {

class ReplicaRecorder final : public StepListener {
 public:
  // Null if the replica is on another host. Throws BuildError for a replica that does not exist, and DataError if the
  // file cannot be written.
  static std::shared_ptr<ReplicaRecorder> make(const RecordOptions& options, const Deployment& deployment, const Placement& placement) {
    if (options.replica >= deployment.replicas)
      throw BuildError{"--record asks for replica " + std::to_string(options.replica) + ", but there are " + std::to_string(deployment.replicas) +
                       " replicas: name one from 0 to " + std::to_string(deployment.replicas - 1)};
    if (options.replica < placement.begin() || options.replica >= placement.end()) return nullptr;
    return std::make_shared<ReplicaRecorder>(options, deployment);
  }
  ReplicaRecorder(const RecordOptions& options, const Deployment& deployment) : options_{options} {
    io::require_writable("--record", options_.file);
    recording_.replica = options.replica;
    recording_.replicas = deployment.replicas;
    recording_.seed = deployment.seed;
    recording_.logical_devices = deployment.logical_devices;
    recording_.threads_per_device = deployment.threads_per_device;
    recording_.kernel_choice = deployment.kernel_choice;
    recording_.device_kind = name_of(deployment.devices[0].kind);
    recording_.instruction_set = instruction_set();
    recording_.kernel_library = kernel_library(deployment.devices[0].kind);
    recording_.program = build_digest().text();
  }
  ~ReplicaRecorder() override {
    if (!saved_) save();
  }

  void before(const StepMoment& moment) override {
    if (!options_.steps.contains(moment.number)) return;
    auto& step = begun_.emplace();
    step.ordinal = moment.ordinal;
    step.number = moment.number;
    step.inputs = moment.inputs[moment.local(options_.replica)];
    for_each_variable(moment, [&](const std::string& name, const AnyArray& value) {
      const auto* known = recording_.steps.empty() ? nullptr : recording_.after(recording_.steps.size() - 1, name);
      if (!known || !same_bits(*known, value)) step.before.emplace(name, value);
    });
  }
  void after(const StepMoment& moment, StepResults& results) override {
    if (!begun_) return;
    note_collectives(moment);
    for (std::size_t k = 0; k < results.values.size(); ++k) {
      const auto& values = results.values[k];
      begun_->results.push_back(values[static_cast<std::size_t>(options_.replica - results.first[k])]);
      const bool small = values[0].size_bytes() <= ResultExchange::largest_result;
      if (!moment.programs[0].uniform_result[k] && small) begun_->all_results.emplace(k, stacked(values));
    }
    recording_.steps.push_back(std::move(*begun_));
    begun_.reset();
    for_each_variable(moment, [&](const std::string& name, const AnyArray& value) {
      const auto last = recording_.steps.size() - 1;
      if (!same_bits(*recording_.before(last, name), value)) recording_.steps[last].after.emplace(name, value);
    });
    saved_ = false;
    if (moment.number + 1 == options_.steps.end) save();
  }
  // Records what the replica had received before the failure. The outputs of unfinished collectives are those of an
  // earlier step.
  void failed(const StepMoment& moment, const std::exception_ptr& error) noexcept override {
    if (!begun_) return;
    try {
      note_collectives(moment);
      begun_->error = "unknown";
      std::rethrow_exception(error);
    } catch (const std::exception& failure) {
      begun_->error = failure.what();
    } catch (...) {
    }
    recording_.steps.push_back(std::move(*begun_));
    begun_.reset();
    save();
  }

 private:
  template <class F>
  void for_each_variable(const StepMoment& moment, F f) const {
    for (const auto& variable : moment.source(options_.replica).graph.variables()) f(variable.name, moment.value(variable, options_.replica).read());
  }
  void note_collectives(const StepMoment& moment) {
    const auto& source = moment.source(options_.replica);
    begun_->collectives.resize(source.collective.size());
    moment.for_each_collected(options_.replica, [&](std::uint32_t ordinal, const std::byte* data, const Queue& queue) {
      AnyArray value{source.graph.node(source.collective[ordinal]).outputs[0]};
      queue.enter();
      queue.copy(value.data(), data, value.size_bytes());
      queue.synchronise();
      begun_->collectives[ordinal] = std::move(value);
    });
  }
  static AnyArray stacked(const std::vector<AnyArray>& values) {
    AnyArray result{{values[0].dtype(), Shape{static_cast<std::int64_t>(values.size()), values[0].shape().elements()}}};
    const auto bytes = values[0].size_bytes();
    for (std::size_t r = 0; r < values.size() && bytes > 0; ++r) std::memcpy(result.data() + r * bytes, values[r].data(), bytes);
    return result;
  }
  // Never throws: a recording that cannot be written must not end the run.
  void save() noexcept {
    saved_ = true;
    try {
      save_recording(options_.file, recording_);
    } catch (const std::exception& error) {
      std::fprintf(stderr, "replicator: the recording of replica %d was not written: %s\n", options_.replica, error.what());
    }
  }

  RecordOptions options_;
  Recording recording_;
  std::optional<RecordedStep> begun_;
  bool saved_ = true;
};

}  // namespace replicator::detail
