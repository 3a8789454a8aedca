// SPDX-License-Identifier: Apache-2.0
// scripts/draw-timeline draws what --trace wrote.
#include <catch2/catch.hpp>

#include <fstream>
#include <sstream>
#include <string>

#include "../input/temporary_folder.hpp"
#include "examples.hpp"

namespace test_timeline {

using namespace replicator;
using Catch::Matchers::Contains;

namespace {

// A trace of steps 1 and 2 of hello on two devices.
struct Timeline {
  const TemporaryFolder folder;
  Timeline() {
    const auto run = test::run_program(test::example("hello") + " --replicas 2 --devices cpu:0-1 --trace-steps 1:3 --trace " + path("trace.json"));
    INFO(run.text);
    REQUIRE(run.exit_code == 0);
  }

  std::string path(const char* name) const { return folder.path() + "/" + name; }
  test::ProgramResult draw(const std::string& flags) const {
    return test::run_program(test::script("draw-timeline") + " " + path("trace.json") + " " + path("out.svg") + " " + flags);
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
  for (const char* part : {"step 2: ", ">cpu:0<", ">cpu:1<", "matmul", "all_reduce &quot;w/gradient&quot; at hello.cpp:14"})
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

TEST_CASE("draw-timeline names the file that is missing, is no timeline, or cannot be written") {
  const TemporaryFolder folder;
  const auto draw = [&](const std::string& trace, const std::string& svg) {
    const auto result = test::run_program(test::script("draw-timeline") + " " + trace + " " + svg);
    CHECK(result.exit_code == 1);
    CHECK_THAT(result.text, !Contains("Traceback"));
    return result.text;
  };
  const auto svg = folder.path() + "/out.svg";
  CHECK(draw(folder.path() + "/none", svg) == folder.path() + "/none cannot be read: No such file or directory\n");
  CHECK(draw(folder.path(), svg) == folder.path() + " cannot be read: Is a directory\n");
  for (const char* content : {"", "no JSON", "[]", "{\"nodes\": []}"}) {
    const auto file = folder.write("other", content);
    CHECK(draw(file, svg) == file + " is no timeline: name what a run wrote with --trace\n");
  }
  const auto other = folder.write("other", "{\"traceEvents\": [{\"ph\": \"X\"}]}");
  CHECK(draw(other, svg) == other + " is not what --trace of this version writes\n");
  const Timeline timeline;
  CHECK(draw(timeline.path("trace.json"), "/nowhere/out.svg") == "/nowhere/out.svg cannot be written: No such file or directory\n");
}

}  // namespace test_timeline
