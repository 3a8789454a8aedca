// SPDX-License-Identifier: Apache-2.0
// The verdict of an audited step: which of the devices that computed different bits is faulty.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace replicator::detail {

// The first difference between the two computations of one device's work. Devices are counted over the job.
struct Difference {
  std::string what;                                       // "matmul#17 at train.cpp:31 of replica 3"
  bool own = true;                                        // false: a value that came from other devices differed first
  int original = 0, second = 0;                           // the devices that computed it. Equal: one that did not repeat its own bits
  bool original_repeats = false, second_repeats = false;  // they gave the same bits when the step was repeated
};

struct Verdict {
  std::string text;
  int faulty = -1;  // the device; -1: unknown
};

class Judge {
 public:
  // `names`: of the devices of the job. There is at least one difference.
  Judge(std::span<const Difference> differences, std::span<const std::string> names) : names_{names} {
    // A difference in values from other devices may be the consequence of another one, so it counts only if all are such.
    own_ = std::any_of(differences.begin(), differences.end(), [](const Difference& each) { return each.own; });
    for (const auto& each : differences)
      if (each.own == own_) counted_.push_back(each);
  }

  Verdict verdict(std::uint64_t step) const {
    const auto decisive = std::find_if(counted_.begin(), counted_.end(), [](const Difference& each) { return unsteady(each) >= 0; });
    const bool decided_by_repetition = decisive != counted_.end();
    const auto& shown = decided_by_repetition ? *decisive : counted_[0];
    const int found = decided_by_repetition ? unsteady(shown) : common();
    const int faulty = own_ || counted_.size() == 1 ? found : -1;
    auto text = "step " + std::to_string(step) + ", which was computed twice: " + shown.what + " has ";
    if (shown.original == shown.second) text += "other bits on " + name(faulty) + " than it had there when the step was repeated" + blame(faulty);
    else if (faulty < 0 && own_) text += other_bits(shown.original, shown.second) + ", from the same inputs. Nobody can say which of the two is faulty: test both, or name at least three --devices";
    else if (faulty < 0) text += "other bits in the two computations, although all devices gave it the same. A device that takes part in it, or what connects them, is faulty: test them";
    else
      text += other_bits(faulty, shown.original == faulty ? shown.second : shown.original) + ", from the same inputs. " +
              (decided_by_repetition ? "Asked again, " + name(faulty) + " gave other bits than before, and the other the same" : "Whatever differs was computed by " + name(faulty)) +
              blame(faulty);
    text += ". No variable has changed. " + (faulty < 0 ? std::string{"Go on from a checkpoint"} : "Leave " + name(faulty) + " out of --devices, and go on from a checkpoint");
    return {text, faulty};
  }

 private:
  // The device that did not repeat its own bits; -1: both did, or none.
  static int unsteady(const Difference& each) {
    if (each.original == each.second) return each.original;
    if (each.original_repeats == each.second_repeats) return -1;
    return each.original_repeats ? each.second : each.original;
  }
  // The only device that takes part in each of several differences; -1: there is none.
  int common() const {
    if (counted_.size() < 2) return -1;
    const auto in_all = [&](int device) {
      return std::all_of(counted_.begin(), counted_.end(), [&](const Difference& each) { return each.original == device || each.second == device; });
    };
    const bool first = in_all(counted_[0].original), second = in_all(counted_[0].second);
    return first == second ? -1 : first ? counted_[0].original
                                        : counted_[0].second;
  }
  const std::string& name(int device) const { return names_[static_cast<std::size_t>(device)]; }
  std::string blame(int device) const { return ", so the processor or the memory of " + name(device) + " is faulty, or a kernel of the program's own keeps something from call to call"; }
  std::string other_bits(int a, int b) const { return "other bits on " + name(a) + " than on " + name(b); }

  std::span<const std::string> names_;
  bool own_ = false;
  std::vector<Difference> counted_;
};

}  // namespace replicator::detail
