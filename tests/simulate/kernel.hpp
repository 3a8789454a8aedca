// SPDX-License-Identifier: Apache-2.0
// Kernel: hosts, processes, threads and a TCP network in the memory of one thread, with a virtual clock.
//
// The library's own code runs here, unchanged. system_calls.cpp replaces the functions of libc that it calls (poll, send,
// pthread_mutex_lock, the clock ...), and passes them on to the kernel that is running. A simulated thread is a fiber: it runs until it
// calls a function that waits. Then the kernel takes the next event from its queue and moves the clock there. All chance
// comes from one seed, so a run can be repeated.
#pragma once

#include <poll.h>
#include <setjmp.h>
#include <sys/socket.h>
#include <ucontext.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <queue>
#include <set>
#include <string>
#include <vector>

#include "file_system.hpp"
#include "random.hpp"

namespace simulate {

using Time = std::int64_t;  // nanoseconds of the virtual clock
inline constexpr Time us = 1000, ms = 1000 * us, second = 1000 * ms;
inline constexpr Time never = INT64_MAX;

struct Process;

// A thread of a simulated process.
struct Fiber {
  Process* process = nullptr;
  std::uint32_t id = 0;  // from 1
  std::function<void()> work;
  char* stack = nullptr;
  bool started = false, finished = false, detached = false;
  ucontext_t beginning{};
  jmp_buf registers;
  void* exceptions[2] = {};  // what __cxa_get_globals() holds for a thread
  int error_number = 0;

  bool waiting = false, woken = false, timed_out = false;
  std::uint64_t waits = 0;         // counts the waits: a timer of an earlier wait does nothing
  const void* on = nullptr;        // the mutex, condition variable or fiber that it waits for
  const pollfd* polled = nullptr;  // the descriptors that it waits for
  std::size_t polled_count = 0;
};

// One end of a connection, a listener, or an eventfd.
struct Socket {
  enum class Kind {
    fresh,
    listening,
    connecting,
    connected,
    broken,
    event
  };
  Kind kind = Kind::fresh;
  int number = 0;
  Process* owner = nullptr;
  bool closed = false;  // no descriptor is left
  int host = 0, peer_host = 0;
  std::uint16_t port = 0, peer_port = 0;
  int error = 0;                   // SO_ERROR
  std::uint64_t count = 0;         // of an eventfd
  std::deque<Socket*> accepted{};  // by the kernel; the process has not called accept yet
  Socket* peer = nullptr;
  Socket* listener = nullptr;  // that will have it in its queue
  std::string in{};            // arrived and acknowledged, but not read
  bool in_ended = false, reset = false;
  struct Segment {
    std::string bytes;
    bool end = false;
  };
  std::deque<Segment> out{};    // on the way
  std::size_t unconfirmed = 0;  // bytes that the other kernel has not acknowledged
  bool out_ended = false, under_way = false;
  Time retry = 200 * ms;
};

struct Process {
  int number = 0, host = 0;
  std::int64_t pid = 0;
  std::string name;
  bool alive = true, stopped = false, exited = false;
  Time began = 0;
  std::map<int, Socket*> sockets{};
  std::map<int, OpenFile> files{};
  std::vector<Fiber*> fibers{};
  std::vector<Fiber*> held{};      // would run if the process were not stopped
  Time slowness = 0;               // added to each wait
  std::uint64_t calls = 0;         // system calls so far
  std::uint64_t dies_at_call = 0;  // 0: not at a call
};

// A rule that the simulated code has broken.
struct Violation {
  std::string what;
};

class Kernel {
 public:
  Kernel(std::uint64_t seed, bool traced);
  ~Kernel();
  Kernel(const Kernel&) = delete;
  Kernel& operator=(const Kernel&) = delete;

  // The kernel whose fiber runs now; null outside of a simulation.
  static Kernel* running() { return current_ != nullptr && current_->fiber_ != nullptr ? current_ : nullptr; }
  // The kernel that exists now.
  static Kernel* current() { return current_; }

  Random& random() { return random_; }
  FileSystem& files() { return files_; }
  Time now() const { return now_; }
  Process& process() const { return *fiber_->process; }
  const std::vector<std::unique_ptr<Process>>& processes() const { return processes_; }

  // --- faults and scenarios ----------------------------------------------------------------------------------------------------
  Process& start(int host, std::string name, std::function<void()> main);
  void at(Time when, std::function<void()> what);
  void after(Time delay, std::function<void()> what) { at(now_ + delay, std::move(what)); }
  // Runs until nothing is left to do, or until `end`.
  void run(Time end);
  void kill(Process& process);
  void stop(Process& process);
  void proceed(Process& process);
  // A host without power answers nothing. When it boots, its processes are gone, and its kernel answers.
  void power(int host, bool on);
  // Hosts and ports at which somebody listens.
  std::vector<std::pair<int, std::uint16_t>> listening() const;
  // One direction of the link between two hosts.
  void cut(int from, int to, bool is_cut);
  bool is_cut(int from, int to) const;
  // Whether a packet that is sent now is lost, and how long it takes if it is not.
  bool unreachable(int from, int to);
  Time latency(int from, int to);
  double loss = 0;                                             // part of the segments that are lost on links between hosts
  Time slowest_link = 0;                                       // delay that is added to some segments between hosts
  std::function<void(const std::string& bytes)> on_message{};  // sees the bytes that arrive over a connection
  std::function<void()> on_link{};                             // hears of each link() that has succeeded
  void violation(const std::string& what);
  const std::string& violated() const { return violated_; }
  bool ends_early() const { return !violated_.empty(); }
  void trace(const std::string& line);
  bool traced() const { return traced_; }
  std::uint64_t events() const { return events_; }

  // --- system calls of the running fiber ------------------------------------------------------------------------------------------
  Time clock();
  void sleep(Time until);
  int socket();
  int bind(int fd, const sockaddr* address);
  int listen(int fd);
  int accept(int fd);
  int connect(int fd, const sockaddr* address);
  ssize_t send(int fd, const void* bytes, std::size_t size);
  ssize_t receive(int fd, void* bytes, std::size_t size);
  int shut_output(int fd);
  int close(int fd);
  int poll(pollfd* fds, std::size_t count, int milliseconds);
  int take_error(int fd, int& error);
  int name(int fd, bool peer, sockaddr* address, socklen_t* length);
  int unconfirmed(int fd, int& bytes);
  int event_fd();
  ssize_t read_event(int fd, void* value);
  ssize_t write_event(int fd, const void* value);
  bool owns(int fd) const { return fd >= first_fd; }
  // One more system call of this process. It may die here, or another fiber may run first.
  void step(bool may_yield);

  Fiber* create_thread(std::function<void()> work);
  void join(Fiber& fiber);
  void lock(void* mutex);
  bool try_lock(void* mutex);
  void unlock(void* mutex);
  // Counts on an eventfd of any process, and wakes who waits for it.
  void post(Process& process, int event_fd);
  // Returns false at `until`.
  bool wait(const void* condition, void* mutex, Time until);
  void notify(const void* condition, bool all);
  Fiber& fiber() { return *fiber_; }

  static constexpr int first_fd = 1 << 20;
  // A plain file on the simulated disk; descriptors of both kinds come from one counter.
  int next_fd() { return next_fd_++; }

 private:
  struct Event {
    Time when;
    std::uint64_t number;
    std::function<void()> what;
    bool operator<(const Event& other) const { return when != other.when ? when > other.when : number > other.number; }
  };
  static constexpr std::size_t buffer = 256 * 1024;  // bytes that one direction of a connection holds

  static void begin_fiber();
  Fiber* make_fiber(Process& process, std::function<void()> work);
  void resume(Fiber& fiber);
  void suspend();
  // Waits until the fiber is woken, or until `until`.
  void block(Time until);
  void wake(Fiber& fiber);
  void wake_pollers(const Socket& socket);
  void finish(Process& process);
  Socket* find(int fd) const;
  Socket& make_socket(Process* owner, int host);
  short ready(const Socket& socket, short wanted) const;
  void transmit(Socket& socket);
  void deliver(Socket& socket);
  void confirm(Socket& socket, std::size_t bytes);
  void knock(Socket& socket, Time retry);
  void establish(Socket& socket, Time retry);
  void welcome(Socket& socket, Time retry);
  void break_connection(Socket& socket, int error);
  void answer_reset(Socket& to, int from_host);
  void close(Socket& socket);

  static Kernel* current_;
  Random random_;
  bool traced_;
  FileSystem files_;
  Time now_ = 0;
  std::uint64_t event_number_ = 0, events_ = 0;
  std::priority_queue<Event> queue_;
  std::vector<std::unique_ptr<Process>> processes_;
  std::vector<std::unique_ptr<Fiber>> fibers_;
  std::vector<std::unique_ptr<Socket>> sockets_;
  std::set<std::pair<int, int>> cuts_;
  std::set<int> dark_;  // hosts without power
  std::map<std::pair<int, std::uint16_t>, Socket*> listeners_;
  Fiber* fiber_ = nullptr;
  jmp_buf scheduler_;
  int next_fd_ = first_fd;
  std::uint16_t next_port_ = 32768;
  std::uint64_t spins_ = 0;
  std::string violated_;
};

// Hosts are numbered from 0. Host 3 has the address 10.0.0.4.
std::string address_of_host(int host);
std::string name_of_host(int host);

}  // namespace simulate
