// SPDX-License-Identifier: Apache-2.0
// HostSets: the values that the program has set since the last step, by Replicator::set. All processes of a job must set
// the same values of mirrored variables.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <replicator/core/array.hpp>
#include <replicator/core/error.hpp>
#include <replicator/core/hash.hpp>
#include <replicator/core/location.hpp>
#include <replicator/engine/fingerprint.hpp>
#include <replicator/job/job.hpp>

namespace replicator::detail {

// A word about the sets travels in each step's exchange of results. Only if the words differ, the processes exchange
// names and lines.
class HostSets {
 public:
  // The latest value of a variable counts.
  void add(const std::string& name, const AnyArray& value, Location where) {
    Hasher hasher;
    hasher.bytes(value.bytes());
    latest_[name] = {hasher.result(), where};
  }
  // Equal on all processes if they have set equal values; 0 if nothing was set.
  std::uint32_t word() const {
    if (latest_.empty()) return 0;
    Hasher hasher;
    for (const auto& [name, set] : latest_) {
      hasher.text(name);
      hasher.digest(set.bits);
    }
    return static_cast<std::uint32_t>(hasher.result().low) | 1;
  }
  // "set at train.cpp:40", or nothing for a variable that was not set.
  std::string where(const std::string& name) const {
    const auto found = latest_.find(name);
    return found == latest_.end() ? std::string{} : "set at " + found->second.where.text();
  }
  void clear() { latest_.clear(); }

  // Collective. `before`: what the program asked for next. Throws the same BuildError on every process if they have set
  // different values.
  void compare(transport::Job& job, const std::string& before) const {
    if (job.size() == 1) return;
    Fingerprint mine;
    for (const auto& [name, set] : latest_) mine.push_back({name, set.bits.text(), set.where.text(), {}});
    const auto all = job.exchange(detail::pack(mine), before);
    const auto first = by_name(detail::unpack(all[0], 0));
    for (int process = 1; process < job.size(); ++process) {
      auto theirs = by_name(detail::unpack(all[static_cast<std::size_t>(process)], process));
      for (const auto& [name, set] : first) require_same(job, process, name, theirs[name], set, before);
      for (const auto& [name, set] : theirs)
        if (!first.contains(name)) require_same(job, process, name, set, {}, before);
    }
  }

 private:
  struct Set {
    Digest bits;
    Location where;
  };

  static std::map<std::string, FingerprintField> by_name(Fingerprint fields) {
    std::map<std::string, FingerprintField> result;
    for (auto& field : fields) result[field.name] = std::move(field);
    return result;
  }
  // A field without a value: the process has not set the variable.
  static void require_same(const transport::Job& job, int process, const std::string& name, const FingerprintField& theirs, const FingerprintField& first,
                           const std::string& before) {
    if (theirs.value == first.value) return;
    const auto text = [&](int who, const FingerprintField& field, const char* what) {
      return job.describe(who) + (field.value.empty() ? " has not set it" : std::string{" has set it "} + what + "at " + field.where);
    };
    throw BuildError{"the processes of this job differ in the mirrored variable \"" + name + "\", which the program sets before " + before + ": " +
                     text(process, theirs, "") + ", " + text(0, first, theirs.value.empty() ? "" : "to another value ") +
                     ": all processes must set the same value, so call set() on each of them with equal bits, or load_weights() with the same file"};
  }

  std::map<std::string, Set> latest_;  // by variable
};

}  // namespace replicator::detail
