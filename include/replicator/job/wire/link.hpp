// SPDX-License-Identifier: Apache-2.0
// One end of a connection between two processes: frames in and out of a non-blocking socket.
#pragma once

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <replicator/io/file_descriptor.hpp>
#include <replicator/job/wire/frame.hpp>
#include <span>
#include <utility>

namespace replicator::detail::transport::detail {

// Not thread-safe: the owner guards it.
class Link {
 public:
  static constexpr std::uint64_t largest_frame = std::uint64_t{1} << 32;
  // Limit of bytes that one call moves each way. A peer may send as fast as this end reads, and the owner has other links
  // to serve.
  static constexpr std::size_t most_at_once = std::size_t{1} << 17;

  Link() = default;
  explicit Link(FileDescriptor socket, std::uint64_t limit = largest_frame)
      : socket_{std::move(socket)}, limit_{limit} {}

  int descriptor() const { return socket_.get(); }
  bool open() const { return static_cast<bool>(socket_); }
  std::uint64_t received() const { return received_; }        // bytes so far
  std::size_t unsent() const { return out_.size() - sent_; }  // bytes
  bool has_output() const { return unsent() > 0; }
  void raise_limit() { limit_ = largest_frame; }
  void close() { socket_.close(); }
  void shut_output() {
    if (open()) ::shutdown(socket_.get(), SHUT_WR);
  }

  void push(const Bytes& frame) {
    if (open()) out_.insert(out_.end(), frame.begin(), frame.end());
  }

  // Sends what the socket takes, up to about most_at_once. Returns false once the connection is gone.
  bool pump_out() {
    for (std::size_t left = most_at_once; open() && has_output();) {
      if (left == 0) return true;
      const auto n = ::send(socket_.get(), out_.data() + sent_, std::min(unsent(), left), MSG_NOSIGNAL | MSG_DONTWAIT);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return errno == EAGAIN || errno == EWOULDBLOCK;
      sent_ += static_cast<std::size_t>(n);
      left -= static_cast<std::size_t>(n);
    }
    out_.clear();
    sent_ = 0;
    return open();
  }

  // Receives what has arrived, up to about most_at_once. It also stops about one largest frame ahead of next(), so that a
  // sender cannot use up the memory. Returns false at the end of the stream, on an error, or on bytes that are no frame.
  bool pump_in() {
    std::byte chunk[16384];
    for (std::size_t left = most_at_once; open() && valid_;) {
      const auto n = ::recv(socket_.get(), chunk, sizeof chunk, MSG_DONTWAIT);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return errno == EAGAIN || errno == EWOULDBLOCK;
      if (n == 0) return false;
      in_.insert(in_.end(), chunk, chunk + n);
      received_ += static_cast<std::uint64_t>(n);
      look_at_header();
      left -= static_cast<std::size_t>(n);
      if (static_cast<std::size_t>(n) < sizeof chunk || left == 0 || in_.size() - read_ > limit_) return valid_;
    }
    return false;
  }

  // Takes the next whole frame. Returns false where there is none.
  bool next(FrameKind& kind, Bytes& fields) {
    FrameHeader header;
    if (!valid_ || in_.size() - read_ < sizeof header) return false;
    std::memcpy(&header, in_.data() + read_, sizeof header);
    if (in_.size() - read_ - sizeof header < header.bytes) return false;
    kind = header.kind;
    const auto first = in_.begin() + static_cast<std::ptrdiff_t>(read_ + sizeof header);
    fields.assign(first, first + static_cast<std::ptrdiff_t>(header.bytes));
    read_ += sizeof header + static_cast<std::size_t>(header.bytes);
    if (read_ == in_.size()) {
      in_.clear();
      read_ = 0;
    }
    look_at_header();
    return true;
  }

 private:
  void look_at_header() {
    FrameHeader header;
    const std::size_t have = in_.size() - read_;
    if (have == 0) return;
    const std::size_t check = have < sizeof header.magic ? have : sizeof header.magic;
    if (std::memcmp(in_.data() + read_, &header.magic, check) != 0) valid_ = false;
    if (have < sizeof header) return;
    std::memcpy(&header, in_.data() + read_, sizeof header);
    if (header.bytes > limit_) valid_ = false;
  }

  FileDescriptor socket_;
  Bytes in_;
  std::size_t read_ = 0;
  Bytes out_;
  std::size_t sent_ = 0;
  std::uint64_t received_ = 0;
  std::uint64_t limit_ = largest_frame;
  bool valid_ = true;
};

}  // namespace replicator::detail::transport::detail
