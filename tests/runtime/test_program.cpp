// SPDX-License-Identifier: Apache-2.0
// Device programs, planned and executed without a Replicator.
#include <catch2/catch.hpp>

#include <atomic>
#include <cstdlib>
#include <memory>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include <replicator/collectives/choose/choose_schedule.hpp>
#include <replicator/collectives/run/run.hpp>
#include <replicator/cpu/copy.hpp>
#include <replicator/cpu/device.hpp>
#include <replicator/cpu/map.hpp>
#include <replicator/cpu/reduce.hpp>
#include <replicator/nn/optimizers/adam.hpp>
#include <replicator/nn/optimizers/sgd.hpp>
#include <replicator/ops/elementwise.hpp>
#include <replicator/ops/reduce.hpp>
#include <replicator/resolve/collective_calls.hpp>
#include <replicator/resolve/replica_context.hpp>
#include <replicator/resolve/resolve.hpp>
#include <replicator/runtime/execute.hpp>
#include <replicator/runtime/plan/planner.hpp>
#include <replicator/runtime/see/trace.hpp>
#include <replicator/transport/in_process.hpp>

namespace test_program {
namespace {
std::atomic<long> allocations{0};
void* counted(std::size_t bytes) {
  ++allocations;
  if (void* memory = std::malloc(bytes ? bytes : 1)) return memory;
  throw std::bad_alloc{};
}
}  // namespace
}  // namespace test_program

void* operator new(std::size_t bytes) { return test_program::counted(bytes); }
void* operator new[](std::size_t bytes) { return test_program::counted(bytes); }
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  ++test_program::allocations;
  return std::malloc(bytes ? bytes : 1);
}
void operator delete(void* memory, const std::nothrow_t&) noexcept { std::free(memory); }
void* operator new(std::size_t bytes, std::align_val_t alignment) {
  ++test_program::allocations;
  const auto align = static_cast<std::size_t>(alignment);
  if (void* memory = std::aligned_alloc(align, (bytes + align - 1) / align * align)) return memory;
  throw std::bad_alloc{};
}
// Inlined, g++ takes them for a mismatch with the operator new that it has not inlined.
[[gnu::noinline]] void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }

namespace test_program {

using namespace replicator;
using namespace replicator::detail;

namespace {

// The programs of all devices of this process for one step; every replica has one float32 input of 4 elements.
class Programs {
 public:
  template <class Step>
  Programs(int replicas, int devices, Step step, std::int64_t bucket_bytes = 4 << 20)
      : variables{1, devices, replicas}, blocks_{replicas, devices}, cache_{1}, group_{devices} {
    std::vector<Graph> graphs;
    graphs.reserve(static_cast<std::size_t>(replicas));
    for (int r = 0; r < replicas; ++r) {
      auto& graph = graphs.emplace_back(r, replicas);
      const AnyTensor x =
          graph.tensor(graph.add({Input{Input::Source::element, 0}, {}, {{DType::float32, Shape{4}}}, {}, {}}));
      ReplicaContext context{graph};
      step(context, Tensor<float>{x});
      inputs_.push_back({Array<float>{{4}, {1.0f * r, 1, 2, 3}}.any()});
    }
    resolution = resolve(graphs, {bucket_bytes, {}});
    for (const auto& one : resolution.classes) {
      for (const auto& variable : one.graph.variables()) variables.declare(variable);
      lowered_.push_back(lower(one, DeviceKind::cpu, cache_));
    }
    for (int device = 0; device < devices; ++device)
      communicators_.push_back(collectives::make_communicator(transport::InProcess{group_, device}, blocks_));
    programs.resize(static_cast<std::size_t>(devices));
    on_all([&](int device) {
      programs[static_cast<std::size_t>(device)] = plan(
          {.resolution = resolution,
           .lowered = lowered_,
           .variables = variables,
           .communicator = *communicators_[static_cast<std::size_t>(device)],
           .copy = device});
    });
  }

  // `steps` steps; what was allocated in them by all devices.
  long run(int steps) {
    std::atomic<int> ready{0};
    std::atomic<long> in_steps{0};
    on_all([&](int device) {
      auto& program = programs[static_cast<std::size_t>(device)];
      const auto first = static_cast<std::size_t>(blocks_.begin(device));
      const std::span inputs{inputs_.data() + first, program.replica_ids.size()};
      const auto all_here = [&](int times) {
        ++ready;
        while (ready < times * static_cast<int>(programs.size())) std::this_thread::yield();
      };
      all_here(1);
      if (device == 0) in_steps -= allocations;
      all_here(2);
      for (int step = 0; step < steps; ++step)
        execute(program, inputs,
                {.seed = 1,
                 .step = static_cast<std::uint64_t>(step),
                 .watch = watches.empty() ? nullptr : watches[static_cast<std::size_t>(device)].get()});
      all_here(3);
      if (device == 0) in_steps += allocations;
      all_here(4);
    });
    return in_steps;
  }

  std::size_t count(Instruction::Kind kind, std::size_t device = 0) const {
    std::size_t n = 0;
    for (const auto& instruction : programs[device].code) n += instruction.kind == kind;
    return n;
  }
  std::vector<float> variable(const std::string& name, int copy = 0) const {
    const auto values = variables.value(name, copy).as<float>();
    return {values.begin(), values.end()};
  }

  // Times the steps [0, 5).
  void watch() {
    for (const auto& program : programs) watches.push_back(std::make_unique<DeviceTrace>(resolution, program, TraceWindow{0, 5}));
  }

  std::vector<std::unique_ptr<DeviceTrace>> watches;  // by device, or none
  VariableStore variables;
  Resolution resolution;

 private:
  template <class F>
  void on_all(F work) {
    std::vector<std::thread> threads;
    for (int device = 1; device < static_cast<int>(programs.size()); ++device) threads.emplace_back(work, device);
    work(0);
    for (auto& thread : threads) thread.join();
  }

  collectives::ReplicaBlocks blocks_;
  ExecutableCache cache_;
  transport::InProcessGroup group_;
  std::vector<std::vector<AnyArray>> inputs_;
  std::vector<LoweredGraph> lowered_;
  std::vector<std::unique_ptr<collectives::Communicator>> communicators_;

 public:
  std::vector<Program> programs;  // destroyed before the communicators
};

using Kind = Instruction::Kind;

// An operation whose kernel says nothing of the layouts of its operands.
struct Careless {
  static constexpr std::string_view name = "careless";

  template <class V>
  void describe(V&) const {}
  std::vector<TensorType> infer_shape(std::span<const TensorType> inputs) const { return {inputs[0]}; }
};
struct CarelessExecutable final : Executable {
  void run(const Launch&) const override {}
};
constexpr Kernel careless_kernel{"careless",
                                 [](const KernelRequest&) -> std::unique_ptr<Executable> { return std::make_unique<CarelessExecutable>(); }};
const bool careless_registered = register_kernel<Careless>(DeviceKind::cpu, KernelTier::user, &careless_kernel);

// Momentum on a mirrored variable, a replica-local mean, a result.
void training(ReplicaContext& replica, Tensor<float> x) {
  auto w = replica.variable<float>("w", {4}, Initializer::ones()),
       v = replica.variable<float>("v", {4}, Initializer::zeros());
  auto s = replica.variable<float>("s", {4}, Initializer::zeros(), {VariableKind::replica_local});
  const auto g = all_reduce(x * w.read(), Reduction::mean);
  const auto velocity = v.read() * 0.5f + g;
  v.assign(velocity);
  w.assign(w.read() - velocity * 0.125f);
  s.assign(s.read() + x);
  replica.graph().results().push_back(sum(x * w.read()).any().value());
}

}  // namespace

TEST_CASE("a step allocates nothing") {
  const long before = allocations;
  const AnyArray counted_too{{DType::float32, Shape{4}}};
  CHECK(allocations > before);
  for (const int devices : {1, 2, 3})
    for (const std::int64_t bucket_bytes : {1, 4 << 20}) {
      Programs programs{3, devices, training, bucket_bytes};
      programs.run(1);
      CHECK(programs.run(20) == 0);
    }
}

TEST_CASE("a step that is timed allocates nothing, and only the steps asked for are timed") {
  Programs programs{3, 2, training};
  programs.watch();
  CHECK(programs.run(8) == 0);
  for (std::size_t device = 0; device < 2; ++device) {
    const auto& watch = *programs.watches[device];
    std::vector<std::uint32_t> instructions(programs.programs[device].code.size());
    std::uint64_t last = 0;
    watch.spans().for_each([&](const DeviceTrace::Span& span) {
      CHECK(span.begin <= span.end);
      last = span.step;
      if (span.instruction != DeviceTrace::Span::whole_step) ++instructions[span.instruction];
    });
    CHECK(last == 4);
    for (const auto times : instructions) CHECK(times == 5);
    CHECK(watch.communications().size() == 5 * programs.programs[device].collectives.size());
  }
}

TEST_CASE("a uniform update runs once per device, in place of the variable") {
  Programs programs{3, 1, [](ReplicaContext& replica, Tensor<float> x) {
                      auto w = replica.variable<float>("w", {4}, Initializer::ones());
                      w.assign(w.read() - all_reduce(x, Reduction::mean) * 0.5f);
                    }};
  CHECK(programs.count(Kind::run) == 1);
  programs.run(2);
  CHECK(programs.variable("w") == std::vector<float>{0, 0, -1, -2});
  const auto* memory = programs.variables.data("w", 0);
  bool written = false;
  const auto& program = programs.programs[0];
  for (const auto& instruction : program.code)
    if (instruction.kind == Kind::run)
      for (std::size_t o = 0; o < instruction.executable->output_layouts.size(); ++o)
        written = written || program.pointers[instruction.pointers + instruction.inputs + o] == memory;
  CHECK(written);
}

TEST_CASE("an optimizer updates what it remembers in place too") {
  Programs programs{3, 1, [](ReplicaContext& replica, Tensor<float> x) {
                      const auto w = replica.variable<float>("w", {4}, Initializer::ones()), u = replica.variable<float>("u", {4}, Initializer::ones());
                      const auto loss = sum(w.read() * u.read() * x);
                      nn::adam({.learning_rate = 0.5}).minimize(replica, loss, {w});
                      nn::sgd({.learning_rate = 0.5, .momentum = 0.9, .weight_decay = 0.1}).minimize(replica, loss, {u});
                    }};
  CHECK(programs.count(Kind::copy) == 0);
}

TEST_CASE("gradients are folded where they are made: one device copies nothing to merge a bucket") {
  Programs programs{4, 1, [](ReplicaContext& replica, Tensor<float> x) {
                      auto w = replica.variable<float>("w", {4}, Initializer::zeros()),
                           v = replica.variable<float>("v", {4}, Initializer::zeros());
                      const auto g = all_reduce(x * 2.0f, Reduction::sum), h = all_reduce(x * 3.0f, Reduction::sum);
                      w.assign(w.read() + g), v.assign(v.read() + h);
                    }};
  CHECK(programs.resolution.buckets.size() == 1);
  CHECK(programs.count(Kind::start) == 1);
  CHECK(programs.count(Kind::fold) == 2 * 3);
  CHECK(programs.count(Kind::copy) == 0);
  programs.run(1);
  CHECK(programs.variable("w") == std::vector<float>{12, 8, 16, 24});
  CHECK(programs.variable("v") == std::vector<float>{18, 12, 24, 36});
}

TEST_CASE("every device gets the same mirrored values, and each replica its own") {
  Programs programs{5, 3, training};
  programs.run(4);
  for (const int device : {1, 2}) CHECK(programs.variable("w", device) == programs.variable("w", 0));
  for (int replica = 0; replica < 5; ++replica)
    CHECK(programs.variable("s", replica) == std::vector<float>{4.0f * static_cast<float>(replica), 4, 8, 12});
}

TEST_CASE("replicas with equal graphs share kernels") {
  ExecutableCache cache{1};
  Graph graph{0, 2};
  const AnyTensor x =
      graph.tensor(graph.add({Input{Input::Source::element, 0}, {}, {{DType::float32, Shape{4}}}, {}, {}}));
  graph.results().push_back((Tensor<float>{x} * 2.0f).any().value());
  const auto resolution = resolve(std::vector<Graph>{graph, graph});
  CHECK(resolution.classes.size() == 1);
  lower(resolution.classes[0], DeviceKind::cpu, cache);
  lower(resolution.classes[0], DeviceKind::cpu, cache);
  CHECK(cache.size() == 1);
}

TEST_CASE("kernels of ever new shapes are dropped when nobody uses them, and kernels in use stay") {
  ExecutableCache cache{1};
  const auto lowered = [&](std::int64_t extent) {
    Graph graph{0, 1};
    const AnyTensor x = graph.tensor(graph.add({Input{Input::Source::element, 0}, {}, {{DType::float32, Shape{extent}}}, {}, {}}));
    graph.results().push_back((Tensor<float>{x} * 2.0f).any().value());
    return lower(resolve(std::vector<Graph>{graph}).classes[0], DeviceKind::cpu, cache);
  };
  const auto kept = lowered(1);
  const auto* used = kept.nodes.back().executable.get();
  for (std::int64_t extent = 2; extent < static_cast<std::int64_t>(3 * ExecutableCache::most); ++extent) lowered(extent);
  CHECK(cache.size() <= ExecutableCache::most);
  CHECK(lowered(1).nodes.back().executable.get() == used);
}

TEST_CASE("a kernel that gives no layouts for its operands is refused, with the operation and its line") {
  ExecutableCache cache{1};
  Graph graph{0, 2};
  const AnyTensor x =
      graph.tensor(graph.add({Input{Input::Source::element, 0}, {}, {{DType::float32, Shape{4}}}, {}, {}}));
  graph.results().push_back(compute(graph, Careless{}, {x}, Location{"own.cpp", 7}).value());
  const auto resolution = resolve(std::vector<Graph>{graph, graph});
  CHECK_THROWS_WITH(lower(resolution.classes[0], DeviceKind::cpu, cache),
                    "the kernel of careless at own.cpp:7 gives layouts for 0 inputs and 0 outputs, and the operation has 1 and 1: "
                    "let the kernel resize input_layouts and output_layouts of its Executable");
}

TEST_CASE("a placeholder that was not resolved cannot be run, and says so") {
  ExecutableCache cache{1};
  Graph graph{0, 2};
  const AnyTensor x =
      graph.tensor(graph.add({Input{Input::Source::element, 0}, {}, {{DType::float32, Shape{4}}}, {}, {}}));
  const Location where{std::source_location::current()};
  placeholder_node(x, {CollectiveKind::all_reduce, Reduction::sum}, where, "loss");
  CHECK_THROWS_WITH(lower(GraphClass{graph, {}, {}}, DeviceKind::cpu, cache),
                    "all_reduce \"loss\" at " + where.text() +
                        " is still a placeholder, which can be looked at and differentiated, but not run: resolve the "
                        "graphs of all replicas first");
}

}  // namespace test_program
