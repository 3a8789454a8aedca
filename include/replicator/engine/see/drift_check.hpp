// SPDX-License-Identifier: Apache-2.0
// DriftCheck: checks that mirrored variables have the same bits on all devices of all processes, every N steps
// (--check-drift N).
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <replicator/core/content_mark.hpp>
#include <replicator/engine/see/bit_difference.hpp>
#include <replicator/engine/step_listener.hpp>
#include <replicator/job/contribution.hpp>
#include <replicator/job/job.hpp>

namespace replicator::detail {

// A mirrored variable that differs between devices.
struct Drift {
  std::string text;     // variable, element, two devices and their values; the same on every process
  std::string odd;      // the device that differs from most others, with its process; empty if there is no majority
  int odd_process = 0;  // its process
};

class DriftCheck final : public StepListener {
 public:
  // Checks after every `every`th step of each replicated step. Every process of the job makes one, with the same
  // number.
  DriftCheck(std::uint64_t every, transport::Job& job, const Deployment& deployment, const Placement& placement) : every_{every}, job_{job} {
    for (int team = 0; team < placement.teams(); ++team)
      devices_.push_back(deployment.devices[static_cast<std::size_t>(team * placement.devices_per_team())].text());
  }

  void before(const StepMoment&) override {}
  // Throws the same DeviceError on every process, with the first variable that differs and two devices.
  void after(const StepMoment& moment, StepResults&) override {
    if ((moment.number + 1) % every_ != 0) return;
    if (const auto found = find(moment.variables, marks_of_teams(moment.variables), "after step " + std::to_string(moment.number))) throw DeviceError{found->text};
  }
  void failed(const StepMoment&, const std::exception_ptr&) noexcept override {}

  // The names of the mirrored variables, in the order of their marks.
  static std::vector<std::string> mirrored(const VariableStore& variables) {
    auto names = variables.names();
    std::erase_if(names, [&](const std::string& name) { return variables.declaration(name).kind != VariableKind::mirrored; });
    return names;
  }
  // The marks of a team's copies, by variable.
  static std::vector<std::uint64_t> marks_of(const VariableStore& variables, int team) {
    std::vector<std::uint64_t> marks;
    for (const auto& name : mirrored(variables)) marks.push_back(content_mark(variables.value(name, team).bytes()));
    return marks;
  }
  // Collective. The first variable that differs. `when` begins its text. `mine`: the marks of this process's teams.
  std::optional<Drift> find(const VariableStore& variables, std::span<const std::vector<std::uint64_t>> mine, const std::string& when) {
    const auto names = mirrored(variables);
    const auto copies = gather(names, mine);
    for (std::size_t v = 0; v < names.size(); ++v) {
      const auto like = [&](const Copy& copy) {
        return std::count_if(copies.begin(), copies.end(), [&](const Copy& other) { return other.marks[v] == copy.marks[v]; });
      };
      const auto most = std::max_element(copies.begin(), copies.end(), [&](const Copy& a, const Copy& b) { return like(a) < like(b); });
      for (const auto& copy : copies)
        if (copy.marks[v] != most->marks[v]) return drift(variables, when, names[v], *most, copy, 2 * like(*most) > static_cast<std::ptrdiff_t>(copies.size()));
    }
    return std::nullopt;
  }

 private:
  // The marks of one device's values.
  struct Copy {
    int process = 0;
    int team = 0;                      // counted on the process
    std::vector<std::uint64_t> marks;  // by variable
  };

  std::vector<std::vector<std::uint64_t>> marks_of_teams(const VariableStore& variables) const {
    std::vector<std::vector<std::uint64_t>> marks;
    for (std::size_t team = 0; team < devices_.size(); ++team) marks.push_back(marks_of(variables, static_cast<int>(team)));
    return marks;
  }
  // The marks of all devices of all processes, in order.
  std::vector<Copy> gather(const std::vector<std::string>& names, std::span<const std::vector<std::uint64_t>> teams) {
    std::vector<std::uint64_t> mine;
    for (const auto& team : teams) mine.insert(mine.end(), team.begin(), team.end());
    std::vector<Copy> copies;
    static constexpr const char* what = "the check for drift";
    const auto all = job_.exchange(std::as_bytes(std::span{mine}), what);
    for (std::size_t process = 0; process < all.size() && !names.empty(); ++process) {
      transport::require_contribution(all[process].size() % (names.size() * sizeof(std::uint64_t)) == 0, static_cast<int>(process), all[process].size(), what);
      for (std::size_t at = 0; at < all[process].size(); at += names.size() * sizeof(std::uint64_t)) {
        auto& copy = copies.emplace_back();
        copy.process = static_cast<int>(process);
        copy.team = static_cast<int>(at / (names.size() * sizeof(std::uint64_t)));
        copy.marks.resize(names.size());
        std::memcpy(copy.marks.data(), all[process].data() + at, names.size() * sizeof(std::uint64_t));
      }
    }
    return copies;
  }

  // The processes of the two devices send names and values, so that all processes throw the same message.
  Drift drift(const VariableStore& variables, const std::string& when, const std::string& name, const Copy& first, const Copy& other, bool majority) {
    const auto [first_name, first_value] = fetch(variables, name, first);
    const auto [other_name, other_value] = fetch(variables, name, other);
    const auto difference = first_difference(other_value, first_value);
    return {when + " the mirrored variable \"" + name +
                "\" differs between devices: on " + other_name + " element " +
                std::to_string(difference->first) + " is " + difference->a + ", on " + first_name + " " +
                difference->b + "; " + std::to_string(difference->count) + " of " +
                std::to_string(first_value.shape().elements()) +
                " elements differ. All copies are computed alike, so one of them was written by something else, "
                "or memory or processor of one device is faulty: see whether it is always the same device, and "
                "--record a replica there",
            majority ? other_name : std::string{}, other.process};
  }
  std::pair<std::string, AnyArray> fetch(const VariableStore& variables, const std::string& name, const Copy& copy) {
    AnyArray value{variables.declaration(name).type};
    std::vector<std::byte> mine;
    if (copy.process == job_.rank()) {
      const auto bytes = variables.value(name, copy.team).bytes();
      const auto device = std::as_bytes(std::span{devices_[static_cast<std::size_t>(copy.team)]});
      mine.assign(bytes.begin(), bytes.end());
      mine.insert(mine.end(), device.begin(), device.end());
    }
    static constexpr const char* what = "the exchange of a variable that has drifted";
    const auto sent = job_.exchange(mine, what)[static_cast<std::size_t>(copy.process)];
    transport::require_contribution(sent.size() >= value.size_bytes(), copy.process, sent.size(), what);
    std::memcpy(value.data(), sent.data(), value.size_bytes());
    std::string device{reinterpret_cast<const char*>(sent.data()) + value.size_bytes(), sent.size() - value.size_bytes()};
    return {job_.size() > 1 ? device + " of process " + std::to_string(copy.process) : device, std::move(value)};
  }

  std::uint64_t every_;
  transport::Job& job_;
  std::vector<std::string> devices_;  // the first device of each team
};

}  // namespace replicator::detail
