// SPDX-License-Identifier: Apache-2.0
// Passes open files between the processes of one host (SCM_RIGHTS), over sockets with abstract names.
#pragma once

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <replicator/core/error.hpp>
#include <replicator/io/file_descriptor.hpp>
#include <replicator/job/job.hpp>
#include <replicator/job/public_name.hpp>
#include <replicator/job/wire/peer_user.hpp>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace replicator::detail::transport::detail {

// The header of a message with files. The socket's name comes from the job's random token, so no other job has that socket.
// The token itself is in the parcels, so no foreign files are taken. Every user of the machine can read socket names, so a
// peer must be of the same user.
struct Parcel {
  std::uint64_t token = 0;
  std::int32_t from = 0;
  std::int32_t files = 0;
};

inline constexpr std::size_t most_files_per_parcel = 128;  // the kernel takes 253

inline socklen_t abstract_address(std::uint64_t token, int process, sockaddr_un& address) {
  const std::string name = "replicator-" + public_name(token) + "-" + std::to_string(process);
  address = {};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path + 1, name.data(), name.size());  // a leading zero byte: no file
  return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
}

[[noreturn]] inline void fail_to_pass(const std::string& what) {
  throw CommunicationError{"cannot pass shared memory between processes: " + what + ": " + errno_text(errno), -1};
}

// Throws after a parcel could not be sent. A process that does not take one has died, or is about to be found dead. Then
// the job tells all processes which one it was, in one sentence.
[[noreturn]] inline void fail_to_pass_to(Job& job, int process, const std::string& what) {
  if (errno != ECONNREFUSED && errno != ECONNRESET && errno != EPIPE) fail_to_pass(what);
  job.give_up_on(process, job.describe(job.rank()) + " cannot pass shared memory to " + job.describe(process) + ": " + what +
                              ": " + errno_text(errno));
}

// Returns false, with errno, where the parcel cannot be sent.
inline bool send_parcel(int socket, Parcel parcel, std::span<const int> files) {
  parcel.files = static_cast<std::int32_t>(files.size());
  iovec content{&parcel, sizeof parcel};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(most_files_per_parcel * sizeof(int))> control{};
  msghdr message{};
  message.msg_iov = &content;
  message.msg_iovlen = 1;
  if (!files.empty()) {
    message.msg_control = control.data();
    message.msg_controllen = CMSG_SPACE(files.size_bytes());
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(files.size_bytes());
    std::memcpy(CMSG_DATA(header), files.data(), files.size_bytes());
  }
  return ::sendmsg(socket, &message, MSG_NOSIGNAL) == sizeof parcel;
}

// Appends the received files to `files`. Returns false at the end of the stream, and for a parcel of another job.
inline bool receive_parcel(Job& job, int socket, Parcel& parcel, std::vector<FileDescriptor>& files) {
  pollfd event{socket, POLLIN, 0};
  while (::poll(&event, 1, 50) != 1) job.check();
  iovec content{&parcel, sizeof parcel};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(most_files_per_parcel * sizeof(int))> control{};
  msghdr message{};
  message.msg_iov = &content;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  const auto n = ::recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
  if (n < 0 && errno != ECONNRESET) fail_to_pass("recvmsg");
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr; header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_type != SCM_RIGHTS) continue;
    for (std::size_t at = CMSG_LEN(0); at < header->cmsg_len; at += sizeof(int)) {
      int number;
      std::memcpy(&number, reinterpret_cast<const char*>(header) + at, sizeof number);
      files.emplace_back(number);
    }
  }
  return n == sizeof parcel && parcel.token == job.token();
}

// Sends the files to a process that listens. Returns false, and sends nothing, while its queue of connections is full.
inline bool pass_files(Job& job, int process, std::span<const int> files) {
  sockaddr_un address;
  const FileDescriptor socket{::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)};
  const auto length = abstract_address(job.token(), process, address);
  if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), length) != 0) {
    if (errno == EAGAIN) return false;
    fail_to_pass_to(job, process, "connect");
  }
  // From here on the socket blocks. The messages are short, and the process takes them before or after it passes its own.
  if (::fcntl(socket.get(), F_SETFL, 0) != 0) fail_to_pass_to(job, process, "fcntl");
  for (std::size_t i = 0; i == 0 || i < files.size(); i += most_files_per_parcel)
    if (!send_parcel(socket.get(), {job.token(), job.rank(), 0}, files.subspan(i, std::min(most_files_per_parcel, files.size() - i))))
      fail_to_pass_to(job, process, "sendmsg");
  return true;
}

// Collective. All-gather of open files: result[p] holds the files of process p, in its order. `queue`: how many connections may wait
// here; the system may allow fewer.
inline std::vector<std::vector<FileDescriptor>> exchange_descriptors(Job& job, std::span<const int> mine, int queue = SOMAXCONN) {
  std::vector<std::vector<FileDescriptor>> result(static_cast<std::size_t>(job.size()));
  for (const int file : mine) result[static_cast<std::size_t>(job.rank())].emplace_back(::dup(file));
  if (job.size() == 1) return result;
  sockaddr_un address;
  const FileDescriptor listener{::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)};
  const auto length = abstract_address(job.token(), job.rank(), address);
  if (::bind(listener.get(), reinterpret_cast<const sockaddr*>(&address), length) != 0) fail_to_pass("bind");
  if (::listen(listener.get(), queue) != 0) fail_to_pass("listen");
  job.barrier("shared memory: sockets");
  // A queue of connections may be full, so this process takes what has come while it cannot connect.
  for (int to = 0, received = 1; to < job.size() || received < job.size();) {
    if (to < job.size() && (to == job.rank() || pass_files(job, to, mine))) {
      ++to;
      continue;
    }
    pollfd event{listener.get(), POLLIN, 0};
    ::poll(&event, 1, to < job.size() ? 1 : 50);
    job.check();
    const FileDescriptor socket{::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC)};
    if (!socket || !same_user(socket.get())) continue;
    Parcel parcel;
    std::vector<FileDescriptor> files;
    while (receive_parcel(job, socket.get(), parcel, files)) {
    }
    if (parcel.token != job.token() || parcel.from < 0 || parcel.from >= job.size()) continue;
    result[static_cast<std::size_t>(parcel.from)] = std::move(files);
    ++received;
  }
  job.barrier("shared memory: files");
  return result;
}

}  // namespace replicator::detail::transport::detail
