// SPDX-License-Identifier: Apache-2.0
// DriftCheck: checks that mirrored variables have the same bits on all devices of all processes, every N steps
// (--check-drift N).
#pragma once

#include <algorithm>
#include <cstring>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <replicator/core/hash.hpp>
#include <replicator/engine/see/bit_difference.hpp>
#include <replicator/engine/step_listener.hpp>
#include <replicator/job/contribution.hpp>
#include <replicator/job/job.hpp>

namespace replicator::detail {

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
    const auto names = mirrored(moment.variables);
    const auto copies = gather(names, moment.variables);
    for (std::size_t v = 0; v < names.size(); ++v)
      for (const auto& copy : copies)
        if (copy.digests[v] != copies[0].digests[v]) throw drift(moment, names[v], copies[0], copy);
  }
  void failed(const StepMoment&, const std::exception_ptr&) noexcept override {}

 private:
  // The digests of one device.
  struct Copy {
    int process = 0;
    int team = 0;                 // counted on the process
    std::vector<Digest> digests;  // by variable
  };

  static std::vector<std::string> mirrored(const VariableStore& variables) {
    auto names = variables.names();
    std::erase_if(names, [&](const std::string& name) { return variables.declaration(name).kind != VariableKind::mirrored; });
    return names;
  }
  // The digests of all devices of all processes, in order.
  std::vector<Copy> gather(const std::vector<std::string>& names, const VariableStore& variables) {
    std::vector<Digest> mine;
    for (int team = 0; team < static_cast<int>(devices_.size()); ++team)
      for (const auto& name : names) {
        Hasher hasher;
        hasher.bytes(variables.value(name, team).bytes());
        mine.push_back(hasher.result());
      }
    std::vector<Copy> copies;
    static constexpr const char* what = "the check for drift";
    const auto all = job_.exchange(std::as_bytes(std::span{mine}), what);
    for (std::size_t process = 0; process < all.size() && !names.empty(); ++process) {
      transport::require_contribution(all[process].size() % (names.size() * sizeof(Digest)) == 0, static_cast<int>(process), all[process].size(), what);
      for (std::size_t at = 0; at < all[process].size(); at += names.size() * sizeof(Digest)) {
        auto& copy = copies.emplace_back();
        copy.process = static_cast<int>(process);
        copy.team = static_cast<int>(at / (names.size() * sizeof(Digest)));
        copy.digests.resize(names.size());
        std::memcpy(copy.digests.data(), all[process].data() + at, names.size() * sizeof(Digest));
      }
    }
    return copies;
  }

  // The processes of the two devices send names and values, so that all processes throw the same message.
  DeviceError drift(const StepMoment& moment, const std::string& name, const Copy& first, const Copy& other) {
    const auto [first_name, first_value] = fetch(moment.variables, name, first);
    const auto [other_name, other_value] = fetch(moment.variables, name, other);
    const auto difference = first_difference(other_value, first_value);
    return DeviceError{"after step " + std::to_string(moment.number) + " the mirrored variable \"" + name +
                       "\" differs between devices: on " + other_name + " element " +
                       std::to_string(difference->first) + " is " + difference->a + ", on " + first_name + " " +
                       difference->b + "; " + std::to_string(difference->count) + " of " +
                       std::to_string(first_value.shape().elements()) +
                       " elements differ. All copies are computed alike, so one of them was written by something else, "
                       "or memory or processor of one device is faulty: see whether it is always the same device, and "
                       "--record a replica there"};
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
