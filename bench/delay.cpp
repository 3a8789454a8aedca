// SPDX-License-Identifier: Apache-2.0
// A link with a delay, for kernels without netem. It connects two TAP devices in two network namespaces: each frame
// that one device sends leaves the other after the given time. Large frames pass whole (TSO), so one core handles some
// Gbit/s. Below about 75 us its own overhead shows. Needs root; ends at the end of its standard input. Prints "ready"
// once it forwards.
//   delay MICROSECONDS NAMESPACE DEVICE NAMESPACE DEVICE
#include <fcntl.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <poll.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t largest = (64 << 10) + 256;  // a TSO frame with its headers and the kernel's prefix
constexpr int at_once = 64;                        // frames to read before the other direction has its turn

int require(int result, const std::string& what) {
  if (result < 0) throw std::runtime_error{what + ": " + std::strerror(errno)};
  return result;
}

// Opens a TAP device in a namespace. The thread stays in that namespace.
int open_tap(const std::string& space, const std::string& device) {
  const int entered = require(::open(("/run/netns/" + space).c_str(), O_RDONLY | O_CLOEXEC), "the namespace " + space);
  require(::setns(entered, CLONE_NEWNET), "entering the namespace " + space);
  ::close(entered);
  const int tap = require(::open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC), "/dev/net/tun");
  ifreq request{};
  request.ifr_flags = IFF_TAP | IFF_NO_PI | IFF_VNET_HDR;
  device.copy(request.ifr_name, IFNAMSIZ - 1);
  require(::ioctl(tap, TUNSETIFF, &request), "making the device " + device);
  require(::ioctl(tap, TUNSETOFFLOAD, TUN_F_CSUM | TUN_F_TSO4 | TUN_F_TSO6), "large frames on " + device);
  return tap;
}

// The frames in one direction, oldest first.
class Way {
 public:
  Way(int from, int to, Clock::duration delay) : from_{from}, to_{to}, delay_{delay} {}

  bool empty() const { return frames_.empty(); }
  Clock::time_point next() const { return frames_.front().release; }

  void take() {
    for (int k = 0; k < at_once; ++k) {
      auto bytes = spare_.empty() ? std::vector<char>{} : std::move(spare_.back());
      if (!spare_.empty()) spare_.pop_back();
      bytes.resize(largest);
      const auto size = ::read(from_, bytes.data(), bytes.size());
      if (size < 0 && errno != EAGAIN && errno != EINTR) throw std::runtime_error{std::string{"reading a frame: "} + std::strerror(errno)};
      if (size <= 0) return spare_.push_back(std::move(bytes));
      frames_.push_back({Clock::now() + delay_, static_cast<std::size_t>(size), std::move(bytes)});
    }
  }
  // A frame that the other end refuses is lost, as on an unplugged cable.
  void release(Clock::time_point now) {
    for (; !frames_.empty() && next() <= now; frames_.pop_front()) {
      static_cast<void>(!::write(to_, frames_.front().bytes.data(), frames_.front().size));
      spare_.push_back(std::move(frames_.front().bytes));
    }
  }

 private:
  struct Frame {
    Clock::time_point release;
    std::size_t size;
    std::vector<char> bytes;
  };
  int from_, to_;
  Clock::duration delay_;
  std::deque<Frame> frames_;
  std::vector<std::vector<char>> spare_;
};

void forward(int first, int second, Clock::duration delay) {
  std::array<Way, 2> ways{Way{first, second, delay}, Way{second, first, delay}};
  for (;;) {
    auto now = Clock::now();
    auto until = now + std::chrono::seconds{1};
    for (auto& way : ways) {
      way.release(now);
      if (!way.empty()) until = std::min(until, way.next());
    }
    now = Clock::now();
    const auto left = std::max<std::chrono::nanoseconds::rep>(0, std::chrono::nanoseconds{until - now}.count());
    const timespec timeout{left / 1'000'000'000, left % 1'000'000'000};
    pollfd events[3] = {{first, POLLIN, 0}, {second, POLLIN, 0}, {STDIN_FILENO, POLLIN, 0}};
    if (::ppoll(events, 3, &timeout, nullptr) < 0 && errno != EINTR) throw std::runtime_error{std::string{"waiting: "} + std::strerror(errno)};
    if (events[2].revents != 0) return;
    for (std::size_t k = 0; k < 2; ++k)
      if (events[k].revents != 0) ways[k].take();
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 6 || std::atoi(argv[1]) < 1) {
    std::fprintf(stderr, "delay MICROSECONDS NAMESPACE DEVICE NAMESPACE DEVICE\n");
    return 2;
  }
  try {
    const int first = open_tap(argv[2], argv[3]), second = open_tap(argv[4], argv[5]);
    std::puts("ready");
    std::fflush(stdout);
    forward(first, second, std::chrono::microseconds{std::atoi(argv[1])});
  } catch (const std::exception& error) {
    std::fprintf(stderr, "delay: %s\n", error.what());
    return 1;
  }
}
