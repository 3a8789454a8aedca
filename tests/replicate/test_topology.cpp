// SPDX-License-Identifier: Apache-2.0
// The topology file: written, read again, and refused if it is damaged or of another job, in the same way on every
// process.
#include <catch2/catch.hpp>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <replicator/engine/read_or_measure_topology.hpp>
#include <string>
#include <vector>

#include "../support/told.hpp"
#include "../transport/jobs.hpp"

namespace test_topology {

using namespace replicator;
using namespace replicator::detail;
using namespace std::chrono_literals;
using collectives::Topology;

namespace {

const collectives::MeasureOptions quick{50ms, 10000ms};
const std::string good =
    R"({"format":"replicator topology 1","dimensions":[{"size":2,"microseconds":1.5,"bytes_per_microsecond":2e4},)"
    R"({"size":3,"microseconds":20,"bytes_per_microsecond":1250}],"reduced_bytes_per_microsecond":9000})";

std::string replaced(std::string text, const std::string& what, const std::string& by) {
  const auto at = text.find(what);
  REQUIRE(at != std::string::npos);
  return text.replace(at, what.size(), by);
}

// A name in the folder of temporary files; the file is removed before and after.
struct Scratch {
  explicit Scratch(const std::string& name) : path{(std::filesystem::temp_directory_path() / ("replicator_" + name + ".json")).string()} {
    std::filesystem::remove(path);
  }
  ~Scratch() { std::filesystem::remove(path); }
  void write(const std::string& text) const { std::ofstream{path} << text; }
  std::string read() const {
    std::ifstream file{path};
    return {std::istreambuf_iterator<char>{file}, {}};
  }
  std::string path;
};

// What every process of a job of two, with two devices each, has for a topology.
std::vector<test::ProcessResult> find(const std::string& path) {
  return test::run_job(2, [&](transport::Job& job) { return text_of(find_topology(job, path, "shared_memory", {2, 2}, quick)); });
}

}  // namespace

TEST_CASE("a topology that is written is read again as it was") {
  const auto topology = parse_topology(good, "links.json");
  REQUIRE(topology.text() == "2x3");
  CHECK(topology.dimensions[0].link.microseconds == 1.5);
  CHECK(topology.dimensions[0].link.bytes_per_microsecond == 20000);
  CHECK(topology.dimensions[1].link.microseconds == 20);
  CHECK(topology.reduced_bytes_per_microsecond == 9000);
  CHECK(text_of(parse_topology(text_of(topology), "links.json")) == text_of(topology));
}

TEST_CASE("a damaged topology is refused with the file, the place and what is wrong") {
  const auto refused = [&](const std::string& text, const std::string& words) {
    INFO(text);
    CHECK_THROWS_WITH(parse_topology(text, "links.json"), Catch::StartsWith("links.json: byte ") && Catch::Contains(words));
  };
  refused("[]", "byte 0: topology: expected '{'");
  refused(good + "x", "something follows the closing brace");
  refused(replaced(good, "topology 1", "topology 2"), "the format is \"replicator topology 2\", not \"replicator topology 1\"");
  refused(replaced(good, "\"size\":2,", ""), "a dimension needs size, microseconds and bytes_per_microsecond");
  refused(replaced(good, "\"size\":2,", "\"size\":2,\"size\":2,"), "\"size\" appears twice");
  refused(replaced(good, "\"size\":2", "\"size\":0"), "the size of a dimension is 0");
  refused(replaced(good, "\"microseconds\":1.5", "\"micros\":1.5"), "\"micros\" is no member of a dimension, whose members are size, microseconds, bytes_per_microsecond");
  refused(replaced(good, "\"size\":2", "\"size\":16777216"), "there are at most 16777216 ranks");
  for (const char* number : {"01.5", "1.", ".5", "-inf", "1e", "1x"}) refused(replaced(good, "1.5", number), "expected");
  refused(replaced(good, "1.5", "1.7976931348623157e308"), "\"microseconds\" must be more than 0, and at most 1e300");
  refused(replaced(good, "1.5", "-1"), "\"microseconds\" must be more than 0");
  refused(replaced(good, "1.5", "1e999"), "expected a number");
  refused(replaced(good, "1.5", "nan"), "expected a number");
  refused(replaced(good, "1.5", "\"1.5\""), "expected a number");
  refused(replaced(good, ",\"reduced_bytes_per_microsecond\":9000", ""), "a topology needs format, dimensions and reduced_bytes_per_microsecond");
  refused(R"({"format":"replicator topology 1","dimensions":[],"reduced_bytes_per_microsecond":1})", "there are no dimensions");
  for (std::size_t length = 0; length < good.size(); ++length) CHECK_THROWS_AS(parse_topology(good.substr(0, length), "f"), DataError);
}

TEST_CASE("what is measured is written, and is what every process has, now and the next time") {
  const Scratch file{"measured_topology"};
  const auto first = find(file.path);
  INFO(test::describe(first));
  for (const auto& result : first) CHECK(result.exit_code == 0);
  CHECK_THAT(first[0].text, Catch::StartsWith(R"({"format":"replicator topology 1","dimensions":[)"));
  CHECK(first[1].text == first[0].text);
  CHECK(file.read() == first[0].text);
  const auto again = find(file.path);
  INFO(test::describe(again));
  for (const auto& result : again) CHECK(result.text == first[0].text);
}

TEST_CASE("a file of another job, or a damaged one, is refused by every process with the same words") {
  const Scratch file{"other_topology"};
  const auto all_say = [&](const std::string& words) {
    const auto results = find(file.path);
    INFO(test::describe(results));
    for (const auto& result : results) {
      CHECK(result.exit_code == 1);
      CHECK_THAT(result.text, Catch::Contains(words));
    }
  };
  file.write(good);
  all_say("error: --topology " + file.path +
          " is of 2x3 (devices of a process x processes), this job is 2x2: name another file, which will be "
          "written, or remove this one");
  file.write(good.substr(0, 100));
  all_say("error: " + file.path + ": byte 100: topology: ");
  file.write("");
  all_say("error: " + file.path + ": byte 0: topology: the file is empty");
}

TEST_CASE("a folder in which nothing can be written is an error on every process") {
  const auto results = find("/no such folder/topology.json");
  INFO(test::describe(results));
  for (const auto& result : results) CHECK_THAT(result.text, Catch::Contains("error: /no such folder/topology.json: cannot create"));
}

TEST_CASE("one device needs no topology, and processes with different numbers of devices have none") {
  transport::Job job;
  const Scratch file{"no_topology"};
  const TemporaryFolder folder;
  const auto told = test::told(folder, [&] { CHECK(find_topology(job, file.path, "auto", {1, 1}).dimensions.empty()); });
  CHECK(told == "replicator: --topology " + file.path + ": this job has one device, so there is no link to measure, and no file is read or written\n");
  CHECK_FALSE(std::filesystem::exists(file.path));
  CHECK(find_topology(job, file.path, "auto", {2, 1}, quick).text() == "2");
  CHECK(std::filesystem::exists(file.path));
  CHECK_THROWS_WITH(find_topology(job, file.path, "auto", {}), Catch::Contains("differ in their numbers of devices"));
}

TEST_CASE("a link in words is a topology of the job's size, without a measurement") {
  const auto topology = topology_of_link("10Gbit/s,0.5ms", {2, 3});
  CHECK(topology.text() == "2x3");
  CHECK(topology.dimensions[1].link.microseconds == 500);
  CHECK(topology.dimensions[1].link.bytes_per_microsecond == 1250);
  CHECK(topology.reduced_bytes_per_microsecond == collectives::common_reduction);
  CHECK(topology_of_link("100MB/s,1us", {1, 3}).text() == "3");
  CHECK(topology_of_link("100MB/s,1us", {1, 1}).dimensions.empty());
  CHECK_THROWS_WITH(topology_of_link("100MB/s,1us", {}), Catch::Contains("differ in their numbers of devices"));
  for (const char* text : {"", "1GB/s", "0GB/s,1us", "1GB/s,us", "1GB/s,1", "-1GB/s,1us", "nanGB/s,1us", "infGB/s,1us", "1e308GB/s,1us", "1GB/s,infs"}) {
    INFO(text);
    CHECK_THROWS_AS(topology_of_link(text, {1, 2}), BuildError);
  }
}

}  // namespace test_topology
