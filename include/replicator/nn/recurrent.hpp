// SPDX-License-Identifier: Apache-2.0
// Recurrent layers: gated recurrent units (gru) and long short-term memory (lstm). A layer is unrolled: every place of the
// sequence has nodes of its own in the graph. Weights have PyTorch's names, shapes and order of gates.
#pragma once

#include <cstdint>
#include <optional>
#include <source_location>
#include <string>
#include <string_view>
#include <vector>

#include <replicator/nn/initialisers.hpp>
#include <replicator/nn/layer_text.hpp>
#include <replicator/ops/activation.hpp>
#include <replicator/ops/matmul.hpp>
#include <replicator/ops/movement/concat.hpp>
#include <replicator/ops/movement/slice.hpp>
#include <replicator/resolve/replica_context.hpp>

namespace replicator::nn {

struct RecurrentOptions {
  std::int64_t features = 0;  // of the state; must be given
  bool bias = true;
};

// What gru returns.
template <FloatingElement T>
struct GruResult {
  Tensor<T> outputs;  // [places, batch, features]: the state at every place
  Tensor<T> state;    // [batch, features]: the last one
};

// What lstm returns, and the state in which it begins.
template <FloatingElement T>
struct LstmState {
  Tensor<T> hidden, cell;  // [batch, features]
};
template <FloatingElement T>
struct LstmResult {
  Tensor<T> outputs;   // [places, batch, features]: the hidden state at every place
  LstmState<T> state;  // the last one
};

namespace detail {

// The products that the gates of a recurrent layer add up.
template <FloatingElement T>
class RecurrentGates {
 public:
  RecurrentGates(ReplicaContext& replica, Tensor<T> x, std::string_view what, std::string_view name, std::int64_t gates, const RecurrentOptions& options,
                 std::source_location where)
      : features_{options.features}, where_{where} {
    if (x.shape().rank() != 3 || x.shape()[0] == 0 || x.shape()[2] == 0 || options.features < 1)
      throw BuildError{layer_text(replica, what, name, where) +
                       ": x must be [places, batch, inputs] with at least one place and one input, and features at least 1; found " + x.any().type().text() + " and " +
                       std::to_string(options.features) + " features"};
    const auto scope = replica.scope(name);
    const Initializer uniform = inverse_root_uniform(options.features);
    const auto made = [&](std::string_view variable, const Shape& shape) { return replica.variable<T>(variable, shape, uniform, {}, where).read(where); };
    const std::int64_t rows = gates * options.features;
    const auto of_inputs = made("weight_ih_l0", {rows, x.shape()[2]});
    of_state_ = made("weight_hh_l0", {rows, options.features});
    Tensor<T> all = matmul(x, of_inputs, {.transpose_b = true}, where);  // [places, batch, gates features]
    if (options.bias) {
      all = Tensor<T>{apply(replicator::detail::ScalarOp::add, {all, made("bias_ih_l0", {rows})}, where)};
      state_bias_ = made("bias_hh_l0", {rows});
    }
    inputs_ = unbind(all, 0, where);
  }

  std::size_t places() const { return inputs_.size(); }
  // From the input at a place: [batch, gates features].
  Tensor<T> of_input(std::size_t place) const { return inputs_[place]; }
  // From the state: the same shape.
  Tensor<T> of_state(Tensor<T> hidden) const {
    const Tensor<T> product = matmul(hidden, *of_state_, {.transpose_b = true}, where_);
    return state_bias_ ? Tensor<T>{apply(replicator::detail::ScalarOp::add, {product, *state_bias_}, where_)} : product;
  }
  // `count` gates from `first` on.
  Tensor<T> gate(Tensor<T> all, std::int64_t first, std::int64_t count = 1) const {
    return slice_axis(all, 1, first * features_, (first + count) * features_, where_);
  }
  Tensor<T> zeros(ReplicaContext& replica) const { return full<T>(replica, {inputs_[0].shape()[0], features_}, T(0), where_); }
  // Throws BuildError unless a state that was given is [batch, features].
  void require_state(ReplicaContext& replica, std::string_view what, std::string_view name, Tensor<T> state) const {
    if (state.shape() == Shape{inputs_[0].shape()[0], features_}) return;
    throw BuildError{layer_text(replica, what, name, where_) +
                     ": the first state must be " + Shape{inputs_[0].shape()[0], features_}.text() + ", found " + state.any().type().text()};
  }

 private:
  std::int64_t features_;
  std::source_location where_;
  std::vector<Tensor<T>> inputs_;
  std::optional<Tensor<T>> of_state_, state_bias_;
};

}  // namespace detail

// Gated recurrent units over x [places, batch, inputs]. The state h begins as zeros, or as `first` [batch, features].
// Each gate has a product with the input (r_i, z_i, n_i) and a product with the state (r_h, z_h, n_h). They give the next state h':
//   r = sigmoid(r_i + r_h)
//   z = sigmoid(z_i + z_h)
//   n = tanh(n_i + r n_h)
//   h' = (1 - z) n + z h
//
// Variables, which begin uniform within 1 / sqrt(features):
// - <name>.weight_ih_l0 [3 features, inputs] and <name>.weight_hh_l0 [3 features, features]
// - <name>.bias_ih_l0 and <name>.bias_hh_l0 [3 features]
//
// Throws BuildError where shapes do not fit.
// Source: Cho et al., "Learning phrase representations using RNN encoder-decoder", 2014, in the form of cuDNN and PyTorch.
template <FloatingElement T>
GruResult<T> gru(ReplicaContext& replica, Tensor<T> x, std::string_view name, const RecurrentOptions& options, std::optional<Tensor<T>> first = {},
                 std::source_location where = std::source_location::current()) {
  const detail::RecurrentGates<T> gates{replica, x, "gru", name, 3, options, where};
  if (first) gates.require_state(replica, "gru", name, *first);
  Tensor<T> h = first ? *first : gates.zeros(replica);
  std::vector<Tensor<T>> outputs;
  for (std::size_t place = 0; place < gates.places(); ++place) {
    const auto i = gates.of_input(place), s = gates.of_state(h);
    const auto rz = sigmoid(Tensor<T>{apply(replicator::detail::ScalarOp::add, {gates.gate(i, 0, 2), gates.gate(s, 0, 2)}, where)}, where);
    const auto n = Tensor<T>{replicator::detail::map_at(
        x.graph(), dtype_of<T>, where, [](Symbol of_x, Symbol r, Symbol of_h) { return tanh(of_x + r * of_h); }, gates.gate(i, 2), gates.gate(rz, 0),
        gates.gate(s, 2))};
    h = Tensor<T>{replicator::detail::map_at(
        x.graph(), dtype_of<T>, where, [](Symbol z, Symbol fresh, Symbol old) { return (1 - z) * fresh + z * old; }, gates.gate(rz, 1), n, h)};
    outputs.push_back(h);
  }
  return {stack(outputs, 0, where), h};
}

// Long short-term memory over x [places, batch, inputs]. The state (hidden h, cell c) begins as zeros, or as `first`.
// Each of the gates i, f, g and o is a product with the input plus a product with h. They give the next state (h', c'):
//   c' = sigmoid(f) c + sigmoid(i) tanh(g)
//   h' = sigmoid(o) tanh(c')
//
// Variables, which begin uniform within 1 / sqrt(features):
// - <name>.weight_ih_l0 [4 features, inputs] and <name>.weight_hh_l0 [4 features, features]
// - <name>.bias_ih_l0 and <name>.bias_hh_l0 [4 features]
//
// Throws BuildError where shapes do not fit.
// Source: Hochreiter and Schmidhuber, "Long short-term memory", 1997, with the forget gate of Gers et al., 2000.
template <FloatingElement T>
LstmResult<T> lstm(ReplicaContext& replica, Tensor<T> x, std::string_view name, const RecurrentOptions& options, std::optional<LstmState<T>> first = {},
                   std::source_location where = std::source_location::current()) {
  const detail::RecurrentGates<T> gates{replica, x, "lstm", name, 4, options, where};
  if (first) gates.require_state(replica, "lstm", name, first->hidden), gates.require_state(replica, "lstm", name, first->cell);
  LstmState<T> state = first ? *first : LstmState<T>{gates.zeros(replica), gates.zeros(replica)};
  std::vector<Tensor<T>> outputs;
  for (std::size_t place = 0; place < gates.places(); ++place) {
    const Tensor<T> all{apply(replicator::detail::ScalarOp::add, {gates.of_input(place), gates.of_state(state.hidden)}, where)};
    const auto i_f = sigmoid(gates.gate(all, 0, 2), where), o = sigmoid(gates.gate(all, 3), where);
    state.cell = Tensor<T>{replicator::detail::map_at(
        x.graph(), dtype_of<T>, where, [](Symbol f, Symbol c, Symbol i, Symbol g) { return f * c + i * tanh(g); }, gates.gate(i_f, 1), state.cell,
        gates.gate(i_f, 0), gates.gate(all, 2))};
    state.hidden = Tensor<T>{replicator::detail::map_at(
        x.graph(), dtype_of<T>, where, [](Symbol out, Symbol c) { return out * tanh(c); }, o, state.cell)};
    outputs.push_back(state.hidden);
  }
  return {stack(outputs, 0, where), state};
}

}  // namespace replicator::nn
