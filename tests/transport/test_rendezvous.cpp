// SPDX-License-Identifier: Apache-2.0
#include <arpa/inet.h>
#include <sys/socket.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cerrno>
#include <cstdlib>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "strangers.hpp"

namespace test_rendezvous {

using namespace replicator;
using namespace replicator::detail;
using namespace replicator::test;
using namespace replicator::detail::transport;
using Catch::Matchers::Contains;

namespace {

// Sets the variables of a launch, all others unset, and restores what was there.
class Variables {
 public:
  explicit Variables(const std::map<std::string, std::string>& values) {
    for (const char* name :
         {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "REPLICATOR_JOB", "REPLICATOR_JOB_TOKEN",
          "REPLICATOR_INTERFACE", "REPLICATOR_INSECURE", "PMIX_RANK", "PMIX_NAMESPACE", "OMPI_COMM_WORLD_SIZE",
          "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_STEP_NUM_NODES", "SLURM_STEP_NODELIST", "SLURM_JOB_ID", "SLURM_STEP_ID"}) {
      before_[name] = transport::detail::variable(name);
      ::unsetenv(name);
    }
    for (const auto& [name, value] : values) ::setenv(name.c_str(), value.c_str(), 1);
  }
  ~Variables() {
    for (const auto& [name, value] : before_) {
      if (value) ::setenv(name.c_str(), value->c_str(), 1);
      if (!value) ::unsetenv(name.c_str());
    }
  }

 private:
  std::map<std::string, std::optional<std::string>> before_;
};

ProcessEnvironment find(const std::map<std::string, std::string>& values) {
  const Variables scope{values};
  return find_environment();
}

}  // namespace

TEST_CASE("the variables say which process this is") {
  const auto found = find({{"RANK", "2"}, {"WORLD_SIZE", "4"}, {"MASTER_ADDR", "10.0.0.1"}, {"MASTER_PORT", "29500"}});
  CHECK(found.rank == 2);
  CHECK(found.world_size == 4);
  CHECK(found.master_address == "10.0.0.1");
  CHECK(found.master_port == 29500);
  CHECK(find({}).world_size == 1);
  CHECK(find({{"WORLD_SIZE", "1"}}).world_size == 1);
  CHECK(find({{"WORLD_SIZE", "1"}, {"RANK", "0"}}).rank == 0);
}

TEST_CASE("variables that are missing, no numbers or contradictory are refused with a sentence") {
  CHECK_THROWS_WITH(find({{"WORLD_SIZE", "two"}}),
                    "the variable WORLD_SIZE is \"two\": it must be a whole number from 1 to 1048576");
  CHECK_THROWS_WITH(find({{"WORLD_SIZE", "0"}}), Contains("WORLD_SIZE is \"0\""));
  CHECK_THROWS_WITH(find({{"WORLD_SIZE", "2"}}), Contains("WORLD_SIZE is 2, but the variable RANK is missing"));
  CHECK_THROWS_WITH(find({{"RANK", "1"}}), Contains("RANK is 1, but WORLD_SIZE is missing"));
  CHECK_THROWS_WITH(find({{"RANK", "0"}, {"MASTER_ADDR", "10.0.0.1"}}), Contains("RANK is 0, but WORLD_SIZE is missing"));
  CHECK(find({{"RANK", "0"}}).world_size == 1);
  CHECK_THROWS_WITH(find({{"RANK", "2"}, {"WORLD_SIZE", "2"}}), Contains("RANK is 2, but WORLD_SIZE is 2"));
  CHECK_THROWS_WITH(find({{"RANK", "-1"}, {"WORLD_SIZE", "2"}}), Contains("RANK is \"-1\""));
  CHECK_THROWS_WITH(find({{"RANK", "1"}, {"WORLD_SIZE", "2"}}), Contains("MASTER_PORT is missing"));
  CHECK_THROWS_WITH(find({{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_PORT", "70000"}}),
                    Contains("MASTER_PORT is \"70000\": it must be a whole number from 1 to 65535"));
  CHECK_THROWS_WITH(find({{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_PORT", "29500"}}),
                    Contains("MASTER_ADDR is missing"));
  CHECK_THROWS_AS(find({{"WORLD_SIZE", "2"}}), BuildError);
}

TEST_CASE("everybody is believed only where the option or the variable says so") {
  CHECK_FALSE(find({}).insecure);
  CHECK_FALSE(find({{"REPLICATOR_INSECURE", "0"}}).insecure);
  CHECK(find({{"REPLICATOR_INSECURE", "1"}}).insecure);
  CHECK_THROWS_WITH(find({{"REPLICATOR_INSECURE", "yes"}}), "the variable REPLICATOR_INSECURE is \"yes\": it must be a whole number from 0 to 1");
  const Variables scope{{}};
  RendezvousOptions options;
  options.insecure = true;
  CHECK(find_environment(options).insecure);
}

TEST_CASE("a launcher that the program does not know is not taken for many single processes") {
  if (launcher_slot.load() != nullptr) return;  // this test program knows PMIx
  CHECK_THROWS_WITH(find({{"PMIX_RANK", "1"}, {"PMIX_NAMESPACE", "job"}}),
                    Contains("was built without PMIx: install libpmix-dev (Debian), link replicator::pmix") &&
                        Contains("include <replicator/job/pmix.hpp>") && Contains("WORLD_SIZE=1 for a job of one process"));
  CHECK(find({{"PMIX_RANK", "0"}, {"PMIX_NAMESPACE", "job"}, {"OMPI_COMM_WORLD_SIZE", "1"}}).world_size == 1);
}

TEST_CASE("a task of srun is a process of the job without any other variable") {
  std::map<std::string, std::string> task{{"SLURM_PROCID", "2"}, {"SLURM_STEP_NUM_TASKS", "3"}, {"SLURM_JOB_ID", "1234"}, {"SLURM_STEP_NUM_NODES", "2"}, {"SLURM_STEP_ID", "5"}, {"SLURM_STEP_NODELIST", "n[07-09,12],x"}};
  const auto found = find(task);
  CHECK(found.rank == 2);
  CHECK(found.world_size == 3);
  CHECK(found.master_address == "n07");
  CHECK(found.master_port == 15000 + (1234 * 31 + 5) % 15000);
  CHECK(found.job_name == "slurm 1234.5");

  SECTION("which keeps to the loopback where all are on one node") {
    task["SLURM_STEP_NUM_NODES"] = "1";
    CHECK(find(task).master_address == "127.0.0.1");
  }
  SECTION("whose address, port and name of the job may be chosen") {
    task.insert({{"MASTER_ADDR", "10.0.0.1"}, {"MASTER_PORT", "29500"}, {"REPLICATOR_JOB", "mine"}});
    CHECK(find(task).master_address == "10.0.0.1");
    CHECK(find(task).master_port == 29500);
    CHECK(find(task).job_name == "mine");
  }
  SECTION("and may be told that it is alone, or another one") {
    task.insert({{"WORLD_SIZE", "1"}});
    CHECK(find(task).world_size == 1);
  }
  SECTION("also where srun offers PMIx and the program does not know it") {
    task.insert({{"PMIX_RANK", "2"}, {"PMIX_NAMESPACE", "slurm.pmix.1234.5"}});
    if (launcher_slot.load() == nullptr) CHECK(find(task).world_size == 3);
  }
  SECTION("but not where an mpirun is inside of it") {
    task.insert({{"PMIX_RANK", "2"}, {"PMIX_NAMESPACE", "prterun-1"}});
    if (launcher_slot.load() == nullptr) CHECK_THROWS_WITH(find(task), Contains("started by a PMIx launcher"));
  }
  SECTION("and is refused with a sentence where Slurm's variables are not whole") {
    task.erase("SLURM_JOB_ID");
    CHECK_THROWS_WITH(find(task), Contains("started by srun, but the variable SLURM_JOB_ID is missing"));
    task["SLURM_PROCID"] = "3";
    CHECK_THROWS_WITH(find(task), Contains("the variable SLURM_PROCID is \"3\": it must be a whole number from 0 to 2"));
  }
}

TEST_CASE("a batch script of Slurm, and a single task, are jobs of one process") {
  CHECK(find({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "3"}, {"SLURM_JOB_ID", "7"}}).world_size == 1);
  CHECK(find({{"SLURM_PROCID", "0"}, {"SLURM_STEP_NUM_TASKS", "1"}}).world_size == 1);
}

TEST_CASE("the first name of a list of nodes is found as Slurm shortens it") {
  using transport::detail::first_host;
  CHECK(first_host("node") == "node");
  CHECK(first_host("a,b[1-2]") == "a");
  CHECK(first_host("n[3]") == "n3");
  CHECK(first_host("n[003,007-011]") == "n003");
  CHECK(first_host("rack[1-2]n[10-19].cluster,m1") == "rack1n10.cluster");
}

TEST_CASE("garbage on the rendezvous port does not stop the job from starting") {
  const auto all = environments(3);
  const auto port = all[0].master_port;
  const std::string frame_of_nonsense{"RPC2\x01\0\0\0\x08\0\0\0\0\0\0\0\xff\xff\xff\xff\xff\xff\xff\x7f", 24};
  const auto silent = send_garbage(port, "");
  const auto half = send_garbage(port, "RPC2");
  const auto web = send_garbage(port, "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
  const auto nonsense = send_garbage(port, frame_of_nonsense);
  const auto huge =
      send_garbage(port, std::string{"RPC2\x01\0\0\0\xff\xff\xff\xff\0\0\0\0", 16} + std::string(100000, 'x'));
  const auto results = run_environments(all, quick_options());
  INFO(describe(results));
  for (const auto& result : results) CHECK_THAT(result.text, Catch::Matchers::EndsWith("met"));
}

TEST_CASE("500 garbage connections, slow ones and oversized frames do not stop three processes from meeting") {
  auto all = environments(3);
  const auto port = all[0].master_port;
  auto options = quick_options();
  options.dead_after = std::chrono::milliseconds{1000};
  const auto results = run_processes(4, [&](int rank) -> std::string {
    if (rank < 3) {
      const auto environment = all[static_cast<std::size_t>(rank)];
      all.clear();
      if (rank > 0) ::usleep(200000);  // the flood is there first
      const auto start = std::chrono::steady_clock::now();
      Job job{environment, options};
      job.barrier();
      job.leave();
      return std::chrono::steady_clock::now() - start < std::chrono::seconds{5} ? "met" : "late";
    }
    all.clear();
    const auto honest = hello({"", 3, 1, {1, "slow"}, {}});
    const std::string oversized{"RPC2\x01\0\0\0\xff\xff\xff\xff\0\0\0\0", 16};
    std::vector<FileDescriptor> open;
    std::size_t said = 0;
    for (int i = 0; i < 500; ++i) {  // none is closed by this end
      if (i % 4 == 0) open.push_back(send_garbage(port, ""));
      if (i % 4 == 1) open.push_back(send_garbage(port, "GET / HTTP/1.1\r\n\r\n"));
      if (i % 4 == 2) open.push_back(send_garbage(port, oversized + std::string(200000, 'x')));
      if (i % 4 == 3) open.push_back(send_garbage(port, std::span{honest}.first(20)));
    }
    for (int round = 0; round < 100; ++round) {  // and go on, a byte at a time, with more of them
      for (auto& socket : open)
        if (socket && ::send(socket.get(), &honest[20 + static_cast<std::size_t>(round) % 8], 1,
                             MSG_NOSIGNAL | MSG_DONTWAIT) == 1)
          ++said;
      for (int i = 0; i < 5; ++i) open.push_back(send_garbage(port, std::span{honest}.first(20)));
      ::usleep(5000);
    }
    return said > 0 ? "flooded" : "nothing was heard";
  });
  INFO(describe(results));
  for (std::size_t r = 0; r < 3; ++r) CHECK_THAT(results[r].text, Catch::Matchers::EndsWith("met"));
  CHECK(results[3].text == "flooded");
}

TEST_CASE("process 0 holds no more than 128 connections that have not said who they are, and none for long") {
  const auto all = environments(2);
  auto options = quick_options();
  options.dead_after = std::chrono::milliseconds{300};
  options.connect_deadline = std::chrono::milliseconds{1500};
  std::vector<FileDescriptor> open;
  for (int i = 0; i < 200; ++i) open.push_back(connect_stranger(all[0].master_port));
  const auto alive = [&] {
    return std::count_if(open.begin(), open.end(), [](const FileDescriptor& socket) {
      char byte;
      return ::recv(socket.get(), &byte, 1, MSG_DONTWAIT) < 0 && errno == EAGAIN;
    });
  };
  std::thread process_0{[&] {
    CHECK_THROWS_WITH(Job(all[0], options), Contains("200 connections did not speak as a process of a job"));
  }};
  std::this_thread::sleep_for(std::chrono::milliseconds{150});
  const auto soon = alive();
  std::this_thread::sleep_for(std::chrono::milliseconds{850});
  const auto later = alive();
  process_0.join();
  CHECK(soon <= 128);
  CHECK(later == 0);
}

TEST_CASE("processes that wait long say what they wait for and what they try") {
  auto all = environments(3);
  auto options = quick_options();
  options.report_after = std::chrono::milliseconds{100};
  options.connect_deadline = std::chrono::milliseconds{500};
  const auto port = std::to_string(all[0].master_port);
  SECTION("process 0") {
    all.pop_back();
    const auto results = run_environments(all, options);
    INFO(describe(results));
    CHECK_THAT(results[0].text,
               Contains("s process 0 still waits at ::, port " + port + " (IPv6) for process 2 (here: 0, 1 of 3)\n"));
    CHECK_THAT(results[1].text,
               Contains("s process 1 has not met the others yet at 127.0.0.1, port " + port + ": 127.0.0.1, port " +
                        port + " (IPv4): process 0 is there and waits for others\n"));
  }
  SECTION("another process, of every address it tries") {
    all[0].listener->close();
    all[1].master_address = "127.0.0.1,::1";
    const auto results = run_environments({all[1]}, options);
    INFO(describe(results));
    CHECK_THAT(results[0].text,
               Contains("s process 1 has not met the others yet at 127.0.0.1,::1, port " + port + ": 127.0.0.1, port " +
                        port + " (IPv4): Connection refused; ::1, port " + port + " (IPv6): "));
  }
}

TEST_CASE("process 0 listens where it was told, on the loopback alone if only this machine knows its address, or everywhere") {
  const auto listening = [](const std::string& interface, const std::string& master_address, const std::string& token = "a token that nobody guesses") {
    ProcessEnvironment environment;
    environment.interface = interface;
    environment.master_address = master_address;
    environment.job_token = token;
    return transport::detail::listening_address(environment);
  };
  CHECK(listening("", "127.0.0.1")->text() == "127.0.0.1");
  CHECK(listening("", "localhost")->text() == "127.0.0.1");
  CHECK(listening("", "::1,127.0.0.1")->text() == "::1");
  CHECK_FALSE(listening("", "10.1.2.3"));
  CHECK_FALSE(listening("", "127.0.0.1,node-7"));
  CHECK_FALSE(listening("", ""));
  CHECK(listening("lo", "10.1.2.3")->text() == "127.0.0.1");
  CHECK(listening("127.0.0.1", "10.1.2.3")->text() == "127.0.0.1");
  CHECK_THROWS_WITH(listening("nowhere0", ""),
                    Contains("--interface (or REPLICATOR_INTERFACE) is \"nowhere0\", but no interface") &&
                        Contains("it has lo (127.0.0.1)"));
  for (const char* address : {"10.1.2.3", "127.0.0.1,node-7", ""}) CHECK(listening("", address, "")->text() == "127.0.0.1");
  CHECK(listening("", "::1,127.0.0.1", "")->text() == "::1");
  const auto bound = transport::detail::listen_on(0, listening("lo", ""));
  CHECK(transport::detail::address_of(bound.get()).text() == "127.0.0.1");
  const auto port = transport::detail::port_of(bound.get());
  std::string error;
  CHECK(transport::detail::connect_to("127.0.0.1", port, std::chrono::milliseconds{500}, error));
  CHECK_FALSE(transport::detail::connect_to("127.0.0.2", port, std::chrono::milliseconds{500}, error));
  CHECK(error == "127.0.0.2, port " + std::to_string(port) + " (IPv4): Connection refused");
}

TEST_CASE("processes meet over IPv6, and keep to an interface") {
  const bool with_interface = GENERATE(false, true);
  auto all = environments(3);
  try {
    all[0].listener =
        std::make_shared<FileDescriptor>(transport::detail::listen_on(0, transport::detail::numeric_address("::1")));
  } catch (const CommunicationError&) {
    WARN("skipped: no IPv6 on this machine");
    return;
  }
  for (auto& environment : all) {
    environment.master_address = "::1";
    environment.master_port = transport::detail::port_of(all[0].listener->get());
    if (with_interface) environment.interface = "lo";
  }
  const auto results = run_environments(all);
  INFO(describe(results));
  for (const auto& result : results) CHECK(result.text == "met");
}

TEST_CASE("an interface without an address of the right family is named, and the variable names one") {
  auto all = environments(2);
  all[1].master_address = "::1";
  all[1].interface = "127.0.0.1";
  auto options = quick_options();
  options.connect_deadline = std::chrono::milliseconds{200};
  CHECK_THROWS_WITH(Job(all[1], options), Contains("(IPv6): lo has no address of that family"));
  CHECK(find({{"REPLICATOR_INTERFACE", "eth7"}}).interface == "eth7");
  const Variables scope{{{"REPLICATOR_INTERFACE", "eth7"}}};
  CHECK(find_environment({.job_token_file = "", .interface = "lo"}).interface == "lo");
}

TEST_CASE("without a token process 0 says who can come where other machines may know its address, and only there") {
  auto all = environments(2);
  for (auto& environment : all) environment.listener.reset();
  auto options = quick_options();
  options.connect_deadline = std::chrono::milliseconds{100};
  const auto text_at = [&](const std::string& address, bool insecure) {
    all[0].master_address = address;
    all[0].insecure = insecure;
    return run_environments({all[0]}, options)[0].text;
  };
  const std::string keeps = "process 0 has no job token, so it listens at 127.0.0.1, port ";
  const std::string advice = "run `export REPLICATOR_JOB_TOKEN=$(openssl rand -hex 32)` once, and start each process with that value";
  for (const char* address : {"192.0.2.1", "127.0.0.1,node-7"}) {
    const auto text = text_at(address, false);
    CHECK_THAT(text, Contains("replicator: " + keeps) && Contains("only, where processes of other machines cannot reach it") && Contains(advice) &&
                         Contains("Or give all --insecure (REPLICATOR_INSECURE=1)"));
    CHECK_THAT(text, Contains("error: process 1 did not come") && Contains("raise the connect deadline; " + keeps));
  }
  CHECK_THAT(text_at("192.0.2.1", true), Contains("replicator: warning: process 0 listens at ::, port ") && Contains("believes everybody (--insecure)"));
  for (const char* address : {"127.0.0.1", "localhost,::1"}) CHECK_THAT(text_at(address, false), !Contains("job token") && !Contains("warning"));
}

TEST_CASE("a link ends at the first byte that is no frame, and carries frames cut anywhere") {
  using transport::detail::Link;
  int ends[2];
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
  const FileDescriptor sender{ends[0]};
  Link link{FileDescriptor{ends[1]}, 1000};
  const auto frame = transport::detail::FrameWriter{transport::detail::FrameKind::abort}.number(7).text("why").finish();
  transport::detail::FrameKind kind{};
  transport::detail::Bytes fields;
  for (const std::byte& byte : frame) {
    CHECK_FALSE(link.next(kind, fields));
    REQUIRE(::send(sender.get(), &byte, 1, 0) == 1);
    CHECK(link.pump_in());
  }
  REQUIRE(link.next(kind, fields));
  transport::detail::FrameReader reader{fields};
  CHECK(reader.number() == 7);
  CHECK(reader.text() == "why");
  CHECK_THROWS_AS(reader.number(), CommunicationError);
  const bool foreign = GENERATE(true, false);
  if (foreign) {
    REQUIRE(::send(sender.get(), "G", 1, 0) == 1);
  } else {  // a frame longer than the limit
    const auto large =
        transport::detail::FrameWriter{transport::detail::FrameKind::hello}.text(std::string(2000, 'x')).finish();
    REQUIRE(::send(sender.get(), large.data(), 16, 0) == 16);
  }
  CHECK_FALSE(link.pump_in());
}

TEST_CASE("a process that does not come is named by all at the connect deadline") {
  auto all = environments(4);
  all.erase(all.begin() + 2);
  auto options = quick_options();
  options.connect_deadline = std::chrono::milliseconds{500};
  const auto results = run_environments(all, options);
  INFO(describe(results));
  for (const auto& result : results) {
    CHECK_THAT(result.text, Contains("process 2 did not come to port " + std::to_string(all[0].master_port)));
    CHECK_THAT(result.text, Contains("within 0.5 s (here: 0, 1, 3 of 4)"));
    CHECK(result.text == results[0].text);
  }
}

TEST_CASE("without process 0 the error names the address that was tried") {
  auto all = environments(2);
  all[0].listener.reset();
  const auto port = all[1].master_port;
  all[1].listener.reset();
  auto options = quick_options();
  options.connect_deadline = std::chrono::milliseconds{300};
  const auto start = std::chrono::steady_clock::now();
  CHECK_THROWS_WITH(Job(all[1], options), Contains("process 1 cannot reach process 0 at 127.0.0.1, port " +
                                                   std::to_string(port) + ", within 0.3 s (tried: 127.0.0.1, port " +
                                                   std::to_string(port) + " (IPv4): Connection refused)"));
  all[1].insecure = true;
  all[1].master_address = "192.0.2.1,no-such-host.invalid";  // a black hole (RFC 5737) and a name without address
  CHECK_THROWS_WITH(Job(all[1], options), Contains("192.0.2.1,no-such-host.invalid"));
  CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds{8});
}

TEST_CASE("of several addresses the one of process 0 is found") {
  auto all = environments(2);
  all[1].master_address = "127.0.0.2,::1,127.0.0.1";
  const auto results = run_environments(all, quick_options());
  INFO(describe(results));
  for (const auto& result : results) CHECK(result.text == "met");
}

TEST_CASE("processes that contradict each other are told so at once") {
  SECTION("two world sizes") {
    auto all = environments(2);
    all[1].world_size = 3;
    const auto results = run_environments(all, quick_options());
    INFO(describe(results));
    for (const auto& result : results)
      CHECK_THAT(result.text,
                 Contains("build: process 1 (pid ") && Contains("WORLD_SIZE=3, process 0 with WORLD_SIZE=2"));
  }
  SECTION("one rank twice") {
    auto all = environments(3);
    all[2].rank = 1;
    const auto results = run_environments(all, quick_options());
    INFO(describe(results));
    for (const auto& result : results) CHECK_THAT(result.text, Contains("two processes were started with RANK=1") && Contains("a MASTER_PORT or a REPLICATOR_JOB of its own"));
  }
  SECTION("another job") {
    auto all = environments(2);
    all[1].job_name = "other";
    auto options = quick_options();
    options.connect_deadline = std::chrono::milliseconds{400};
    const auto results = run_environments(all, options);
    INFO(describe(results));
    CHECK_THAT(results[0].text, Contains("process 1 did not come"));
    CHECK_THAT(results[1].text, Contains("process 0 there belongs to the job \"\""));
  }
}

TEST_CASE("a port that is taken is named") {
  const auto taken = transport::detail::listen_on(0);
  ProcessEnvironment environment;
  environment.world_size = 2;
  environment.master_port = transport::detail::port_of(taken.get());
  CHECK_THROWS_WITH(Job(environment),
                    Contains("process 0 cannot listen on port " + std::to_string(environment.master_port)) &&
                        Contains("choose another MASTER_PORT"));
}

}  // namespace test_rendezvous
