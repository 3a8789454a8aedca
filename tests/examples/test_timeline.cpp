// SPDX-License-Identifier: Apache-2.0
// scripts/draw-timeline draws what --trace wrote.
#include <catch2/catch.hpp>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <string>

#include <unistd.h>

#include "../support/programs.hpp"

namespace test_timeline {

using namespace replicator;
using Catch::Matchers::Contains;

namespace {

std::string folder_of(const char* variable) {
  const char* folder = std::getenv(variable);
  if (!folder) throw std::runtime_error{std::string{variable} + " is not set: run this by ctest"};
  return folder;
}

// A trace of steps 1 and 2 of hello on two devices.
struct Timeline {
  std::filesystem::path folder = std::filesystem::temp_directory_path() / ("replicator_timeline_" + std::to_string(::getpid()));
  Timeline() {
    std::filesystem::create_directory(folder);
    const auto run = test::run_program(folder_of("REPLICATOR_EXAMPLES") + "/hello --replicas 2 --devices cpu:0-1 --trace-steps 1:3 --trace " + path("trace.json"));
    INFO(run.text);
    REQUIRE(run.exit_code == 0);
  }
  Timeline(const Timeline&) = delete;
  Timeline& operator=(const Timeline&) = delete;
  ~Timeline() { std::filesystem::remove_all(folder); }

  std::string path(const char* name) const { return (folder / name).string(); }
  test::ProgramResult draw(const std::string& flags) const {
    return test::run_program(folder_of("REPLICATOR_SCRIPTS") + "/draw-timeline " + path("trace.json") + " " + path("out.svg") + " " + flags);
  }
  std::string drawing() const {
    std::ifstream file{path("out.svg")};
    std::ostringstream text;
    text << file.rdbuf();
    return text.str();
  }
};

}  // namespace

TEST_CASE("draw-timeline draws kernels and collectives of every device of the last step that was traced") {
  const Timeline timeline;
  const auto result = timeline.draw("");
  INFO(result.text);
  REQUIRE(result.exit_code == 0);
  const auto drawing = timeline.drawing();
  for (const char* part : {"step 2: ", ">cpu:0<", ">cpu:1<", "matmul", "all_reduce &quot;w/gradient&quot; at hello.cpp:23"})
    CHECK_THAT(drawing, Contains(part));
  const auto well_formed = test::run_program("python3 -c 'import sys, xml.dom.minidom; xml.dom.minidom.parse(sys.argv[1])' " + timeline.path("out.svg"));
  INFO(well_formed.text);
  CHECK(well_formed.exit_code == 0);
}

TEST_CASE("draw-timeline names the steps that there are") {
  const Timeline timeline;
  REQUIRE(timeline.draw("--step 1").exit_code == 0);
  CHECK_THAT(timeline.drawing(), Contains("step 1: "));
  const auto missing = timeline.draw("--step 7");
  CHECK(missing.exit_code == 1);
  CHECK_THAT(missing.text, Contains("trace.json has no step 7: it has 1, 2"));
  CHECK_THAT(timeline.draw("--plan 1").text, Contains("trace.json has no kernel of plan 1"));
}

}  // namespace test_timeline
