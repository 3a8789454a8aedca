# SPDX-License-Identifier: Apache-2.0
"""The same as turns.hpp, for programs in Python, and what runs such programs."""
import os
import re
import resource
import subprocess
import sys
import time

# The environment in which PyTorch's allocator keeps its pages, huge ones if possible.
kept_pages = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": "100000000000", "MALLOC_TOP_PAD_": "1000000000",
              "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}


def take_turns(turns, measure):
    if not turns:
        measure()
        return
    print("ready", flush=True)
    for _ in sys.stdin:
        measure()
        print("ready", flush=True)


def peak_mib():
    """The most memory that this process has had so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def time_steps(seconds, before, step):
    """Repeats the step for so many seconds, at least three times. Prints its median time, and the memory taken beyond `before` (MiB)."""
    times, begin = [], time.perf_counter()
    while len(times) < 3 or time.perf_counter() < begin + seconds:
        start = time.perf_counter()
        step()
        times.append(time.perf_counter() - start)
    times.sort()
    print(f"{1e6 * times[len(times) // 2]:.1f} us/step, at most {peak_mib() - before:.0f} MiB")


class Rival:
    """A program that measures in its turn, and prints microseconds and MiB."""

    def __init__(self, command, threads, environment):
        self.process = subprocess.Popen([*map(str, command), "--turns", "yes"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                        env={**os.environ, **environment, "OMP_NUM_THREADS": str(threads)})
        self.wait()

    def wait(self):
        """The line before "ready"."""
        last = ""
        for line in self.process.stdout:
            if line.strip() == "ready":
                return last
            last = line
        sys.exit(f"{' '.join(map(str, self.process.args))} ended with {self.process.wait()}")

    def measure(self):
        """Microseconds of a step, and MiB."""
        self.process.stdin.write("go\n")
        self.process.stdin.flush()
        line = self.wait()
        return [float(number) for number in re.match(r"([\d.]+) us/step, at most (\d+) MiB", line).groups()]

    def end(self):
        self.process.stdin.close()
        self.process.wait()
