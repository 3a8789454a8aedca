// SPDX-License-Identifier: Apache-2.0
// Collectives on raw buffers between processes, against a reference that folds T by recursion in plain loops: equal bits.
#include <signal.h>
#include <unistd.h>
#include <catch2/catch.hpp>

#include <algorithm>
#include <cfenv>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <functional>
#include <replicator/core/philox.hpp>
#include <replicator/world/world.hpp>
#include <string>
#include <vector>

#include "../support/programs.hpp"

namespace test_world {

namespace rc = replicator::detail::collectives;
using replicator::Reduction;
using replicator::test::describe;
using replicator::test::run_as_job;

namespace {

using Values = std::vector<float>;

// Small, so that a few thousand elements are many slices.
replicator::WorldOptions small_window(int replicas = 0) {
  replicator::WorldOptions options;
  options.replicas = replicas;
  options.window = 4096;
  options.deadline = std::chrono::seconds{20};
  return options;
}

Values leaf(int replica, std::int64_t elements) {
  replicator::PhiloxStream random{11, static_cast<std::uint64_t>(replica)};
  Values values(static_cast<std::size_t>(elements));
  for (float& value : values) value = (random.uniform() - 0.5f) * 1.7f;  // sums of which must round
  return values;
}

Values fold(rc::TreeNode node, std::int64_t elements) {
  if (node.leaf()) return leaf(node.begin, elements);
  Values left = fold(node.left(), elements);
  const Values right = fold(node.right(), elements);
  for (std::size_t i = 0; i < left.size(); ++i) left[i] = left[i] + right[i];
  return left;
}

// The inputs of this process's replicas, one after the other.
Values local(const replicator::World& world, std::int64_t elements) {
  Values all;
  for (int replica = world.first_replica(); replica < world.first_replica() + world.local_replicas(); ++replica) {
    const Values one = leaf(replica, elements);
    all.insert(all.end(), one.begin(), one.end());
  }
  return all;
}

void require_equal(const std::string& what, std::int64_t count, const float* found, const Values& wanted) {
  if (!wanted.empty() && std::memcmp(found, wanted.data(), wanted.size() * sizeof(float)) != 0)
    throw replicator::Error{what + " of " + std::to_string(count) + " has wrong bits"};
}

Values block(const Values& values, std::int64_t count, int index) {
  return {values.begin() + index * count, values.begin() + (index + 1) * count};
}

void check_all_reduce(replicator::World& world, std::int64_t n) {
  const Values input = local(world, n);
  const Values sum = fold({0, world.replicas()}, n);
  Values output(static_cast<std::size_t>(n));
  world.all_reduce(input.data(), output.data(), n);
  require_equal("all_reduce", n, output.data(), sum);
  Values both = input;
  world.all_reduce(both.data(), both.data(), n, Reduction::mean);
  Values mean = sum;
  for (float& value : mean) value = value / static_cast<float>(world.replicas());
  require_equal("all_reduce in place", n, both.data(), mean);
}

void check_reduce_scatter(replicator::World& world, std::int64_t n) {
  const int replicas = world.replicas();
  Values input = local(world, n * replicas);
  const Values sum = fold({0, replicas}, n * replicas);
  Values wanted(sum.begin() + world.first_replica() * n,
                sum.begin() + (world.first_replica() + world.local_replicas()) * n);
  Values output(wanted.size());
  world.reduce_scatter(input.data(), output.data(), n);
  require_equal("reduce_scatter", n, output.data(), wanted);
  float* in_place = input.data() + world.first_replica() * n;
  world.reduce_scatter(input.data(), in_place, n);
  require_equal("reduce_scatter in place", n, in_place, wanted);
}

void check_all_gather(replicator::World& world, std::int64_t n) {
  const Values input = local(world, n);
  Values wanted;
  for (int replica = 0; replica < world.replicas(); ++replica) {
    const Values one = leaf(replica, n);
    wanted.insert(wanted.end(), one.begin(), one.end());
  }
  Values output(wanted.size());
  world.all_gather(input.data(), output.data(), n);
  require_equal("all_gather", n, output.data(), wanted);
  Values both(wanted.size());
  float* mine = both.data() + world.first_replica() * n;
  std::copy(input.begin(), input.end(), mine);
  world.all_gather(mine, both.data(), n);
  require_equal("all_gather in place", n, both.data(), wanted);
}

void check_all_to_all(replicator::World& world, std::int64_t n) {
  Values both = local(world, n * world.replicas());
  Values wanted;
  for (int to = world.first_replica(); to < world.first_replica() + world.local_replicas(); ++to)
    for (int from = 0; from < world.replicas(); ++from) {
      const Values part = block(leaf(from, n * world.replicas()), n, to);
      wanted.insert(wanted.end(), part.begin(), part.end());
    }
  Values output(wanted.size());
  world.all_to_all(both.data(), output.data(), n);
  require_equal("all_to_all", n, output.data(), wanted);
  world.all_to_all(both.data(), both.data(), n);
  require_equal("all_to_all in place", n, both.data(), wanted);
}

void check_broadcast(replicator::World& world, std::int64_t n) {
  for (const int root : {0, world.replicas() - 1}) {
    const bool here = world.first_replica() <= root && root < world.first_replica() + world.local_replicas();
    Values values = here ? leaf(root, n) : Values(static_cast<std::size_t>(n));
    world.broadcast(here ? values.data() : nullptr, values.data(), n, root);
    require_equal("broadcast", n, values.data(), leaf(root, n));
  }
}

std::string check_everything(const replicator::WorldOptions& options) {
  replicator::World world{options};
  for (int round = 0; round < 2; ++round)
    for (const std::int64_t n : {0, 1, 2, 15, 17, 1000, 1024, 5003}) {
      check_all_reduce(world, n);
      check_reduce_scatter(world, n);
      check_all_gather(world, n);
      check_all_to_all(world, n);
      check_broadcast(world, n);
    }
  world.barrier();
  world.finish();
  return "good";
}

void check_job(int count, const std::function<std::string(int)>& body, const std::string& wanted) {
  const auto results = run_as_job(count, body);
  INFO(describe(results));
  for (const auto& result : results) {
    CHECK(result.exit_code == 0);
    CHECK(result.text == wanted);
  }
}

template <class Call>
std::string message_of(Call&& call) {
  try {
    call();
  } catch (const replicator::Error& error) {
    return error.what();
  }
  return "nothing was thrown";
}

}  // namespace

TEST_CASE("raw collectives have the reference's bits for any count, in place or not, on any number of processes") {
  for (const int count : {1, 2, 3, 5}) check_job(
      count, [](int) { return check_everything(small_window()); }, "good");
}

TEST_CASE("with the same replicas the sums have the same bits on any number of processes") {
  for (const int count : {1, 2, 3}) check_job(
      count, [](int) { return check_everything(small_window(6)); }, "good");
  check_job(
      3, [](int) { return check_everything(small_window(7)); }, "good");
}

TEST_CASE("raw collectives of more than a window have the reference's bits") {
  check_job(
      3,
      [](int) {
        replicator::WorldOptions options;
        options.window = 1 << 20;
        replicator::World world{options};
        check_all_reduce(world, 1234567);
        check_all_to_all(world, 123457);
        return std::string{"good"};
      },
      "good");
}

TEST_CASE("buffers that the world allocates are reduced and gathered where they lie") {
  const auto body = [](int rank) -> std::string {
    replicator::WorldOptions options;
    options.deadline = std::chrono::seconds{20};
    replicator::World world{options};
    constexpr std::int64_t n = 200003;
    const auto values = world.allocate<float>(n), all = world.allocate<float>(n * world.size());
    const Values input = leaf(rank, n), sum = fold({0, world.size()}, n);
    for (int step = 0; step < 3; ++step) {  // the same memory is written again as soon as a call is over
      std::copy(input.begin(), input.end(), values.begin());
      world.all_gather(values.data(), all.data(), n);
      world.all_reduce(values.data(), values.data(), n);
      require_equal("all_reduce", n, values.data(), sum);
      for (int r = 0; r < world.size(); ++r) require_equal("all_gather", n, all.data() + r * n, leaf(r, n));
      world.all_reduce(input.data(), values.data() + 1, 1000);
      require_equal("all_reduce into the middle", 1000, values.data() + 1, {sum.begin(), sum.begin() + 1000});
    }
    world.finish();
    return "good";
  };
  for (const int count : {1, 2, 3}) check_job(count, body, "good");
}

TEST_CASE("processes whose buffers lie at other places of allocated memory, or that allocate otherwise, are told") {
  const auto places = [](int rank) -> std::string {
    replicator::World world{small_window()};
    const auto values = world.allocate<float>(64);
    return message_of([&] { world.all_reduce(values.data() + 16 * rank, values.data() + 16 * rank, 16); });
  };
  const auto results = run_as_job(2, places);
  INFO(describe(results));
  for (const auto& result : results) {
    CHECK(result.text.find("float32[16], its input at byte 0 of allocation 1, its output at byte 0 of allocation 1") != std::string::npos);
    CHECK(result.text.find("float32[16], its input at byte 64 of allocation 1") != std::string::npos);
  }
  const auto sizes = [](int rank) -> std::string {
    replicator::World world{small_window()};
    return message_of([&] { world.allocate<float>(64 + rank); }).find("allocate 260 bytes") == std::string::npos ? "not told" : "told";
  };
  check_job(2, sizes, "told");
}

TEST_CASE("raw collectives take every element type and reduction, and any order") {
  const auto body = [](int rank) -> std::string {
    replicator::World world{small_window()};
    std::vector<std::int64_t> whole(3000, rank + 1);
    world.all_reduce(whole.data(), whole.data(), 3000, Reduction::sum, true);
    std::vector<double> largest(7, rank);
    world.all_reduce(largest.data(), largest.data(), 7, Reduction::max);
    std::vector<std::uint8_t> least(9, static_cast<std::uint8_t>(rank + 5));
    world.all_reduce(least.data(), least.data(), 9, Reduction::min);
    std::vector<replicator::bfloat16> mean(3, static_cast<float>(rank));
    world.all_reduce(mean.data(), mean.data(), 3, Reduction::mean);
    const auto refused = message_of([&] { world.all_reduce(whole.data(), whole.data(), 1, Reduction::mean); });
    return std::to_string(whole[2999]) + " " + std::to_string(largest[6]) + " " + std::to_string(least[8]) + " " +
           std::to_string(static_cast<float>(mean[2])) + " " + refused.substr(0, 13);
  };
  check_job(3, body, "6 2.000000 5 1.000000 mean of int64");
}

TEST_CASE("a rounding mode that another library has set changes no bits, and stays as it was") {
  const auto body = [](int rank) -> std::string {
    replicator::World world{small_window()};
    const Values input = local(world, 100);
    const int mode = rank == 0 ? FE_TONEAREST : FE_UPWARD;
    std::fesetround(mode);
    Values output(100);
    world.all_reduce(input.data(), output.data(), 100);
    const bool kept = std::fegetround() == mode;
    std::fesetround(FE_TONEAREST);  // for the reference
    require_equal("all_reduce", 100, output.data(), fold({0, 2}, 100));
    return kept ? "as it was" : "changed";
  };
  check_job(2, body, "as it was");
}

TEST_CASE("mistakes with raw buffers are named before anything moves, and the world goes on") {
  const auto body = [](int) -> std::string {
    replicator::World world{small_window()};
    Values values(64, 1.0f);
    std::string text = message_of([&] { world.all_reduce<float>(nullptr, values.data(), 8); }) + "\n";
    text += message_of([&] { world.all_reduce(values.data(), values.data() + 1, 8); }) + "\n";
    text += message_of([&] { world.broadcast(values.data(), values.data(), 8, 2); }) + "\n";
    text += message_of([&] { world.all_gather(values.data(), values.data(), -1); }) + "\n";
    text += message_of([&] { world.all_reduce(values.data(), values.data(), (std::int64_t{1} << 62) + 1); }) + "\n";
    text += message_of([&] { world.all_to_all(values.data(), values.data(), std::int64_t{1} << 60); }) + "\n";
    text += message_of([&] { world.allocate<float>(std::int64_t{1} << 62); }) + "\n";
    world.all_reduce(values.data(), values.data(), 64);
    text += std::to_string(values[63]) + "\n";
    world.finish();
    text += message_of([&] { world.all_reduce(values.data(), values.data(), 64); }) + "\n";
    text += message_of([&] { world.finish(); });
    return text;
  };
  check_job(2, body,
            "all_reduce (sum) of float32[8]: input is a null pointer\n"
            "all_reduce (sum) of float32[8]: input and output overlap, the output beginning 4 bytes after the input: "
            "let them be apart, or the output begin where a block of the input does\n"
            "broadcast from replica 2 of float32[8]: there are replicas 0 to 1\n"
            "all_gather of float32[-1]: a count may not be negative\n"
            "all_reduce (sum) of float32[4611686018427387905]: no memory holds so many bytes; a count is of the elements of one block\n"
            "all_to_all of float32[1152921504606846976]: no memory holds so many bytes; a count is of the elements of one block\n"
            "allocate of 4611686018427387904 elements: no memory holds so many bytes\n"
            "2.000000\n"
            "all_reduce (sum) of float32[64] was called after finish(): make another World for it\n"
            "finish was called after finish(): make another World for it");
}

TEST_CASE("a deadline that is too long to be counted is none, and one below zero is refused") {
  const auto body = [](int) -> std::string {
    auto options = small_window();
    options.deadline = std::chrono::milliseconds::max();
    replicator::World world{options};
    Values values(64, 1.0f);
    world.all_reduce(values.data(), values.data(), 64);
    world.finish();
    options.deadline = std::chrono::milliseconds{-5};
    return message_of([&] { replicator::World{options}; });
  };
  check_job(2, body, "the deadline of a world is -5 ms: it is at least 0, which is for none");
}

TEST_CASE("a world refuses fewer replicas than processes, and says so in its own words") {
  check_job(
      2, [](int) { return message_of([] { replicator::World{small_window(1)}; }); },
      "a world of 1 replicas was asked for on 2 process(es): every process needs at least one replica; 0 stands for one on each");
  CHECK_THAT(message_of([] { replicator::World{small_window(-3)}; }), Catch::StartsWith("a world of -3 replicas was asked for on 1 process(es)"));
  auto options = small_window();
  options.transport = "pigeon";
  CHECK(message_of([&] { replicator::World{options}; }) == "the transport is \"pigeon\": choose auto, shared_memory or ucx");
}

TEST_CASE("processes that ask for different calls, or have other options, end with both named") {
  const auto calls = [](int rank) -> std::string {
    replicator::World world{small_window()};
    Values values(64, 1.0f);
    const auto call = [&] { world.all_reduce(values.data(), values.data(), rank == 0 ? 10 : 12); };
    const auto first = message_of(call);
    return message_of(call) == first ? first : "another sentence later";
  };
  for (const auto& result : run_as_job(2, calls)) {
    INFO(result.text);
    CHECK_THAT(result.text, Catch::Contains("process 0 (pid "));
    CHECK_THAT(result.text, Catch::Contains("asks for the exchange \"all_reduce (sum) of float32[10]\", and process 1 (pid "));
    CHECK_THAT(result.text, Catch::Contains("asks for \"all_reduce (sum) of float32[12]\": all processes"));
  }
  const auto options = [](int rank) { return message_of([&] { replicator::World{small_window(4 + rank)}; }); };
  for (const auto& result : run_as_job(2, options))
    CHECK_THAT(result.text, Catch::Contains("\"world of 5 replicas, transport auto, window 4096\""));
}

// A repeated call is not compared before it runs. Without a word from the job both would wait for the deadline of 20 s.
TEST_CASE("a process that repeats a call where another makes a new or another one ends both soon, with both calls") {
  const auto ends = [](const std::function<void(replicator::World&, Values&, int)>& differ) {
    return run_as_job(2, [&](int rank) -> std::string {
      replicator::World world{small_window()};
      Values values(100000, 1.0f);
      world.all_reduce(values.data(), values.data(), 10);
      world.all_reduce(values.data(), values.data(), 100000);
      const auto began = std::chrono::steady_clock::now();
      auto text = message_of([&] { differ(world, values, rank); });
      return std::chrono::steady_clock::now() - began < std::chrono::seconds{10} ? text : "late: " + text;
    });
  };
  for (const auto& result : ends([](auto&world, auto&values, int rank) { world.all_reduce(values.data(), values.data(), rank == 0 ? 10 : 12); })) {
    INFO(result.text);
    CHECK_THAT(result.text, Catch::StartsWith("process 1 (pid "));
    CHECK_THAT(result.text, Catch::Contains("asks for the exchange \"all_reduce (sum) of float32[12]\" after call 2 (all_reduce (sum) of float32[100000]); process 0 (pid "));
    CHECK_THAT(result.text, Catch::Contains("asked for call 3 (all_reduce (sum) of float32[10]): all processes must make the same calls in the same order"));
  }
  for (const auto& result : ends([](auto&world, auto&values, int rank) { world.all_reduce(values.data(), values.data(), rank == 0 ? 10 : 100000); })) {
    INFO(result.text);
    CHECK_THAT(result.text, Catch::Contains("asks for call 3 (all_reduce (sum) of float32[10]), and process 1 (pid "));
    CHECK_THAT(result.text, Catch::Contains("asks for call 3 (all_reduce (sum) of float32[100000]): all processes must make the same calls"));
  }
}

TEST_CASE("a process that is killed, stopped or late is named by all others, who do not hang") {
  for (const std::string fate : {"kill", "stop", "late", "throw"}) {
    const auto body = [&](int rank) -> std::string {
      auto options = small_window();
      if (fate == "late") options.deadline = std::chrono::milliseconds{700};
      replicator::World world{options};
      Values values(5000, 1.0f);
      // The others may hear of it before they are through with the first call.
      if (rank == 1) {
        world.all_reduce(values.data(), values.data(), 5000);
        if (fate == "kill") ::raise(SIGKILL);
        if (fate == "stop") ::raise(SIGSTOP);
        if (fate == "late") ::sleep(2);
        if (fate == "throw") throw replicator::Error{"of my own"};
        return "late";
      }
      return message_of([&] {
        for (;;) world.all_reduce(values.data(), values.data(), 5000);
      });
    };
    const auto results = run_as_job(3, body, std::chrono::seconds{20});
    INFO(fate << "\n"
              << describe(results));
    for (const int rank : {0, 2}) {
      const auto& result = results[static_cast<std::size_t>(rank)];
      CHECK_FALSE(result.timed_out);
      CHECK_THAT(result.text, Catch::Contains(fate == "late" ? "for rank 1 (replica 1)" : "process 1 (pid "));
    }
    CHECK(results[0].text == results[2].text);
  }
}

}  // namespace test_world
