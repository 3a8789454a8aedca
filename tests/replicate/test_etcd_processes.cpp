// SPDX-License-Identifier: Apache-2.0
// Elastic programs that meet through an etcd, and ask it who goes on: they need no address of process 0.
#include <catch2/catch.hpp>

#include <signal.h>

#include <cstdlib>
#include <string>

#include <replicator/replicate/train_loop.hpp>

#include "../support/etcd_server.hpp"
#include "../support/programs.hpp"
#include "checkpointed.hpp"
#include "deployments.hpp"

namespace test_etcd_processes {

using namespace replicator;
using test::EtcdServer;
using test::Experiment;

namespace {

Deployment by_etcd(const std::string& url) {
  auto where = test::on_devices(7, 1);
  where.elastic = true;
  where.elastic_arbiter = url;
  return where;
}

// Four steps. A process that is to die does so after its second one.
std::string run(const Deployment& where, bool dies) {
  Replicator repl{where};
  return test::with_input(Experiment{}, [&](auto input_fn) {
    auto train = repl.replicate(input_fn, test::step_of(Experiment{}));
    for (int step = 0; step < 4; ++step) {
      train.step();
      if (dies && step == 1) ::raise(SIGKILL);
    }
    return repl.digest();
  });
}

void set_variables(int rank, int count, const char* job) {
  test::set_environment(rank, count, 1);
  ::unsetenv("MASTER_ADDR");
  ::unsetenv("MASTER_PORT");
  ::setenv("REPLICATOR_JOB", job, 1);
}

}  // namespace

TEST_CASE("half of a job goes on where it has its epoch in the etcd, with the bits of the undisturbed run") {
  REPLICATOR_NEEDS_ETCD();
  EtcdServer server;
  auto alone = by_etcd("");
  alone.elastic = false;
  const auto digest = test::run_as_job(1, [&](int) { return run(alone, false); })[0].text;
  REQUIRE(digest.size() == 64);
  const auto results = test::run_processes(2, [&](int rank) {
    set_variables(rank, 2, "training");
    return run(by_etcd(server.url()), rank == 0);
  });
  INFO(test::describe(results));
  CHECK(results[0].signal == SIGKILL);
  CHECK(results[1].exit_code == 0);
  CHECK(results[1].text.ends_with(digest));
  const detail::transport::detail::Etcd etcd{server.url()};
  const auto address = etcd.read("/replicator/training/first");
  CHECK_FALSE(address);  // the job has ended
}

}  // namespace test_etcd_processes
