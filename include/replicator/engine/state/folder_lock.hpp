// SPDX-License-Identifier: Apache-2.0
// FolderLock: the right of one job to write into a folder. The file <folder>/.lock has an advisory lock (flock(2)) and
// says who holds it. The kernel gives the lock back when its process ends, even after kill -9. The file stays.
#pragma once

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <optional>
#include <span>
#include <string>
#include <system_error>

#include <replicator/io/file.hpp>
#include <replicator/job/membership.hpp>

namespace replicator::detail {

// "process 4711 on node1: train --seed 7"
inline std::string describe_this_process() {
  const auto process = transport::detail::this_process();
  std::ifstream file{"/proc/self/cmdline"};
  std::string command{std::istreambuf_iterator<char>{file}, {}};
  while (!command.empty() && command.back() == '\0') command.pop_back();
  std::replace(command.begin(), command.end(), '\0', ' ');
  return "process " + std::to_string(process.pid) + " on " + process.host + ": " + printable(command, 300);
}

class FolderLock {
 public:
  // Takes the lock if no process holds it. Where the file system knows no locks, says so on stderr and goes on.
  // Throws DataError if the file cannot be opened; it may not be a link.
  explicit FolderLock(const std::string& folder)
      : path_{folder + "/.lock"}, file_{path_, O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK, "open the lock of this folder"} {
    if (::flock(file_.fd(), LOCK_EX | LOCK_NB) != 0) {
      if (errno == EWOULDBLOCK) {
        holder_ = read_holder();
        return;
      }
      std::fprintf(stderr, "replicator: %s: this file system has no locks (%s): make sure that no other job writes into the folder\n", path_.c_str(),
                   std::generic_category().message(errno).c_str());
      return;
    }
    const auto text = describe_this_process() + "\n";
    if (::ftruncate(file_.fd(), 0) != 0) io::detail::fail(path_, "write");
    io::detail::write_all(path_, file_.fd(), std::as_bytes(std::span{text}));
  }

  // The process that holds the lock, as it describes itself, if it is another one.
  const std::optional<std::string>& holder() const { return holder_; }

 private:
  // The first line. Another program may have written the file.
  std::string read_holder() const {
    char text[512];
    const auto length = std::max<ssize_t>(::pread(file_.fd(), text, sizeof text, 0), 0);
    const std::string line(text, std::find(text, text + length, '\n'));
    return line.empty() ? "a process that has not named itself" : printable(line, sizeof text);
  }

  std::string path_;
  io::detail::File file_;
  std::optional<std::string> holder_;
};

}  // namespace replicator::detail
