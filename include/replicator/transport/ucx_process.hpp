// SPDX-License-Identifier: Apache-2.0
// What UCX does to every process that loads it, and how much of that is left.
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

// To be called once, before main. Where UCX's own variables speak of one of these things, it stays as it is.
//
// UCX catches crashes, to print where they were, by functions that need the locks of malloc and of standard output. A
// crash that holds one of them never ends: this process would be neither alive nor dead, and all others would wait for
// it. So a crash is a crash again. And what UCX complains of (a peer that died, say) goes to stderr, for standard output
// is the program's.
inline void restrain_ucx() {
  if (std::getenv("UCX_HANDLE_ERRORS") == nullptr && std::getenv("UCX_ERROR_SIGNALS") == nullptr)
    for (const int signal : {SIGILL, SIGSEGV, SIGBUS, SIGFPE}) ucs_debug_disable_signal(signal);
  if (std::getenv("UCX_LOG_FILE") == nullptr) ucs_log_push_handler(say_on_stderr);
}

}  // namespace replicator::detail::transport::detail
