// SPDX-License-Identifier: Apache-2.0
// The kernel of Rows on the CPU. It takes a block of rows through all steps, then the next block. Values between the steps stay in
// buffers of one block.
//
// The steps over all elements become phases. A phase is one tile program. It computes all values that need only results of earlier
// phases, and a value that several steps compute only once. Then the reductions of these values run, and the steps over one
// element of each row. Reductions add up in the order of the kernel of Reduce.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include <replicator/cpu/loops/accumulate.hpp>
#include <replicator/cpu/loops/parallel.hpp>
#include <replicator/cpu/loops/prefetch_ahead.hpp>
#include <replicator/cpu/loops/reduction_plan.hpp>
#include <replicator/cpu/loops/reduction_worker.hpp>
#include <replicator/cpu/loops/tile_program.hpp>
#include <replicator/graph/rows.hpp>

namespace replicator::detail::cpu {

namespace detail {

// Values of Rows as terms of one expression, each with the phase that computes it.
class RowsTerms {
 public:
  RowsTerms(const Rows& rows, DType compute) {
    whole_.compute = compute;
    for (const auto extent : rows.inputs) add_leaf(extent, 0);
    for (const auto& step : rows.steps) add_step(step);
  }

  const Expression& whole() const { return whole_; }
  int phases() const { return phases_; }
  int phase(std::uint32_t term) const { return phase_[term]; }  // that computes the term; for an element of each row, before which it is known
  std::uint32_t values() const { return static_cast<std::uint32_t>(values_.size()); }
  std::uint32_t term_of(std::uint32_t value) const { return values_[value].term; }
  RowsExtent extent(std::uint32_t value) const { return values_[value].extent; }
  // The values that step `s` makes begin with this one.
  std::uint32_t first_value(std::size_t s) const { return first_[s]; }
  // The terms that reduction `s` reduces, by output.
  const std::vector<std::uint32_t>& reduced(std::size_t s) const { return operands_[s]; }
  // The phase before which a step over one element of each row runs.
  int phase_of_step(std::size_t s) const { return step_phase_[s]; }

 private:
  struct Of {
    RowsExtent extent;
    std::uint32_t term;
  };

  void add_leaf(RowsExtent extent, int phase) {
    const auto value = static_cast<std::uint16_t>(values_.size());
    values_.push_back({extent, append({ScalarOp::input, value, 0, 0, 0}, phase)});
  }
  std::uint32_t append(const ScalarInstruction& instruction, int phase) {
    const auto term = whole_.append(instruction);
    if (term == phase_.size()) phase_.push_back(phase);
    phases_ = std::max(phases_, phase + 1);
    return term;
  }

  void add_step(const Rows::Step& step) {
    first_.push_back(static_cast<std::uint32_t>(values_.size()));
    auto& operands = operands_.emplace_back();
    step_phase_.push_back(0);
    if (step.what == Rows::Step::What::map_rows) {
      for (const auto operand : step.operands) step_phase_.back() = std::max(step_phase_.back(), phase_[values_[operand].term]);
      for (std::size_t o = 0; o < step.dtypes.size(); ++o) add_leaf(RowsExtent::row, step_phase_.back());
      return;
    }
    std::vector<std::uint32_t> terms;
    for (auto f : step.expression->code) {
      if (f.op == ScalarOp::input) {
        terms.push_back(values_[step.operands[f.a]].term);
        continue;
      }
      int phase = 0;
      std::uint16_t* const of[] = {&f.a, &f.b, &f.c};
      for (int o = 0; o < operands_of(f.op); ++o) {
        *of[o] = static_cast<std::uint16_t>(terms[*of[o]]);
        phase = std::max(phase, phase_[*of[o]]);
      }
      terms.push_back(append(f, phase));
    }
    for (const auto output : step.expression->outputs) {
      operands.push_back(terms[output]);
      if (step.what == Rows::Step::What::map) values_.push_back({RowsExtent::full, terms[output]});
      else add_leaf(step.extent(), phase_[terms[output]] + (step.what == Rows::Step::What::reduce_row ? 1 : 0));
    }
  }

  Expression whole_;
  std::vector<int> phase_;  // by term
  int phases_ = 1;
  std::vector<Of> values_;
  std::vector<std::uint32_t> first_;                  // by step
  std::vector<std::vector<std::uint32_t>> operands_;  // likewise, by output
  std::vector<int> step_phase_;                       // likewise
};

}  // namespace detail

class RowsExecutable final : public Executable {
 public:
  RowsExecutable(const Rows& rows, const KernelRequest& request, DType compute)
      : rows_{rows.rows}, columns_{rows.columns}, compute_{compute}, element_{size_of(compute)}, threads_{threads_for(rows, request)}, block_{rows_in_block(rows.rows, rows.columns)} {
    const detail::RowsTerms terms{rows, compute};
    for (std::size_t i = 0; i < rows.inputs.size(); ++i) places_.push_back(place(Place::Where::input, i, rows.inputs[i], request.inputs[i].dtype));
    place_made_values(rows, terms);
    const auto needed = needed_terms(rows, terms);
    std::vector<std::optional<Place>> stored(terms.whole().code.size());
    add_row_maps(rows, terms, 0);
    for (int phase = 0; phase < terms.phases(); ++phase) {
      add_program(rows, terms, phase, needed, stored);
      add_reductions(rows, terms, phase, needed, stored);
      add_row_maps(rows, terms, phase + 1);
    }
    std::size_t pointers = 0, programs = 0;
    for (const auto& action : actions_) {
      pointers = std::max(pointers, action.inputs.size() + action.outputs.size());
      if (action.program) programs = std::max(programs, action.program->scratch_bytes());
    }
    pointers_ = take(pointers * sizeof(std::byte*));
    programs_ = take(programs);
    input_layouts.assign(request.inputs.size(), Layout{});
    output_layouts.assign(request.outputs.size(), Layout{});
    for (std::size_t o = 0; o < request.outputs.size(); ++o) in_place.push_back(find_in_place(o, request));
    scratch_bytes = per_part_ * static_cast<std::size_t>(threads_);
    find_streams(rows, terms);
  }

  void run(const Launch& launch) const override {
    parallel_for(threads_, (rows_ + block_ - 1) / block_, [&](int part, std::int64_t first, std::int64_t last) {
      std::byte* const scratch = launch.scratch + per_part_ * static_cast<std::size_t>(part);
      for (const auto& action : actions_)
        if (action.what == Action::What::reduce_columns) new (scratch + action.worker) ReductionWorker{*action.plan, scratch + action.scratch, 0, 0};
      PrefetchAhead ahead;
      for (std::int64_t b = first; b < last; ++b) {
        prefetch_block(ahead, launch, b + 1, last);
        for (const auto& action : actions_) run_action(action, launch, scratch, b * block_, std::min(block_, rows_ - b * block_), ahead);
      }
      for (const auto& action : actions_)
        if (action.what == Action::What::reduce_columns) copy_result(action, launch, scratch, 0, columns_);
    });
    for (const auto& copy : copies_) std::memcpy(launch.outputs[copy.to], launch.outputs[copy.from], copy.bytes);
  }

 private:
  // Where a value is. In scratch memory there is one block of it.
  struct Place {
    enum class Where : std::uint8_t {
      input,
      output,
      scratch
    } where = Where::scratch;
    std::size_t at = 0;   // the number of the input or output, or an offset
    std::size_t row = 0;  // bytes from a row to the next one
    RowsExtent extent = RowsExtent::full;
    DType dtype = DType::float32;
  };
  struct Action {
    enum class What : std::uint8_t {
      map,       // of full elements
      map_rows,  // of one element for each row
      reduce_rows,
      reduce_columns
    } what = What::map;
    std::vector<Place> inputs, outputs;
    std::unique_ptr<TileProgram> program = {};
    std::unique_ptr<ReductionPlan> plan = {};
    std::size_t scratch = 0, worker = 0;  // offsets
  };
  struct Copy {
    std::size_t from, to, bytes;
  };
  // The only output of a reduction, for a worker.
  struct OneTile {
    const std::byte* data;
    TileProgram::ResultTile operator[](std::size_t) const { return {data, false}; }
  };

  // Sums of columns add up all rows in order.
  static int threads_for(const Rows& rows, const KernelRequest& request) {
    constexpr std::int64_t worth_threads = 1 << 15;
    const bool ordered = std::any_of(rows.steps.begin(), rows.steps.end(), [](const auto& step) { return step.what == Rows::Step::What::reduce_column; });
    return ordered || rows.rows * rows.columns < worth_threads ? 1 : request.threads;
  }
  // About 12,288 elements: with fewer, starting the loops of a block costs a twentieth of a layer norm, and with many more a block does not
  // fit into the second-level cache. Where rows are not too long, whole groups of lanes.
  static std::int64_t rows_in_block(std::int64_t rows, std::int64_t columns) {
    constexpr std::int64_t elements = 3 << 12;
    const std::int64_t group = tile_group / std::gcd(columns, tile_group);
    const std::int64_t fitting = std::max<std::int64_t>(1, elements / columns);
    const std::int64_t block = fitting >= group ? fitting / group * group : group * columns <= 2 * elements ? group
                                                                                                            : fitting;
    return std::min(block, rows);
  }

  // --- memory --------------------------------------------------------------------------------------------------------
  std::size_t take(std::size_t bytes) {
    const std::size_t at = per_part_;
    per_part_ += (bytes + 63) / 64 * 64;
    return at;
  }
  Place place(typename Place::Where where, std::size_t at, RowsExtent extent, DType dtype) const {
    const std::size_t row = extent == RowsExtent::full  ? static_cast<std::size_t>(columns_) * size_of(dtype)
                            : extent == RowsExtent::row ? size_of(dtype)
                                                        : 0;
    return {where, at, row, extent, dtype};
  }
  Place buffer(RowsExtent extent) {
    const std::int64_t elements = extent == RowsExtent::full ? block_ * columns_ : extent == RowsExtent::row ? block_
                                                                                                             : columns_;
    return place(Place::Where::scratch, take(static_cast<std::size_t>(elements + tile_group) * element_), extent, compute_);
  }
  std::byte* address(const Place& place, const Launch& launch, std::byte* scratch, std::int64_t row) const {
    const std::size_t offset = static_cast<std::size_t>(row) * place.row;
    if (place.where == Place::Where::input) return const_cast<std::byte*>(launch.inputs[place.at]) + offset;
    return place.where == Place::Where::output ? launch.outputs[place.at] + offset : scratch + place.at;
  }
  // Values with an element for each row or column lie in the first output that they are, or in scratch memory. Others are terms.
  void place_made_values(const Rows& rows, const detail::RowsTerms& terms) {
    places_.resize(terms.values());
    for (auto v = static_cast<std::uint32_t>(rows.inputs.size()); v < terms.values(); ++v) {
      if (terms.extent(v) == RowsExtent::full) continue;
      const auto first = static_cast<std::size_t>(std::find(rows.outputs.begin(), rows.outputs.end(), v) - rows.outputs.begin());
      places_[v] = first < rows.outputs.size() ? place(Place::Where::output, first, terms.extent(v), compute_) : buffer(terms.extent(v));
      for (std::size_t o = first + 1; o < rows.outputs.size(); ++o)
        if (rows.outputs[o] == v) copies_.push_back({first, o, static_cast<std::size_t>(terms.extent(v) == RowsExtent::row ? rows_ : columns_) * element_});
    }
  }

  // --- planning ------------------------------------------------------------------------------------------------------
  static bool is_operation(const ScalarInstruction& f) { return operands_of(f.op) > 0; }
  template <class F>
  static void for_operands(const ScalarInstruction& f, const F& visit) {
    const std::uint16_t of[] = {f.a, f.b, f.c};
    for (int o = 0; o < operands_of(f.op); ++o) visit(of[o]);
  }
  // Where a sum of rows adds up products of values that are stored anyway, the products are not stored.
  std::vector<std::uint32_t> read_by_reduction(const Rows& rows, const detail::RowsTerms& terms, const std::vector<bool>& needed, std::size_t s, std::size_t o) const {
    const auto term = terms.reduced(s)[o];
    const auto& f = terms.whole().code[term];
    const auto stays = [&](std::uint16_t of) { return as_input(terms, of) || is_kept(rows, terms, needed, of); };
    const bool products = f.op == ScalarOp::multiply && rows.steps[s].what == Rows::Step::What::reduce_row && rows.steps[s].kind == ReduceKind::sum &&
                          compute_ == DType::float32 && row_plan(ReduceKind::sum)->takes_units() && uses(rows, terms, needed, term) == 1 && stays(f.a) && stays(f.b);
    return products ? std::vector<std::uint32_t>{f.a, f.b} : std::vector{term};
  }
  // By terms, reductions and outputs.
  static std::int64_t uses(const Rows& rows, const detail::RowsTerms& terms, const std::vector<bool>& needed, std::uint32_t term) {
    const auto& code = terms.whole().code;
    std::int64_t result = 0;
    for (std::size_t t = 0; t < code.size(); ++t)
      if (needed[t]) for_operands(code[t], [&](std::uint16_t of) { result += of == term; });
    for (std::size_t s = 0; s < rows.steps.size(); ++s)
      if (rows.steps[s].reduces()) result += std::count(terms.reduced(s).begin(), terms.reduced(s).end(), term);
    for (const auto value : rows.outputs) result += terms.extent(value) == RowsExtent::full && terms.term_of(value) == term;
    return result;
  }
  // Whether a later phase reads the value of an operation, or it is reduced itself.
  static bool is_kept(const Rows& rows, const detail::RowsTerms& terms, const std::vector<bool>& needed, std::uint32_t term) {
    const auto& code = terms.whole().code;
    if (!is_operation(code[term])) return false;
    bool kept = false;
    for (std::uint32_t t = 0; t < code.size(); ++t)
      if (needed[t] && terms.phase(t) > terms.phase(term)) for_operands(code[t], [&](std::uint16_t of) { kept |= of == term; });
    for (std::size_t s = 0; s < rows.steps.size(); ++s)
      if (rows.steps[s].reduces()) kept |= std::find(terms.reduced(s).begin(), terms.reduced(s).end(), term) != terms.reduced(s).end() && uses(rows, terms, needed, term) > 1;
    return kept;
  }
  std::unique_ptr<ReductionPlan> row_plan(ReduceKind kind) const { return plan_of(kind, {block_, columns_}, 1); }
  std::unique_ptr<ReductionPlan> plan_of(ReduceKind kind, const Shape& domain, std::int64_t axis) const {
    return std::make_unique<ReductionPlan>(ReductionNest{storage_loops(domain, Layout{}), {axis}}, accumulate_loops(compute_, kind, instruction_level()), element_, element_, 1, 1);
  }

  static std::vector<bool> needed_terms(const Rows& rows, const detail::RowsTerms& terms) {
    const auto& code = terms.whole().code;
    std::vector<bool> needed(code.size());
    for (std::size_t s = 0; s < rows.steps.size(); ++s)
      if (rows.steps[s].reduces())
        for (const auto term : terms.reduced(s)) needed[term] = true;
    for (const auto value : rows.outputs)
      if (terms.extent(value) == RowsExtent::full) needed[terms.term_of(value)] = true;
    for (std::size_t t = code.size(); t-- > 0;)
      if (needed[t]) for_operands(code[t], [&](std::uint16_t of) { needed[of] = true; });
    return needed;
  }

  // Whether a value can be reduced where it lies.
  std::optional<Place> as_input(const detail::RowsTerms& terms, std::uint32_t term) const {
    const auto& f = terms.whole().code[term];
    if (f.op != ScalarOp::input || terms.extent(f.a) != RowsExtent::full || places_[f.a].dtype != compute_) return std::nullopt;
    return places_[f.a];
  }

  // The tile program of a phase stores outputs, what is reduced, and what later phases read.
  void add_program(const Rows& rows, const detail::RowsTerms& terms, int phase, const std::vector<bool>& needed, std::vector<std::optional<Place>>& stored) {
    const auto& code = terms.whole().code;
    std::vector<std::pair<std::uint32_t, Place>> results;
    for (std::size_t o = 0; o < rows.outputs.size(); ++o) {
      if (terms.extent(rows.outputs[o]) != RowsExtent::full) continue;
      const auto term = terms.term_of(rows.outputs[o]);
      if (terms.phase(term) != phase) continue;
      results.emplace_back(term, place(Place::Where::output, o, RowsExtent::full, rows.dtypes[o]));
      if (rows.dtypes[o] == compute_ && !stored[term]) stored[term] = results.back().second;
    }
    const auto store = [&](std::uint32_t term) {
      if (terms.phase(term) != phase || stored[term]) return;
      stored[term] = buffer(RowsExtent::full);
      results.emplace_back(term, *stored[term]);
    };
    for (std::size_t s = 0; s < rows.steps.size(); ++s)
      if (rows.steps[s].reduces())
        for (std::size_t o = 0; o < terms.reduced(s).size(); ++o)
          for (const auto term : read_by_reduction(rows, terms, needed, s, o))
            if (!as_input(terms, term)) store(term);
    for (std::uint32_t t = 0; t < code.size(); ++t)
      if (needed[t] && terms.phase(t) > phase)
        for_operands(code[t], [&](std::uint16_t of) { if (is_operation(code[of])) store(of); });
    if (!results.empty()) actions_.push_back(program_of(terms, phase, results, stored));
  }
  Action program_of(const detail::RowsTerms& terms, int phase, const std::vector<std::pair<std::uint32_t, Place>>& results, const std::vector<std::optional<Place>>& stored) const {
    const auto& code = terms.whole().code;
    std::vector<bool> used(code.size());
    for (const auto& [term, place] : results) used[term] = true;
    const auto computed = [&](std::size_t t) { return terms.phase(static_cast<std::uint32_t>(t)) == phase && is_operation(code[t]); };
    for (std::size_t t = code.size(); t-- > 0;)
      if (used[t] && computed(t)) for_operands(code[t], [&](std::uint16_t of) { used[of] = true; });
    Action action;
    Expression expression;
    expression.compute = compute_;
    std::vector<std::uint16_t> renamed(code.size());
    for (std::uint32_t t = 0; t < code.size(); ++t) {
      if (!used[t]) continue;
      auto f = code[t];
      if (computed(t)) {
        std::uint16_t* const of[] = {&f.a, &f.b, &f.c};
        for (int o = 0; o < operands_of(f.op); ++o) *of[o] = renamed[*of[o]];
      } else if (f.op != ScalarOp::constant) {
        action.inputs.push_back(f.op == ScalarOp::input ? places_[f.a] : *stored[t]);
        f = {ScalarOp::input, static_cast<std::uint16_t>(action.inputs.size() - 1), 0, 0, 0};
      }
      renamed[t] = expression.append(f);
    }
    expression.inputs = static_cast<std::uint16_t>(action.inputs.size());
    for (const auto& [term, place] : results) {
      expression.outputs.push_back(renamed[term]);
      action.outputs.push_back(place);
    }
    action.program = make_program(expression, action, {block_, columns_});
    return action;
  }
  // Over a block: [rows, columns], or one element of each row: [rows].
  std::unique_ptr<TileProgram> make_program(const Expression& expression, const Action& action, const Shape& domain) const {
    std::vector<TensorType> types;
    for (const auto& input : action.inputs) {
      if (domain.rank() == 1) types.push_back({input.dtype, {input.extent == RowsExtent::row ? block_ : 1}});
      else if (input.extent == RowsExtent::full) types.push_back({input.dtype, domain});
      else types.push_back({input.dtype, {input.extent == RowsExtent::row ? block_ : 1, input.extent == RowsExtent::column ? columns_ : 1}});
    }
    std::vector<DType> dtypes;
    for (const auto& output : action.outputs) dtypes.push_back(output.dtype);
    return std::make_unique<TileProgram>(expression, types, domain, storage_loops(domain, Layout{}), dtypes);
  }

  void add_reductions(const Rows& rows, const detail::RowsTerms& terms, int phase, const std::vector<bool>& needed, const std::vector<std::optional<Place>>& stored) {
    for (std::size_t s = 0; s < rows.steps.size(); ++s) {
      const auto& step = rows.steps[s];
      if (!step.reduces()) continue;
      for (std::uint32_t o = 0; o < step.dtypes.size(); ++o) {
        const auto term = terms.reduced(s)[o];
        if (terms.phase(term) != phase) continue;
        const bool columns = step.what == Rows::Step::What::reduce_column;
        Action action{columns ? Action::What::reduce_columns : Action::What::reduce_rows, {}, {places_[terms.first_value(s) + o]}};
        for (const auto read : read_by_reduction(rows, terms, needed, s, o)) {
          const auto input = as_input(terms, read);
          action.inputs.push_back(input ? *input : *stored[read]);
        }
        action.plan = columns ? plan_of(step.kind, {rows_, columns_}, 0) : row_plan(step.kind);
        action.scratch = take(action.plan->scratch_bytes());
        if (columns) action.worker = take(sizeof(ReductionWorker));
        actions_.push_back(std::move(action));
      }
    }
  }
  void add_row_maps(const Rows& rows, const detail::RowsTerms& terms, int phase) {
    for (std::size_t s = 0; s < rows.steps.size(); ++s) {
      const auto& step = rows.steps[s];
      if (step.what != Rows::Step::What::map_rows || terms.phase_of_step(s) != phase) continue;
      Action action{Action::What::map_rows, {}, {}};
      for (const auto operand : step.operands) action.inputs.push_back(places_[operand]);
      for (std::uint32_t o = 0; o < step.dtypes.size(); ++o) action.outputs.push_back(places_[terms.first_value(s) + o]);
      action.program = make_program(*step.expression, action, {block_});
      actions_.push_back(std::move(action));
    }
  }

  // What lies in memory with all elements, if the tensors are large.
  void find_streams(const Rows& rows, const detail::RowsTerms& terms) {
    std::vector<Place> streams;
    for (std::size_t i = 0; i < rows.inputs.size(); ++i)
      if (places_[i].extent == RowsExtent::full) streams.push_back(places_[i]);
    for (std::size_t o = 0; o < rows.outputs.size(); ++o)
      if (terms.extent(rows.outputs[o]) == RowsExtent::full) streams.push_back(place(Place::Where::output, o, RowsExtent::full, rows.dtypes[o]));
    std::size_t row = 0;
    for (const auto& stream : streams) row += stream.row;
    constexpr std::size_t largest_block = std::size_t{1} << 19;  // the block in use stays in the second-level cache beside it
    if (static_cast<std::size_t>(rows_) * row > TileProgram::beyond_cache && static_cast<std::size_t>(block_) * row <= largest_block) streams_ = std::move(streams);
    for (const auto& action : actions_)
      if (action.program) loops_ += action.program->loops() * static_cast<std::size_t>(action.program->tiles());
  }

  // An output may share the memory of an input that nothing reads after it is written. Blocks do not disturb each other.
  int find_in_place(std::size_t o, const KernelRequest& request) const {
    for (std::size_t i = 0; i < request.inputs.size(); ++i) {
      const bool taken = std::find(in_place.begin(), in_place.end(), static_cast<int>(i)) != in_place.end();
      if (!taken && request.inputs[i] == request.outputs[o] && may_share(o, i)) return static_cast<int>(i);
    }
    return -1;
  }
  bool may_share(std::size_t o, std::size_t i) const {
    bool written = false;
    for (const auto& action : actions_) {
      const auto is_output = [&](const Place& place) { return place.where == Place::Where::output && place.at == o; };
      const auto output = std::find_if(action.outputs.begin(), action.outputs.end(), is_output);
      const bool writes = output != action.outputs.end();
      for (std::size_t k = 0; k < action.inputs.size(); ++k) {
        const auto& input = action.inputs[k];
        if (input.where != Place::Where::input || input.at != i) continue;
        const bool together = writes && action.what == Action::What::map && input.extent == RowsExtent::full;
        if (written || (writes && !(together && action.program->may_share(static_cast<std::size_t>(output - action.outputs.begin()), k)))) return false;
      }
      if (writes && output->extent != RowsExtent::full) return false;
      written |= writes;
    }
    return written;
  }

  // --- running -------------------------------------------------------------------------------------------------------
  // A short block at the end is not prefetched.
  void prefetch_block(PrefetchAhead& ahead, const Launch& launch, std::int64_t block, std::int64_t last) const {
    ahead.restart(loops_);
    if (block == last || (block + 1) * block_ > rows_) return;
    for (const auto& place : streams_) ahead.add(address(place, launch, nullptr, block * block_), static_cast<std::size_t>(block_) * place.row);
  }
  void run_action(const Action& action, const Launch& launch, std::byte* scratch, std::int64_t row, std::int64_t rows, PrefetchAhead& ahead) const {
    if (action.program) {
      auto** const inputs = reinterpret_cast<std::byte**>(scratch + pointers_);
      auto** const outputs = inputs + action.inputs.size();
      for (std::size_t i = 0; i < action.inputs.size(); ++i) inputs[i] = address(action.inputs[i], launch, scratch, row);
      for (std::size_t o = 0; o < action.outputs.size(); ++o) outputs[o] = address(action.outputs[o], launch, scratch, row);
      const std::int64_t elements = action.what == Action::What::map ? rows * columns_ : rows;
      return action.program->run(
          inputs, outputs, scratch + programs_, 0, elements, [](const auto&, std::int64_t) {}, ahead);
    }
    if (action.inputs.size() == 2) {
      const auto* const a = reinterpret_cast<const float*>(address(action.inputs[0], launch, scratch, row));
      const auto* const b = reinterpret_cast<const float*>(address(action.inputs[1], launch, scratch, row));
      return action.plan->loops().sum_product_units(reinterpret_cast<float*>(address(action.outputs[0], launch, scratch, row)), a, b, columns_, rows, action.plan->nest().parts);
    }
    const OneTile tile{address(action.inputs[0], launch, scratch, row)};
    if (action.what == Action::What::reduce_columns)
      return reinterpret_cast<ReductionWorker*>(scratch + action.worker)->take(tile, rows * columns_);
    ReductionWorker{*action.plan, scratch + action.scratch, 0, 0}.take(tile, rows * columns_);
    copy_result(action, launch, scratch, row, rows);
  }
  void copy_result(const Action& action, const Launch& launch, std::byte* scratch, std::int64_t row, std::int64_t elements) const {
    std::memcpy(address(action.outputs[0], launch, scratch, row), action.plan->result(scratch + action.scratch, 0), static_cast<std::size_t>(elements) * element_);
  }

  std::int64_t rows_, columns_;
  DType compute_;
  std::size_t element_;
  int threads_;
  std::int64_t block_;         // rows
  std::vector<Place> places_;  // by value; unused for full values that steps make
  std::vector<Action> actions_;
  std::vector<Copy> copies_;
  std::vector<Place> streams_;  // inputs and outputs that are prefetched
  std::size_t loops_ = 0;       // over tiles of a block
  std::size_t per_part_ = 0, pointers_ = 0, programs_ = 0;
};

inline std::unique_ptr<Executable> make_rows(const KernelRequest& request) {
  const Rows& rows = *request.operation.get<Rows>();
  return std::make_unique<RowsExecutable>(rows, request, rows.steps[0].expression->compute);
}
inline constexpr Kernel rows_kernel{"cpu rows", &make_rows};
inline const bool rows_registered = register_kernel<Rows>(DeviceKind::cpu, KernelTier::library, &rows_kernel);

}  // namespace replicator::detail::cpu
