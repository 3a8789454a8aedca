// SPDX-License-Identifier: Apache-2.0
// The other side of a rendezvous: it sends the input and then nothing more. Its cryptography has proofs that can be
// guessed.
#pragma once

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <chrono>
#include <cstddef>
#include <memory>
#include <mutex>
#include <replicator/job/meet.hpp>
#include <string>
#include <string_view>
#include <thread>

#include "target.hpp"

namespace replicator::fuzz {

using namespace replicator::detail;

using transport::FileDescriptor;

// Sums instead of HMACs, and always the same random number: what a stranger cannot do for want of the token, an input can.
inline transport::Mac sum_of(std::string_view key, Bytes message) {
  transport::Mac result{};
  for (std::size_t i = 0; i < key.size() + message.size(); ++i)
    result[i % 32] = static_cast<std::byte>(std::to_integer<int>(result[i % 32]) * 3 +
                                            (i < key.size() ? key[i] : std::to_integer<int>(message[i - key.size()])));
  return result;
}
inline transport::Nonce no_chance() { return {}; }
inline constexpr transport::Cryptography guessable{sum_of, no_chance};

inline constexpr const char* token = "0123456789abcdef";

inline transport::JobOptions hasty_options() {
  using std::chrono::milliseconds;
  return {.heartbeat = milliseconds{20},
          .dead_after = milliseconds{100},
          .grace = milliseconds{1},
          .connect_deadline = milliseconds{2},
          .report_after = milliseconds{0},
          .exchange_deadline = milliseconds{100},
          .late = milliseconds{0}};
}

// Listens where only this process can come; no port is used up.
inline std::shared_ptr<FileDescriptor> private_listener() {
  const auto result = std::make_shared<FileDescriptor>(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  sockaddr_un any{};
  any.sun_family = AF_UNIX;
  require(::bind(result->get(), reinterpret_cast<const sockaddr*>(&any), sizeof(sa_family_t)) == 0 && ::listen(result->get(), 16) == 0,
          "no listener");
  return result;
}

// A connection to it, over which these bytes have been sent.
inline FileDescriptor stranger(const FileDescriptor& listener, std::string_view bytes) {
  FileDescriptor result{::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)};
  sockaddr_un there{};
  socklen_t length = sizeof there;
  require(::getsockname(listener.get(), reinterpret_cast<sockaddr*>(&there), &length) == 0, "no name");
  require(::connect(result.get(), reinterpret_cast<const sockaddr*>(&there), length) == 0, "no connection");
  static_cast<void>(!::send(result.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL));
  ::shutdown(result.get(), SHUT_WR);
  return result;
}

// Gives everybody who connects to its port the same answer.
class Answerer {
 public:
  Answerer() : listener_{transport::detail::listen_on(0, transport::detail::numeric_address("127.0.0.1"))} {
    std::thread{[this] { run(); }}.detach();
  }
  std::uint16_t port() const { return transport::detail::port_of(listener_.get()); }
  void answer(std::string_view bytes) {
    const std::scoped_lock lock{mutex_};
    bytes_ = bytes;
  }

 private:
  void run() {
    for (;;) {
      pollfd event{listener_.get(), POLLIN, 0};
      ::poll(&event, 1, -1);
      const FileDescriptor socket{::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC)};
      if (!socket) continue;
      {
        const std::scoped_lock lock{mutex_};
        static_cast<void>(!::send(socket.get(), bytes_.data(), bytes_.size(), MSG_NOSIGNAL));
      }
      ::shutdown(socket.get(), SHUT_WR);
      char rest[4096];
      while (::recv(socket.get(), rest, sizeof rest, 0) > 0) continue;
    }
  }

  FileDescriptor listener_;
  std::mutex mutex_;
  std::string bytes_;
};

inline Answerer& answerer() {
  static Answerer& result = *new Answerer;  // its thread lives as long as the program
  return result;
}

inline transport::ProcessEnvironment environment_of_newcomer(bool with_token) {
  transport::ProcessEnvironment result;
  result.rank = 1;
  result.world_size = 2;
  result.master_address = "127.0.0.1";
  result.master_port = answerer().port();
  result.insecure = true;
  if (with_token) result.job_token = token;
  return result;
}
inline transport::ProcessEnvironment environment_of_first(bool with_token) {
  transport::ProcessEnvironment result;
  result.world_size = 2;
  result.master_address = "127.0.0.1";
  result.listener = private_listener();
  result.insecure = true;
  if (with_token) result.job_token = token;
  return result;
}

inline std::string hello(bool with_nonce) {
  transport::detail::FrameWriter frame{transport::detail::FrameKind::hello};
  transport::detail::JoinRequest{"", 2, 1, {4711, "host"}, transport::detail::Bytes(with_nonce ? 32 : 0)}.write(frame);
  return std::string{text_of(frame.finish())};
}
inline std::string welcome() {
  return std::string{text_of(
      transport::detail::FrameWriter{transport::detail::FrameKind::welcome}.number(5).number(1).text("a").number(2).text("b").blob({}).finish())};
}

}  // namespace replicator::fuzz
