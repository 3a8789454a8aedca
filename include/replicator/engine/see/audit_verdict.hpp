// SPDX-License-Identifier: Apache-2.0
// The verdict of an audited step: which of the devices that computed different bits is faulty.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <replicator/job/contribution.hpp>
#include <replicator/job/job.hpp>

namespace replicator::detail {

// The first difference between the two computations of one device's work.
struct Difference {
  std::string what;                                       // "matmul#17 at train.cpp:31 of replica 3"
  bool own = true;                                        // false: a value that came from other devices differed first
  int original = 0, second = 0;                           // the devices that computed it
  bool original_repeats = false, second_repeats = false;  // they gave the same bits when the step was repeated
};

// What one process has found.
struct Finding {
  enum Severity : std::uint8_t {
    none,      // no difference
    received,  // only values that came from other devices differ
    computed,  // a device's own work differs
  };
  Severity severity = none;
  bool decided = false;  // the text names one faulty device, which belongs to the process that has found it
  std::string text;
};

struct Accusation {
  std::string text;
  int process = -1;  // that of the faulty device; -1: unknown
};

// `names`: of the process's devices. A difference in values from other devices counts only if there is no other one: it
// may be the consequence of a fault elsewhere. `alone`: no other process takes part.
inline Finding judge(std::span<const Difference> differences, std::span<const std::string> names, std::uint64_t step, bool alone) {
  Finding result;
  const auto own = std::any_of(differences.begin(), differences.end(), [](const Difference& each) { return each.own; });
  std::vector<Difference> counted;
  for (const auto& each : differences)
    if (each.own == own) counted.push_back(each);
  if (counted.empty()) return result;
  result.severity = own ? Finding::computed : Finding::received;
  const auto name = [&](int device) { return names[static_cast<std::size_t>(device)]; };
  // A device that does not repeat its own bits.
  const auto unsteady = [](const Difference& each) {
    if (each.original == each.second) return each.original;
    return each.original_repeats == each.second_repeats ? -1 : each.original_repeats ? each.second : each.original;
  };
  // Else the only device that takes part in all of several differences.
  const auto common = [&] {
    if (counted.size() < 2) return -1;
    const auto in_all = [&](int device) {
      return std::all_of(counted.begin(), counted.end(), [&](const Difference& each) { return each.original == device || each.second == device; });
    };
    const bool first = in_all(counted[0].original), second = in_all(counted[0].second);
    return first == second ? -1 : first ? counted[0].original : counted[0].second;
  };
  const auto decisive = std::find_if(counted.begin(), counted.end(), [&](const Difference& each) { return unsteady(each) >= 0; });
  const auto& shown = decisive == counted.end() ? counted[0] : *decisive;
  const int faulty = decisive == counted.end() ? common() : unsteady(shown);
  result.decided = faulty >= 0 && (own || (alone && counted.size() == 1));
  const int other = shown.original == faulty ? shown.second : shown.original;
  result.text = "step " + std::to_string(step) + ", which was computed twice: " + shown.what + " has ";
  if (shown.original == shown.second) result.text += "changed in the memory of " + name(faulty) + " after it was written. That memory is faulty";
  else if (!result.decided) result.text += "other bits on " + name(shown.original) + " than on " + name(shown.second) + (own ? ", from the same inputs. Nobody can say which of the two is faulty: test both, or name at least three --devices" : ", although all devices gave the same. A device that takes part in it, or what connects them, is faulty: test them");
  else result.text += "other bits on " + name(faulty) + " than on " + name(other) + ", from the same inputs. " + (decisive != counted.end() ? "Asked again, " + name(faulty) + " gave other bits than before, and " + name(other) + " the same" : "The work of another device differs only where " + name(faulty) + " did it") + ", so the processor or the memory of " + name(faulty) + " is faulty";
  result.text += ". No variable has changed. ";
  result.text += result.decided ? "Leave " + name(faulty) + " out of --devices, and go on from a checkpoint" : "Then go on from a checkpoint";
  return result;
}

// Collective: all processes learn the most telling finding.
inline Accusation agree(transport::Job& job, const Finding& mine) {
  std::string packed{static_cast<char>('0' + mine.severity), mine.decided ? '1' : '0'};
  packed += mine.text;
  static constexpr const char* what = "the verdict on an audited step";
  const auto all = job.exchange(std::as_bytes(std::span{packed}), what);
  int best = 0;
  const auto worth = [&](int process) {
    const auto& bytes = all[static_cast<std::size_t>(process)];
    return 2 * std::to_integer<int>(bytes[0]) + std::to_integer<int>(bytes[1]);
  };
  for (int process = 0; process < job.size(); ++process) {
    const auto& bytes = all[static_cast<std::size_t>(process)];
    transport::require_contribution(bytes.size() >= 2, process, bytes.size(), what);
    if (worth(process) > worth(best)) best = process;
  }
  const auto& bytes = all[static_cast<std::size_t>(best)];
  return {std::string{reinterpret_cast<const char*>(bytes.data()) + 2, bytes.size() - 2}, bytes[1] == std::byte{'1'} ? best : -1};
}

}  // namespace replicator::detail
