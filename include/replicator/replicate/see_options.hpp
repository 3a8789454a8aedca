// SPDX-License-Identifier: Apache-2.0
// What is to be recorded or written about the steps of a Replicator. None of it changes a bit of a result.
#pragma once

#include <charconv>
#include <cstdint>
#include <string>
#include <string_view>

#include <replicator/core/error.hpp>
#include <replicator/runtime/trace_ring.hpp>

namespace replicator {

struct SeeOptions {
  std::string trace;         // file for the timeline of all processes, for ui.perfetto.dev; empty: none
  TraceWindow trace_steps;   // which steps of every replicated step are timed: [1, 11)
  std::string dot;           // file for the graphs as traced, for Graphviz; as resolved, in <name>.resolved.<extension>; empty: none
  std::string plan;          // file for what every device of all processes executes, as JSON; empty: none
  bool timing = false;       // times steps for explain(), whether or not a trace is written
  bool find_nan = false;     // looks at all that every kernel writes: the first NaN or infinity ends the step with its node and line
  bool skew = false;         // at the end process 0 says on stderr who came late to which collective, over the last 512 steps

  bool times() const { return timing || !trace.empty(); }

  // Whether the flag stands alone; if so, it is set.
  bool set_switch(std::string_view flag) {
    if (flag == "--timing") return timing = true;
    if (flag == "--find-nan") return find_nan = true;
    if (flag == "--skew") return skew = true;
    return false;
  }
  static bool takes(std::string_view flag) { return flag == "--trace" || flag == "--trace-steps" || flag == "--dot" || flag == "--plan"; }
  // Throws BuildError for values that cannot be.
  void set(std::string_view flag, std::string_view value) {
    if (flag == "--trace") trace = value;
    else if (flag == "--dot") dot = value;
    else if (flag == "--plan") plan = value;
    else if (flag == "--trace-steps") trace_steps = window(value);
  }
  static std::string help() {
    return "What is told about it:\n"
           "  --trace FILE            timeline of kernels, collectives and input, for ui.perfetto.dev\n"
           "  --trace-steps A:B       the steps from A up to, not including B are timed (1:11)\n"
           "  --timing                times those steps for explain()\n"
           "  --dot FILE              graphs of replicas for Graphviz; as resolved, in a second file\n"
           "  --plan FILE             what each device executes, as JSON\n"
           "  --find-nan              stops at the first kernel that makes a NaN or an infinity, and names it (slow)\n"
           "  --skew                  says at the end which devices came late to which collectives\n";
  }

 private:
  static TraceWindow window(std::string_view text) {
    TraceWindow result;
    const auto colon = text.find(':');
    const auto number = [&](std::string_view part, std::uint64_t& value) {
      const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), value);
      return error == std::errc{} && end == part.data() + part.size();
    };
    if (colon == std::string_view::npos || !number(text.substr(0, colon), result.first) || !number(text.substr(colon + 1), result.end) ||
        result.first >= result.end)
      throw BuildError{"--trace-steps is \"" + std::string{text} + "\": it must be two whole numbers, as in 1:11, the first below the second"};
    return result;
  }
};

}  // namespace replicator
