// SPDX-License-Identifier: Apache-2.0
// Progress: the progress line of a run. On a terminal one line is overwritten. Elsewhere, and under mpirun, about twenty
// plain lines are printed.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace replicator {

namespace detail {

// Whether a line can be overwritten there. Open MPI's mpirun connects each process to a terminal of its own, and copies what
// arrives there to its own output, which may be a file.
inline bool is_terminal(std::FILE* out) {
  if (::isatty(::fileno(out)) != 1) return false;
  const char* type = std::getenv("TERM");
  return (type == nullptr || std::string_view{type} != "dumb") && std::getenv("PMIX_RANK") == nullptr && std::getenv("OMPI_COMM_WORLD_RANK") == nullptr;
}

}  // namespace detail

// The name of a result of a step or a validation, and its format: "loss 0.6931", "top-1 43.1 %".
struct Figure {
  std::string name;
  bool percent = false;  // shows a value from 0 to 1 as a percentage

  std::string text(double value) const {
    char number[64];
    std::snprintf(number, sizeof number, percent ? "%.1f %%" : "%.4f", percent ? value * 100 : value);
    return name + " " + number;
  }
};

struct ProgressOptions {
  std::int64_t steps = 0;                              // of the whole run
  std::int64_t batch = 0;                              // examples in a step, over all replicas; 0: the rate counts steps
  std::string examples = "images";                     // the unit of the rate
  std::function<bool()> speaks = [] { return true; };  // false where another process prints
  std::FILE* out = stdout;
  bool terminal = detail::is_terminal(stdout);  // whether a line is overwritten; false under mpirun
  // Returns seconds of a monotonic clock. Empty: the system's.
  std::function<double()> clock = {};
};

class Progress {
 public:
  explicit Progress(ProgressOptions options) : o_{std::move(options)} {}

  // Called after every step: "step 40/1000  loss 0.6931  812.5 images/s  0:12 left". `done` is the number of finished
  // steps, `figures` the text in the middle. The rate leaves the first step out, as a warm-up. Returns true if a line
  // was due, even if this process does not print.
  template <class = void>
  bool operator()(std::int64_t done, const std::string& figures) {
    const double now = seconds();
    const bool first = !first_, last = done == o_.steps;
    if (first) first_ = done, start_ = now;
    const auto timed = done - *first_;
    const double took = now - start_;
    rate_ = timed > 0 && took > 0 ? static_cast<double>(timed * std::max<std::int64_t>(o_.batch, 1)) / took : 0;
    const bool due = o_.terminal ? now - shown_ > 0.1 : done % std::max<std::int64_t>(1, o_.steps / 20) == 0;
    if (!due && !first && !last) return false;
    shown_ = now;
    auto line = "step " + std::to_string(done) + "/" + std::to_string(o_.steps);
    if (!figures.empty()) line += "  " + figures;
    if (timed > 0) line += pace(took / static_cast<double>(timed) * static_cast<double>(o_.steps - done));
    write(line, !o_.terminal || last);
    return true;
  }
  // Prints a line that is not overwritten.
  void say(const std::string& line) { write(line, true); }
  // Ends a line that would be overwritten, so that the program can print. Does nothing where there is none.
  void end_line() {
    if (std::exchange(open_, false)) std::fputc('\n', o_.out), std::fflush(o_.out);
  }
  // Runs `work`, which may print lines: removes a line that would be overwritten, and draws it again behind them.
  template <class F>
  void aside(F work) {
    const bool was_open = std::exchange(open_, false);
    if (was_open) std::fputs(clear, o_.out), std::fflush(o_.out);
    work();
    if (was_open) write(line_, false);
  }
  // Runs `work` and excludes its time from the rate.
  template <class F>
  auto untimed(F work) {
    const double began = seconds();
    auto result = work();
    start_ += seconds() - began;
    return result;
  }

  // Examples per second, or steps per second where no batch was given; 0 before the second step.
  double rate() const { return rate_; }
  std::string rate_unit() const { return o_.batch > 0 ? o_.examples : "steps"; }

 private:
  static constexpr const char* clear = "\r\033[K";  // removes the line on which a terminal's cursor is

  template <class = void>
  double seconds() const {
    return o_.clock ? o_.clock() : std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
  }
  // "  812.5 images/s  0:12 left".
  template <class = void>
  std::string pace(double seconds_left) const {
    const auto left = static_cast<long long>(seconds_left);
    char rate[64], time[64];
    std::snprintf(rate, sizeof rate, "  %.1f ", rate_);
    std::snprintf(time, sizeof time, "/s  %lld:%02lld left", left / 60, left % 60);
    return rate + rate_unit() + time;
  }
  void write(const std::string& line, bool ends) {
    if (!o_.speaks()) return;
    std::fprintf(o_.out, "%s%s%s", o_.terminal ? clear : "", line.c_str(), ends ? "\n" : "");
    std::fflush(o_.out);
    open_ = !ends;
    if (open_) line_ = line;
  }

  ProgressOptions o_;
  std::optional<std::int64_t> first_;  // number of steps done at the first call
  double start_ = 0, shown_ = 0, rate_ = 0;
  bool open_ = false;  // the latest line has no end yet
  std::string line_;   // the latest one that had none
};

}  // namespace replicator
