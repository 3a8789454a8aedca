// SPDX-License-Identifier: Apache-2.0
// The functions of libc and libstdc++ that the simulated code calls. Each one goes to the running Kernel, or, outside of a
// simulation, to the next library.
#undef _FORTIFY_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <linux/sockios.h>

#include <cerrno>
#include <chrono>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <string>

#include "kernel.hpp"

using simulate::Fiber;
using simulate::FileSystem;
using simulate::Kernel;
using simulate::OpenFile;

namespace {

template <class Function>
Function* real(const char* name, const char* version = nullptr) {
  // Some functions have an older version of the same name on x86-64.
  void* found = version != nullptr ? ::dlvsym(RTLD_NEXT, name, version) : nullptr;
  if (found == nullptr) found = ::dlsym(RTLD_NEXT, name);
  return reinterpret_cast<Function*>(found);
}

int fail(int number) {
  errno = number;
  return -1;
}
int result_of(int number) { return number == 0 ? 0 : fail(number); }

// The simulated file behind a descriptor; null where it is none.
OpenFile* file_of(Kernel& kernel, int fd) {
  auto& files = kernel.process().files;
  const auto found = files.find(fd);
  return found == files.end() ? nullptr : &found->second;
}

simulate::Time from_timespec(Kernel& kernel, const timespec& when) {  // of the steady clock
  const auto offset = kernel.clock() - kernel.now();
  return when.tv_sec * simulate::second + when.tv_nsec - offset;
}

struct Folder {
  std::vector<std::string> names;
  std::size_t at = 0;
  dirent entry{};
};
std::map<void*, Folder*> folders;

}  // namespace

// REAL(poll) is the next library's poll.
#define REAL(name) (real<decltype(::name)>(#name))

namespace std::chrono {
inline namespace _V2 {
steady_clock::time_point steady_clock::now() noexcept {
  if (auto* const kernel = Kernel::running()) return time_point{nanoseconds{kernel->clock()}};
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return time_point{seconds{now.tv_sec} + nanoseconds{now.tv_nsec}};
}
}  // namespace _V2
}  // namespace std::chrono

extern "C" {

// --- time ----------------------------------------------------------------------------------------------------------------------
int nanosleep(const timespec* time, timespec* left) {
  if (auto* const kernel = Kernel::running()) {
    kernel->sleep(kernel->now() + time->tv_sec * simulate::second + time->tv_nsec);
    return 0;
  }
  static const auto next = REAL(nanosleep);
  return next(time, left);
}

// --- sockets -----------------------------------------------------------------------------------------------------------------
int socket(int family, int type, int protocol) noexcept {
  if (auto* const kernel = Kernel::running()) return kernel->socket();
  static const auto next = REAL(socket);
  return next(family, type, protocol);
}
int bind(int fd, const sockaddr* address, socklen_t length) noexcept {
  if (auto* const kernel = Kernel::running()) return kernel->bind(fd, address);
  static const auto next = REAL(bind);
  return next(fd, address, length);
}
int listen(int fd, int backlog) noexcept {
  if (auto* const kernel = Kernel::running()) return kernel->listen(fd);
  static const auto next = REAL(listen);
  return next(fd, backlog);
}
int accept4(int fd, sockaddr* address, socklen_t* length, int flags) {
  if (auto* const kernel = Kernel::running()) return kernel->accept(fd);
  static const auto next = REAL(accept4);
  return next(fd, address, length, flags);
}
int connect(int fd, const sockaddr* address, socklen_t length) {
  if (auto* const kernel = Kernel::running()) return kernel->connect(fd, address);
  static const auto next = REAL(connect);
  return next(fd, address, length);
}
ssize_t send(int fd, const void* bytes, size_t size, int flags) {
  if (auto* const kernel = Kernel::running()) return kernel->send(fd, bytes, size);
  static const auto next = REAL(send);
  return next(fd, bytes, size, flags);
}
ssize_t recv(int fd, void* bytes, size_t size, int flags) {
  if (auto* const kernel = Kernel::running()) return kernel->receive(fd, bytes, size);
  static const auto next = REAL(recv);
  return next(fd, bytes, size, flags);
}
int shutdown(int fd, int how) noexcept {
  if (auto* const kernel = Kernel::running()) return kernel->shut_output(fd);
  static const auto next = REAL(shutdown);
  return next(fd, how);
}
int setsockopt(int fd, int level, int name, const void* value, socklen_t length) noexcept {
  if (Kernel::running() != nullptr) return 0;
  static const auto next = REAL(setsockopt);
  return next(fd, level, name, value, length);
}
int getsockopt(int fd, int level, int name, void* value, socklen_t* length) noexcept {
  if (auto* const kernel = Kernel::running()) return kernel->take_error(fd, *static_cast<int*>(value));
  static const auto next = REAL(getsockopt);
  return next(fd, level, name, value, length);
}
int getsockname(int fd, sockaddr* address, socklen_t* length) noexcept {
  if (auto* const kernel = Kernel::running()) return kernel->name(fd, false, address, length);
  static const auto next = REAL(getsockname);
  return next(fd, address, length);
}
int getpeername(int fd, sockaddr* address, socklen_t* length) noexcept {
  if (auto* const kernel = Kernel::running()) return kernel->name(fd, true, address, length);
  static const auto next = REAL(getpeername);
  return next(fd, address, length);
}
// A host has one interface, and its processes never free the list.
int getifaddrs(ifaddrs** list) noexcept {
  auto* const kernel = Kernel::running();
  if (kernel == nullptr) {
    static const auto next = REAL(getifaddrs);
    return next(list);
  }
  static ifaddrs only{};
  static sockaddr_in address{};
  static char name[] = "sim0";
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(0x0a000001u + static_cast<std::uint32_t>(kernel->process().host));
  only.ifa_name = name;
  only.ifa_flags = IFF_UP | IFF_RUNNING;
  only.ifa_addr = reinterpret_cast<sockaddr*>(&address);
  *list = &only;
  return 0;
}
void freeifaddrs(ifaddrs* list) noexcept {
  if (Kernel::running() != nullptr) return;
  static const auto next = REAL(freeifaddrs);
  next(list);
}
int ioctl(int fd, unsigned long request, ...) noexcept {
  va_list arguments;
  va_start(arguments, request);
  void* const argument = va_arg(arguments, void*);
  va_end(arguments);
  if (auto* const kernel = Kernel::running()) return request == SIOCOUTQ ? kernel->unconfirmed(fd, *static_cast<int*>(argument)) : fail(ENOTTY);
  static const auto next = REAL(ioctl);
  return next(fd, request, argument);
}
int poll(pollfd* fds, nfds_t count, int milliseconds) {
  if (auto* const kernel = Kernel::running()) return kernel->poll(fds, count, milliseconds);
  static const auto next = REAL(poll);
  return next(fds, count, milliseconds);
}
int eventfd(unsigned int count, int flags) noexcept {
  if (auto* const kernel = Kernel::running()) return kernel->event_fd();
  static const auto next = REAL(eventfd);
  return next(count, flags);
}

// --- this process --------------------------------------------------------------------------------------------------------------
pid_t getpid() noexcept {
  if (auto* const kernel = Kernel::running()) return static_cast<pid_t>(kernel->process().pid);
  static const auto next = REAL(getpid);
  return next();
}
int gethostname(char* name, size_t size) noexcept {
  if (auto* const kernel = Kernel::running()) {
    std::snprintf(name, size, "%s", simulate::name_of_host(kernel->process().host).c_str());
    return 0;
  }
  static const auto next = REAL(gethostname);
  return next(name, size);
}
ssize_t getrandom(void* bytes, size_t size, unsigned int flags) {
  if (auto* const kernel = Kernel::running()) {
    for (std::size_t i = 0; i < size; ++i) static_cast<unsigned char*>(bytes)[i] = static_cast<unsigned char>(kernel->random().next());
    return static_cast<ssize_t>(size);
  }
  static const auto next = REAL(getrandom);
  return next(bytes, size, flags);
}

// --- threads -------------------------------------------------------------------------------------------------------------------
int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*work)(void*), void* argument) noexcept {
  if (auto* const kernel = Kernel::running()) {
    *thread = reinterpret_cast<pthread_t>(kernel->create_thread([work, argument] { work(argument); }));
    return 0;
  }
  static const auto next = REAL(pthread_create);
  return next(thread, attributes, work, argument);
}
int pthread_join(pthread_t thread, void** result) {
  if (auto* const kernel = Kernel::running()) return kernel->join(*reinterpret_cast<Fiber*>(thread)), 0;
  static const auto next = REAL(pthread_join);
  return next(thread, result);
}
int pthread_detach(pthread_t thread) noexcept {
  if (Kernel::running() != nullptr) return 0;
  static const auto next = REAL(pthread_detach);
  return next(thread);
}
int pthread_sigmask(int how, const sigset_t* set, sigset_t* before) noexcept {
  if (Kernel::running() != nullptr) return 0;  // else a killed fiber would leave the signals of this program blocked
  static const auto next = REAL(pthread_sigmask);
  return next(how, set, before);
}
int pthread_mutex_lock(pthread_mutex_t* mutex) noexcept {
  if (auto* const kernel = Kernel::running()) return kernel->lock(mutex), 0;
  static const auto next = REAL(pthread_mutex_lock);
  return next(mutex);
}
int pthread_mutex_trylock(pthread_mutex_t* mutex) noexcept {
  if (auto* const kernel = Kernel::running()) return kernel->try_lock(mutex) ? 0 : EBUSY;
  static const auto next = REAL(pthread_mutex_trylock);
  return next(mutex);
}
int pthread_mutex_unlock(pthread_mutex_t* mutex) noexcept {
  if (auto* const kernel = Kernel::running()) return kernel->unlock(mutex), 0;
  static const auto next = REAL(pthread_mutex_unlock);
  return next(mutex);
}
int pthread_cond_wait(pthread_cond_t* condition, pthread_mutex_t* mutex) {
  if (auto* const kernel = Kernel::running()) return kernel->wait(condition, mutex, simulate::never), 0;
  static const auto next = real<decltype(::pthread_cond_wait)>("pthread_cond_wait", "GLIBC_2.3.2");
  return next(condition, mutex);
}
int pthread_cond_clockwait(pthread_cond_t* condition, pthread_mutex_t* mutex, clockid_t clock, const timespec* until) {
  if (auto* const kernel = Kernel::running()) return kernel->wait(condition, mutex, from_timespec(*kernel, *until)) ? 0 : ETIMEDOUT;
  static const auto next = REAL(pthread_cond_clockwait);
  return next(condition, mutex, clock, until);
}
int pthread_cond_signal(pthread_cond_t* condition) noexcept {
  if (auto* const kernel = Kernel::running()) return kernel->notify(condition, false), 0;
  static const auto next = real<decltype(::pthread_cond_signal)>("pthread_cond_signal", "GLIBC_2.3.2");
  return next(condition);
}
int pthread_cond_broadcast(pthread_cond_t* condition) noexcept {
  if (auto* const kernel = Kernel::running()) return kernel->notify(condition, true), 0;
  static const auto next = real<decltype(::pthread_cond_broadcast)>("pthread_cond_broadcast", "GLIBC_2.3.2");
  return next(condition);
}
int pthread_cond_destroy(pthread_cond_t* condition) noexcept {
  if (Kernel::running() != nullptr) return 0;
  static const auto next = real<decltype(::pthread_cond_destroy)>("pthread_cond_destroy", "GLIBC_2.3.2");
  return next(condition);
}

// --- files ---------------------------------------------------------------------------------------------------------------------
int open(const char* path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const auto mode = static_cast<mode_t>(va_arg(arguments, int));
  va_end(arguments);
  if (auto* const kernel = Kernel::running(); kernel != nullptr && FileSystem::has(path)) {
    kernel->step(true);
    OpenFile file;
    if (const int number = kernel->files().open(path, flags, file); number != 0) return fail(number);
    const int fd = kernel->next_fd();
    kernel->process().files[fd] = std::move(file);
    return fd;
  }
  static const auto next = REAL(open);
  return next(path, flags, mode);
}
ssize_t write(int fd, const void* bytes, size_t size) {
  if (auto* const kernel = Kernel::running(); kernel != nullptr && kernel->owns(fd)) {
    OpenFile* const file = file_of(*kernel, fd);
    if (file == nullptr) return kernel->write_event(fd, bytes);
    kernel->step(true);
    std::size_t written = 0;
    const int number = kernel->files().write(*file, bytes, size, written);
    return number == 0 ? static_cast<ssize_t>(written) : fail(number);
  }
  static const auto next = REAL(write);
  return next(fd, bytes, size);
}
ssize_t read(int fd, void* bytes, size_t size) {
  if (auto* const kernel = Kernel::running(); kernel != nullptr && kernel->owns(fd)) {
    OpenFile* const file = file_of(*kernel, fd);
    if (file == nullptr) return kernel->read_event(fd, bytes);
    kernel->step(true);
    const auto& content = file->node->content;
    const auto count = std::min(size, content.size() - std::min(file->at, content.size()));
    std::memcpy(bytes, content.data() + file->at, count);
    file->at += count;
    return static_cast<ssize_t>(count);
  }
  static const auto next = REAL(read);
  return next(fd, bytes, size);
}
ssize_t pread(int fd, void* bytes, size_t size, off_t at) {
  if (auto* const kernel = Kernel::running(); kernel != nullptr && kernel->owns(fd)) {
    OpenFile file = *file_of(*kernel, fd);
    const auto& content = file.node->content;
    const auto first = std::min(static_cast<std::size_t>(at), content.size());
    const auto count = std::min(size, content.size() - first);
    std::memcpy(bytes, content.data() + first, count);
    return static_cast<ssize_t>(count);
  }
  static const auto next = REAL(pread);
  return next(fd, bytes, size, at);
}
int ftruncate(int fd, off_t size) noexcept {
  if (auto* const kernel = Kernel::running(); kernel != nullptr && kernel->owns(fd)) {
    kernel->step(true);
    ++kernel->files().operations;
    file_of(*kernel, fd)->node->content.resize(static_cast<std::size_t>(size));
    return 0;
  }
  static const auto next = REAL(ftruncate);
  return next(fd, size);
}
int fsync(int fd) {
  if (auto* const kernel = Kernel::running(); kernel != nullptr && kernel->owns(fd)) {
    kernel->step(true);
    return result_of(kernel->files().sync(*file_of(*kernel, fd)));
  }
  static const auto next = REAL(fsync);
  return next(fd);
}
int close(int fd) {
  if (auto* const kernel = Kernel::running(); kernel != nullptr && kernel->owns(fd)) return kernel->close(fd);
  static const auto next = REAL(close);
  return next(fd);
}
int flock(int fd, int operation) noexcept {
  if (auto* const kernel = Kernel::running(); kernel != nullptr && kernel->owns(fd)) {
    auto& holder = file_of(*kernel, fd)->node->locked_by;
    const int self = kernel->process().number + 1;
    if (holder != 0 && holder != self) return fail(EWOULDBLOCK);
    holder = self;
    return 0;
  }
  static const auto next = REAL(flock);
  return next(fd, operation);
}
int fstat(int fd, struct stat* status) noexcept {
  if (auto* const kernel = Kernel::running(); kernel != nullptr && kernel->owns(fd)) return FileSystem::fill(*file_of(*kernel, fd)->node, *status), 0;
  static const auto next = REAL(fstat);
  return next(fd, status);
}
int stat(const char* path, struct stat* status) noexcept {
  if (auto* const kernel = Kernel::running(); kernel != nullptr && FileSystem::has(path)) {
    const auto node = kernel->files().find(path);
    if (!node) return fail(ENOENT);
    FileSystem::fill(*node, *status);
    return 0;
  }
  static const auto next = REAL(stat);
  return next(path, status);
}
int lstat(const char* path, struct stat* status) noexcept {
  if (Kernel::running() != nullptr && FileSystem::has(path)) return ::stat(path, status);
  static const auto next = REAL(lstat);
  return next(path, status);
}
ssize_t readlink(const char* path, char* target, size_t size) noexcept {
  if (auto* const kernel = Kernel::running(); kernel != nullptr && FileSystem::has(path)) return fail(kernel->files().find(path) ? EINVAL : ENOENT);
  static const auto next = REAL(readlink);
  return next(path, target, size);
}
// A change of names in a folder. The process may die before it.
#define CHANGE(call)  \
  kernel->step(true); \
  return result_of(kernel->files().call)
int rename(const char* from, const char* to) noexcept {
  if (auto* const kernel = Kernel::running(); kernel != nullptr && FileSystem::has(from)) {
    CHANGE(rename(from, to));
  }
  static const auto next = REAL(rename);
  return next(from, to);
}
int link(const char* from, const char* to) noexcept {
  if (auto* const kernel = Kernel::running(); kernel != nullptr && FileSystem::has(from)) {
    kernel->step(true);
    const int number = kernel->files().link(from, to);
    if (number == 0 && kernel->on_link) std::function{kernel->on_link}();
    return result_of(number);
  }
  static const auto next = REAL(link);
  return next(from, to);
}
int unlink(const char* path) noexcept {
  if (auto* const kernel = Kernel::running(); kernel != nullptr && FileSystem::has(path)) {
    CHANGE(unlink(path));
  }
  static const auto next = REAL(unlink);
  return next(path);
}
int mkdir(const char* path, mode_t mode) noexcept {
  if (auto* const kernel = Kernel::running(); kernel != nullptr && FileSystem::has(path)) {
    CHANGE(make_folder(path));
  }
  static const auto next = REAL(mkdir);
  return next(path, mode);
}
FILE* fopen(const char* path, const char* mode) {
  if (auto* const kernel = Kernel::running(); kernel != nullptr && FileSystem::has(path)) {
    kernel->step(true);
    const auto node = kernel->files().find(path);
    if (!node) return errno = ENOENT, nullptr;
    FILE* const file = ::fmemopen(nullptr, node->content.size() + 1, "w+");
    if (file == nullptr) return nullptr;
    std::fwrite(node->content.data(), 1, node->content.size(), file);
    std::rewind(file);
    return file;
  }
  static const auto next = REAL(fopen);
  return next(path, mode);
}
DIR* opendir(const char* path) {
  if (auto* const kernel = Kernel::running(); kernel != nullptr && FileSystem::has(path)) {
    if (!kernel->files().find(path)) return errno = ENOENT, nullptr;
    auto* const folder = new Folder{kernel->files().names(path)};
    folders[folder] = folder;
    return reinterpret_cast<DIR*>(folder);
  }
  static const auto next = REAL(opendir);
  return next(path);
}
dirent* readdir(DIR* folder) {
  if (const auto found = folders.find(folder); found != folders.end()) {
    auto& own = *found->second;
    if (own.at == own.names.size()) return nullptr;
    std::snprintf(own.entry.d_name, sizeof own.entry.d_name, "%s", own.names[own.at++].c_str());
    return &own.entry;
  }
  static const auto next = REAL(readdir);
  return next(folder);
}
int closedir(DIR* folder) {
  if (const auto found = folders.find(folder); found != folders.end()) {
    delete found->second;
    folders.erase(found);
    return 0;
  }
  static const auto next = REAL(closedir);
  return next(folder);
}

}  // extern "C"
