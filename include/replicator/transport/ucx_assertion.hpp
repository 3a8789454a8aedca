// SPDX-License-Identifier: Apache-2.0
// Turns a failed assertion of UCX into an exception. UCX 1.13 fails some of its assertions when a peer dies while it connects,
// and ends the process by SIGABRT: a survivor would be lost together with the dead peer.
#pragma once

#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>

namespace replicator::detail::transport::detail {

// What UCX said. The worker must not be used again, and cannot be destroyed: locks may be held.
class UcxAssertion : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// While one lives, failed assertions of UCX in this thread throw UcxAssertion. Only for calls that may throw.
class UcxGuard {
 public:
  UcxGuard() { ++guards(); }
  UcxGuard(const UcxGuard&) = delete;
  UcxGuard& operator=(const UcxGuard&) = delete;
  ~UcxGuard() { --guards(); }
  static bool holds() { return guards() > 0; }

 private:
  static int& guards() {
    static thread_local int count = 0;
    return count;
  }
};

}  // namespace replicator::detail::transport::detail

// UCX's libraries call this function by its name, so the definition in the program takes the place of theirs. Frames of C are
// unwound like others, because their code has unwind tables on x86-64 and aarch64.
extern "C" [[gnu::visibility("default"), gnu::used]] inline void ucs_fatal_error_format(const char* file, unsigned line, const char* function,
                                                                                        const char* format, ...) {
  char text[1024];
  std::va_list values;
  va_start(values, format);
  std::vsnprintf(text, sizeof text, format, values);
  va_end(values);
  const std::string path = file;
  const std::string message = path.substr(path.rfind('/') + 1) + ":" + std::to_string(line) + " in " + function + ": " + text;
  if (replicator::detail::transport::detail::UcxGuard::holds()) throw replicator::detail::transport::detail::UcxAssertion{message};
  std::fprintf(stderr, "ucx: %s\n", message.c_str());
  std::abort();
}
