// SPDX-License-Identifier: Apache-2.0
// What is to be recorded or written about the steps of a Replicator. None of it changes a bit of a result.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include <replicator/replicate/record_options.hpp>
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
  std::string hang_report;   // file for the newest report of where devices stand (report_on_signal, failed waits); empty: stderr alone
  std::optional<RecordOptions> record;  // what a replica receives in some steps is written to a file
  std::string replay;        // a file that was recorded: one replica runs its steps alone; empty: none
  std::uint64_t check_drift = 0;  // every so many steps the bits of mirrored variables are compared between all devices; 0: never

  bool times() const { return timing || !trace.empty(); }
  // What all processes of a job must ask for alike, since they gather it: "--trace --skew".
  std::string gathered() const {
    std::string flags;
    const auto add = [&](std::string_view flag, bool asked) {
      if (asked) flags += (flags.empty() ? "" : " ") + std::string{flag};
    };
    add("--trace", !trace.empty());
    add("--plan", !plan.empty());
    add("--skew", skew);
    return flags.empty() ? "none of them" : flags;
  }

  // Whether the flag stands alone; if so, it is set.
  bool set_switch(std::string_view flag) {
    if (flag == "--timing") return timing = true;
    if (flag == "--find-nan") return find_nan = true;
    if (flag == "--skew") return skew = true;
    return false;
  }
  static bool takes(std::string_view flag) {
    return flag == "--trace" || flag == "--trace-steps" || flag == "--dot" || flag == "--plan" || flag == "--record" ||
           flag == "--replay" || flag == "--hang-report";
  }
  // Throws BuildError for values that cannot be.
  void set(std::string_view flag, std::string_view value) {
    if (flag == "--trace") trace = value;
    else if (flag == "--dot") dot = value;
    else if (flag == "--plan") plan = value;
    else if (flag == "--trace-steps") set_trace_steps(value);
    else if (flag == "--record") record = RecordOptions::parse(value);
    else if (flag == "--replay") replay = value;
    else if (flag == "--hang-report") hang_report = value;
  }
  static std::string help() {
    return "What is told about it:\n"
           "  --trace FILE            timeline of kernels, collectives and input, for ui.perfetto.dev\n"
           "  --trace-steps A:B       the steps from A up to, not including B are timed (1:11)\n"
           "  --timing                times those steps for explain()\n"
           "  --dot FILE              graphs of replicas for Graphviz; as resolved, in a second file\n"
           "  --plan FILE             what each device executes, as JSON\n"
           "  --find-nan              stops at the first kernel that makes a NaN or an infinity, and names it (slow)\n"
           "  --skew                  says at the end which devices came late to which collectives\n"
           "  --hang-report FILE      where each device stands, when a wait fails or a signal asks, beside stderr\n"
           "  --record replica=N,steps=A:B[,file=F]  what a replica receives in these steps, into F (replicaN.safetensors)\n"
           "  --replay F              runs those steps of that replica alone, and compares the bits; sets --replicas, --seed and devices\n"
           "  --check-drift N         every N steps all devices must have the same bits of mirrored variables\n";
  }

 private:
  void set_trace_steps(std::string_view text) {
    trace_steps = parse_steps("--trace-steps", text);
    if (trace_steps.steps() > most_timed_steps)
      throw BuildError{"--trace-steps is \"" + std::string{text} + "\": room for the times of " + std::to_string(trace_steps.steps()) +
                       " steps would be set aside; take at most " + std::to_string(most_timed_steps)};
  }
};

}  // namespace replicator
