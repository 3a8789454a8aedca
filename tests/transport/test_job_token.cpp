// SPDX-License-Identifier: Apache-2.0
#include <atomic>
#include <catch2/catch.hpp>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "strangers.hpp"

namespace test_job_token {

using namespace replicator;
using namespace replicator::detail;
using namespace replicator::test;
using namespace replicator::detail::transport;
using Catch::Matchers::Contains;
using transport::detail::proof_of;
using transport::detail::Prover;

namespace {

const std::string secret = "a token that nobody guesses";

std::vector<ProcessEnvironment> with_tokens(const std::vector<std::string>& tokens) {
  auto all = environments(static_cast<int>(tokens.size()));
  for (std::size_t r = 0; r < tokens.size(); ++r) all[r].job_token = tokens[r];
  return all;
}

// The hub waits no longer than this for those whom it turned away.
JobOptions impatient() {
  auto options = quick_options();
  options.connect_deadline = std::chrono::milliseconds{600};
  return options;
}

JoinRequest request(std::uint64_t rank, std::uint64_t world_size) {
  JoinRequest result{"", world_size, rank, {4711, "somewhere"}, {}};
  const auto nonce = transport::detail::random_of_kernel();
  result.nonce.assign(nonce.begin(), nonce.end());
  return result;
}

Nonce nonce_of(const Bytes& fields) {
  const auto bytes = FrameReader{fields}.blob();
  Nonce result{};
  REQUIRE(bytes.size() == result.size());
  std::memcpy(result.data(), bytes.data(), result.size());
  return result;
}

std::string hex(std::span<const std::byte> bytes) {
  std::string result;
  for (const auto byte : bytes) {
    char text[3];
    std::snprintf(text, sizeof text, "%02x", std::to_integer<unsigned>(byte));
    result += text;
  }
  return result;
}

// A process 1 with the token looks for process 0 at a port where this test plays process 0 to whoever comes. Its error.
template <class PlayProcess0>
std::string newcomer_against(const PlayProcess0& play) {
  const auto all = with_tokens({secret, secret});
  std::atomic<bool> done{false};
  std::thread process_0{[&] {
    while (!done) {
      FileDescriptor socket{::accept4(all[0].listener->get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK)};
      if (socket) {
        Link link{std::move(socket)};
        play(link);
      }
      std::this_thread::sleep_for(std::chrono::milliseconds{2});
    }
  }};
  std::string result = "met";
  try {
    Job job{all[1], impatient()};
  } catch (const std::exception& error) {
    result = error.what();
  }
  done = true;
  process_0.join();
  return result;
}

}  // namespace

TEST_CASE("the MAC is HMAC-SHA256 (RFC 4231), compared whole") {
  const auto mac_of = [](const std::string& key, const std::string& text) { return hmac_sha256(key, std::as_bytes(std::span{text.data(), text.size()})); };
  const auto mac = mac_of("Jefe", "what do ya want for nothing?");
  CHECK(hex(mac) == "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  CHECK(hex(mac_of(std::string(20, '\x0b'), "Hi There")) == "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
  CHECK(hex(mac_of(std::string(131, '\xaa'), "Test Using Larger Than Block-Size Key - Hash Key First")) ==
        "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
  CHECK(hex(mac_of("", "")) == "b613679a0814d9ec772f95d778c35fc5ff1697c493715653c6c712144292c5ad");
  auto other = mac;
  CHECK(transport::detail::equal_macs(mac, other));
  other.back() ^= std::byte{1};
  CHECK_FALSE(transport::detail::equal_macs(mac, other));
  CHECK_FALSE(transport::detail::equal_macs(mac, std::span{mac}.first(31)));
  CHECK(transport::detail::random_of_kernel() != transport::detail::random_of_kernel());
  CHECK(transport::detail::random_token().size() == 64);
  CHECK(transport::detail::random_token() != transport::detail::random_token());
}

TEST_CASE("a proof is good for one token, direction, rank and pair of random numbers") {
  const auto challenge = transport::detail::random_of_kernel();
  const auto mine = request(1, 4);
  auto other_rank = mine;
  other_rank.rank = 2;
  auto other_world = mine;
  other_world.world_size = 5;
  auto other_job = mine;
  other_job.job_name = "x";
  auto other_nonce = mine;
  other_nonce.nonce = request(1, 4).nonce;
  const std::set<transport::Mac> proofs{proof_of(secret, Prover::newcomer, mine, challenge),
                                        proof_of(secret, Prover::process_0, mine, challenge),
                                        proof_of(secret + "2", Prover::newcomer, mine, challenge),
                                        proof_of(secret, Prover::newcomer, other_rank, challenge),
                                        proof_of(secret, Prover::newcomer, other_world, challenge),
                                        proof_of(secret, Prover::newcomer, other_job, challenge),
                                        proof_of(secret, Prover::newcomer, other_nonce, challenge),
                                        proof_of(secret, Prover::newcomer, mine, transport::detail::random_of_kernel())};
  CHECK(proofs.size() == 8);
  CHECK(proofs.contains(proof_of(secret, Prover::newcomer, mine, challenge)));
}

TEST_CASE("processes with the same token meet") {
  const int count = GENERATE(2, 4);
  const auto results = run_environments(with_tokens(std::vector<std::string>(static_cast<std::size_t>(count), secret)));
  INFO(describe(results));
  for (const auto& result : results) CHECK(result.text == "met");
}

TEST_CASE("a token on one side only, or another one, is an error on both sides that says so") {
  SECTION("process 0 alone has one") {
    const auto results = run_environments(with_tokens({secret, ""}), impatient());
    INFO(describe(results));
    CHECK_THAT(results[1].text, Contains("build: process 0 was given a job token, but process 1 (pid "));
    CHECK_THAT(results[1].text,
               Contains("from 127.0.0.1) was not: give all processes the same (REPLICATOR_JOB_TOKEN or "));
    CHECK_THAT(results[0].text, Contains("replicator: turned away: process 0 was given a job token, but process 1"));
    CHECK_THAT(results[0].text, Contains("error: process 1 did not come"));
  }
  SECTION("process 1 alone has one") {
    const auto results = run_environments(with_tokens({"", secret}), impatient());
    INFO(describe(results));
    for (const auto& result : results)
      CHECK_THAT(result.text, Contains("was given a job token, but process 0 was not: give all processes the same"));
  }
  SECTION("two tokens") {
    const auto results = run_environments(with_tokens({secret, secret + "!"}), impatient());
    INFO(describe(results));
    CHECK_THAT(results[1].text, Contains("build: process 1 (pid ") && Contains("has another job token than process 0"));
    CHECK_THAT(results[0].text, Contains("error: process 1 did not come"));
    CHECK_THAT(results[0].text, Contains("; turned away: process 1 (pid ") && Contains("has another job token"));
  }
}

TEST_CASE("a process without the token cannot end a job that has one") {
  const auto all = with_tokens({secret, secret, secret});
  const auto port = all[0].master_port;
  std::vector<Link> links;
  for (const auto& [rank, world] : {std::pair{1, 3}, {1, 7}, {0, 3}, {2, 3}, {99, 3}}) {
    links.emplace_back(connect_stranger(port));
    auto who = request(static_cast<std::uint64_t>(rank), static_cast<std::uint64_t>(world));
    if (rank == 2) who.nonce.clear();
    if (rank == 99) who.nonce.resize(7);
    send_frame(links.back(), hello(who));
  }
  const auto results = run_environments(all);
  INFO(describe(results));
  for (const auto& result : results) CHECK_THAT(result.text, Catch::Matchers::EndsWith("met"));
}

TEST_CASE("a proof that was recorded, or is for another rank, is turned away") {
  auto all = with_tokens({secret, secret, secret});
  const auto port = all[0].master_port;
  std::string outcome;
  std::thread stranger{[&] {
    const auto recorded = request(1, 3);
    const auto earlier = proof_of(secret, Prover::newcomer, recorded, transport::detail::random_of_kernel());
    for (const bool replay : {true, false}) {
      Link link{connect_stranger(port)};
      send_frame(link, hello(recorded));
      const auto challenge = await_frame(link, FrameKind::challenge);
      if (!challenge) return;
      auto as_rank_2 = recorded;
      as_rank_2.rank = 2;
      const auto proof = replay ? earlier : proof_of(secret, Prover::newcomer, as_rank_2, nonce_of(*challenge));
      send_frame(link, FrameWriter{FrameKind::proof}.blob(proof).finish());
      const auto refused = await_frame(link, FrameKind::refuse);
      outcome += refused ? "refused " : "accepted ";
    }
  }};
  auto options = impatient();
  std::string error;
  try {
    Job job{all[0], options};
  } catch (const std::exception& caught) {
    error = caught.what();
  }
  stranger.join();
  CHECK(outcome == "refused refused ");
  CHECK_THAT(error, Contains("process 1, 2 did not come"));
}

TEST_CASE("a newcomer does not believe a process 0 that proves nothing, and the token is not sent") {
  SECTION("its own proof comes back: a reflection") {
    std::string sent;  // by the newcomer
    const auto result = newcomer_against([&](Link& link) {
      const auto said = await_frame(link, FrameKind::hello);
      if (!said) return;
      FrameReader reader{*said};
      const auto who = JoinRequest::read(reader);
      send_frame(link, FrameWriter{FrameKind::challenge}.blob(who.nonce).finish());
      const auto proof = await_frame(link, FrameKind::proof);
      if (!proof) return;
      for (const auto* fields : {&*said, &*proof})
        sent.append(reinterpret_cast<const char*>(fields->data()), fields->size());
      send_frame(link, FrameWriter{FrameKind::proof}.blob(FrameReader{*proof}.blob()).finish());
      await_frame(link, FrameKind::farewell);
    });
    CHECK_THAT(result, Contains("it did not prove that it has the job token of this process"));
    CHECK(sent.size() > 100);
    CHECK(sent.find(secret) == std::string::npos);
  }
  SECTION("a welcome without a proof") {
    const auto result = newcomer_against([](Link& link) {
      await_frame(link, FrameKind::hello);
      FrameWriter frame{FrameKind::welcome};
      frame.number(1);
      for (int r = 0; r < 2; ++r) frame.number(1).text("x");
      send_frame(link, frame.blob({}).finish());
      await_frame(link, FrameKind::farewell);
    });
    CHECK_THAT(result, Contains("it wants to begin without having proven the job token"));
  }
  SECTION("a verdict without a proof does not end it") {
    const auto result = newcomer_against([](Link& link) {
      await_frame(link, FrameKind::hello);
      send_frame(link, transport::detail::refusal(transport::detail::Refusal::failure, 1, "all is\x1b[31m lost"));
      await_frame(link, FrameKind::farewell);
    });
    CHECK_THAT(result, Contains("process 1 cannot reach process 0"));
  }
}

TEST_CASE("the token comes from the variable or a file, is long enough, and not in two places") {
  const std::string file = "/tmp/replicator-token-" + std::to_string(::getpid());
  std::ofstream{file} << secret << "\r\n";
  ::unsetenv("REPLICATOR_JOB_TOKEN");
  CHECK(find_job_token("").empty());
  CHECK(find_job_token(file) == secret);
  ::setenv("REPLICATOR_JOB_TOKEN", secret.c_str(), 1);
  CHECK(find_job_token("") == secret);
  CHECK(find_environment().job_token == secret);
  CHECK_THROWS_WITH(find_job_token(file), Contains("REPLICATOR_JOB_TOKEN is set and --job-token-file is \"" + file));
  ::setenv("REPLICATOR_JOB_TOKEN", "short", 1);
  CHECK_THROWS_WITH(find_job_token(""),
                    Contains("REPLICATOR_JOB_TOKEN has 5 characters: it needs at least 16") && !Contains("short"));
  ::unsetenv("REPLICATOR_JOB_TOKEN");
  CHECK_THROWS_WITH(find_job_token("/no/such/file"),
                    "--job-token-file is \"/no/such/file\", which cannot be read: No such file or directory");
  CHECK_THROWS_WITH(find_job_token("/"), "--job-token-file is \"/\", which cannot be read: Is a directory");
  std::ofstream{file} << "";
  CHECK_THROWS_WITH(find_job_token(file), Contains("the token in " + file + " has 0 characters"));
  std::remove(file.c_str());
}

}  // namespace test_job_token
