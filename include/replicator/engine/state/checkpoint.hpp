// SPDX-License-Identifier: Apache-2.0
// Checkpoint: the state of an experiment between two steps, and the file that holds it: docs/checkpoints.md. It is a
// safetensors file. Its tensors are the variables under their names; replica-local ones are stacked over the replicas
// in a first dimension. Everything else is in the metadata, with a SHA-256 over the whole content. Processes hand over
// the bytes of such a file to each other (snapshot.hpp).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <replicator/core/parse.hpp>
#include <replicator/core/sha256.hpp>
#include <replicator/graph/variable.hpp>
#include <replicator/io/safetensors_file.hpp>

namespace replicator::detail {

// A replicated step. Its key is the number of the replicate() call that built it.
struct CheckpointedStep {
  std::uint64_t done = 0;         // steps done, which is also the position of each replica's input
  bool finished = false;          // the input of some replica has ended
  std::uint64_t collectives = 0;  // collectives of one step
  // After how many steps the program left a loop early and went on to other steps, ascending. Copies share it: a job that goes
  // back to a snapshot repeats its steps, not the program.
  std::shared_ptr<std::vector<std::uint64_t>> breaks = std::make_shared<std::vector<std::uint64_t>>();
};

struct CheckpointedVariable {
  VariableKind kind = VariableKind::mirrored;
  std::set<int> steps;  // the steps that declare it
};

struct Checkpoint {
  std::map<std::string, std::string> experiment;  // replicas, seed and all other settings that decide the bits
  int next_ordinal = 0;                           // replicate() calls so far
  std::map<int, CheckpointedStep> steps;          // by ordinal
  std::map<std::string, CheckpointedVariable> variables;
  std::map<std::string, AnyArray> values;       // as read from a file
  std::map<std::string, std::string> moment{};  // further facts for a handover: snapshot.hpp; empty in a file

  // The number of steps done, over all replicated steps.
  std::uint64_t total() const {
    std::uint64_t sum = 0;
    for (const auto& [ordinal, step] : steps) sum += step.done;
    return sum;
  }
};

// The type of a variable in the file. A tensor that already has the most dimensions gets no new one: its first
// dimension grows by the number of replicas.
inline TensorType checkpointed_type(const TensorType& type, VariableKind kind, int replicas) {
  if (kind == VariableKind::mirrored) return type;
  TensorType result{type.dtype, {}};
  if (type.shape.rank() < Shape::max_rank) result.shape.push_back(replicas);
  for (const auto extent : type.shape) result.shape.push_back(extent);
  if (type.shape.rank() == Shape::max_rank) result.shape[0] *= replicas;
  return result;
}

inline constexpr std::string_view checkpoint_format = "replicator checkpoint 1";

// SHA-256 over all metadata except the sum itself, and over all tensors in the order of names.
inline std::string checksum(const std::map<std::string, std::string>& metadata, std::vector<io::NamedTensor> tensors) {
  Sha256 hash;
  const auto text = [&](std::string_view value) { hash.update(std::to_string(value.size()) + " " + std::string{value}); };
  for (const auto& [key, value] : metadata)
    if (key != "sha256") text(key), text(value);
  std::sort(tensors.begin(), tensors.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
  for (const auto& tensor : tensors) {
    text(tensor.name), text(tensor.type.text());
    hash.update(std::span{tensor.data, tensor.type.bytes()});
  }
  return hash.text();
}

// "0 1 5"
inline std::string text_of(const std::set<int>& numbers) {
  std::string text;
  for (const int number : numbers) text += (text.empty() ? "" : " ") + std::to_string(number);
  return text;
}

template <class T>
T checkpoint_number(const std::string& path, std::string_view digits) {
  if (const auto value = whole_number<T>(digits)) return *value;
  throw DataError{path + " is no checkpoint: \"" + std::string{digits} + "\" is no number, or one that is too large"};
}

// Reads the words of a metadata text, front to back. `path`: the file's name, for errors.
class CheckpointWords {
 public:
  CheckpointWords(const std::string& path, std::string_view text) : path_{path}, rest_{text} {}

  std::string_view next() {
    const auto word = rest_.substr(0, rest_.find(' '));
    rest_.remove_prefix(std::min(word.size() + 1, rest_.size()));
    return word;
  }
  template <class T>
  T number() {
    return checkpoint_number<T>(path_, next());
  }
  bool more() const { return !rest_.empty(); }
  // All remaining numbers.
  std::set<int> numbers() {
    std::set<int> result;
    while (!rest_.empty()) result.insert(number<int>());
    return result;
  }

 private:
  const std::string& path_;
  std::string_view rest_;
};

class CheckpointReader {
 public:
  CheckpointReader(const std::string& path, io::Safetensors file) : path_{path}, file_{std::move(file)} {}

  Checkpoint read() && {
    if (text("format") != checkpoint_format)
      throw DataError{path_ + ": \"" + text("format") + "\" was written by another version of replicator, this one reads \"" +
                      std::string{checkpoint_format} + "\""};
    std::vector<io::NamedTensor> tensors;
    for (const auto& [name, value] : file_.tensors) tensors.push_back({name, value.type(), value.data()});
    if (const auto sum = checksum(file_.metadata, std::move(tensors)); sum != text("sha256"))
      throw DataError{path_ + " is damaged: its content has the SHA-256 " + sum + ", and was written with " + text("sha256")};
    Checkpoint result;
    result.next_ordinal = number(text("next"));
    for (const auto& [key, value] : file_.metadata) {
      if (key.starts_with("experiment ")) result.experiment[key.substr(11)] = value;
      if (key.starts_with("step ")) result.steps[number(std::string_view{key}.substr(5))] = step(value);
      if (key.starts_with("variable ")) result.variables[key.substr(9)] = variable(value);
      if (key.starts_with("moment ")) result.moment[key.substr(7)] = value;
    }
    result.values = std::move(file_.tensors);
    return result;
  }

 private:
  // The checksum was correct, so an error here means that the writer was wrong.
  std::string text(const std::string& key) const {
    const auto found = file_.metadata.find(key);
    if (found == file_.metadata.end()) throw DataError{path_ + " is no checkpoint: its metadata lacks \"" + key + "\""};
    return found->second;
  }
  int number(std::string_view digits) const { return checkpoint_number<int>(path_, digits); }
  CheckpointedStep step(std::string_view text) const {
    CheckpointWords words{path_, text};
    CheckpointedStep result;
    result.done = words.number<std::uint64_t>();
    result.collectives = words.number<std::uint64_t>();
    auto word = words.next();
    result.finished = word == "finished";
    if (result.finished) word = words.next();
    if (word != "left") return result;
    for (std::uint64_t before = 0; words.more(); before = result.breaks->back()) {
      result.breaks->push_back(words.number<std::uint64_t>());
      if (result.breaks->back() <= before || result.breaks->back() > result.done)
        throw DataError{path_ + " is no checkpoint: a loop of " + std::to_string(result.done) + " steps cannot have been left after " +
                        std::to_string(result.breaks->back()) + ", the time before after " + std::to_string(before)};
    }
    return result;
  }
  CheckpointedVariable variable(std::string_view text) const {
    CheckpointWords words{path_, text};
    CheckpointedVariable result;
    result.kind = words.next() == name_of(VariableKind::mirrored) ? VariableKind::mirrored : VariableKind::replica_local;
    result.steps = words.numbers();
    return result;
  }

  const std::string& path_;
  io::Safetensors file_;
};

// `tensors`: the values of the checkpoint's variables.
inline std::map<std::string, std::string> metadata_of(const Checkpoint& checkpoint, const std::vector<io::NamedTensor>& tensors) {
  std::map<std::string, std::string> metadata{{"format", std::string{detail::checkpoint_format}}, {"next", std::to_string(checkpoint.next_ordinal)}};
  for (const auto& [key, value] : checkpoint.experiment) metadata["experiment " + key] = value;
  for (const auto& [ordinal, step] : checkpoint.steps) {
    auto& text = metadata["step " + std::to_string(ordinal)] =
        std::to_string(step.done) + " " + std::to_string(step.collectives) + (step.finished ? " finished" : "");
    if (!step.breaks->empty()) text += " left";
    for (const auto after : *step.breaks) text += " " + std::to_string(after);
  }
  for (const auto& [name, variable] : checkpoint.variables) {
    auto& text = metadata["variable " + name] = name_of(variable.kind);
    if (!variable.steps.empty()) text += " " + text_of(variable.steps);
  }
  for (const auto& [key, value] : checkpoint.moment) metadata["moment " + key] = value;
  metadata["sha256"] = checksum(metadata, tensors);
  return metadata;
}

// Writes a temporary file beside `path`, flushes it to the disk and renames it. `tensors`: the values of the variables.
// Throws DataError with the file's name.
template <class = void>
void write_checkpoint(const std::string& path, const Checkpoint& checkpoint, std::vector<io::NamedTensor> tensors) {
  const auto metadata = metadata_of(checkpoint, tensors);
  io::write_safetensors(path, std::move(tensors), metadata);
}
// The bytes that write_checkpoint() would write.
template <class = void>
std::vector<std::byte> checkpoint_bytes(const Checkpoint& checkpoint, std::vector<io::NamedTensor> tensors) {
  const auto metadata = metadata_of(checkpoint, tensors);
  return io::safetensors_bytes("a checkpoint in memory", std::move(tensors), metadata);
}

// Throws DataError with the file's name if it is missing, damaged, or not a checkpoint.
template <class = void>
Checkpoint read_checkpoint(const std::string& path) {
  return CheckpointReader{path, io::read_safetensors(path)}.read();
}
// Reads the bytes of such a file. Errors call them `name`.
template <class = void>
Checkpoint read_checkpoint(const std::string& name, std::span<const std::byte> bytes) {
  return CheckpointReader{name, io::read_safetensors(name, bytes)}.read();
}

}  // namespace replicator::detail
