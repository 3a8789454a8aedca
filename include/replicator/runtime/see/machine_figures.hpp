// SPDX-License-Identifier: Apache-2.0
// What a device and the way between devices can do: the yardstick of explanations.
#pragma once

#include <cstddef>

namespace replicator {

struct MachineFigures {
  double flops = 0;          // operations a second of one device; 0: unknown
  double memory_bytes = 0;   // bytes a second from and to its memory; 0: unknown
  double wire_bytes = 10e9;  // bytes a second that arrive at one device from the others
  double latency = 2e-6;     // seconds until the first byte arrives
};

struct ExplainOptions {
  std::size_t nodes = 10;  // so many of the nodes that cost most
  MachineFigures machine = {};
  bool calibrate = false;  // measures flops and memory_bytes first, about 0.2 s; only of devices that compute on the host
};

}  // namespace replicator
