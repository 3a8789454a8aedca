// SPDX-License-Identifier: Apache-2.0
// The concept Operation, and AnyOperation, which holds any operation. An operation is a plain struct:
//   struct Scale {
//     static constexpr std::string_view name = "scale";
//     float factor;
//     template <class V> void describe(V& v) const { v("factor", factor); }
//     std::vector<TensorType> infer_shape(std::span<const TensorType> inputs) const;  // throws BuildError
//     std::vector<AnyTensor> gradient(const GradientContext& at) const;   // optional: one per input, empty for zero
//     static AnyTensor sum(Graph&, std::span<const AnyTensor> results, Location);   // optional: adds up results of such operations,
//                                                                         // of one type, where gradients meet
//     std::vector<AnyTensor> expand(const ExpansionContext& at) const;    // optional: in terms of other operations, for devices without a kernel
//     double work(std::span<const TensorType> inputs) const;              // optional: arithmetic operations, for explain()
//     std::string formula(std::size_t length) const;                      // optional: what it computes, in at most so many characters
//     std::string title() const;              // optional: the call that asked for it, for errors; else the name
//     static constexpr bool varies = true;    // optional: differs between replicas even on equal inputs; may be a member function
//     static constexpr bool alias = true;     // optional: the output is the (plain) memory of input 0
//     static constexpr bool effect = true;    // optional: runs, once for each node, though nobody uses its outputs
//     static constexpr OfWidened of_widened = OfWidened::picks;  // optional: what becomes of bfloat16 that was widened to float32
//   };
// It needs a registered kernel unless it has `expand` or `alias`. With `expand` its kernels must not decline.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <typeinfo>
#include <vector>

#include <replicator/core/attributes.hpp>
#include <replicator/core/hash.hpp>
#include <replicator/core/location.hpp>
#include <replicator/graph/kernel.hpp>
#include <replicator/graph/value.hpp>

namespace replicator {

struct GradientContext;
struct ExpansionContext;

// How an operation with one output treats an input 0 that is a bfloat16 x, widened to float32.
enum class OfWidened : std::uint8_t {
  computes,  // may give another value than for x
  picks,     // picks elements of it by their values: gives op(x), widened
  rounds,    // computes in float32; with its result rounded to bfloat16 it is op(x), rounded once. Other inputs may be of either type
};

// The required members of an operation.
template <class Op>
concept Operation = requires(const Op& op, std::span<const TensorType> inputs, detail::AttributePrinter& v) {
  { Op::name } -> std::convertible_to<std::string_view>;
  { op.infer_shape(inputs) } -> std::same_as<std::vector<TensorType>>;
  op.describe(v);
};

// Holds any operation as a shared immutable value.
class AnyOperation {
 public:
  template <Operation Op>
  AnyOperation(Op op)  // NOLINT: implicit on purpose
                       // A pointer to the base: one shared_ptr type to compile, and not one for each operation.
      : model_{static_cast<const Interface*>(new Model<Op>{std::move(op)})} {}

  std::string_view name() const { return model_->name(); }
  // What the program asked for, in errors: the name unless the operation says otherwise.
  std::string title() const { return model_->title(); }
  std::vector<TensorType> infer_shape(std::span<const TensorType> inputs) const { return model_->infer_shape(inputs); }
  bool has_gradient() const { return model_->has_gradient(); }
  std::vector<AnyTensor> gradient(const GradientContext& at) const { return model_->gradient(at); }
  bool has_sum() const { return model_->has_sum(); }
  // Adds up `results`, at least two of one type, that operations of this struct made.
  AnyTensor sum(Graph& graph, std::span<const AnyTensor> results, Location where) const { return model_->sum(graph, results, where); }
  bool has_expansion() const { return model_->has_expansion(); }
  std::vector<AnyTensor> expand(const ExpansionContext& at) const { return model_->expand(at); }
  bool varies() const { return model_->varies(); }
  bool alias() const { return model_->alias(); }
  bool effect() const { return model_->effect(); }
  OfWidened of_widened() const { return model_->of_widened(); }
  // Number of arithmetic operations for inputs of these types; 0 where the operation does not say.
  double work(std::span<const TensorType> inputs) const { return model_->work(inputs); }
  // The formula in at most `length` characters; empty where the operation gives none.
  std::string formula(std::size_t length) const { return model_->formula(length); }
  const KernelSlots& slots() const { return model_->slots(); }
  // "stride=[2, 2], groups=1"
  std::string attributes() const { return model_->attributes(); }
  // Digest of name and attributes.
  const detail::Digest& digest() const { return model_->digest; }

  // The struct itself; null for another operation.
  template <class Op>
  const Op* get() const {
    const auto* model = dynamic_cast<const Model<Op>*>(model_.get());
    return model ? &model->op : nullptr;
  }

 private:
  struct Interface {
    virtual ~Interface() = default;
    virtual std::string_view name() const = 0;
    virtual std::string title() const = 0;
    virtual std::vector<TensorType> infer_shape(std::span<const TensorType>) const = 0;
    virtual bool has_gradient() const = 0;
    virtual std::vector<AnyTensor> gradient(const GradientContext&) const = 0;
    virtual bool has_sum() const = 0;
    virtual AnyTensor sum(Graph&, std::span<const AnyTensor>, Location) const = 0;
    virtual bool has_expansion() const = 0;
    virtual std::vector<AnyTensor> expand(const ExpansionContext&) const = 0;
    virtual bool varies() const = 0;
    virtual bool alias() const = 0;
    virtual bool effect() const = 0;
    virtual OfWidened of_widened() const = 0;
    virtual double work(std::span<const TensorType>) const = 0;
    virtual std::string formula(std::size_t) const = 0;
    virtual const KernelSlots& slots() const = 0;
    virtual std::string attributes() const = 0;
    detail::Digest digest;
  };

  template <class Op>
  struct Model final : Interface {
    explicit Model(Op value) : op{std::move(value)} {
      detail::Hasher hasher;
      hasher.text(Op::name);
      detail::AttributeHasher visitor{hasher};
      op.describe(visitor);
      this->digest = hasher.result();
    }
    std::string_view name() const override { return Op::name; }
    std::string title() const override {
      if constexpr (requires { op.title(); }) return op.title();
      return std::string{Op::name};
    }
    std::vector<TensorType> infer_shape(std::span<const TensorType> inputs) const override { return op.infer_shape(inputs); }
    bool has_gradient() const override {
      return requires(const Op& o, const GradientContext& at) { o.gradient(at); };
    }
    std::vector<AnyTensor> gradient(const GradientContext& at) const override {
      if constexpr (requires { op.gradient(at); }) return op.gradient(at);
      return {};
    }
    bool has_sum() const override {
      return requires(Graph & graph, std::span<const AnyTensor> results, Location where) { Op::sum(graph, results, where); };
    }
    AnyTensor sum([[maybe_unused]] Graph& graph, [[maybe_unused]] std::span<const AnyTensor> results, [[maybe_unused]] Location where) const override {
      if constexpr (requires { Op::sum(graph, results, where); }) return Op::sum(graph, results, where);
      return {};
    }
    bool has_expansion() const override {
      return requires(const Op& o, const ExpansionContext& at) { o.expand(at); };
    }
    std::vector<AnyTensor> expand(const ExpansionContext& at) const override {
      if constexpr (requires { op.expand(at); }) return op.expand(at);
      return {};
    }
    bool varies() const override {
      if constexpr (requires { op.varies(); }) return op.varies();
      else if constexpr (requires { Op::varies; }) return Op::varies;
      return false;
    }
    bool alias() const override {
      if constexpr (requires { Op::alias; }) return Op::alias;
      return false;
    }
    bool effect() const override {
      if constexpr (requires { Op::effect; }) return Op::effect;
      return false;
    }
    OfWidened of_widened() const override {
      if constexpr (requires { Op::of_widened; }) return Op::of_widened;
      return OfWidened::computes;
    }
    double work([[maybe_unused]] std::span<const TensorType> inputs) const override {
      if constexpr (requires { op.work(inputs); }) return op.work(inputs);
      return 0;
    }
    std::string formula([[maybe_unused]] std::size_t length) const override {
      if constexpr (requires { op.formula(length); }) return op.formula(length);
      return {};
    }
    const KernelSlots& slots() const override { return kernels<Op>::slot; }
    std::string attributes() const override {
      detail::AttributePrinter printer;
      op.describe(printer);
      return printer.text();
    }
    Op op;
  };

  std::shared_ptr<const Interface> model_;
};

}  // namespace replicator
