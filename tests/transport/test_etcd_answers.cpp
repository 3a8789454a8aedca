// SPDX-License-Identifier: Apache-2.0
// What is written to an etcd and read from it, and what a user may give wrongly: without an etcd.
#include <catch2/catch.hpp>
#include <chrono>
#include <cstdlib>
#include <map>
#include <replicator/io/base64.hpp>
#include <replicator/io/json/json_leaves.hpp>
#include <replicator/job/etcd/directory.hpp>
#include <replicator/job/etcd/etcd.hpp>
#include <replicator/job/rendezvous.hpp>
#include <string>
#include <utility>
#include <vector>

#include "../support/processes.hpp"

namespace test_etcd_answers {

using namespace replicator;
using namespace replicator::detail;
using namespace replicator::detail::transport;
using Catch::Matchers::Contains;
using replicator::detail::transport::detail::Etcd;
using replicator::detail::transport::detail::HttpAnswer;

namespace {

// What the next posts answer, in place of an etcd.
HttpAnswer next_answer;
struct FakeHttp {
  explicit FakeHttp(HttpAnswer answer) : before{transport::detail::http_post_slot.exchange([](const std::string&, const std::string&, std::chrono::milliseconds) { return next_answer; })} {
    next_answer = std::move(answer);
  }
  ~FakeHttp() { transport::detail::http_post_slot.store(before); }
  transport::detail::HttpPost before;
};

}  // namespace

TEST_CASE("base64 gives the texts of RFC 4648, and reads nothing else") {
  const std::map<std::string, std::string> known{{"", ""}, {"f", "Zg=="}, {"fo", "Zm8="}, {"foo", "Zm9v"}, {"foob", "Zm9vYg=="}, {"fooba", "Zm9vYmE="}, {"foobar", "Zm9vYmFy"}, {"\xff\xfe\xfd", "//79"}};
  for (const auto& [bytes, text] : known) {
    CHECK(io::detail::to_base64(bytes) == text);
    CHECK(io::detail::from_base64(text) == bytes);
  }
  for (const auto* text : {"Z", "Zg=", "Zg", "Zh==", "Zm9=", "====", "Zg==Zg==", "Zm 9", "Zm9v\n", "=m9v"}) CHECK_FALSE(io::detail::from_base64(text));
}

TEST_CASE("the leaves of a JSON text have their paths, and damaged text is refused") {
  const io::detail::JsonLeaves leaves{R"({"a": [{"b": 1.5e3}, "x\n", null, []], "c": {"succeeded": true}})", "an answer"};
  CHECK(*leaves.find("/a/0/b") == "1.5e3");
  CHECK(*leaves.find("/a/1") == "x\n");
  CHECK(leaves.find("/a/2") == nullptr);
  CHECK(*leaves.find("/succeeded") == "true");
  for (const auto* text : {"", "{", "{\"a\":}", "[1,]", "tru", "{} {}", "\"", "{\"a\" 1}", "nulll"}) CHECK_THROWS_AS((io::detail::JsonLeaves{text, "an answer"}), DataError);
  CHECK_THROWS_WITH((io::detail::JsonLeaves{std::string(100000, '['), "an answer"}), Contains("nested too deeply"));
}

TEST_CASE("addresses of an etcd, and a program without HTTP, are refused with a sentence") {
  for (const auto* urls : {"http://", "http://a:1,b:2", "http://a:1,,http://b:2", "/shared"})
    CHECK_THROWS_WITH(Etcd{urls}, Contains("each address of an etcd must be like http://10.0.0.1:2379"));
  FakeHttp fake{{}};
  transport::detail::http_post_slot.store(nullptr);
  CHECK_THROWS_WITH(Etcd{"http://a:1"}, Contains("was built without libcurl") && Contains("libcurl4-openssl-dev"));
}

TEST_CASE("answers that no etcd gives are errors that say what came") {
  const std::vector<std::pair<std::string, HttpAnswer>> lies{
      {"http://a:1/v3/kv/range says 503: no leader", {503, "no leader"}},
      {"expected", {200, "<html>"}},
      {"a value that is no base64", {200, R"({"kvs":[{"key":"a2V5","mod_revision":"1","value":"!!!!"}]})"}},
      {"without the number /kvs/0/mod_revision", {200, R"({"kvs":[{"key":"a2V5","value":"aGk="}]})"}},
      {"without the number /kvs/0/mod_revision", {200, R"({"kvs":[{"key":"a2V5","mod_revision":"-7","value":"aGk="}]})"}}};
  for (const auto& [sentence, answer] : lies) {
    FakeHttp fake{answer};
    CHECK_THROWS_WITH(Etcd{"http://a:1"}.read("key"), Contains(sentence));
  }
  FakeHttp fake{{200, "{}"}};
  CHECK_THROWS_WITH(Etcd{"http://a:1"}.grant(10), Contains("without the number /ID"));
  CHECK_FALSE(Etcd{"http://a:1"}.keep_alive(7));
  CHECK_FALSE(Etcd{"http://a:1"}.write_unless_changed("key", 0, "text"));
}

TEST_CASE("an entry of a directory is read as it was written, and nothing else is") {
  for (const Directory::Entry& entry : {Directory::Entry{"", 0, 29500, "10.0.0.1"}, Directory::Entry{"job-5f3a", 17, 65535, "10.0.0.1,fd00::1"}}) CHECK(Directory::read(Directory::write(entry)) == entry);
  CHECK(Directory::write({"", 0, 29500, "10.0.0.1"}) == "gathering 0 29500 10.0.0.1");
  for (const auto* text : {"", "gathering", "gathering 0 29500", "gathering 0 0 a", "gathering 0 65536 a", "gathering -1 1 a", "gathering x 1 a", "gathering 0 1 a b"})
    CHECK_THROWS_WITH(Directory::read(text), Contains("which is no address of a job"));
}

TEST_CASE("a job that is to meet through an etcd needs a name, a rank and a size, and no address") {
  const auto found = [](const std::map<std::string, std::string>& variables) {
    return test::run_processes(1, [&](int) -> std::string {
             for (const auto& [name, value] : variables) ::setenv(name.c_str(), value.c_str(), 1);
             FakeHttp fake{{200, "{}"}};
             RendezvousOptions options;
             options.etcd = "http://a:1";
             const auto environment = find_environment(options);
             return environment.directory->text() + ", " + std::to_string(environment.master_port);
           })[0]
        .text;
  };
  std::map<std::string, std::string> variables{{"RANK", "1"}, {"WORLD_SIZE", "2"}};
  CHECK_THAT(found(variables), Contains("give all processes of this one the same name, for instance by `export REPLICATOR_JOB="));
  variables["REPLICATOR_JOB"] = "resnet-7";
  variables["MASTER_PORT"] = "29500";
  variables["MASTER_ADDR"] = "10.0.0.1";
  CHECK_THAT(found(variables), Catch::Matchers::EndsWith("the etcd at http://a:1 (/replicator/resnet-7/first), 0"));
  variables["REPLICATOR_JOB"] = "team/resnet";
  CHECK_THAT(found(variables), Contains("REPLICATOR_JOB is \"team/resnet\": the name of a job that meets through an etcd has no slashes"));
  variables["REPLICATOR_JOB"] = "resnet-7";
  variables.erase("RANK");
  CHECK_THAT(found(variables), Contains("RANK"));
}

}  // namespace test_etcd_answers
