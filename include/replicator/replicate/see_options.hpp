// SPDX-License-Identifier: Apache-2.0
// SeeOptions: which traces, graphs and reports about the steps are written. No option changes a bit of a result.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include <replicator/replicate/record_options.hpp>
#include <replicator/runtime/see/trace_window.hpp>

namespace replicator {

struct SeeOptions {
  std::string trace;                    // file for the timeline of all processes, for ui.perfetto.dev; empty: none
  detail::TraceWindow trace_steps;      // the steps of every replicated step that are timed: [1, 11)
  std::string dot;                      // file for the traced graphs, for Graphviz; the resolved ones go to <name>.resolved.<extension>; empty: none
  std::string plan;                     // file for the programs of all devices of all processes, as JSON; empty: none
  bool timing = false;                  // times steps for explain(), even without a trace
  bool find_nan = false;                // checks the outputs of all kernels and reductions over replicas: the first NaN or infinity ends the step with its source line
  bool skew = false;                    // at the end process 0 lists on stderr the devices that came late to collectives, over the last 512 steps
  std::string hang_report;              // file for the newest report of where devices stand (report_on_signal, failed waits); empty: only stderr
  std::optional<RecordOptions> record;  // records the input, collective results and variables of one replica in some steps
  std::string replay;                   // a recorded file: runs the steps of its one replica alone; empty: none
  std::uint64_t check_drift = 0;        // compares the bits of mirrored variables between all devices, every so many steps; 0: never
  std::uint64_t audit = 0;              // computes every so many steps a second time, on other devices, and compares all bits before a variable changes; 0: never

  bool times() const { return timing || !trace.empty(); }
  // The flags on which all processes of a job must agree, because they gather the data together: "--trace --skew".
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
