// SPDX-License-Identifier: Apache-2.0
// Compiles an expression to primitive loops over tiles that stay in the first-level cache.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include <replicator/core/error.hpp>
#include <replicator/cpu/loops/bfloat16_loops.hpp>
#include <replicator/cpu/loops/convert.hpp>
#include <replicator/cpu/loops/loop_nest.hpp>
#include <replicator/cpu/loops/prefetch_ahead.hpp>
#include <replicator/cpu/loops/row_loops.hpp>
#include <replicator/cpu/loops/tile_loops.hpp>
#include <replicator/cpu/loops/tile_terms.hpp>

namespace replicator::detail::cpu {

// Evaluates an expression over ranges of the domain in storage order. Immutable; each thread brings its own scratch memory.
class TileProgram {
  // Where the value of a term is.
  struct Place {
    int slot = -1;
    bool stored = false;  // in an input of another type than the type of computation
  };

 public:
  // `stored` is the dtype of each output in memory. It is empty where the outputs are only shown, tile by tile (Reduce). With
  // `shows_stored`, an output that is just a bfloat16 input is then shown as it is stored. Tiles have whole rows of `row` elements,
  // if several fit into one.
  TileProgram(const Expression& expression, std::span<const TensorType> inputs, const Shape& domain,
              const std::vector<StorageLoop>& loops, std::span<const DType> stored, bool shows_stored = false, std::int64_t row = 0)
      : compute_{expression.compute}, outputs_{stored.begin(), stored.end()}, shows_stored_{shows_stored}, elements_{domain.elements()} {
    for (const auto& input : inputs) add_input(input, domain, loops);
    choose_tile(row);
    compile(expression);
    for (const auto& input : inputs_) widest_ = std::max(widest_, input.element);
    for (const auto dtype : outputs_) widest_ = std::max(widest_, size_of(dtype));
    widest_ = std::max(widest_, size_of(compute_));
    prefetches_ &= bytes_in_memory() > beyond_cache && code_.size() >= fewest_loops;
  }

  // Inputs and outputs of fewer bytes together come from the caches in time. The next tile of larger ones is prefetched, but only
  // beside several loops, one of them of a function: others wait for memory anyway, and prefetching makes them slower.
  static constexpr std::size_t beyond_cache = std::size_t{1} << 23;
  static constexpr std::size_t fewest_loops = 4;

  std::int64_t tile() const { return tile_; }
  std::int64_t tiles() const { return (elements_ + tile_ - 1) / tile_; }
  std::int64_t elements() const { return elements_; }
  // How many loops run over each tile.
  std::size_t loops() const { return code_.size(); }
  // Bytes for one thread, a multiple of 64.
  std::size_t scratch_bytes() const { return header_bytes() + slots_ * buffer_bytes(); }

  // Whether output `o` may share the memory of input `input`. The input must be read, element for element, no later than the
  // output is written.
  bool may_share(std::size_t o, std::size_t input) const {
    if (!inputs_[input].linear || inputs_[input].dtype != outputs_[o]) return false;
    const auto written = std::find_if(code_.begin(), code_.end(), [&](const auto& i) { return i.out == output_slot(o); });
    const auto reads = [&](const auto& i) { return i.a == input || i.b == input || i.c == input; };
    return written == code_.end() || std::none_of(written + 1, code_.end(), reads);
  }

  // Evaluates elements [begin, end) of the domain in storage order. `outputs` holds a pointer per stored output. Calls
  // visit(values, count) after each tile. Where no outputs are stored, values[o] are `count` elements of output o. Calls
  // ahead.next() before each loop.
  template <class Visit>
  void run(const std::byte* const* inputs, std::byte* const* outputs, std::byte* scratch, std::int64_t begin, std::int64_t end,
           const Visit& visit, PrefetchAhead& ahead) const {
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
        if (inputs_[i].presented) slots[i] = present(i, inputs[i], buffer(scratch, i), position, count, states[i]);
      for (const auto& row : rows_) slots[row.slot] = inputs_[row.input].broadcast.as_rows(inputs[row.input], position, count);
      for (std::size_t o = 0; o < outputs_.size(); ++o)
        if (whole) slots[output_slot(o)].data = outputs[o] + offset(position, outputs_[o]);
        else slots[output_slot(o)].data = buffer(scratch, output_slot(o));
      const std::int64_t n = (count + tile_group - 1) / tile_group * tile_group;
      if (prefetches_) prefetch_tile(ahead, inputs, outputs, position + tile_, end);
      for (const auto& i : code_) {
        ahead.next();
        i.loop(const_cast<std::byte*>(slots[i.out].data), slots[i.a], slots[i.b], slots[i.c], n);
      }
      if (!whole)
        for (std::size_t o = 0; o < outputs_.size(); ++o)
          std::memcpy(outputs[o] + offset(position, outputs_[o]), slots[output_slot(o)].data, offset(count, outputs_[o]));
      visit(ResultTiles{slots, results_.data()}, count);
    }
  }

  // Contiguous elements of the type of computation, or (`stored`) of bfloat16.
  struct ResultTile {
    const std::byte* data;
    bool stored;
  };
  // The tiles of the expression's outputs.
  struct ResultTiles {
    const TileOperand* slots;
    const Place* results;
    ResultTile operator[](std::size_t output) const { return {slots[results[output].slot].data, results[output].stored}; }
  };

 private:
  struct InputPlan {
    DType dtype;
    std::size_t element;  // bytes
    bool linear;
    BroadcastOperand broadcast;
    bool presented;  // a loop reads it group by group
  };
  // An input that loops read row by row.
  struct RowPlan {
    std::uint16_t slot, input;
  };
  struct Instruction {
    TileLoop loop;
    std::uint16_t out, a, b, c;  // slots
  };
  struct ConstantPlan {
    std::uint16_t slot;
    std::uint64_t bits;
  };

  std::size_t slot_bytes() const { return (slots_ * sizeof(TileOperand) + 63) / 64 * 64; }
  std::size_t header_bytes() const { return slot_bytes() + (inputs_.size() * sizeof(BroadcastOperand::State) + 63) / 64 * 64; }
  std::size_t buffer_bytes() const { return static_cast<std::size_t>(tile_) * widest_ + 64; }
  std::byte* buffer(std::byte* scratch, std::size_t slot) const { return scratch + header_bytes() + slot * buffer_bytes(); }
  std::uint16_t output_slot(std::size_t o) const { return static_cast<std::uint16_t>(inputs_.size() + o); }
  static std::size_t offset(std::int64_t position, DType dtype) { return static_cast<std::size_t>(position) * size_of(dtype); }

  void add_input(const TensorType& input, const Shape& domain, const std::vector<StorageLoop>& loops) {
    const bool full = input.shape == domain;  // it lies as the domain does, in any layout
    auto seen = full ? std::vector<OperandLoop>{{elements_, 1}} : operand_loops(loops, domain, input.shape);
    const bool linear = full || is_linear(seen);
    inputs_.push_back({input.dtype, size_of(input.dtype), linear, BroadcastOperand{std::move(seen), size_of(input.dtype)}, linear});
  }

  // At most 1,024 elements. A multiple of a row where several rows fit, and if possible a divisor of the shortest stretch over which
  // a small operand repeats.
  void choose_tile(std::int64_t row) {
    constexpr std::int64_t longest = 1024;
    std::int64_t stretch = longest;
    for (const auto& input : inputs_)
      if (!input.linear && input.broadcast.stretch() < elements_)
        stretch = std::min(stretch == longest ? input.broadcast.stretch() : stretch, input.broadcast.stretch());
    for (const auto& input : inputs_)
      if (!input.linear && row == 0) row = input.broadcast.run();
    const std::int64_t rows = row == 0 ? 1 : std::lcm(row, tile_group);
    tile_ = longest / rows == 0 ? longest : longest / rows * rows;
    for (std::int64_t candidate = longest; candidate >= longest / 4; candidate -= tile_group)
      if (stretch % candidate == 0 && (rows > longest || candidate % rows == 0)) {
        tile_ = candidate;
        break;
      }
    tile_ = std::max(tile_group, std::min(tile_, (elements_ + tile_group - 1) / tile_group * tile_group));
  }

  std::size_t bytes_in_memory() const {
    std::size_t bytes = 0;
    for (const auto& input : inputs_)
      if (input.linear) bytes += offset(elements_, input.dtype);
    for (const auto dtype : outputs_) bytes += offset(elements_, dtype);
    return bytes;
  }
  // A short tile at the end of the range is not prefetched.
  void prefetch_tile(PrefetchAhead& ahead, const std::byte* const* inputs, std::byte* const* outputs, std::int64_t position, std::int64_t end) const {
    ahead.restart(code_.size());
    if (position + tile_ > end) return;
    for (std::size_t i = 0; i < inputs_.size(); ++i)
      if (inputs_[i].linear) ahead.add(inputs[i] + offset(position, inputs_[i].dtype), offset(tile_, inputs_[i].dtype));
    for (std::size_t o = 0; o < outputs_.size(); ++o) ahead.add(outputs[o] + offset(position, outputs_[o]), offset(tile_, outputs_[o]));
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

  // Fills one group with the constant.
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
    auto terms = tile_terms(expression);
    std::vector<Place> places(terms.size());
    slots_ = inputs_.size() + outputs_.size();
    for (std::size_t i = 0; i < terms.size(); ++i) {
      if (terms[i].uses == 0) continue;
      if (expression.code[i].op == ScalarOp::input) places[i] = place_input(expression.code[i].a);
      else if (expression.code[i].op == ScalarOp::constant) places[i] = place_constant(terms[i].bits);
      else places[i] = compute(expression, terms, places, i);
      for (std::size_t o = 0; o < outputs_.size(); ++o)
        if (expression.outputs[o] == i && places[i].slot != output_slot(o)) convert_output(places[i], o);
    }
    if (outputs_.empty())
      for (const auto output : expression.outputs) results_.push_back(contiguous(places[output]));
  }

  Place place_input(std::uint16_t input) {
    if (inputs_[input].dtype == compute_) return {input};
    Place place{input, true};
    if (inputs_[input].dtype != DType::bfloat16) widen(place);
    return place;
  }
  Place place_constant(std::uint64_t bits) {
    const auto slot = static_cast<int>(slots_++);
    constants_.push_back({static_cast<std::uint16_t>(slot), bits});
    return {slot};
  }

  // Adds the loop of a term. It reads stored operands, and writes a stored output, where there is such a loop.
  Place compute(const Expression& expression, std::vector<TileTerm>& terms, std::vector<Place>& places, std::size_t index) {
    const TileTerm& term = terms[index];
    const int operands = operands_of(term.op);
    const auto place = [&](int o) -> Place& { return places[term.operand[o < operands ? o : 0]]; };
    const auto stored = [&](int o) { return o < operands && place(o).stored; };
    int output = output_for(expression, term, index);
    TileLoop loop = nullptr;
    if (compute_ == DType::float32) {
      const bool out = output >= 0 && outputs_[static_cast<std::size_t>(output)] == DType::bfloat16;
      loop = bfloat16_loop(term.op, {stored(0), stored(1), stored(2), out}, instruction_level());
    }
    if (!loop) {
      for (int o = 0; o < operands; ++o)
        if (stored(o)) widen(place(o));
      if (output >= 0 && outputs_[static_cast<std::size_t>(output)] != compute_) output = -1;
      loop = loop_of(expression.code[index].op, term.op);
    }
    int slot[] = {place(0).slot, place(1).slot, place(2).slot};
    for (int o = 0; o < operands; ++o)
      if (--terms[term.operand[o]].uses == 0 && is_register(slot[o])) free_.push_back(slot[o]);
    const int to = output >= 0 ? static_cast<int>(output_slot(static_cast<std::size_t>(output))) : take();
    if (const TileLoop by_rows = row_loop_of(term.op, slot, output)) loop = by_rows;
    push(loop, to, slot[0], slot[1], slot[2]);
    prefetches_ |= computes_function(term.op);
    return {to};
  }
  TileLoop loop_of(ScalarOp source, TileOp op) const {
    if (const TileLoop loop = tile_loop(compute_, op, instruction_level())) return loop;
    throw BuildError{"the operation " + std::string{name_of(source)} + " was asked for on " + std::string{name_of(compute_)} +
                     (needs_integers(source) ? ", which only integers have" : ", which only floating types have: cast to float32 or float64 first")};
  }

  // The loop that reads some operands row by row, with their slots in `slot`. Null where there is none.
  TileLoop row_loop_of(TileOp op, int (&slot)[3], int output) {
    if (compute_ != DType::float32 || (output >= 0 && outputs_[static_cast<std::size_t>(output)] != DType::float32)) return nullptr;
    unsigned rows = 0;
    std::int64_t run = 0;
    for (int o = 0; o < operands_of(op); ++o) {
      if (slot[o] >= static_cast<int>(inputs_.size())) continue;
      const auto& input = inputs_[static_cast<std::size_t>(slot[o])];
      if (input.dtype != DType::float32) return nullptr;
      if (input.linear || !input.broadcast.has_rows()) continue;
      if (run != 0 && run != input.broadcast.run()) return nullptr;
      rows |= 1u << o;
      run = input.broadcast.run();
    }
    const TileLoop loop = rows == 0 ? nullptr : row_loop(op, rows, instruction_level());
    if (!loop) return nullptr;
    for (int o = 0; o < 3; ++o) slot[o] = o >= operands_of(op) ? slot[0] : (rows >> o & 1) != 0 ? row_slot(slot[o])
                                                                                                : slot[o];
    return loop;
  }
  int row_slot(int input) {
    for (const auto& row : rows_)
      if (row.input == input) return row.slot;
    rows_.push_back({static_cast<std::uint16_t>(slots_), static_cast<std::uint16_t>(input)});
    return static_cast<int>(slots_++);
  }

  // The stored output that a value can be written to directly, else -1. The output must be of the type of computation. It may be
  // bfloat16 if nothing else uses the value.
  int output_for(const Expression& expression, const TileTerm& term, std::size_t index) const {
    int found = -1;
    for (std::size_t o = outputs_.size(); o-- > 0;)
      if (expression.outputs[o] == index && (outputs_[o] == compute_ || (outputs_[o] == DType::bfloat16 && term.uses == 1))) found = static_cast<int>(o);
    return found;
  }

  void convert_output(Place& place, std::size_t o) {
    if (place.stored && outputs_[o] != compute_) widen(place);
    const DType from = place.stored ? inputs_[static_cast<std::size_t>(place.slot)].dtype : compute_;
    push(conversion_loop(from, outputs_[o]), output_slot(o), place.slot, place.slot, place.slot);
  }

  // Converts a stored input to the type of computation.
  void widen(Place& place) {
    const int input = place.slot;
    place = {take()};
    push(conversion_loop(inputs_[static_cast<std::size_t>(input)].dtype, compute_), place.slot, input, input, input);
  }

  // The place itself if it holds all elements, otherwise a copy that does.
  Place contiguous(Place& place) {
    if (place.stored && shows_stored_ && inputs_[static_cast<std::size_t>(place.slot)].linear) return place;
    if (place.stored) widen(place);
    const int slot = place.slot;
    const bool linear = slot < static_cast<int>(inputs_.size()) ? inputs_[static_cast<std::size_t>(slot)].linear : is_register(slot);
    if (linear) return place;
    const auto copy = static_cast<int>(slots_++);
    push(conversion_loop(compute_, compute_), copy, slot, slot, slot);
    return {copy};
  }

  bool is_register(int slot) const {
    return slot >= static_cast<int>(inputs_.size() + outputs_.size()) &&
           std::none_of(constants_.begin(), constants_.end(), [&](const auto& c) { return c.slot == slot; });
  }
  int take() {
    if (free_.empty()) return static_cast<int>(slots_++);
    const int slot = free_.back();
    free_.pop_back();
    return slot;
  }
  void push(TileLoop loop, int out, int a, int b, int c) {
    const auto s = [&](int slot) {
      if (slot < static_cast<int>(inputs_.size())) inputs_[static_cast<std::size_t>(slot)].presented = true;
      return static_cast<std::uint16_t>(slot);
    };
    code_.push_back({loop, s(out), s(a), s(b), s(c)});
  }

  DType compute_;
  std::vector<InputPlan> inputs_;
  std::vector<DType> outputs_;
  bool shows_stored_;
  bool prefetches_ = false;  // the next tile while one is computed
  std::int64_t elements_;
  std::int64_t tile_ = 0;
  std::size_t widest_ = 1;
  std::size_t slots_ = 0;  // inputs, stored outputs, then constants and registers
  std::vector<int> free_;  // registers that are free again
  std::vector<Instruction> code_;
  std::vector<ConstantPlan> constants_;
  std::vector<RowPlan> rows_;
  std::vector<Place> results_;
};

}  // namespace replicator::detail::cpu
