// SPDX-License-Identifier: Apache-2.0
// The protocol between the processes of a job: frames of a header and fields, over a stream socket.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <replicator/core/error.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace replicator::detail::transport::detail {

using Bytes = std::vector<std::byte>;

// The kinds of frames, with their fields.
enum class FrameKind : std::uint32_t {
  hello = 1,  // job name, world size, rank, pid, host, nonce (with a job token), life, epochs
  challenge,  // process 0's nonce
  proof,      // of the newcomer, then of process 0
  welcome,    // token, then pid and host of every process, epochs
  refuse,     // kind, culprit, sentence
  heartbeat,  // nothing
  gather,     // the calls of the process (count, last one), what, blob
  gathered,   // number, every process's blob
  suspect,    // process, why
  abort,      // culprit, sentence
  bye,        // the calls of the process, which is done
  farewell,   // nothing: all processes are done
  left_out,   // token, rank and life of the sender, epoch: its job enters that epoch without the receiver
  going_on,   // nothing: the job is running; its first process says so to a restarted one
  apply,      // to that first process: identity, whether it is ready, its port, the step it waits for
  state,      // of the program: total bytes, the next piece
  taken,      // nothing: the newcomer has all of the state
  enter,      // the survivors: the processes are about to meet
  outside,    // the calls of a process, its number, the exchange that it asks for: it makes no further call now
  occupied,   // nothing: the job is running, and the process with the newcomer's number is still in it
};

// The first word identifies this protocol to reveal foreign connections. It changes whenever the frames change.
struct FrameHeader {
  static constexpr std::uint32_t expected_magic = 0x36435052;  // "RPC6"
  std::uint32_t magic = expected_magic;
  FrameKind kind{};
  std::uint64_t bytes = 0;
};

// Builds a frame, field by field.
class FrameWriter {
 public:
  explicit FrameWriter(FrameKind kind) : data_(sizeof(FrameHeader)) {
    FrameHeader header;
    header.kind = kind;
    std::memcpy(data_.data(), &header, sizeof header);
  }
  FrameWriter& number(std::uint64_t value) {
    append(&value, sizeof value);
    return *this;
  }
  FrameWriter& blob(std::span<const std::byte> value) {
    number(value.size());
    append(value.data(), value.size());
    return *this;
  }
  FrameWriter& text(std::string_view value) { return blob(std::as_bytes(std::span{value.data(), value.size()})); }
  std::span<const std::byte> fields() const { return std::span{data_}.subspan(sizeof(FrameHeader)); }
  // The whole frame with its length.
  const Bytes& finish() {
    const std::uint64_t bytes = data_.size() - sizeof(FrameHeader);
    std::memcpy(data_.data() + offsetof(FrameHeader, bytes), &bytes, sizeof bytes);
    return data_;
  }

 private:
  void append(const void* from, std::size_t bytes) {
    const auto* first = static_cast<const std::byte*>(from);
    data_.insert(data_.end(), first, first + bytes);
  }

  Bytes data_;
};

// Reads the fields of a frame in the order in which they were written. Throws CommunicationError past the end.
class FrameReader {
 public:
  explicit FrameReader(std::span<const std::byte> fields) : rest_{fields} {}
  std::uint64_t number() {
    std::uint64_t value;
    std::memcpy(&value, take(sizeof value).data(), sizeof value);
    return value;
  }
  Bytes blob() {
    const auto view = take(number());
    return {view.begin(), view.end()};
  }
  std::string text() {
    const auto view = take(number());
    return {reinterpret_cast<const char*>(view.data()), view.size()};
  }

 private:
  std::span<const std::byte> take(std::uint64_t bytes) {
    if (bytes > rest_.size()) throw CommunicationError{"a message between processes is cut short", -1};
    const auto result = rest_.first(static_cast<std::size_t>(bytes));
    rest_ = rest_.subspan(static_cast<std::size_t>(bytes));
    return result;
  }

  std::span<const std::byte> rest_;
};

}  // namespace replicator::detail::transport::detail
