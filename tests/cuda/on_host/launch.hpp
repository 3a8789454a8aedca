// SPDX-License-Identifier: Apache-2.0
// Runs GPU kernels as functions of the host. The threads of a block run one after the other. In a kernel that synchronises, each
// thread is a fiber. It stops at a synchronisation until all other threads of its block have come there.
//
// Blocks run one after the other too, and backwards in every second launch: the result of a kernel must not depend on their order.
#pragma once

#include <setjmp.h>
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
    while (fibers_.size() < threads) fibers_.push_back(std::make_unique<Fiber>());
    for (unsigned thread = 0; thread < threads; ++thread) fibers_[thread]->finished = false;
    go_on(0);
    if (fibers_[0]->finished) {  // the kernel does not synchronise
      for (unsigned thread = 1; thread < threads; ++thread) {
        threadIdx = dim3{thread, 0, 0};
        kernel();
      }
      return;
    }
    unsigned first = 1;  // thread 0 is at its first stop
    for (bool left = true; left; first = 0) {
      left = first == 1;
      for (unsigned thread = first; thread < threads; ++thread) {
        if (fibers_[thread]->finished) continue;
        go_on(thread);
        left = left || !fibers_[thread]->finished;
      }
    }
  }
  // Goes back to run(). Returns when run() goes on with this fiber. Unlike swapcontext, _setjmp and _longjmp make no system call.
  void wait() {
    if (_setjmp(fibers_[current_]->stop) == 0) _longjmp(home_, 1);
  }

 private:
  static constexpr std::size_t stack_bytes = std::size_t{1} << 18;
  // The fiber of a thread lives as long as the program, and runs that thread of every block.
  struct Fiber {
    jmp_buf stop;
    bool begun = false, finished = false;
    std::unique_ptr<char[]> stack = std::make_unique_for_overwrite<char[]>(stack_bytes);
  };

  void go_on(unsigned thread) {
    current_ = thread;
    threadIdx = dim3{thread, 0, 0};
    if (_setjmp(home_) != 0) return;
    Fiber& fiber = *fibers_[current_];
    if (fiber.begun) _longjmp(fiber.stop, 1);
    fiber.begun = true;
    ucontext_t context;
    getcontext(&context);
    context.uc_stack.ss_sp = fiber.stack.get();
    context.uc_stack.ss_size = stack_bytes;
    makecontext(&context, &Block::run_blocks, 0);
    setcontext(&context);
  }
  static void run_blocks();

  const std::function<void()>* kernel_ = nullptr;
  jmp_buf home_;
  std::vector<std::unique_ptr<Fiber>> fibers_;
  unsigned current_ = 0;
};
inline Block block;

inline void Block::run_blocks() {
  for (;;) {
    (*block.kernel_)();
    block.fibers_[block.current_]->finished = true;
    block.wait();
  }
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
