// SPDX-License-Identifier: Apache-2.0
// MachineFigures: the speed limits of a device and its links, with which explain() compares. Also ExplainOptions.
#pragma once

#include <cstddef>

namespace replicator {

struct MachineFigures {
  double flops = 0;          // operations per second of one device; 0: unknown
  double memory_bytes = 0;   // bytes per second from and to its memory; 0: unknown
  double wire_bytes = 10e9;  // bytes per second that one device receives from the others
  double latency = 2e-6;     // seconds until the first byte arrives
};

struct ExplainOptions {
  std::size_t nodes = 10;  // number of the most expensive nodes to list
  MachineFigures machine = {};
  bool calibrate = false;  // first measures flops and memory_bytes, in about 0.2 s; only devices that compute on the host can be measured
};

}  // namespace replicator
