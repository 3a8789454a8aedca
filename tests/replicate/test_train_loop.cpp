// SPDX-License-Identifier: Apache-2.0
// The training loop: its output, checkpoints and files, and how it ends.
#include <catch2/catch.hpp>

#include <signal.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <filesystem>
#include <string>
#include <vector>

#include <replicator/data/files/record_files.hpp>
#include <replicator/data/files/tfrecord.hpp>
#include <replicator/data/generator.hpp>
#include <replicator/data/take.hpp>
#include <replicator/ops/elementwise.hpp>
#include <replicator/replicate/train_loop.hpp>
#include <replicator/resolve/collective_calls.hpp>

#include "../input/temporary_folder.hpp"
#include "../support/programs.hpp"
#include "deployments.hpp"

namespace test_train_loop {

using namespace replicator;
using namespace replicator::detail;
using Catch::Contains;
using test::error_of;
using test::on_devices;

namespace {

// A file without a name, to be printed into.
class Printed {
 public:
  Printed() : file_{std::tmpfile()} {}
  Printed(const Printed&) = delete;
  Printed& operator=(const Printed&) = delete;
  ~Printed() { std::fclose(file_); }
  std::FILE* file() const { return file_; }
  std::string text() const {
    std::rewind(file_);
    std::string text;
    for (int c = std::fgetc(file_); c != EOF; c = std::fgetc(file_)) text += static_cast<char>(c);
    return text;
  }

 private:
  std::FILE* file_;
};

std::size_t lines_of(const std::string& text, const std::string& part) {
  std::size_t count = 0;
  for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

// The position; `before(position)` is called where it is read for replica 0.
template <class Before>
auto positions(Before before, std::int64_t count = 1000) {
  return [before, count](const InputContext& ctx) {
    return data::from_generator([before, replica = ctx.replica()](std::int64_t position) {
             if (replica == 0) before(position);
             return Array<float>{{}, {static_cast<float>(position)}};
           }) |
           data::take(count);
  };
}
const auto nothing = [](std::int64_t) {};

// The mean of all positions so far, by a variable; and whether it is odd.
const auto walk = [](ReplicaContext& replica, Tensor<float> x) {
  const auto w = replica.variable<float>("w", {}, Initializer::zeros());
  const auto next = w.read() * full<float>(replica, {}, 0.5f) + all_reduce(x, Reduction::mean);
  w.assign(next);
  return std::tuple{next, x};
};

std::string run(Deployment deployment, TrainLoopOptions options, int expected = 0) {
  Replicator repl{std::move(deployment)};
  auto step = repl.replicate(positions(nothing), walk);
  CHECK(TrainLoop{repl, std::move(options)}.run(step) == expected);
  return repl.digest();
}

std::ptrdiff_t checkpoints(const std::string& folder) {
  const std::filesystem::directory_iterator files{folder};
  return std::count_if(begin(files), end(files), [](const auto& file) { return file.path().extension() == ".safetensors"; });
}

}  // namespace

TEST_CASE("a terminal has one line that is written over, a file about twenty lines, with rate and time left") {
  double now = 100;
  const auto options = [&](const Printed& to, bool terminal) {
    return ProgressOptions{.steps = 100, .batch = 64, .out = to.file(), .terminal = terminal, .clock = [&] { return now; }};
  };
  const Printed file, terminal;
  Progress plain{options(file, false)}, over{options(terminal, true)};
  const Figure loss{"loss"}, top1{"top-1", true};
  for (std::int64_t done = 1; done <= 100; ++done) {
    const auto text = loss.text(0.5) + "  " + top1.text(0.43125);
    plain(done, text);
    if (done <= 2 || done == 100) over(done, text);
    if (done == 50) CHECK(plain.untimed([&] { return now += 1000; }) == now);
    if (done == 50) plain.say("validation");
    now += done == 1 ? 0.05 : 2;
  }
  CHECK(lines_of(file.text(), "\n") == 22);
  CHECK_THAT(file.text(), Catch::StartsWith("step 1/100  loss 0.5000  top-1 43.1 %\nstep 5/100  loss"));
  CHECK_THAT(file.text(), Contains("step 50/100  loss 0.5000  top-1 43.1 %  32.6 images/s  1:38 left\nvalidation\nstep 55/100"));
  CHECK_THAT(file.text(), Catch::EndsWith("step 100/100  loss 0.5000  top-1 43.1 %  32.3 images/s  0:00 left\n"));
  CHECK_THAT(terminal.text(), Catch::StartsWith("\r\033[Kstep 1/100") && Contains("43.1 %\r\033[Kstep 100/100") && Catch::EndsWith("left\n"));
  CHECK(lines_of(terminal.text(), "step 2/100") == 0);  // too soon after the first
}

TEST_CASE("a training loop shows its steps, validates every so often and at the end, and leaves the same bits on any number of devices") {
  std::string serial;
  for (const int devices : {1, 3}) {
    const Printed out;
    std::vector<std::int64_t> at;
    TrainLoopOptions options{.steps = 7, .figures = {{"level"}}, .validated = {{"odd", true}}, .validate_every = 3, .out = out.file()};
    Replicator repl{on_devices(4, devices)};
    auto step = repl.replicate(positions(nothing), walk);
    options.validate = [&] { return at.push_back(static_cast<std::int64_t>(step.steps_done())), std::vector<double>{0.25}; };
    CHECK(TrainLoop{repl, options}.run(step) == 0);
    CHECK(at == std::vector<std::int64_t>{3, 6, 7});
    CHECK(lines_of(out.text(), "\n") == 7 + 3);
    CHECK_THAT(out.text(), Contains("step 3/7  level 2.5000  ") && Contains(" steps/s  0:00 left\nvalidation after step 3: odd 25.0 %\nstep 4/7"));
    const auto digest = repl.digest();
    if (serial.empty()) serial = digest;
    CHECK(digest == serial);
  }
}

TEST_CASE("a signal ends the loop after the step, which is saved; resumed, it ends with the bits of the run that was never stopped") {
  const TemporaryFolder folder;
  const Printed out;
  const auto kept = [&](int devices, bool resume) {
    auto deployment = on_devices(4, devices);
    deployment.checkpoint.folder = folder.path() + "/kept";
    deployment.checkpoint.resume = resume;
    return deployment;
  };
  int validations = 0;
  {
    Replicator repl{kept(2, false)};
    auto step = repl.replicate(positions([](std::int64_t position) {
                                 if (position == 4) ::raise(SIGINT);  // is read ahead, in step 4
                               }),
                               walk);
    const TrainLoopOptions options{.steps = 9, .figures = {{"level"}}, .validate = [&] { return ++validations, std::vector<double>{0}; }, .validated = {{"v"}}, .validate_every = 4, .tensorboard = folder.path() + "/board", .out = out.file()};
    CHECK(TrainLoop{repl, options}.run(step) == 128 + SIGINT);
    CHECK(step.steps_done() == 4);
    CHECK(validations == 0);
  }
  const auto board = [&](const std::string& name) {
    return TrainLoopOptions{.steps = 9, .figures = {{"level"}, {"x"}}, .tensorboard = name, .out = out.file()};
  };
  const auto resumed = run(kept(3, true), board(folder.path() + "/board"));
  CHECK(resumed == run(on_devices(4, 1), board(folder.path() + "/whole")));
  CHECK_THAT(out.text(), Contains("step 4/9") && Contains("step 5/9"));

  // version, then a record for each figure and step; a resumed run says where it begins; the speed with each line that has one.
  std::vector<std::int64_t> records;
  for (const char* name : {"/board", "/whole"}) {
    std::vector<std::string> files;
    for (const auto& entry : std::filesystem::directory_iterator{folder.path() + name}) files.push_back(entry.path().string());
    std::sort(files.begin(), files.end());
    for (const auto& file : files) records.push_back(data::tfrecord(file).size());
  }
  CHECK(records == std::vector<std::int64_t>{1 + 4 + 3, 2 + 5 * 2 + 4, 1 + 9 * 2 + 8});
}

TEST_CASE("a program adds values of its own to the TensorBoard file of a training loop, and finds none without a folder") {
  const TemporaryFolder folder;
  const Printed out;
  Replicator repl{on_devices(2, 1)};
  auto step = repl.replicate(positions(nothing), walk);
  CHECK(TrainLoop(repl, {.steps = 2, .out = out.file()}).tensorboard() == nullptr);
  TrainLoop loop{repl, {.steps = 2, .after_step = [&](std::int64_t done, const std::vector<double>&) { loop.tensorboard()->scalar("own", done, 1); }, .tensorboard = folder.path(), .out = out.file()}};
  CHECK(loop.run(step) == 0);
  for (const auto& entry : std::filesystem::directory_iterator{folder.path()}) CHECK(data::tfrecord(entry.path().string()).size() == 1 + 2 + 1);  // version, values, speed
}

TEST_CASE("a figure that is not finite ends the run with a sentence and without a checkpoint, unless that is not wanted") {
  const TemporaryFolder folder;
  const Printed out;
  const auto bad = [](ReplicaContext&, Tensor<float> x) { return log(x - all_reduce(x, Reduction::mean) + 2.0f - x); };
  const auto try_it = [&](bool stop) {
    auto deployment = on_devices(2, 2);
    deployment.checkpoint.folder = folder.path();
    Replicator repl{deployment};
    auto step = repl.replicate(positions(nothing), bad);
    return error_of([&] {
      const int code = TrainLoop{repl, {.steps = 5, .figures = {{"loss"}}, .stop_on_nan = stop, .out = out.file()}}.run(step);
      CHECK(code == 0);
    });
  };
  CHECK_THAT(try_it(true), Catch::StartsWith("step 3: loss is infinite: the run ends here, and no checkpoint of this step is written. --find-nan") &&
                               Catch::Contains("A label that is no class makes a loss NaN"));
  CHECK(checkpoints(folder.path()) == 0);
  CHECK(try_it(false) == "nothing");
  CHECK(checkpoints(folder.path()) > 0);
}

TEST_CASE("an input that ends before ends the loop, after a last validation") {
  const Printed out;
  int validations = 0;
  Replicator repl{on_devices(2, 1)};
  auto step = repl.replicate(positions(nothing, 3), walk);
  const auto validate = [&] { return ++validations, std::vector<double>{1}; };
  CHECK(TrainLoop{repl, {.steps = 100, .validate = validate, .validated = {{"v"}}, .out = out.file()}}.run(step) == 0);
  CHECK(step.steps_done() == 3);
  CHECK(validations == 1);
  CHECK_THAT(out.text(), Contains("the input ended after 3 of 100 steps\n"));
}

TEST_CASE("a resumed run leaves a phase that was stopped early where it was stopped, and says so") {
  const TemporaryFolder folder;
  const auto program = [&](bool resume, std::int64_t steps) {
    const Printed out;
    auto deployment = on_devices(2, 1);
    deployment.checkpoint = {.folder = folder.path(), .resume = resume};
    Replicator repl{std::move(deployment)};
    auto first = repl.replicate(positions(nothing), walk);
    auto second = repl.replicate(positions(nothing), walk);
    double level = 0;
    TrainLoopOptions options{.steps = 100, .figures = {{"level"}}, .out = out.file()};
    options.after_step = [&](std::int64_t, const std::vector<double>& figures) { level = figures[0]; };
    options.stop_when = [&] { return level > 5; };
    TrainLoop{repl, options}.run(first);
    TrainLoop{repl, {.steps = steps, .out = out.file()}}.run(second);
    CHECK_THAT(out.text(), Contains("stopped early, after 5 of 100 steps\n"));
    return std::pair{first.steps_done(), second.steps_done()};
  };
  CHECK(program(false, 2) == std::pair<std::uint64_t, std::uint64_t>{5, 2});
  CHECK(program(true, 4) == std::pair<std::uint64_t, std::uint64_t>{5, 4});
}

TEST_CASE("stop_when ends the run after the step that fulfils it: validated, saved, exit code 0, and the same bits on any number of devices and processes") {
  // "level" is 0, 1, 2.5, 4.25, 6.125: above 5 in step 5.
  const auto stopped = [](Deployment deployment) {
    const Printed out;
    double level = 0;
    std::vector<std::int64_t> validated;
    Replicator repl{std::move(deployment)};
    auto step = repl.replicate(positions(nothing), walk);
    TrainLoopOptions options{.steps = 100, .figures = {{"level"}}, .validated = {{"v"}}, .validate_every = 3, .out = out.file()};
    options.after_step = [&](std::int64_t, const std::vector<double>& figures) { level = figures[0]; };
    options.validate = [&] { return validated.push_back(static_cast<std::int64_t>(step.steps_done())), std::vector<double>{0}; };
    options.stop_when = [&] { return level > 5; };
    const int code = TrainLoop{repl, options}.run(step);
    std::string result = std::to_string(code) + " after step " + std::to_string(step.steps_done()) + ", validated after";
    for (const auto at : validated) result += " " + std::to_string(at);
    if (repl.process() == 0) CHECK_THAT(out.text(), Contains("validation after step 5: v 0.0000\nstopped early, after 5 of 100 steps\n"));
    return result + ", digest " + repl.digest();
  };
  const TemporaryFolder folder;
  auto saved = on_devices(4, 1);
  saved.checkpoint.folder = folder.path();
  const auto alone = stopped(saved);
  CHECK_THAT(alone, Catch::StartsWith("0 after step 5, validated after 3 5, digest "));
  CHECK(std::filesystem::exists(folder.path() + "/step-0000000005.safetensors"));
  CHECK(stopped(on_devices(4, 3)) == alone);
  const auto results = test::run_as_job(3, [&](int) { return stopped(on_devices(4, 1)); });
  INFO(test::describe(results));
  for (const auto& result : results) CHECK(result.text == alone);
}

TEST_CASE("a stop_when that differs between processes ends the job with an error that names both, within seconds") {
  const auto results = test::run_as_job(2, [&](int process) {
    const Printed out;
    Replicator repl{on_devices(4, 1)};
    auto step = repl.replicate(positions(nothing), walk);
    TrainLoop{repl, {.steps = 100000, .stop_when = [&] { return process == 1 && step.steps_done() == 3; }, .out = out.file()}}.run(step);
    return repl.digest();
  });
  INFO(test::describe(results));
  for (const auto& result : results) {
    CHECK(result.exit_code == 1);
    CHECK(result.seconds < 30);
    CHECK_THAT(result.text, Contains("asks for the exchange \"digest()\" after step 2 at test_train_loop.cpp:") && Contains("asked for step 3 at test_train_loop.cpp:"));
  }
}

TEST_CASE("options of a training loop that cannot be are refused with what to do") {
  Replicator repl{on_devices(1, 1)};
  auto step = repl.replicate(positions(nothing), walk);
  const auto refused = [&](TrainLoopOptions options) { return error_of([&] { TrainLoop{repl, options}.run(step); }); };
  CHECK(refused({.steps = 0}) == "a training loop of 0 steps was asked for: it takes at least 1");
  CHECK_THAT(refused({.batch = -1}), Contains("a batch of -1: give the number of examples"));
  CHECK_THAT(refused({.validate_every = -3}), Contains("every -3 steps: give a number of steps, or 0"));
  CHECK_THAT(refused({.validated = {{"v"}}}), Contains("names of what a validation gives, but none: set both"));
  CHECK_THAT(refused({.validate = [] { return std::vector<double>{}; }}), Contains("a validation but no names of what it gives"));
  CHECK(refused({.figures = {{"a"}, {"b"}, {"c"}}}) == "a training loop was given names for 3 results, but its step has 2");
  const Printed out;
  CHECK_THAT(refused({.steps = 1, .validate = [] { return std::vector<double>{1, 2}; }, .validated = {{"v"}}, .out = out.file()}),
             Contains("the validation gave 2 values, and has names for 1"));
}

}  // namespace test_train_loop
