// SPDX-License-Identifier: Apache-2.0
// An assertion of UCX that fails costs a process its connections, never its life. This file's ucp_worker_progress takes the place
// of UCX's, so that a test can let one fail.
#include <dlfcn.h>
#include <signal.h>
#include <ucs/config/global_opts.h>
#include <ucs/debug/log_def.h>
#include <unistd.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <replicator/transport/ucx.hpp>
#include <string>
#include <thread>

#include "jobs.hpp"
#include "traffic.hpp"

namespace test_ucx_assertion {

using namespace replicator;
using namespace replicator::detail;
using namespace replicator::test;
using transport::Job;
using transport::Ucx;

namespace {

std::atomic<bool> fails{false};

// Sends to all others and receives from them, until an error or so many rounds. Returns the error.
std::string exchange(Ucx& endpoint, int rounds, const std::function<void(int)>& each_round) {
  const auto region = endpoint.allocate(128);
  try {
    for (int round = 0; round < rounds; ++round) {
      each_round(round);
      for (int peer = 0; peer < endpoint.size(); ++peer) {
        if (peer == endpoint.rank()) continue;
        const transport::Slot slot{1, 0, 1};
        const auto out = endpoint.send({region.data, 64}, peer, slot), in = endpoint.recv({region.data + 64, 64}, peer, slot);
        if (!wait_all(endpoint, {out, in})) return "stuck";
      }
    }
  } catch (const std::exception& error) {
    return error.what();
  }
  return "no error";
}

}  // namespace

extern "C" unsigned ucp_worker_progress(ucp_worker_h worker) {
  static const auto original = reinterpret_cast<unsigned (*)(ucp_worker_h)>(::dlsym(RTLD_NEXT, "ucp_worker_progress"));
  if (fails.exchange(false)) ucs_fatal_error_format("/build/src/uct/tcp/tcp_cm.c", 557, "uct_tcp_cm_handle_conn_pkt", "Assertion `%s' failed", "!(ep->flags & 1)");
  return original(worker);
}

TEST_CASE("a failed assertion of UCX while a peer dies leaves the survivor alive, which names the dead peer") {
  const auto results = run_job(3, [](Job& job) {
    const auto endpoint = std::move(Ucx::create(job, {0, 1, 2}).front());
    return exchange(*endpoint, 100000, [&](int round) {
      if (round != 20) return;
      if (job.rank() == 2) ::raise(SIGKILL);
      if (job.rank() == 0) fails = true;
    });
  });
  INFO(describe(results));
  CHECK(results[0].exit_code == 0);
  CHECK(results[1].exit_code == 0);
  CHECK_THAT(results[0].text, Catch::Contains("process 2 (pid ") && Catch::Contains("died"));
  CHECK_THAT(results[0].text, Catch::Contains("goes on without it after an assertion failed: tcp_cm.c:557 in uct_tcp_cm_handle_conn_pkt: Assertion `!(ep->flags & 1)' failed"));
  CHECK_THAT(results[1].text, Catch::Contains("process 2 (pid "));
}

TEST_CASE("a failed assertion of UCX while nobody dies ends the job by name, on all processes") {
  const auto results = run_job(2, [](Job& job) {
    const auto endpoint = std::move(Ucx::create(job, {0, 1}).front());
    return exchange(*endpoint, 100000, [&](int round) { fails = job.rank() == 1 && round == 20; });
  });
  INFO(describe(results));
  for (const auto& result : results) {
    CHECK(result.exit_code == 0);
    CHECK(result.seconds < 20);
    CHECK_THAT(result.text, Catch::Contains("rank 1 in process 1 (pid ") && Catch::Contains("lost UCX, whose own assertion failed: tcp_cm.c:557"));
  }
}

TEST_CASE("an assertion that fails while an endpoint is destroyed harms nobody") {
  const auto results = run_job(2, [](Job& job) {
    auto endpoint = std::move(Ucx::create(job, {0, 1}).front());
    const auto error = exchange(*endpoint, 3, [](int) {});
    if (job.rank() == 1) {  // a message that nobody receives, so that the endpoint has something to wait for
      const auto large = endpoint->allocate(32 << 20);
      endpoint->send({large.data, large.bytes}, 0, transport::Slot{1, 0, 2});
      fails = true;
      endpoint.reset();
    }
    job.barrier();
    return error;
  });
  INFO(describe(results));
  for (const auto& result : results) {
    CHECK(result.exit_code == 0);
    CHECK_THAT(result.text, Catch::EndsWith("no error"));
  }
  CHECK_THAT(results[1].text, Catch::Contains("an assertion failed: tcp_cm.c:557"));
}

// UCX complains to a handler of its log from deep within its own frames.
TEST_CASE("the exception passes through UCX's own frames") {
  const auto results = run_job(2, [](Job& job) {
    const auto endpoint = std::move(Ucx::create(job, {0, 1}).front());
    if (job.rank() == 1) ::setenv("UCX_LOG_LEVEL", "diag", 1);
    static std::atomic<int> complaints{0};
    ucs_log_push_handler([](const char*, unsigned, const char*, ucs_log_level_t, const ucs_log_component_config_t*, const char*, va_list) {
      if (transport::detail::UcxGuard::holds() && ++complaints == 1) ucs_fatal_error_format("tcp_ep.c", 478, "uct_tcp_ep_x", "planted");
      return UCS_LOG_FUNC_RC_STOP;
    });
    ucs_global_opts.log_component.log_level = UCS_LOG_LEVEL_DEBUG;
    const auto error = exchange(*endpoint, 1000, [](int) {});
    return error + "; complaints: " + std::to_string(complaints > 0);
  });
  INFO(describe(results));
  for (const auto& result : results) {
    CHECK(result.exit_code == 0);
    CHECK_THAT(result.text, Catch::Contains("whose own assertion failed: tcp_ep.c:478 in uct_tcp_ep_x: planted") && Catch::Contains("complaints: 1"));
  }
}

}  // namespace test_ucx_assertion
