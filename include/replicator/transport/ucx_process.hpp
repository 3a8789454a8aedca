// SPDX-License-Identifier: Apache-2.0
// Undoes side effects of UCX on the process that loads it: its signal handlers, and its messages on standard output.
#pragma once

#include <signal.h>
#include <ucs/debug/debug.h>
#include <ucs/debug/log_def.h>

#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <initializer_list>

namespace replicator::detail::transport::detail {

inline ucs_log_func_rc_t say_on_stderr(const char*, unsigned, const char*, ucs_log_level_t level,
                                       const ucs_log_component_config_t*, const char* message, va_list values) {
  char text[1024];
  std::vsnprintf(text, sizeof text, message, values);
  std::fprintf(stderr, "ucx: %s: %s\n", ucs_log_level_names[level], text);
  return UCS_LOG_FUNC_RC_STOP;
}

// Call it once, before main. It changes nothing that UCX's own variables (UCX_HANDLE_ERRORS, UCX_ERROR_SIGNALS,
// UCX_DEBUG_SIGNO, UCX_LOG_FILE) set.
//
// **With UCX's crash handlers, a crash may never end.** They print where it happened, with functions that need the locks of
// malloc and of standard output. If the crashed thread holds one of them, this process is neither alive nor dead, and all
// others wait for it. So the handlers are removed. UCX's complaints (about a peer that died, say) go to stderr, because
// standard output belongs to the program.
//
// UCX 1.13 also handles SIGHUP, for its own debugging, so a closed terminal would not end the program. The action that the
// process had before (under nohup: none) is put back.
inline void restrain_ucx() {
  if (std::getenv("UCX_HANDLE_ERRORS") == nullptr && std::getenv("UCX_ERROR_SIGNALS") == nullptr)
    for (const int signal : {SIGILL, SIGSEGV, SIGBUS, SIGFPE}) ucs_debug_disable_signal(signal);
  if (std::getenv("UCX_DEBUG_SIGNO") == nullptr) ucs_debug_disable_signal(SIGHUP);
  if (std::getenv("UCX_LOG_FILE") == nullptr) ucs_log_push_handler(say_on_stderr);
}

}  // namespace replicator::detail::transport::detail
