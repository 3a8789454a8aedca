// SPDX-License-Identifier: Apache-2.0
// Recording: the content of a file that --record writes and --replay reads. It holds the input, collective results,
// variables and results of one replica in some steps. The file is in safetensors format. Step 100 of the Replicator's
// first step has these tensors:
//
//   step100/input0 ...         its input element                 step100/before/NAME   variables before the step
//   step100/collective0 ...    what each collective gave it      step100/after/NAME    and after it
//   step100/result0 ...        its results                       step100/all_results0  those of all replicas, where they are small
//
// Step 100 of its second step has the prefix step100.1/. A variable is written only if its bits have changed since it
// was last written.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <replicator/core/parse.hpp>
#include <replicator/devices/kernel_choice.hpp>
#include <replicator/io/safetensors_file.hpp>

namespace replicator::detail {

using NamedArrays = std::map<std::string, AnyArray>;

inline bool same_bits(const AnyArray& a, const AnyArray& b) {
  return a.type() == b.type() && (a.size_bytes() == 0 || std::memcmp(a.data(), b.data(), a.size_bytes()) == 0);
}

struct RecordedStep {
  int ordinal = 0;           // the number of the step in its Replicator
  std::uint64_t number = 0;  // how many steps it had done before
  std::vector<AnyArray> inputs;
  std::vector<AnyArray> collectives;
  std::vector<AnyArray> results;                // of the replica
  std::map<std::size_t, AnyArray> all_results;  // results that are complete for all replicas: [replicas, elements]
  NamedArrays before, after;                    // only variables that have changed since they were last recorded
  std::string error;                            // the error of a failed step, which has no results

  // "100", "100.1"
  std::string key() const { return std::to_string(number) + (ordinal == 0 ? "" : "." + std::to_string(ordinal)); }
};

struct Recording {
  int replica = 0, replicas = 1;
  std::uint64_t seed = 0;
  int logical_devices = 1, threads_per_device = 1;
  KernelChoice kernel_choice;
  std::string device_kind, instruction_set, kernel_library, program;  // the machine and program of the recording
  std::vector<RecordedStep> steps;                                    // in execution order

  // The value of a variable before or after steps[step]; null if it was not recorded.
  const AnyArray* before(std::size_t step, const std::string& name) const {
    if (const auto* known = find(steps[step].before, name)) return known;
    return step == 0 ? nullptr : after(step - 1, name);
  }
  const AnyArray* after(std::size_t step, const std::string& name) const {
    const auto* known = find(steps[step].after, name);
    return known ? known : before(step, name);
  }

 private:
  static const AnyArray* find(const NamedArrays& arrays, const std::string& name) {
    const auto found = arrays.find(name);
    return found == arrays.end() ? nullptr : &found->second;
  }
};

inline constexpr std::string_view recording_format = "replicator recording 1";

// "step100/input0"
inline void name_numbered(std::vector<io::NamedTensor>& tensors, const std::string& prefix, const std::vector<AnyArray>& arrays) {
  for (std::size_t i = 0; i < arrays.size(); ++i) tensors.push_back({prefix + std::to_string(i), arrays[i].type(), arrays[i].data()});
}
inline void name_all(std::vector<io::NamedTensor>& tensors, const std::string& prefix, const NamedArrays& arrays) {
  for (const auto& [name, array] : arrays) tensors.push_back({prefix + name, array.type(), array.data()});
}

class RecordingReader {
  // Far above any real number: a larger value means that the file is damaged.
  static constexpr int most_replicas = 1'000'000, most_devices = 10'000;

 public:
  explicit RecordingReader(const std::string& path) : path_{path}, file_{io::read_safetensors(path)} {}

  Recording read() && {
    if (!text("format").starts_with(recording_format.substr(0, recording_format.rfind(' '))))
      throw DataError{path_ + ": it was not written by --record: its format is \"" + text("format") + "\""};
    if (text("format") != recording_format)
      throw DataError{path_ + ": \"" + text("format") + "\" was recorded by another version of replicator, this one reads \"" + std::string{recording_format} + "\""};
    Recording result;
    result.replicas = number<int>("replicas", 1, most_replicas);
    result.replica = number<int>("replica", 0, result.replicas - 1);
    result.seed = number<std::uint64_t>("seed");
    result.logical_devices = number<int>("logical_devices", 1, most_devices);
    result.threads_per_device = number<int>("threads_per_device", 1, most_devices);
    if (file_.metadata.contains("kernel_choice")) result.kernel_choice = KernelChoice::from(text("kernel_choice"));
    result.device_kind = text("device_kind");
    result.instruction_set = text("instruction_set");
    result.kernel_library = text("kernel_library");
    result.program = text("program");
    result.steps = steps();
    if (!file_.tensors.empty()) throw DataError{path_ + ": its tensor \"" + file_.tensors.begin()->first + "\" belongs to none of its steps"};
    return result;
  }

 private:
  std::string text(const std::string& key) const {
    const auto found = file_.metadata.find(key);
    if (found == file_.metadata.end()) throw DataError{path_ + ": it was not written by --record: its metadata lacks \"" + key + "\""};
    return found->second;
  }
  template <class T>
  T number(const std::string& key, T lowest = 0, T highest = std::numeric_limits<T>::max()) const {
    const auto digits = text(key);
    if (const auto value = whole_number(digits, lowest, highest)) return *value;
    throw DataError{path_ + ": its \"" + key + "\" is \"" + digits + "\": it must be a whole number from " + std::to_string(lowest) + " to " + std::to_string(highest)};
  }

  // Parses "100 101 101.1". The numbers of each step of the Replicator must ascend.
  std::vector<RecordedStep> steps() {
    std::vector<RecordedStep> result;
    std::map<int, std::uint64_t> last;
    const auto keys = text("steps");
    for (std::size_t at = 0; at < keys.size();) {
      const auto key = keys.substr(at, keys.find(' ', at) - at);
      const auto refuse = [&](const std::string& what) {
        return DataError{path_ + ": its \"steps\" has \"" + key + "\" at byte " + std::to_string(at) + ": " + what};
      };
      auto& read = result.emplace_back();
      const auto point = key.find('.');
      const auto number = whole_number<std::uint64_t>(std::string_view{key}.substr(0, point));
      const auto ordinal = point == std::string::npos ? std::optional{0} : whole_number(std::string_view{key}.substr(point + 1), 1);
      read.number = number.value_or(0);
      read.ordinal = ordinal.value_or(0);
      if (!number || !ordinal || read.key() != key) throw refuse("a step is a whole number, or two with a point between them");
      if (const auto [before, fresh] = last.emplace(*ordinal, *number); !fresh && std::exchange(before->second, *number) >= *number)
        throw refuse("the steps before it are later, or the same");
      fill(read);
      at += key.size() + 1;
    }
    if (result.empty()) throw DataError{path_ + ": no step was recorded in it"};
    return result;
  }

  void fill(RecordedStep& step) {
    const auto prefix = "step" + step.key() + "/";
    step.inputs = numbered(prefix + "input");
    step.collectives = numbered(prefix + "collective");
    step.results = numbered(prefix + "result");
    for (std::size_t k = 0; k < step.results.size(); ++k)
      if (auto node = file_.tensors.extract(prefix + "all_results" + std::to_string(k))) step.all_results.emplace(k, std::move(node.mapped()));
    step.before = named(prefix + "before/");
    step.after = named(prefix + "after/");
    if (const auto error = file_.metadata.find("error " + step.key()); error != file_.metadata.end()) step.error = error->second;
  }
  std::vector<AnyArray> numbered(const std::string& prefix) {
    std::vector<AnyArray> result;
    while (auto node = file_.tensors.extract(prefix + std::to_string(result.size()))) result.push_back(std::move(node.mapped()));
    return result;
  }
  NamedArrays named(const std::string& prefix) {
    NamedArrays result;
    for (auto at = file_.tensors.lower_bound(prefix); at != file_.tensors.end() && at->first.starts_with(prefix); at = file_.tensors.erase(at))
      result.emplace(at->first.substr(prefix.size()), std::move(at->second));
    return result;
  }

  const std::string& path_;
  io::Safetensors file_;
};

// Replaces the whole file. Throws DataError with its name.
template <class = void>
void save_recording(const std::string& path, const Recording& recording) {
  std::vector<io::NamedTensor> tensors;
  std::map<std::string, std::string> metadata{{"format", std::string{detail::recording_format}},
                                              {"replica", std::to_string(recording.replica)},
                                              {"replicas", std::to_string(recording.replicas)},
                                              {"seed", std::to_string(recording.seed)},
                                              {"logical_devices", std::to_string(recording.logical_devices)},
                                              {"threads_per_device", std::to_string(recording.threads_per_device)},
                                              {"kernel_choice", recording.kernel_choice.text()},
                                              {"device_kind", recording.device_kind},
                                              {"instruction_set", recording.instruction_set},
                                              {"kernel_library", recording.kernel_library},
                                              {"program", recording.program}};
  std::string keys;
  for (const auto& step : recording.steps) {
    keys += (keys.empty() ? "" : " ") + step.key();
    const auto prefix = "step" + step.key() + "/";
    detail::name_numbered(tensors, prefix + "input", step.inputs);
    detail::name_numbered(tensors, prefix + "collective", step.collectives);
    detail::name_numbered(tensors, prefix + "result", step.results);
    for (const auto& [k, array] : step.all_results) tensors.push_back({prefix + "all_results" + std::to_string(k), array.type(), array.data()});
    detail::name_all(tensors, prefix + "before/", step.before);
    detail::name_all(tensors, prefix + "after/", step.after);
    if (!step.error.empty()) metadata["error " + step.key()] = step.error;
  }
  metadata["steps"] = keys;
  io::write_safetensors(path, std::move(tensors), metadata);
}

// Throws DataError with the file's name if it is missing, damaged, or not a recording.
template <class = void>
Recording load_recording(const std::string& path) { return detail::RecordingReader{path}.read(); }

}  // namespace replicator::detail
