// SPDX-License-Identifier: Apache-2.0
// Tells ThreadSanitizer what orders the threads of pretended devices: hand-overs to a queue, events, and waits of the host. The
// locks of the stand-in order nothing, because a program must not rely on those of a driver.
#pragma once

#include <mutex>

#if defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
extern "C" {
void AnnotateIgnoreSyncBegin(const char* file, int line);
void AnnotateIgnoreSyncEnd(const char* file, int line);
void AnnotateIgnoreReadsBegin(const char* file, int line);
void AnnotateIgnoreReadsEnd(const char* file, int line);
void AnnotateIgnoreWritesBegin(const char* file, int line);
void AnnotateIgnoreWritesEnd(const char* file, int line);
}
#endif

namespace replicator::test::pretend {

#if defined(__SANITIZE_THREAD__)
// What comes before `publish` in one thread comes before what follows a later `follow` of the same address in another.
inline void publish(void* at) { __tsan_release(at); }
inline void follow(void* at) { __tsan_acquire(at); }
// What the thread does meanwhile is not looked at.
class Unseen {
 public:
  Unseen() {
    AnnotateIgnoreSyncBegin(__FILE__, __LINE__);
    AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
    AnnotateIgnoreWritesBegin(__FILE__, __LINE__);
  }
  Unseen(const Unseen&) = delete;
  Unseen& operator=(const Unseen&) = delete;
  ~Unseen() {
    AnnotateIgnoreWritesEnd(__FILE__, __LINE__);
    AnnotateIgnoreReadsEnd(__FILE__, __LINE__);
    AnnotateIgnoreSyncEnd(__FILE__, __LINE__);
  }
};
#else
inline void publish(void*) {}
inline void follow(void*) {}
struct Unseen {
  Unseen() {}
};
#endif

// Of all that pretended devices keep about themselves: they look into each other's memory.
inline std::mutex gate;
struct Locked {
  Unseen unseen;
  std::unique_lock<std::mutex> lock{gate};
};

}  // namespace replicator::test::pretend
