// SPDX-License-Identifier: Apache-2.0
#undef _FORTIFY_SOURCE  // its longjmp refuses to change stacks
#include "kernel.hpp"

#include <cxxabi.h>
#include <netinet/in.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

namespace simulate {

namespace {

constexpr std::size_t stack_bytes = 256 * 1024;
std::vector<char*> free_stacks;

char* take_stack() {
  if (!free_stacks.empty()) {
    char* const stack = free_stacks.back();
    free_stacks.pop_back();
    return stack;
  }
  void* const memory = ::mmap(nullptr, stack_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
  if (memory == MAP_FAILED) std::abort();
  ::mprotect(memory, 4096, PROT_NONE);  // an overflow ends the program
  return static_cast<char*>(memory);
}

int error(int number) {
  errno = number;
  return -1;
}

// The simulated content of a pthread_mutex_t. Zero bytes are a free mutex, as in libc.
struct Mutex {
  std::uint32_t owner;
};

}  // namespace

std::string address_of_host(int host) { return "10.0.0." + std::to_string(host + 1); }
std::string name_of_host(int host) { return "host-" + std::string(1, static_cast<char>('a' + host)); }

Kernel* Kernel::current_ = nullptr;

Kernel::Kernel(std::uint64_t seed, bool traced) : random_{seed}, traced_{traced} {
  files_.random = &random_;
  current_ = this;
}
Kernel::~Kernel() {
  current_ = nullptr;
  for (const auto& fiber : fibers_)
    if (fiber->stack != nullptr) free_stacks.push_back(fiber->stack);
}

void Kernel::trace(const std::string& line) {
  if (!traced_) return;
  const std::string who = fiber_ != nullptr ? fiber_->process->name + "/" + std::to_string(fiber_->id) : "-";
  std::printf("%12.6f  %-16s %s\n", static_cast<double>(now_) / 1e9, who.c_str(), line.c_str());
}
void Kernel::violation(const std::string& what) {
  trace("VIOLATION: " + what);
  if (violated_.empty()) violated_ = what;
}

// --- fibers ------------------------------------------------------------------------------------------------------------------------
void Kernel::begin_fiber() {
  Fiber& fiber = *current_->fiber_;
  fiber.work();
  fiber.finished = true;
  if (&fiber == fiber.process->fibers.front()) {
    fiber.process->exited = true;
    current_->finish(*fiber.process);
  } else {
    current_->notify(&fiber, true);
  }
  current_->suspend();
  std::abort();
}
Fiber* Kernel::make_fiber(Process& process, std::function<void()> work) {
  auto& fiber = *fibers_.emplace_back(std::make_unique<Fiber>());
  fiber.process = &process;
  fiber.id = static_cast<std::uint32_t>(fibers_.size());
  fiber.work = std::move(work);
  fiber.stack = take_stack();
  ::getcontext(&fiber.beginning);
  fiber.beginning.uc_stack.ss_sp = fiber.stack;
  fiber.beginning.uc_stack.ss_size = stack_bytes;
  fiber.beginning.uc_link = nullptr;
  ::makecontext(&fiber.beginning, &Kernel::begin_fiber, 0);
  process.fibers.push_back(&fiber);
  fiber.waiting = true;
  wake(fiber);
  return &fiber;
}
void Kernel::resume(Fiber& fiber) {
  if (!fiber.process->alive || fiber.finished) return;
  if (fiber.process->stopped) {
    fiber.process->held.push_back(&fiber);
    return;
  }
  fiber.waiting = fiber.woken = false;
  fiber_ = &fiber;
  spins_ = 0;
  auto* const globals = reinterpret_cast<void**>(abi::__cxa_get_globals());
  void* const own[2] = {globals[0], globals[1]};
  std::memcpy(globals, fiber.exceptions, sizeof fiber.exceptions);
  errno = fiber.error_number;
  if (_setjmp(scheduler_) == 0) {
    if (fiber.started) _longjmp(fiber.registers, 1);
    fiber.started = true;
    ::setcontext(&fiber.beginning);
  }
  std::memcpy(fiber_->exceptions, globals, sizeof fiber_->exceptions);
  std::memcpy(globals, own, sizeof own);
  fiber_ = nullptr;
}
void Kernel::suspend() {
  fiber_->error_number = errno;
  if (_setjmp(fiber_->registers) == 0) _longjmp(scheduler_, 1);
}
void Kernel::block(Time until) {
  Fiber& fiber = *fiber_;
  fiber.waiting = true;
  fiber.timed_out = false;
  const auto number = ++fiber.waits;
  if (until != never)
    at(until, [this, &fiber, number] {
      if (!fiber.waiting || fiber.waits != number || fiber.woken) return;
      fiber.timed_out = true;
      wake(fiber);
    });
  suspend();
  fiber.on = nullptr;
  fiber.polled = nullptr;
}
void Kernel::wake(Fiber& fiber) {
  if (!fiber.waiting || fiber.woken) return;
  fiber.woken = true;
  Time delay = random_.between(1 * us, 30 * us) + fiber.process->slowness;
  if (random_.chance(0.01)) delay += random_.between(0, 3 * ms);
  after(delay, [this, &fiber] { resume(fiber); });
}
void Kernel::wake_pollers(const Socket& socket) {
  if (socket.owner == nullptr || socket.closed) return;
  for (Fiber* const fiber : socket.owner->fibers) {
    if (fiber->polled == nullptr) continue;
    for (std::size_t i = 0; i < fiber->polled_count; ++i)
      if (fiber->polled[i].fd == socket.number && ready(socket, fiber->polled[i].events) != 0) wake(*fiber);
  }
}

// --- scenario ----------------------------------------------------------------------------------------------------------------------
Process& Kernel::start(int host, std::string name, std::function<void()> main) {
  auto& process = *processes_.emplace_back(std::make_unique<Process>());
  process.number = static_cast<int>(processes_.size()) - 1;
  process.host = host;
  process.pid = 1000 + process.number;
  process.name = std::move(name);
  process.began = now_;
  trace("start " + process.name + " (pid " + std::to_string(process.pid) + ") on " + name_of_host(host));
  make_fiber(process, std::move(main));
  return process;
}
void Kernel::at(Time when, std::function<void()> what) { queue_.push({std::max(when, now_), event_number_++, std::move(what)}); }
void Kernel::run(Time end) {
  while (!queue_.empty() && !ends_early()) {
    if (queue_.top().when > end) return;
    const auto what = std::move(const_cast<Event&>(queue_.top()).what);
    now_ = std::max(now_, queue_.top().when);
    queue_.pop();
    ++events_;
    what();
  }
}
void Kernel::kill(Process& process) {
  if (!process.alive) return;
  trace("KILL " + process.name);
  finish(process);
}
void Kernel::finish(Process& process) {
  process.alive = false;
  const auto sockets = process.sockets;
  for (const auto& [fd, socket] : sockets) close(*socket);
  process.sockets.clear();
  for (auto& [fd, file] : process.files)
    if (file.node->locked_by == process.number + 1) file.node->locked_by = 0;
  process.files.clear();
}
void Kernel::stop(Process& process) {
  if (!process.alive || process.stopped) return;
  trace("STOP " + process.name);
  process.stopped = true;
}
void Kernel::proceed(Process& process) {
  if (!process.alive || !process.stopped) return;
  trace("CONTINUE " + process.name);
  process.stopped = false;
  for (Fiber* const fiber : std::exchange(process.held, {})) after(random_.between(1 * us, 2 * ms), [this, fiber] { resume(*fiber); });
}
void Kernel::power(int host, bool on) {
  trace((on ? "BOOT " : "POWER OFF ") + name_of_host(host));
  if (on) {
    dark_.erase(host);
    return;
  }
  dark_.insert(host);
  for (const auto& process : processes_)
    if (process->host == host) finish(*process);
  for (const auto& socket : sockets_)
    if (socket->host == host) socket->out.clear(), socket->in.clear(), socket->closed = true;
}
std::vector<std::pair<int, std::uint16_t>> Kernel::listening() const {
  std::vector<std::pair<int, std::uint16_t>> result;
  for (const auto& [place, socket] : listeners_) result.push_back(place);
  return result;
}
void Kernel::cut(int from, int to, bool is_cut) {
  trace((is_cut ? "CUT " : "HEAL ") + name_of_host(from) + " -> " + name_of_host(to));
  if (is_cut) cuts_.insert({from, to});
  else cuts_.erase({from, to});
}
bool Kernel::is_cut(int from, int to) const { return from != to && cuts_.contains({from, to}); }
bool Kernel::unreachable(int from, int to) {
  if (dark_.contains(from) || dark_.contains(to)) return true;
  if (from == to) return false;
  return cuts_.contains({from, to}) || (loss > 0 && random_.chance(loss));
}
Time Kernel::latency(int from, int to) {
  Time result = from == to ? random_.between(2 * us, 20 * us) : random_.between(30 * us, 300 * us);
  if (from != to && slowest_link > 0 && random_.chance(0.1)) result += random_.between(0, slowest_link);
  return result;
}

void Kernel::step(bool may_yield) {
  Process& process = *fiber_->process;
  if (++process.calls == process.dies_at_call) {
    trace("dies at system call " + std::to_string(process.calls));
    kill(process);
    suspend();
  }
  if (++spins_ > 200000) {
    violation(process.name + " makes 200000 system calls without a wait");
    suspend();
  }
  if (!may_yield || !random_.chance(0.25)) return;
  block(now_ + random_.between(1 * us, 50 * us));
}

// --- time --------------------------------------------------------------------------------------------------------------------------
// Each look at the clock takes a little time, so that a loop that only looks at it ends too. Clocks of two hosts differ.
Time Kernel::clock() {
  now_ += 50;
  if (++spins_ > 2000000) {
    violation(process().name + " looks at the clock two million times without a wait");
    suspend();
  }
  return now_ + (process().host + 1) * 100000 * second;
}
void Kernel::sleep(Time until) {
  step(false);
  while (now_ < until) block(until);
}

// --- sockets ---------------------------------------------------------------------------------------------------------------------
Socket* Kernel::find(int fd) const {
  const auto& sockets = fiber_->process->sockets;
  const auto found = sockets.find(fd);
  return found == sockets.end() ? nullptr : found->second;
}
Socket& Kernel::make_socket(Process* owner, int host) {
  auto& socket = *sockets_.emplace_back(std::make_unique<Socket>());
  socket.owner = owner;
  socket.host = host;
  socket.number = next_fd();
  if (owner != nullptr) owner->sockets[socket.number] = &socket;
  return socket;
}
int Kernel::socket() { return make_socket(fiber_->process, fiber_->process->host).number; }
int Kernel::bind(int fd, const sockaddr* address) {
  Socket* const socket = find(fd);
  if (socket == nullptr) return error(EBADF);
  socket->port = ntohs(reinterpret_cast<const sockaddr_in*>(address)->sin_port);  // at the same place in IPv6
  if (socket->port == 0) socket->port = next_port_++;
  if (listeners_.contains({socket->host, socket->port})) return error(EADDRINUSE);
  return 0;
}
int Kernel::listen(int fd) {
  Socket* const socket = find(fd);
  if (socket == nullptr) return error(EBADF);
  if (!listeners_.emplace(std::pair{socket->host, socket->port}, socket).second) return error(EADDRINUSE);
  socket->kind = Socket::Kind::listening;
  return 0;
}
int Kernel::accept(int fd) {
  step(true);
  Socket* const socket = find(fd);
  if (socket == nullptr) return error(EBADF);
  if (socket->accepted.empty()) return error(EAGAIN);
  Socket* const next = socket->accepted.front();
  socket->accepted.pop_front();
  next->owner = fiber_->process;
  next->owner->sockets[next->number] = next;
  return next->number;
}
int Kernel::connect(int fd, const sockaddr* address) {
  step(true);
  Socket* const socket = find(fd);
  if (socket == nullptr) return error(EBADF);
  std::uint32_t number = 0;
  if (address->sa_family == AF_INET) number = ntohl(reinterpret_cast<const sockaddr_in*>(address)->sin_addr.s_addr);
  else std::memcpy(&number, reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr.s6_addr + 12, 4), number = ntohl(number);
  socket->peer_host = number >> 24 == 127 ? socket->host : static_cast<int>(number & 255) - 1;
  socket->peer_port = ntohs(reinterpret_cast<const sockaddr_in*>(address)->sin_port);
  socket->port = next_port_++;
  socket->kind = Socket::Kind::connecting;
  after(latency(socket->host, socket->peer_host), [this, socket] { knock(*socket, second); });
  return error(EINPROGRESS);
}
// The first packet of a connection arrives, or is sent again after 1, 2 and 4 s.
void Kernel::knock(Socket& socket, Time retry) {
  if (socket.closed || socket.kind != Socket::Kind::connecting) return;
  const bool lost = unreachable(socket.host, socket.peer_host);
  const auto found = listeners_.find({socket.peer_host, socket.peer_port});
  if (!lost && found == listeners_.end()) {
    if (!unreachable(socket.peer_host, socket.host)) return break_connection(socket, ECONNREFUSED);
  } else if (!lost) {
    Socket& other = make_socket(nullptr, socket.peer_host);
    other.kind = Socket::Kind::connected;
    other.port = socket.peer_port;
    other.peer_host = socket.host;
    other.peer_port = socket.port;
    other.peer = &socket;
    socket.peer = &other;
    other.listener = found->second;
    after(latency(socket.peer_host, socket.host), [this, &socket] { establish(socket, second); });
    return;
  }
  after(retry, [this, &socket, retry] { knock(socket, 2 * retry); });
}
void Kernel::establish(Socket& socket, Time retry) {
  if (socket.closed || socket.kind != Socket::Kind::connecting) return;
  if (unreachable(socket.peer_host, socket.host)) {
    after(retry, [this, &socket, retry] { establish(socket, 2 * retry); });
    return;
  }
  if (dark_.contains(socket.host)) return;
  socket.kind = Socket::Kind::connected;
  wake_pollers(socket);
  after(latency(socket.host, socket.peer_host), [this, &socket] { welcome(*socket.peer, 200 * ms); });
}
// The last packet of the handshake, or the first data, arrives: from now on accept() finds the connection.
void Kernel::welcome(Socket& socket, Time retry) {
  if (socket.listener == nullptr) return;
  if (unreachable(socket.peer_host, socket.host)) {
    after(retry, [this, &socket, retry] { welcome(socket, 2 * retry); });
    return;
  }
  Socket& listener = *std::exchange(socket.listener, nullptr);
  if (listener.closed) {
    socket.closed = true;
    answer_reset(*socket.peer, socket.host);
    return;
  }
  listener.accepted.push_back(&socket);
  wake_pollers(listener);
}
void Kernel::break_connection(Socket& socket, int number) {
  if (socket.reset) return;
  socket.kind = Socket::Kind::broken;
  socket.error = number;
  socket.reset = true;
  socket.out.clear();
  socket.unconfirmed = 0;
  wake_pollers(socket);
}
void Kernel::answer_reset(Socket& to, int from_host) {
  after(latency(from_host, to.host), [this, &to, from_host] {
    if (!unreachable(from_host, to.host)) break_connection(to, ECONNRESET);
  });
}
void Kernel::transmit(Socket& socket) {
  if (socket.under_way || socket.out.empty()) return;
  socket.under_way = true;
  after(latency(socket.host, socket.peer_host), [this, &socket] { deliver(socket); });
}
void Kernel::deliver(Socket& socket) {
  socket.under_way = false;
  if (socket.out.empty() || socket.reset) return;
  Socket& peer = *socket.peer;
  if (unreachable(socket.host, socket.peer_host)) {
    if (dark_.contains(socket.host)) return;
    socket.under_way = true;
    after(socket.retry, [this, &socket] { deliver(socket); });
    socket.retry = std::min(2 * socket.retry, 20 * second);
    return;
  }
  socket.retry = 200 * ms;
  welcome(peer, 200 * ms);
  if (peer.closed) {
    const bool data = std::any_of(socket.out.begin(), socket.out.end(), [](const auto& segment) { return !segment.bytes.empty(); });
    if (!data) return socket.out.clear();
    if (socket.closed) return socket.out.clear();
    answer_reset(socket, socket.peer_host);
    socket.under_way = true;  // sent again where the answer is lost
    after(second, [this, &socket] { deliver(socket); });
    return;
  }
  std::size_t bytes = 0;
  for (auto parts = 1 + random_.below(4); parts > 0 && !socket.out.empty(); --parts) {
    auto& segment = socket.out.front();
    peer.in += segment.bytes;
    if (on_message) std::function{on_message}(segment.bytes);  // a copy: it may replace itself
    bytes += segment.bytes.size();
    peer.in_ended |= segment.end;
    socket.out.pop_front();
  }
  if (peer.kind == Socket::Kind::connecting) peer.kind = Socket::Kind::connected;
  wake_pollers(peer);
  if (bytes > 0) after(latency(socket.peer_host, socket.host), [this, &socket, bytes] { confirm(socket, bytes); });
  transmit(socket);
}
void Kernel::confirm(Socket& socket, std::size_t bytes) {
  if (socket.reset || dark_.contains(socket.host)) return;
  if (unreachable(socket.peer_host, socket.host)) {
    after(random_.between(200 * ms, second), [this, &socket, bytes] { confirm(socket, bytes); });
    return;
  }
  socket.unconfirmed -= std::min(bytes, socket.unconfirmed);
  wake_pollers(socket);
}
ssize_t Kernel::send(int fd, const void* bytes, std::size_t size) {
  step(true);
  Socket* const socket = find(fd);
  if (socket == nullptr) return error(EBADF);
  if (socket->reset) return error(std::exchange(socket->error, 0) != 0 ? ECONNRESET : EPIPE);
  if (socket->kind != Socket::Kind::connected) return error(ENOTCONN);
  if (socket->out_ended) return error(EPIPE);
  const std::size_t held = socket->unconfirmed + socket->peer->in.size();
  if (held >= buffer) return error(EAGAIN);
  size = std::min(size, buffer - held);
  const auto* const first = static_cast<const char*>(bytes);
  const std::size_t half = size > 1 && random_.chance(0.1) ? 1 + random_.below(size - 1) : size;
  socket->out.push_back({std::string(first, half)});
  if (half < size) socket->out.push_back({std::string(first + half, size - half)});
  socket->unconfirmed += size;
  transmit(*socket);
  return static_cast<ssize_t>(size);
}
ssize_t Kernel::receive(int fd, void* bytes, std::size_t size) {
  step(false);
  Socket* const socket = find(fd);
  if (socket == nullptr) return error(EBADF);
  if (!socket->in.empty()) {
    size = std::min(size, socket->in.size());
    std::memcpy(bytes, socket->in.data(), size);
    socket->in.erase(0, size);
    if (socket->peer != nullptr) wake_pollers(*socket->peer);
    return static_cast<ssize_t>(size);
  }
  if (socket->reset && socket->error != 0) return error(std::exchange(socket->error, 0));
  if (socket->reset || socket->in_ended) return 0;
  if (socket->kind != Socket::Kind::connected) return error(ENOTCONN);
  return error(EAGAIN);
}
int Kernel::shut_output(int fd) {
  step(true);
  Socket* const socket = find(fd);
  if (socket == nullptr) return error(EBADF);
  if (socket->kind != Socket::Kind::connected) return error(ENOTCONN);
  if (!std::exchange(socket->out_ended, true)) socket->out.push_back({{}, true});
  transmit(*socket);
  return 0;
}
int Kernel::close(int fd) {
  step(true);
  auto& process = *fiber_->process;
  if (const auto file = process.files.find(fd); file != process.files.end()) {
    if (file->second.node->locked_by == process.number + 1) file->second.node->locked_by = 0;
    process.files.erase(file);
    return 0;
  }
  Socket* const socket = find(fd);
  if (socket == nullptr) return error(EBADF);
  process.sockets.erase(fd);
  close(*socket);
  return 0;
}
void Kernel::close(Socket& socket) {
  if (std::exchange(socket.closed, true)) return;
  if (socket.kind == Socket::Kind::listening) {
    listeners_.erase({socket.host, socket.port});
    for (Socket* const waiting : socket.accepted) {
      waiting->closed = true;
      waiting->out.clear();
      answer_reset(*waiting->peer, waiting->host);
    }
    socket.accepted.clear();
    return;
  }
  if (socket.kind != Socket::Kind::connected || socket.peer == nullptr || socket.reset) return;
  if (!socket.in.empty()) {  // unread bytes are lost, and the peer is told
    socket.out.clear();
    answer_reset(*socket.peer, socket.host);
    return;
  }
  if (!std::exchange(socket.out_ended, true)) socket.out.push_back({{}, true});
  transmit(socket);
}
short Kernel::ready(const Socket& socket, short wanted) const {
  short result = 0;
  if (socket.kind == Socket::Kind::event && socket.count > 0) result |= POLLIN;
  if (socket.kind == Socket::Kind::listening && !socket.accepted.empty()) result |= POLLIN;
  if (!socket.in.empty() || socket.in_ended) result |= POLLIN;
  if (socket.kind == Socket::Kind::connected && socket.unconfirmed + socket.peer->in.size() < buffer) result |= POLLOUT;
  result &= wanted;
  if (socket.reset) result |= static_cast<short>(POLLERR | POLLHUP | (wanted & (POLLIN | POLLOUT)));
  return result;
}
int Kernel::poll(pollfd* fds, std::size_t count, int milliseconds) {
  step(false);
  const Time until = milliseconds < 0 ? never : now_ + milliseconds * ms;
  for (;;) {
    int found = 0;
    for (std::size_t i = 0; i < count; ++i) {
      fds[i].revents = 0;
      if (fds[i].fd < 0) continue;
      const Socket* const socket = find(fds[i].fd);
      fds[i].revents = socket == nullptr ? static_cast<short>(POLLNVAL) : ready(*socket, fds[i].events);
      found += fds[i].revents != 0;
    }
    if (found > 0 || now_ >= until) return found;
    fiber_->polled = fds;
    fiber_->polled_count = count;
    block(until);
  }
}
int Kernel::take_error(int fd, int& number) {
  Socket* const socket = find(fd);
  if (socket == nullptr) return error(EBADF);
  number = std::exchange(socket->error, 0);
  return 0;
}
int Kernel::name(int fd, bool peer, sockaddr* address, socklen_t* length) {
  const Socket* const socket = find(fd);
  if (socket == nullptr) return error(EBADF);
  if (peer && socket->peer == nullptr && socket->kind != Socket::Kind::broken) return error(ENOTCONN);
  sockaddr_in result{};
  result.sin_family = AF_INET;
  result.sin_port = htons(peer ? socket->peer_port : socket->port);
  const auto host = static_cast<std::uint32_t>(peer ? socket->peer_host : socket->host);
  result.sin_addr.s_addr = htonl(socket->kind == Socket::Kind::listening ? 0 : 0x0a000001u + host);
  std::memcpy(address, &result, std::min<std::size_t>(*length, sizeof result));
  *length = sizeof result;
  return 0;
}
int Kernel::unconfirmed(int fd, int& bytes) {
  const Socket* const socket = find(fd);
  if (socket == nullptr) return error(EBADF);
  bytes = static_cast<int>(socket->unconfirmed);
  return 0;
}
int Kernel::event_fd() {
  auto& socket = make_socket(fiber_->process, fiber_->process->host);
  socket.kind = Socket::Kind::event;
  return socket.number;
}
void Kernel::post(Process& process, int event_fd) {
  const auto found = process.sockets.find(event_fd);
  if (!process.alive || found == process.sockets.end()) return;
  ++found->second->count;
  wake_pollers(*found->second);
}
ssize_t Kernel::read_event(int fd, void* value) {
  Socket* const socket = find(fd);
  if (socket == nullptr) return error(EBADF);
  if (socket->count == 0) return error(EAGAIN);
  std::memcpy(value, &socket->count, sizeof socket->count);
  socket->count = 0;
  return sizeof socket->count;
}
ssize_t Kernel::write_event(int fd, const void* value) {
  step(false);
  Socket* const socket = find(fd);
  if (socket == nullptr) return error(EBADF);
  std::uint64_t more = 0;
  std::memcpy(&more, value, sizeof more);
  socket->count += more;
  wake_pollers(*socket);
  return sizeof more;
}

// --- threads -----------------------------------------------------------------------------------------------------------------------
Fiber* Kernel::create_thread(std::function<void()> work) {
  step(false);
  return make_fiber(*fiber_->process, std::move(work));
}
void Kernel::join(Fiber& fiber) {
  while (!fiber.finished) {
    fiber_->on = &fiber;
    block(never);
  }
}
void Kernel::lock(void* mutex) {
  auto& own = *static_cast<Mutex*>(mutex);
  while (own.owner != 0) {
    if (own.owner == fiber_->id) {
      violation(process().name + " locks a mutex that it holds");
      suspend();
    }
    fiber_->on = mutex;
    block(never);
  }
  own.owner = fiber_->id;
}
bool Kernel::try_lock(void* mutex) {
  auto& own = *static_cast<Mutex*>(mutex);
  if (own.owner != 0) return false;
  own.owner = fiber_->id;
  return true;
}
void Kernel::unlock(void* mutex) {
  static_cast<Mutex*>(mutex)->owner = 0;
  notify(mutex, true);
}
bool Kernel::wait(const void* condition, void* mutex, Time until) {
  step(false);
  unlock(mutex);
  fiber_->on = condition;
  block(until);
  const bool timed_out = fiber_->timed_out;
  lock(mutex);
  return !timed_out;
}
void Kernel::notify(const void* condition, bool all) {
  for (Fiber* const fiber : fiber_->process->fibers)
    if (fiber->waiting && fiber->on == condition) {
      wake(*fiber);
      if (!all) return;
    }
}

}  // namespace simulate
