// SPDX-License-Identifier: Apache-2.0
// report_on_signal: on a signal such as `kill -USR1 <pid>`, a running program reports where each of its devices stands.
// <replicator/replicator.hpp>, or report_signal.hpp, brings the code.
#pragma once

namespace replicator {

// From now on, this signal makes every Replicator of the process report to stderr where each of its devices stands. The
// report names the step and the node or collective, with its source line. It also says since when the device is there,
// and what it waits for. The program continues.
//
// The signal may come at any moment, because its handler only wakes a thread. May be called before or after a
// Replicator is made, and for several signals. Throws BuildError for a signal that cannot be handled.
template <class = void>
void report_on_signal(int signal);

}  // namespace replicator
