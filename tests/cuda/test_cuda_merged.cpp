// SPDX-License-Identifier: Apache-2.0
// Several Maps of one expression in one launch have the bits of separate launches.
#include "device_run.hpp"
#include "expressions.hpp"
#include "small_images.hpp"

#include <atomic>
#include <map>

#include <replicator/replicator.hpp>

namespace test_cuda_merged {

using namespace replicator;
using namespace replicator::detail;
using namespace replicator::test;

namespace {

// One Map and its operands on the GPU.
class Part {
 public:
  Part(const Map& map, std::vector<AnyArray> inputs, KernelTier tier) : inputs_{std::move(inputs)} {
    const AnyOperation operation{map};
    std::vector<TensorType> types;
    for (const auto& input : inputs_) types.push_back(input.type());
    outputs_ = operation.infer_shape(types);
    const std::vector<Layout> offered(inputs_.size());
    const Kernel* kernel = operation.slots()[static_cast<std::size_t>(DeviceKind::cuda)][static_cast<std::size_t>(tier)].load();
    executable_ = kernel->make({operation, types, outputs_, offered, 1});
    for (const auto& input : inputs_) buffers_.emplace_back(input.size_bytes());
    for (const auto& output : outputs_) buffers_.emplace_back(output.bytes());
  }
  // Null where the tier declines.
  const Executable* executable() const { return executable_.get(); }

  // The inputs are as they were, the outputs full of something else.
  void prepare(const Queue& queue) const {
    for (std::size_t i = 0; i < inputs_.size(); ++i) queue.copy(buffers_[i].data(), inputs_[i].data(), inputs_[i].size_bytes());
    for (std::size_t o = 0; o < outputs_.size(); ++o) {
      const std::vector<std::byte> other(outputs_[o].bytes(), std::byte{0x5A});
      queue.copy(buffers_[inputs_.size() + o].data(), other.data(), other.size());
      queue.synchronise();
    }
  }
  std::vector<AnyArray> results(const Queue& queue, bool in_place) const {
    std::vector<AnyArray> result;
    for (std::size_t o = 0; o < outputs_.size(); ++o) queue.copy(result.emplace_back(outputs_[o]).data(), output(o, in_place), outputs_[o].bytes());
    queue.synchronise();
    return result;
  }
  void add_operands(std::vector<const std::byte*>& inputs, std::vector<std::byte*>& outputs, bool in_place) const {
    for (std::size_t i = 0; i < inputs_.size(); ++i) inputs.push_back(buffers_[i].data());
    for (std::size_t o = 0; o < outputs_.size(); ++o) outputs.push_back(output(o, in_place));
  }

 private:
  std::byte* output(std::size_t o, bool in_place) const {
    const int input = in_place ? executable_->in_place[o] : -1;
    return buffers_[input < 0 ? inputs_.size() + o : static_cast<std::size_t>(input)].data();
  }

  std::vector<AnyArray> inputs_;
  std::vector<TensorType> outputs_;
  std::unique_ptr<Executable> executable_;
  std::vector<DeviceBuffer> buffers_;
};

std::vector<const Executable*> executables_of(const std::vector<const Part*>& parts) {
  std::vector<const Executable*> result;
  for (const auto* part : parts) result.push_back(part->executable());
  return result;
}

using Results = std::vector<std::vector<AnyArray>>;
Results results_of(const std::vector<const Part*>& parts, const Queue& queue, bool in_place) {
  Results results;
  for (const auto* part : parts) results.push_back(part->results(queue, in_place));
  return results;
}
bool same(const Results& a, const Results& b) {
  for (std::size_t p = 0; p < a.size(); ++p)
    for (std::size_t o = 0; o < a[p].size(); ++o)
      if (std::memcmp(a[p][o].data(), b[p][o].data(), a[p][o].size_bytes()) != 0) return false;
  return true;
}

// Parts of one family: launches of their own, one launch, and that launch captured and replayed.
void check_group(const std::vector<const Part*>& parts, bool in_place) {
  const Queue queue = device_queue();
  queue.enter();
  const auto merged = parts.front()->executable()->merge(executables_of(parts));
  REQUIRE(merged);
  std::vector<const std::byte*> inputs;
  std::vector<std::byte*> outputs;
  for (const auto* part : parts) {
    part->prepare(queue);
    const auto first_input = inputs.size(), first_output = outputs.size();
    part->add_operands(inputs, outputs, in_place);
    part->executable()->run({inputs.data() + first_input, outputs.data() + first_output, nullptr, context, queue.handle()});
  }
  const auto want = results_of(parts, queue, in_place);
  const auto table = merged->table(inputs.data(), outputs.data());
  REQUIRE(table.size() == merged->table_bytes);
  REQUIRE(merged->output_layouts.size() == outputs.size());
  const DeviceBuffer on_device{table.size()};
  queue.copy(on_device.data(), table.data(), table.size());
  Launch launch{inputs.data(), outputs.data(), nullptr, context, queue.handle()};
  launch.table = on_device.data();
  const auto after = [&](auto run) {
    for (const auto* part : parts) part->prepare(queue);
    run();
    return results_of(parts, queue, in_place);
  };
  CHECK(same(after([&] { merged->run(launch); }), want));
  const CapturedWork captured = queue.capture([&] { merged->run(launch); });
  for (int times = 0; times < 2; ++times) CHECK(same(after([&] { queue.replay(captured); }), want));
}

// Whatever of them may be merged is.
void check_merged(const std::vector<Part>& parts, bool in_place) {
  std::map<Digest, std::vector<const Part*>> families;
  for (const auto& part : parts)
    if (part.executable() && part.executable()->family) families[*part.executable()->family].push_back(&part);
  for (const auto& [family, group] : families) check_group(group, in_place);
}

std::vector<KernelTier> tiers() {
  if (!gpu_is_here()) return {};
  if (kernels<Map>::slot[static_cast<std::size_t>(DeviceKind::cuda)][static_cast<std::size_t>(KernelTier::compiled)].load())
    return {KernelTier::reference, KernelTier::compiled};
  WARN("only interpreted: the program is without the component nvrtc");
  return {KernelTier::reference};
}

Map map_of(const Expression& e, Shape domain, std::vector<DType> stored) {
  return {std::make_shared<const Expression>(e), std::move(domain), std::move(stored)};
}

// (p, gradient, m, rate) -> (p, m), in bfloat16 and float32.
Expression momentum() {
  Expression e;
  e.inputs = 4;
  const auto p = e.input(0), g = e.input(1), m = e.input(2), rate = e.input(3);
  const auto next = e.apply(ScalarOp::add, e.apply(ScalarOp::multiply, m, e.constant(0.9)), g);
  e.outputs = {e.apply(ScalarOp::subtract, p, e.apply(ScalarOp::multiply, rate, next)), next};
  return e;
}
Part momentum_part(const Expression& e, std::int64_t elements, std::uint64_t seed, KernelTier tier) {
  const TensorType type{DType::float32, {elements}};
  return {map_of(e, {elements}, {DType::float32, DType::float32}),
          {random_values(type, seed), random_values({DType::bfloat16, {elements}}, seed + 1), random_values(type, seed + 2),
           random_values({DType::float32, {}}, 5)},
          tier};
}

// While it lives, Maps are launches of their own.
class Unmerged {
 public:
  Unmerged() { (replace<0>(), replace<1>(), replace<2>()); }
  Unmerged(const Unmerged&) = delete;
  Unmerged& operator=(const Unmerged&) = delete;
  ~Unmerged() {
    for (std::size_t tier = 0; tier < 3; ++tier) slots()[tier].store(before[tier]);
  }

 private:
  static std::atomic<const Kernel*>* slots() { return kernels<Map>::slot[static_cast<std::size_t>(DeviceKind::cuda)]; }
  template <std::size_t tier>
  static void replace() {
    before[tier] = slots()[tier].load();
    if (before[tier]) slots()[tier].store(&alone<tier>);
  }
  template <std::size_t tier>
  static std::unique_ptr<Executable> make_alone(const KernelRequest& request) {
    auto executable = before[tier]->make(request);
    if (executable) executable->family.reset();
    return executable;
  }
  static inline const Kernel* before[3]{};
  template <std::size_t tier>
  static constexpr Kernel alone{"alone", &make_alone<tier>};
};

struct Outcome {
  std::string digest, explanation;
};
// Convolutions, normalisations and biases, one of a single element.
template <class Optimizer>
Outcome train(const Optimizer& optimizer, const char* devices, bool capture) {
  Replicator repl{two_replicas_on(devices, capture)};
  auto step = repl.replicate(small_images, [&](ReplicaContext& replica, Tensor<float> x) {
    const auto layer = [&](Tensor<float> in, const char* name, std::int64_t features) {
      return nn::batch_norm(replica, nn::conv2d(replica, in, name, {.features = features, .kernel = {3, 3}, .padding = {1, 1}}), std::string{name} + "_norm");
    };
    x = relu(layer(relu(layer(x, "first", 9)), "second", 5));
    const auto loss = mean(pow(nn::linear(replica, global_average_pool(x), "last", {.features = 1}) - 1.0f, 2));
    optimizer.minimize(replica, loss);
    return loss;
  });
  for (int i = 0; i < 4; ++i) step.step();
  return {repl.digest(), step.explain({.nodes = 1000})};
}
template <class Optimizer>
void check_training(const char* name, const Optimizer& optimizer) {
  INFO(name);
  const auto alone = [&] {
    const Unmerged unmerged;
    return train(optimizer, "cuda:0", true);
  }();
  CHECK_THAT(alone.explanation, !Catch::Contains("in one launch"));
  for (const bool capture : {true, false}) {
    const auto merged = train(optimizer, "cuda:0", capture);
    CHECK(merged.digest == alone.digest);
    CHECK_THAT(merged.explanation, Catch::Contains(" more in one launch by "));
    CHECK_THAT(merged.explanation, !Catch::Contains("could not be captured"));
  }
  CHECK(train(optimizer, "cuda:0x2", true).digest == alone.digest);
}

}  // namespace

TEST_CASE("training has the same bits with merged updates and without, captured and not") {
  if (!gpu_is_here()) return;
  check_training("sgd", nn::sgd({.learning_rate = 0.1, .momentum = 0.9, .weight_decay = 1e-3, .decay_vectors = false}));
  check_training("adamw", nn::adamw({.learning_rate = 0.01}));
  check_training("lars", nn::lars({.learning_rate = 0.1}));
}

TEST_CASE("updates of no, one, few and many elements, in place and not, are one launch for those of one family") {
  const Expression e = momentum();
  for (const auto tier : tiers())
    for (const bool in_place : {false, true}) {
      std::vector<Part> parts;
      for (const std::int64_t elements : {5, 0, 1, 4095, 4096, 4097, 1, 255, 256, 257, 0, 3 * 4096, 20000, 1023, 1025, 4, 12, 4092, 4100, 4098, 2, 8190})
        parts.push_back(momentum_part(e, elements, 10 * parts.size(), tier));
      check_merged(parts, in_place);
    }
}

TEST_CASE("5000 updates are one launch") {
  const Expression e = momentum();
  for (const auto tier : tiers()) {
    std::vector<Part> parts;
    for (std::uint64_t p = 0; p < 5000; ++p) parts.push_back(momentum_part(e, static_cast<std::int64_t>(8 + 8 * (p % 13)), p, tier));
    std::vector<const Part*> all;
    for (const auto& part : parts) all.push_back(&part);
    REQUIRE(std::all_of(all.begin(), all.end(), [&](const Part* part) { return part->executable()->family == all[0]->executable()->family; }));
    check_group(all, true);
  }
}

TEST_CASE("updates of no elements are a launch of nothing") {
  if (tiers().empty()) return;
  std::vector<Part> parts;
  for (int p = 0; p < 3; ++p) parts.push_back(momentum_part(momentum(), 0, 1, KernelTier::reference));
  check_merged(parts, true);
}

TEST_CASE("random expressions over random broadcasts of random extents, merged and not") {
  for (const auto tier : tiers())
    for (std::uint64_t seed = 0; seed < (tier == KernelTier::reference ? 40 : 8); ++seed) {
      INFO("seed " << seed);
      PhiloxStream random{seed, 21};
      const auto drawn = random_expression(random);
      std::vector<std::uint32_t> arrangements;  // of each input: like the domain, a row, a column, a single element
      for (std::size_t i = 0; i < drawn.inputs.size(); ++i) arrangements.push_back(random.below(4));
      std::vector<Part> parts;
      for (auto count = 2 + random.below(12); count-- > 0;) {
        const std::int64_t extents[] = {1, 2, 3, 7, 64, 65, 0, 130};
        const Shape domain{extents[random.below(8)], extents[random.below(8)]};
        const Shape shapes[] = {domain, {domain[1]}, {domain[0], 1}, {}};
        std::vector<AnyArray> inputs;
        for (std::size_t i = 0; i < drawn.inputs.size(); ++i)
          inputs.push_back(random_values({drawn.inputs[i].dtype, shapes[arrangements[i]]}, seed + 100 * parts.size() + i, true));
        parts.emplace_back(map_of(drawn.expression, domain, drawn.stored), std::move(inputs), tier);
      }
      check_merged(parts, random.below(2) != 0);
    }
}

TEST_CASE("another expression is another family, and groups of another size are another family of compiled kernels") {
  for (const auto tier : tiers()) {
    Expression other = momentum();
    other.outputs[1] = other.outputs[0];
    const auto one = momentum_part(momentum(), 8, 1, tier), same = momentum_part(momentum(), 24, 1, tier), different = momentum_part(other, 8, 1, tier);
    CHECK(one.executable()->family == same.executable()->family);
    CHECK(one.executable()->family != different.executable()->family);
    CHECK((one.executable()->family == momentum_part(momentum(), 9, 1, tier).executable()->family) == (tier == KernelTier::reference));
  }
}

}  // namespace test_cuda_merged
