// SPDX-License-Identifier: Apache-2.0
// Runs GPU kernels as functions of the host. The threads of a block run one after the other. In a kernel that synchronises, each
// thread is a fiber. It stops at a synchronisation until all other threads of its block have come there.
//
// Blocks run one after the other too, and backwards in every second launch: the result of a kernel must not depend on their order.
#pragma once

#include <ucontext.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

struct dim3 {
  unsigned x, y, z;
  dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x{x_}, y{y_}, z{z_} {}
};
inline dim3 blockIdx{0, 0, 0}, threadIdx{0, 0, 0}, blockDim, gridDim;

namespace on_host {

inline std::recursive_mutex gate;  // several logical devices may launch at the same time

inline std::size_t launches = 0;

// A stream. It does its work at once, or keeps it during a capture.
struct Stream {
  bool captures = false, spoiled = false;
  std::vector<std::function<void()>> captured;
};
template <class Work>
void give(Stream* stream, Work work) {
  if (stream && stream->captures) stream->captured.push_back(std::move(work));
  else work();
}

class Block {
 public:
  // Runs kernel() for every thread of the current block.
  void run(unsigned threads, const std::function<void()>& kernel) {
    kernel_ = &kernel;
    if (fibers_.size() < threads) fibers_.resize(threads);
    finished_.assign(threads, false);
    begin_fiber(0);
    go_on(0);
    if (finished_[0]) {  // the kernel does not synchronise
      for (unsigned thread = 1; thread < threads; ++thread) {
        threadIdx = dim3{thread, 0, 0};
        kernel();
      }
      return;
    }
    for (unsigned thread = 1; thread < threads; ++thread) begin_fiber(thread);
    unsigned first = 1;  // thread 0 is at its first stop
    for (bool left = true; left; first = 0) {
      left = first == 1;
      for (unsigned thread = first; thread < threads; ++thread) {
        if (finished_[thread]) continue;
        go_on(thread);
        left = left || !finished_[thread];
      }
    }
  }
  void wait() { swapcontext(&fibers_[current_], &home_); }

 private:
  static constexpr std::size_t stack_bytes = std::size_t{1} << 18;

  void begin_fiber(unsigned thread) {
    if (stacks_.size() <= thread) stacks_.push_back(std::make_unique_for_overwrite<char[]>(stack_bytes));
    getcontext(&fibers_[thread]);
    fibers_[thread].uc_stack.ss_sp = stacks_[thread].get();
    fibers_[thread].uc_stack.ss_size = stack_bytes;
    makecontext(&fibers_[thread], &Block::begin, 0);
  }
  void go_on(unsigned thread) {
    current_ = thread;
    threadIdx = dim3{thread, 0, 0};
    swapcontext(&home_, &fibers_[thread]);
  }
  static void begin();

  const std::function<void()>* kernel_ = nullptr;
  ucontext_t home_{};
  std::vector<ucontext_t> fibers_;
  std::vector<bool> finished_;
  std::vector<std::unique_ptr<char[]>> stacks_;
  unsigned current_ = 0;
};
inline Block block;

inline void Block::begin() {
  (*block.kernel_)();
  block.finished_[block.current_] = true;
  swapcontext(&block.fibers_[block.current_], &block.home_);
}

// kernel<<<grid, threads, shared, stream>>>(arguments...) is launch(kernel, grid, threads, shared, stream)(arguments...).
template <class Kernel>
auto launch(Kernel kernel, dim3 grid, dim3 threads, std::size_t, Stream* stream) {
  return [=](auto... arguments) {
    give(stream, [=] {
      const std::lock_guard lock{gate};
      gridDim = grid;
      blockDim = threads;
      const bool backwards = launches++ % 2 != 0;
      for (unsigned z = 0; z < grid.z; ++z)
        for (unsigned y = 0; y < grid.y; ++y)
          for (unsigned x = 0; x < grid.x; ++x) {
            blockIdx = dim3{backwards ? grid.x - 1 - x : x, y, z};
            block.run(threads.x, [&] { kernel(arguments...); });
          }
    });
  };
}

}  // namespace on_host

inline void __syncthreads() { on_host::block.wait(); }
