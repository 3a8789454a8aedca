// SPDX-License-Identifier: Apache-2.0
// An expression compiled to primitive loops over tiles that stay in the first-level cache.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include <replicator/core/error.hpp>
#include <replicator/cpu/convert.hpp>
#include <replicator/cpu/loop_nest.hpp>
#include <replicator/cpu/tiles.hpp>

namespace replicator::cpu {

// Evaluates an expression for stretches of the domain in storage order. Immutable; each thread brings its own scratch.
class TileProgram {
 public:
  // `stored`: the dtype of each output in memory; empty where the outputs are only looked at, tile by tile (Reduce).
  TileProgram(const Expression& expression, std::span<const TensorType> inputs, const Shape& domain,
              const std::vector<StorageLoop>& loops, std::span<const DType> stored)
      : compute_{expression.compute}, outputs_{stored.begin(), stored.end()}, elements_{domain.elements()} {
    for (const auto& input : inputs) add_input(input, domain, loops);
    choose_tile();
    compile(expression);
    for (const auto& input : inputs_) widest_ = std::max(widest_, input.element);
    for (const auto dtype : outputs_) widest_ = std::max(widest_, size_of(dtype));
    widest_ = std::max(widest_, size_of(compute_));
  }

  std::int64_t tile() const { return tile_; }
  std::int64_t tiles() const { return (elements_ + tile_ - 1) / tile_; }
  std::int64_t elements() const { return elements_; }
  // Of one thread; a multiple of 64.
  std::size_t scratch_bytes() const { return header_bytes() + slots_ * buffer_bytes(); }

  // May output `o` share the memory of input `input`? It is read, element for element, no later than that output is written.
  bool may_share(std::size_t o, std::size_t input) const {
    if (!inputs_[input].linear || inputs_[input].dtype != outputs_[o]) return false;
    const auto written = std::find_if(code_.begin(), code_.end(), [&](const auto& i) { return i.out == output_slot(o); });
    const auto reads = [&](const auto& i) { return i.a == input || i.b == input || i.c == input; };
    return written == code_.end() || std::none_of(written + 1, code_.end(), reads);
  }

  // Evaluates elements [begin, end) of the domain in storage order. `outputs` holds a pointer per stored output. After each
  // tile calls visit(values, count); values[o] points to `count` elements of the compute type of output o (only where no
  // outputs are stored).
  template <class Visit>
  void run(const std::byte* const* inputs, std::byte* const* outputs, std::byte* scratch, std::int64_t begin, std::int64_t end,
           const Visit& visit) const {
    auto* slots = reinterpret_cast<TileOperand*>(scratch);
    auto* states = reinterpret_cast<BroadcastOperand::State*>(scratch + slot_bytes());
    for (std::size_t s = 0; s < slots_; ++s)
      slots[s] = {buffer(scratch, s), static_cast<std::int64_t>(tile_group * size_of(compute_))};
    for (std::size_t i = 0; i < inputs_.size(); ++i) states[i] = {};
    for (const auto& constant : constants_) slots[constant.slot] = {fill_constant(buffer(scratch, constant.slot), constant.bits), 0};
    for (std::int64_t position = begin; position < end; position += tile_) {
      const std::int64_t count = std::min(tile_, end - position);
      const bool whole = count % tile_group == 0;
      for (std::size_t i = 0; i < inputs_.size(); ++i)
        slots[i] = present(i, inputs[i], buffer(scratch, i), position, count, states[i]);
      for (std::size_t o = 0; o < outputs_.size(); ++o)
        if (whole) slots[output_slot(o)].data = outputs[o] + offset(position, outputs_[o]);
        else slots[output_slot(o)].data = buffer(scratch, output_slot(o));
      const std::int64_t n = (count + tile_group - 1) / tile_group * tile_group;
      for (const auto& i : code_) i.loop(const_cast<std::byte*>(slots[i.out].data), slots[i.a], slots[i.b], slots[i.c], n);
      if (!whole)
        for (std::size_t o = 0; o < outputs_.size(); ++o)
          std::memcpy(outputs[o] + offset(position, outputs_[o]), slots[output_slot(o)].data, offset(count, outputs_[o]));
      visit(ResultTiles{slots, results_.data()}, count);
    }
  }

  // The tiles of the expression's outputs, contiguous.
  struct ResultTiles {
    const TileOperand* slots;
    const std::uint16_t* results;
    const std::byte* operator[](std::size_t output) const { return slots[results[output]].data; }
  };

 private:
  struct InputPlan {
    DType dtype;
    std::size_t element;  // bytes
    bool linear;
    BroadcastOperand broadcast;
  };
  struct Instruction {
    TileLoop loop;
    std::uint16_t out, a, b, c;  // slots
  };
  struct ConstantPlan {
    std::uint16_t slot;
    std::uint64_t bits;
  };
  // A value of the expression while compiling.
  struct Term {
    TileOp op;
    std::uint16_t operand[3];
    std::uint64_t bits;  // of a constant
    int uses = 0;
    bool live = false;
    int slot = -1;
  };

  std::size_t slot_bytes() const { return (slots_ * sizeof(TileOperand) + 63) / 64 * 64; }
  std::size_t header_bytes() const { return slot_bytes() + (inputs_.size() * sizeof(BroadcastOperand::State) + 63) / 64 * 64; }
  std::size_t buffer_bytes() const { return static_cast<std::size_t>(tile_) * widest_ + 64; }
  std::byte* buffer(std::byte* scratch, std::size_t slot) const { return scratch + header_bytes() + slot * buffer_bytes(); }
  std::uint16_t output_slot(std::size_t o) const { return static_cast<std::uint16_t>(inputs_.size() + o); }
  static std::size_t offset(std::int64_t position, DType dtype) { return static_cast<std::size_t>(position) * size_of(dtype); }

  void add_input(const TensorType& input, const Shape& domain, const std::vector<StorageLoop>& loops) {
    const bool full = input.shape == domain;  // lies as the domain does, whatever the layout
    auto seen = full ? std::vector<OperandLoop>{{elements_, 1}} : operand_loops(loops, domain, input.shape);
    const bool linear = full || is_linear(seen);
    inputs_.push_back({input.dtype, size_of(input.dtype), linear, BroadcastOperand{std::move(seen), size_of(input.dtype)}});
  }

  // At most 1,024 elements; a divisor of the shortest stretch over which a small operand repeats, if there is one.
  void choose_tile() {
    constexpr std::int64_t longest = 1024;
    std::int64_t stretch = longest;
    for (const auto& input : inputs_)
      if (!input.linear && input.broadcast.stretch() < elements_)
        stretch = std::min(stretch == longest ? input.broadcast.stretch() : stretch, input.broadcast.stretch());
    tile_ = longest;
    for (std::int64_t candidate = longest; candidate >= longest / 4; candidate -= tile_group)
      if (stretch % candidate == 0) {
        tile_ = candidate;
        break;
      }
    tile_ = std::max(tile_group, std::min(tile_, (elements_ + tile_group - 1) / tile_group * tile_group));
  }

  TileOperand present(std::size_t i, const std::byte* input, std::byte* buffer, std::int64_t position, std::int64_t count,
                      BroadcastOperand::State& state) const {
    const auto& plan = inputs_[i];
    if (!plan.linear) return plan.broadcast.present(input, buffer, position, count, state);
    const std::byte* from = input + static_cast<std::size_t>(position) * plan.element;
    const auto group = static_cast<std::int64_t>(tile_group * plan.element);
    if (count % tile_group == 0) return {from, group};
    std::memcpy(buffer, from, static_cast<std::size_t>(count) * plan.element);
    return {buffer, group};
  }

  // One group of the constant.
  const std::byte* fill_constant(std::byte* to, std::uint64_t bits) const {
    const auto fill = [&](auto value) {
      for (std::size_t i = 0; i < tile_group; ++i) std::memcpy(to + i * sizeof(value), &value, sizeof(value));
    };
    switch (compute_) {
      case DType::float32: fill(static_cast<float>(std::bit_cast<double>(bits))); break;
      case DType::int32: fill(static_cast<std::int32_t>(bits)); break;
      default: fill(bits);
    }
    return to;
  }

  // --- compilation -------------------------------------------------------------------------------------------------
  void compile(const Expression& expression) {
    auto terms = read_terms(expression);
    if (compute_ == DType::float32)
      for (auto& term : terms) merge_pair(terms, term);
    mark_live(expression, terms);
    emit(expression, terms);
  }

  static std::vector<Term> read_terms(const Expression& expression) {
    std::vector<Term> terms;
    for (const auto& i : expression.code) {
      terms.push_back({static_cast<TileOp>(i.op), {i.a, i.b, i.c}, i.bits});
      for (int o = 0; o < operands_of(i.op); ++o) ++terms[terms.back().operand[o]].uses;
    }
    for (const auto output : expression.outputs) ++terms[output].uses;
    return terms;
  }

  static TileOp plain(ScalarOp op) { return static_cast<TileOp>(op); }
  static bool is_zero(const Term& term) { return term.op == plain(ScalarOp::constant) && term.bits == 0; }
  static bool is_square_of_difference(const std::vector<Term>& terms, const Term& term) {
    const Term& inner = terms[term.operand[0]];
    return term.operand[0] == term.operand[1] && inner.op == plain(ScalarOp::subtract) && inner.uses == 2;
  }
  // One loop for `term` and the operand that only it uses, where there is such a pair.
  static void merge_pair(std::vector<Term>& terms, Term& term) {
    const auto only = [&](int o, ScalarOp op) { return terms[term.operand[o]].op == plain(op) && terms[term.operand[o]].uses == 1; };
    const auto merge = [&](TileOp pair, int o) {
      const Term& inner = terms[term.operand[o]];
      const std::uint16_t other = term.operand[1 - o];
      term.op = pair;
      term.operand[2] = other;
      term.operand[0] = inner.operand[0];
      term.operand[1] = inner.operand[1];
    };
    using enum ScalarOp;
    if (term.op == plain(rectify) && only(0, add)) return merge(TileOp::add_then_rectify, 0);
    if (term.op == plain(multiply) && is_square_of_difference(terms, term)) return merge(TileOp::subtract_then_square, 0);
    if (term.op == plain(select) && only(0, less_equal) && is_zero(terms[term.operand[1]]) && is_zero(terms[terms[term.operand[0]].operand[1]])) {
      term.op = TileOp::rectify_by;
      term.operand[0] = terms[term.operand[0]].operand[0];
      term.operand[1] = term.operand[2];
      return;
    }
    if (term.op != plain(add) && term.op != plain(subtract) && term.op != plain(multiply)) return;
    const bool first = term.op == plain(subtract);
    for (int o = 0; o < 2; ++o) {
      if (term.op == plain(add) && only(o, multiply)) return merge(TileOp::multiply_then_add, o);
      if (term.op == plain(add) && only(o, add)) return merge(TileOp::add_then_add, o);
      if (first && only(o, multiply)) return merge(o == 0 ? TileOp::multiply_then_subtract : TileOp::subtract_product, o);
      if (term.op == plain(multiply) && only(o, subtract)) return merge(TileOp::subtract_then_multiply, o);
      if (term.op == plain(multiply) && only(o, multiply)) return merge(TileOp::multiply_then_multiply, o);
      if (term.op == plain(multiply) && only(o, less)) return merge(TileOp::less_then_multiply, o);
    }
  }

  static void mark_live(const Expression& expression, std::vector<Term>& terms) {
    for (auto& term : terms) term.uses = 0;
    for (const auto output : expression.outputs) terms[output].live = true, ++terms[output].uses;
    for (std::size_t i = terms.size(); i-- > 0;)
      if (terms[i].live)
        for (int o = 0; o < operands_of(terms[i].op); ++o) {
          terms[terms[i].operand[o]].live = true;
          ++terms[terms[i].operand[o]].uses;
        }
  }

  void emit(const Expression& expression, std::vector<Term>& terms) {
    slots_ = inputs_.size() + outputs_.size();
    std::vector<int> output_of(terms.size(), -1);  // the stored output that a value is written to directly
    for (std::size_t o = outputs_.size(); o-- > 0;)
      if (outputs_[o] == compute_) output_of[expression.outputs[o]] = static_cast<int>(o);
    std::vector<int> free;
    for (std::size_t i = 0; i < terms.size(); ++i) {
      if (!terms[i].live) continue;
      emit_term(expression.code[i], terms, i, output_of[i], free);
      for (std::size_t o = 0; o < outputs_.size(); ++o)
        if (expression.outputs[o] == i && terms[i].slot != output_slot(o))
          push(conversion_loop(compute_, outputs_[o]), output_slot(o), terms[i].slot, terms[i].slot, terms[i].slot);
    }
    if (outputs_.empty())
      for (const auto output : expression.outputs) results_.push_back(contiguous(terms[output].slot));
  }

  // The slot itself, or a copy where it holds one group for all.
  std::uint16_t contiguous(int slot) {
    const bool linear = slot < static_cast<int>(inputs_.size()) ? inputs_[static_cast<std::size_t>(slot)].linear : is_register(slot);
    if (linear) return static_cast<std::uint16_t>(slot);
    const auto copy = static_cast<int>(slots_++);
    push(conversion_loop(compute_, compute_), copy, slot, slot, slot);
    return static_cast<std::uint16_t>(copy);
  }

  void emit_term(const ScalarInstruction& source, std::vector<Term>& terms, std::size_t index, int output, std::vector<int>& free) {
    Term& term = terms[index];
    if (source.op == ScalarOp::input) {
      term.slot = source.a;
      if (inputs_[source.a].dtype == compute_) return;
      term.slot = take(free);
      push(conversion_loop(inputs_[source.a].dtype, compute_), term.slot, source.a, source.a, source.a);
      return;
    }
    if (source.op == ScalarOp::constant) {
      term.slot = static_cast<int>(slots_++);
      constants_.push_back({static_cast<std::uint16_t>(term.slot), source.bits});
      return;
    }
    const TileLoop loop = tile_loop(compute_, term.op, instruction_level());
    if (!loop)
      throw BuildError{"the operation " + std::string{name_of(source.op)} + " was asked for on " + std::string{name_of(compute_)} +
                       ", which only floating types have: cast to float32 or float64 first"};
    const int operands = operands_of(term.op);
    int slot[3];
    for (int o = 0; o < 3; ++o) slot[o] = terms[term.operand[o < operands ? o : 0]].slot;
    for (int o = 0; o < operands; ++o)
      if (Term& used = terms[term.operand[o]]; --used.uses == 0 && is_register(used.slot)) free.push_back(used.slot);
    term.slot = output >= 0 ? static_cast<int>(output_slot(static_cast<std::size_t>(output))) : take(free);
    push(loop, term.slot, slot[0], slot[1], slot[2]);
  }

  bool is_register(int slot) const {
    return slot >= static_cast<int>(inputs_.size() + outputs_.size()) &&
           std::none_of(constants_.begin(), constants_.end(), [&](const auto& c) { return c.slot == slot; });
  }
  int take(std::vector<int>& free) {
    if (free.empty()) return static_cast<int>(slots_++);
    const int slot = free.back();
    free.pop_back();
    return slot;
  }
  void push(TileLoop loop, int out, int a, int b, int c) {
    const auto s = [](int slot) { return static_cast<std::uint16_t>(slot); };
    code_.push_back({loop, s(out), s(a), s(b), s(c)});
  }

  DType compute_;
  std::vector<InputPlan> inputs_;
  std::vector<DType> outputs_;
  std::int64_t elements_;
  std::int64_t tile_ = 0;
  std::size_t widest_ = 1;
  std::size_t slots_ = 0;  // inputs, stored outputs, then constants and registers
  std::vector<Instruction> code_;
  std::vector<ConstantPlan> constants_;
  std::vector<std::uint16_t> results_;
};

}  // namespace replicator::cpu
