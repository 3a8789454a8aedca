// SPDX-License-Identifier: Apache-2.0
// What is to be recorded or written about the steps of a Replicator. None of it changes a bit of a result.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include <replicator/replicate/record_options.hpp>
#include <replicator/runtime/see/trace_ring.hpp>

namespace replicator {

struct SeeOptions {
  std::string trace;                    // file for the timeline of all processes, for ui.perfetto.dev; empty: none
  detail::TraceWindow trace_steps;      // which steps of every replicated step are timed: [1, 11)
  std::string dot;                      // file for the graphs as traced, for Graphviz; as resolved, in <name>.resolved.<extension>; empty: none
  std::string plan;                     // file for what every device of all processes executes, as JSON; empty: none
  bool timing = false;                  // times steps for explain(), whether or not a trace is written
  bool find_nan = false;                // looks at all that kernels and reductions over replicas write: the first NaN or infinity ends the step with its line
  bool skew = false;                    // at the end process 0 says on stderr who came late to which collective, over the last 512 steps
  std::string hang_report;              // file for the newest report of where devices stand (report_on_signal, failed waits); empty: stderr alone
  std::optional<RecordOptions> record;  // what a replica receives in some steps is written to a file
  std::string replay;                   // a file that was recorded: one replica runs its steps alone; empty: none
  std::uint64_t check_drift = 0;        // every so many steps the bits of mirrored variables are compared between all devices; 0: never

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
};

}  // namespace replicator
