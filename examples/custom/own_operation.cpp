// SPDX-License-Identifier: Apache-2.0
// A user-defined operation with a gradient and a kernel: roll, which rotates the last axis by `shift` places. The
// program learns the filter w [8] that was applied to a signal: ./own_operation --replicas 4 --devices cpu:0-1
#include <cstring>
#include <iostream>
#include <memory>
#include <replicator/replicator.hpp>
namespace rp = replicator;

// The operation: attributes, a shape rule, a gradient rule. y[..., (i + shift) mod n] = x[..., i]
struct Roll {
  static constexpr std::string_view name = "roll";
  std::int64_t shift = 1;  // from 0 to n - 1

  template <class V>
  void describe(V& v) const { v("shift", shift); }  // equality, hash and print come from it
  std::vector<rp::TensorType> infer_shape(std::span<const rp::TensorType> inputs) const {
    if (inputs[0].dtype != rp::DType::float32 || inputs[0].shape.rank() == 0)
      throw rp::BuildError{"asked to roll " + inputs[0].text() + ": it takes float32 of at least one axis"};  // the user's line is added
    return {inputs[0]};
  }
  // Turned back: an ordinary node again, so there are derivatives of any order.
  std::vector<rp::AnyTensor> gradient(const rp::GradientContext& at) const {
    const auto n = at.inputs[0].shape()[at.inputs[0].shape().rank() - 1];
    return {rp::compute(at.graph, Roll{(n - shift) % n}, {at.upstream[0]}, at.where)};
  }
};

// The CPU kernel: made once for an attribute and a shape, then run in every step, for any replica.
class RollLoops final : public rp::Executable {
 public:
  RollLoops(const rp::Shape& shape, std::int64_t shift) : n_{shape[shape.rank() - 1]}, rows_{shape.elements() / n_}, shift_{shift} {
    input_layouts.resize(1);  // plain, row-major: copies are put before it where something else is there
    output_layouts.resize(1);
    in_place = {-1};
  }
  void run(const rp::Launch& launch) const override {
    const auto* x = reinterpret_cast<const float*>(launch.inputs[0]);
    auto* y = reinterpret_cast<float*>(launch.outputs[0]);
    for (std::int64_t row = 0; row < rows_; ++row, x += n_, y += n_) {
      std::memcpy(y + shift_, x, sizeof(float) * static_cast<std::size_t>(n_ - shift_));
      std::memcpy(y, x + n_ - shift_, sizeof(float) * static_cast<std::size_t>(shift_));
    }
  }

 private:
  std::int64_t n_, rows_, shift_;
};
inline constexpr rp::Kernel roll_loops{"roll loops", [](const rp::KernelRequest& request) -> std::unique_ptr<rp::Executable> {
                                         return std::make_unique<RollLoops>(request.inputs[0].shape, request.operation.get<Roll>()->shift);
                                       }};
inline const bool registered = rp::register_kernel<Roll>(rp::DeviceKind::cpu, rp::KernelTier::user, &roll_loops);

// The function for step functions. Errors name the caller's line.
rp::Tensor<float> roll(rp::Tensor<float> x, std::int64_t shift, std::source_location where = std::source_location::current()) {
  const auto n = x.shape().rank() > 0 ? x.shape()[x.shape().rank() - 1] : 1;
  return rp::Tensor<float>{rp::compute(x.graph(), Roll{((shift % n) + n) % n}, {x.any()}, where)};
}

int main(int argc, char** argv) try {
  rp::Replicator repl{rp::Deployment::only_from(argc, argv)};
  auto input_fn = [](const rp::InputContext& ctx) {
    return rp::data::from_generator([n = ctx.replica_batch(32), ctx](std::int64_t position) {
      rp::PhiloxStream random{ctx.seed(), static_cast<std::uint64_t>(position), static_cast<std::uint32_t>(ctx.replica())};
      rp::Array<float> x{{n, 8}};
      for (auto& value : x) value = 2 * random.uniform() - 1;
      return x;
    });
  };
  auto step_fn = [](rp::ReplicaContext& replica, rp::Tensor<float> x) {  // x [n, 8]
    auto w = replica.variable<float>("w", {8}, rp::Initializer::zeros());
    auto turned = roll(x * w.read(), 3);                           // [n, 8]
    auto loss = rp::mean(rp::pow(turned - roll(x, 3) * 0.5f, 2));  // least where w is 0.5
    rp::nn::sgd({.learning_rate = 8}).minimize(replica, loss);
    return loss;
  };
  auto train = repl.replicate(input_fn, step_fn);
  for (auto [loss] : train.steps(8)) std::cout << "loss " << rp::mean(loss) << '\n';
  return std::cout << "digest: " << repl.digest() << std::endl ? 0 : 1;
} catch (const rp::Error& error) { return std::cerr << error.what() << '\n', 1; }
