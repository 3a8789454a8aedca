// SPDX-License-Identifier: Apache-2.0
// The progress line: what is printed beside it, and where lines are overwritten.
#include <catch2/catch.hpp>

#include <fcntl.h>
#include <stdlib.h>

#include <cstdio>
#include <memory>
#include <string>

#include <replicator/io/file_descriptor.hpp>
#include <replicator/replicate/progress.hpp>

namespace test_progress {

using namespace replicator;
using namespace replicator::detail;

namespace {

using File = std::unique_ptr<std::FILE, int (*)(std::FILE*)>;
File temporary_file() { return {std::tmpfile(), &std::fclose}; }
std::string text_of(std::FILE* file) {
  std::rewind(file);
  std::string text;
  for (int c = std::fgetc(file); c != EOF; c = std::fgetc(file)) text += static_cast<char>(c);
  return text;
}

}  // namespace

TEST_CASE("what a program prints begins on a line of its own") {
  const bool terminal = GENERATE(false, true);
  const auto file = temporary_file();
  Progress progress{{.steps = 100, .out = file.get(), .terminal = terminal, .clock = [] { return 1.0; }}};
  for (int i = 0; i < 2; ++i) progress.end_line();
  progress(1, "loss 0.5");
  for (int i = 0; i < 2; ++i) progress.end_line();
  std::fputs("mine\n", file.get());
  progress.say("validation");
  progress.end_line();
  CHECK(text_of(file.get()) == (terminal ? "\r\033[Kstep 1/100  loss 0.5\nmine\n\r\033[Kvalidation\n" : "step 1/100  loss 0.5\nmine\nvalidation\n"));
}

TEST_CASE("what is printed beside a line that is overwritten stands above it") {
  const bool terminal = GENERATE(false, true);
  const auto file = temporary_file();
  Progress progress{{.steps = 100, .out = file.get(), .terminal = terminal, .clock = [] { return 1.0; }}};
  const auto print = [&] { std::fputs("mine\n", file.get()); };
  progress.aside(print);
  progress(1, "loss 0.5");
  progress.aside(print);
  progress.end_line();
  progress.aside(print);
  CHECK(text_of(file.get()) == (terminal ? "mine\n\r\033[Kstep 1/100  loss 0.5\r\033[Kmine\n\r\033[Kstep 1/100  loss 0.5\nmine\n" : "mine\nstep 1/100  loss 0.5\nmine\nmine\n"));
}

TEST_CASE("mpirun gives each process a terminal, on which no line is overwritten") {
  const transport::FileDescriptor terminal{::posix_openpt(O_RDWR | O_NOCTTY)};
  REQUIRE(::grantpt(terminal.get()) == 0);
  REQUIRE(::unlockpt(terminal.get()) == 0);
  ::setenv("TERM", "xterm", 1);
  const File out{std::fopen(::ptsname(terminal.get()), "w"), &std::fclose};
  REQUIRE(out);
  CHECK_FALSE(detail::is_terminal(temporary_file().get()));
  for (const char* variable : {"PMIX_RANK", "OMPI_COMM_WORLD_RANK"}) {
    const bool was_set = std::getenv(variable) != nullptr;
    if (!was_set) CHECK(detail::is_terminal(out.get()));
    ::setenv(variable, "0", 1);
    CHECK_FALSE(detail::is_terminal(out.get()));
    if (!was_set) ::unsetenv(variable);
  }
}

}  // namespace test_progress
