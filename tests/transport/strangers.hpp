// SPDX-License-Identifier: Apache-2.0
// Connections that violate the protocol of a job, for the tests of the rendezvous.
#pragma once

#include <poll.h>
#include <sys/socket.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <replicator/job/join_request.hpp>
#include <replicator/job/wire/link.hpp>
#include <replicator/job/wire/tcp.hpp>
#include <span>
#include <string>
#include <utility>

#include "jobs.hpp"

namespace replicator::test {

using namespace replicator::detail;

using transport::FileDescriptor;
using transport::detail::Bytes;
using transport::detail::FrameKind;
using transport::detail::FrameReader;
using transport::detail::FrameWriter;
using transport::detail::JoinRequest;
using transport::detail::Link;

inline FileDescriptor connect_stranger(std::uint16_t port) {
  std::string error;
  return transport::detail::connect_to("127.0.0.1", port, std::chrono::milliseconds{1000}, error);
}

// Connects to the port and sends these bytes, as a port scanner would.
inline FileDescriptor send_garbage(std::uint16_t port, std::span<const std::byte> bytes) {
  auto socket = connect_stranger(port);
  if (socket) static_cast<void>(!::send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT));
  return socket;
}
inline FileDescriptor send_garbage(std::uint16_t port, const std::string& text) {
  return send_garbage(port, std::as_bytes(std::span{text.data(), text.size()}));
}

// The fields of the next frame of this kind; nothing where the connection ends or two seconds pass before it.
inline std::optional<Bytes> await_frame(Link& link, FrameKind wanted) {
  for (int i = 0; i < 200; ++i) {
    const bool good = link.pump_in();
    FrameKind kind{};
    Bytes fields;
    while (link.next(kind, fields))
      if (kind == wanted) return fields;
    if (!good) return std::nullopt;
    pollfd event{link.descriptor(), POLLIN, 0};
    ::poll(&event, 1, 10);
  }
  return std::nullopt;
}

inline void send_frame(Link& link, const Bytes& frame) {
  link.push(frame);
  link.pump_out();
}

inline Bytes hello(const JoinRequest& request) {
  FrameWriter frame{FrameKind::hello};
  request.write(frame);
  return frame.finish();
}

// Each process with its environment makes the job, meets the others and parts: "met", or "build: " and the error.
inline std::vector<ProcessResult> run_environments(const std::vector<transport::ProcessEnvironment>& all,
                                                   const transport::JobOptions& options = quick_options()) {
  return run_processes(static_cast<int>(all.size()), [&](int index) -> std::string {
    const auto environment = all[static_cast<std::size_t>(index)];
    try {
      transport::Job job{environment, options};
      job.barrier();
      job.leave();
      return "met";
    } catch (const BuildError& error) {
      return std::string{"build: "} + error.what();
    }
  });
}

}  // namespace replicator::test
