// SPDX-License-Identifier: Apache-2.0
// HangReport: says what each device of this process waits for, and whether a step waits for the program's input. It is
// written on demand (a signal) and when a wait fails or is late.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <deque>
#include <exception>
#include <map>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <replicator/core/replicas_text.hpp>
#include <replicator/devices/thread_without_signals.hpp>
#include <replicator/engine/input_watch.hpp>
#include <replicator/engine/placement.hpp>
#include <replicator/io/file.hpp>
#include <replicator/job/job.hpp>
#include <replicator/replicate/deployment.hpp>
#include <replicator/replicate/report_signal.hpp>
#include <replicator/runtime/flight_record.hpp>
#include <replicator/runtime/see/instruction_text.hpp>
#include <replicator/runtime/see/trace_ring.hpp>

namespace replicator::detail {

// One object per host. The report goes to stderr; a longer one, with all entries of the rings, goes to the file of
// --hang-report. Thread-safe.
class HangReport {
 public:
  static constexpr std::int64_t long_time = 1'000'000'000;  // nanoseconds at one place
  static constexpr std::size_t shown = 4;                   // collectives of each device that are shown on stderr

  // The report knows this compiled step while the listing lives.
  class Listing {
   public:
    Listing() = default;
    Listing(Listing&& other) noexcept : owner_{std::exchange(other.owner_, nullptr)}, number_{other.number_} {}
    Listing& operator=(Listing&& other) noexcept {
      std::swap(owner_, other.owner_);
      std::swap(number_, other.number_);
      return *this;
    }
    ~Listing() {
      if (!owner_) return;
      const std::lock_guard lock{owner_->mutex_};
      owner_->compiled_.erase(number_);
    }
    // The step's number in flight records.
    std::uint32_t number() const { return number_; }

   private:
    friend class HangReport;
    Listing(HangReport* owner, std::uint32_t number) : owner_{owner}, number_{number} {}
    HangReport* owner_ = nullptr;
    std::uint32_t number_ = 0;
  };

  // All arguments outlive this object. From now on it reports a failure of the job, and answers the signals of
  // report_on_signal.
  HangReport(transport::Job& job, const Placement& placement, const Deployment& deployment, const InputWatch& input)
      : job_{job}, placement_{placement}, input_{input}, file_{deployment.see.hang_report}, devices_{names_of(deployment)}, records_(deployment.devices.size()), hook_{job.on_abort([this] { failed(); })}, signal_{detail::ReportSignal::instance(), [this] { write("a signal asks", text(shown), text(FlightRecord::capacity)); }} {}
  HangReport(const HangReport&) = delete;
  HangReport& operator=(const HangReport&) = delete;
  ~HangReport() {
    hook_ = {};  // waits for a hook that runs, so that nobody starts the writer any more
    if (writer_.joinable()) writer_.join();
  }

  FlightRecord& record(int device) { return records_[static_cast<std::size_t>(device)]; }
  // `resolution` and `programs` outlive the listing.
  Listing list(int ordinal, const Resolution& resolution, std::span<const Program> programs) {
    const std::lock_guard lock{mutex_};
    compiled_.emplace(next_, Compiled{ordinal, &resolution, programs});
    return {this, next_++};
  }

  // Called when a communication failure is about to end the steps. Reports once, and only if a step has waited for input,
  // or a device has been at one place, for at least a second. (Otherwise nothing hung, and the error says enough.) Does
  // not wait for the report to be written.
  void failed() {
    const std::lock_guard lock{mutex_};
    if (writer_.joinable() || !stuck()) return;
    try {
      writer_ = thread_without_signals([this, brief = body(shown), whole = body(FlightRecord::capacity)] { write("a wait has failed", brief, whole); });
    } catch (const DeviceError&) {  // no thread can start; the error that ends the steps matters more
    }
  }
  // Prints where a device stands that has waited for long. The device continues to wait.
  void late(int device) {
    std::string text = "replicator: " + job_.describe(job_.rank()) + " still waits:\n";
    {
      const std::lock_guard lock{mutex_};
      text += line(static_cast<std::size_t>(device));
    }
    const std::lock_guard lock{writing_};
    std::fputs(text.c_str(), stderr);
  }
  // Adds a line to the message of a communication error that has ended a step: the collective at which this process
  // stood. That is the one for which its first waiting device waits. If no device waits, it is the oldest one under way
  // beside kernels. The first line of the message is the same on all processes. Returns `what` unchanged if there is no
  // such collective, or if `what` already names it.
  std::string with_place(const std::string& what) const {
    const std::lock_guard lock{mutex_};
    for (const auto place : {&HangReport::waiting_text, &HangReport::under_way_text})
      for (std::size_t device = 0; device < records_.size(); ++device) {
        const auto [collective, progress] = (this->*place)(device);
        if (collective.empty()) continue;
        if (what.find(collective) != std::string::npos) return what;
        return what + "\n" + devices_[device] + " of " + job_.describe(job_.rank()) + progress;
      }
    return what;
  }
  // A line for an input that is awaited, and one for each device with at most so many of its last collectives.
  std::string text(std::size_t collectives) const {
    const std::lock_guard lock{mutex_};
    return body(collectives);
  }

 private:
  struct Compiled {
    int ordinal;
    const Resolution* resolution;
    std::span<const Program> programs;
  };

  static std::vector<std::string> names_of(const Deployment& deployment) {
    std::vector<std::string> names;
    for (const auto& device : deployment.devices) names.push_back(device.text());
    return names;
  }
  bool stuck() const {
    if (const auto input = input_.awaited(); input && trace_clock() - input->since >= long_time) return true;
    for (const auto& record : records_) {
      const auto at = record.position();
      const auto since = at.waits_since ? at.waits_since : at.began;
      if (at.compiled != FlightRecord::nothing && trace_clock() - since >= long_time) return true;
    }
    return false;
  }
  // Null if the step is gone.
  const Compiled* find(std::uint32_t number) const {
    const auto found = compiled_.find(number);
    return found == compiled_.end() ? nullptr : &found->second;
  }
  static std::string ago(std::int64_t time) {
    char text[32];
    std::snprintf(text, sizeof text, "%.1f s", static_cast<double>(trace_clock() - time) * 1e-9);
    return text;
  }

  std::string body(std::size_t collectives) const {
    std::string text;
    if (const auto input = input_.awaited()) text += "  the program's input: since " + ago(input->since) + " the step waits for " + input->what + "\n";
    for (std::size_t device = 0; device < records_.size(); ++device) text += line(device) + last_text(device, collectives);
    return text;
  }
  std::string line(std::size_t device) const {
    const int team = placement_.team_of(static_cast<int>(device));
    const int first = placement_.begin() + placement_.first_replica(team);
    return "  " + devices_[device] + ", " + replicas_text(first, first + placement_.replicas(team) - 1) + ": " + place_text(device) + "\n";
  }
  std::string place_text(std::size_t device) const {
    const auto at = records_[device].position();
    if (at.compiled == FlightRecord::nothing) return "it has begun no step";
    const auto* compiled = find(at.compiled);
    std::string text = "step " + std::to_string(at.step);
    if (compiled && compiled->ordinal > 0) text += " of replicated step " + std::to_string(compiled->ordinal);
    text += ", begun " + ago(at.began) + " ago";
    if (at.instruction == FlightRecord::nothing) return text + ": done; the device is between steps";
    if (!compiled) return text;
    const auto& program = compiled->programs[device];
    const auto& instruction = program.code[at.instruction];
    if (!at.waits_since) return text + ": it is at " + instruction_text(*compiled->resolution, program, instruction);
    return text + ": since " + ago(at.waits_since) + " it waits for " + awaited_text(at, program, instruction);
  }
  // A collective and a text about its progress; empty if there is none.
  struct Position {
    std::string collective, progress;
  };
  Position waiting_text(std::size_t device) const {
    const auto at = records_[device].position();
    const auto* compiled = find(at.compiled);
    if (!compiled || at.instruction == FlightRecord::nothing || !at.waits_since) return {};
    const auto& program = compiled->programs[device];
    const auto& instruction = program.code[at.instruction];
    if (instruction.kind != Instruction::Kind::wait) return {};
    return {program.collectives[instruction.collective].text, " waited for " + awaited_text(at, program, instruction)};
  }
  Position under_way_text(std::size_t device) const {
    for (const auto& entry : records_[device].last()) {
      const auto* compiled = entry.finished ? nullptr : find(entry.compiled);
      if (!compiled) continue;
      const auto& text = compiled->programs[device].collectives[entry.collective].text;
      return {text, " computed, with " + text + " under way"};
    }
    return {};
  }
  std::string awaited_text(const FlightRecord::Position& at, const Program& program, const Instruction& instruction) const {
    if (instruction.kind == Instruction::Kind::wait)
      return program.collectives[instruction.collective].text + missing_text(at);
    if (instruction.kind != Instruction::Kind::take) return "the device to do what it was given";
    return program.handoffs->text(instruction.place) + ", from device " + std::to_string(program.handoffs->device_of(instruction.place)) +
           " of its replicas";
  }
  static std::string instruction_text(const Resolution& resolution, const Program& program, const Instruction& instruction) {
    std::string text = text_of(resolution, program, instruction);
    const bool computes = instruction.kind == Instruction::Kind::run || instruction.kind == Instruction::Kind::fold;
    if (const auto* node = computes ? node_of(resolution, instruction) : nullptr) text += " at " + node->where.text();
    if (instruction.replica >= 0) text += " for replica " + std::to_string(instruction.replica);
    return text;
  }
  // The rank, process and replicas for which a collective waits.
  std::string missing_text(const FlightRecord::Position& at) const {
    if (at.missing < 0) return "";
    const auto& blocks = placement_.blocks();
    std::string text = " (" + std::to_string(at.moved_bytes) + " bytes have moved), that is for " +
                       replicas_text(blocks.begin(at.missing), blocks.end(at.missing) - 1) + " on rank " + std::to_string(at.missing);
    if (const int process = placement_.process_of(at.missing); process >= 0)
      text += " of " + (process == job_.rank() ? std::string{"this process"} : job_.describe(process));
    return text;
  }
  std::string last_text(std::size_t device, std::size_t collectives) const {
    const auto entries = records_[device].last();
    if (entries.empty()) return "";
    std::string text = "    its last collectives, oldest first:\n";
    for (std::size_t i = entries.size() - std::min(entries.size(), collectives); i < entries.size(); ++i) {
      const auto& entry = entries[i];
      const auto* compiled = find(entry.compiled);
      text += "      #" + std::to_string(entry.number) + " in step " + std::to_string(entry.step) + ": " +
              (compiled ? compiled->programs[device].collectives[entry.collective].text : "one of a step that is gone") +
              (entry.finished ? "\n" : ", under way\n");
    }
    return text;
  }

  void write(std::string_view why, const std::string& brief, const std::string& whole) {
    const std::string head = "replicator: where " + job_.describe(job_.rank()) + " stands (" + std::string{why} + ")\n";
    const std::lock_guard lock{writing_};
    std::fputs((head + brief).c_str(), stderr);
    if (file_.empty()) return;
    try {
      const bool alone = job_.size() == 1 || io::written_in_place(file_);
      io::FileReplacement file{alone ? file_ : file_ + ".process" + std::to_string(job_.rank())};
      const auto text = head + whole;
      file.write(std::as_bytes(std::span{text}));
      file.commit();
    } catch (const std::exception& error) {
      std::fprintf(stderr, "replicator: the report was not written: %s\n", error.what());
    }
  }

  transport::Job& job_;
  const Placement& placement_;
  const InputWatch& input_;
  std::string file_;
  std::vector<std::string> devices_;
  std::deque<FlightRecord> records_;  // by device; entries must not move

  mutable std::mutex mutex_;  // guards the next members; code that holds it calls no other object
  std::map<std::uint32_t, Compiled> compiled_;
  std::uint32_t next_ = 0;
  std::thread writer_;  // writes the one report of a failure

  std::mutex writing_;
  transport::Job::Hook hook_;
  detail::ReportSignal::Entry signal_;  // destroyed first, so that no signal calls back later
};

}  // namespace replicator::detail
