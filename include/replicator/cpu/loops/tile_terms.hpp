// SPDX-License-Identifier: Apache-2.0
// Translates an expression to the operations of tile loops. Merges two operations where one loop does the pair, and counts how
// often each value is used.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <replicator/core/dtype.hpp>
#include <replicator/cpu/loops/tile_loops.hpp>
#include <replicator/graph/expression.hpp>

namespace replicator::detail::cpu {

struct TileTerm {
  TileOp op;
  std::uint16_t operand[3];  // numbers of terms; for an input, its number
  std::uint64_t bits;        // for a constant
  int uses = 0;              // by terms and outputs; 0 where nothing needs it
};

namespace detail {

constexpr TileOp plain(ScalarOp op) { return static_cast<TileOp>(op); }

inline bool is_zero(const TileTerm& term) { return term.op == plain(ScalarOp::constant) && term.bits == 0; }

inline bool is_square_of_difference(const std::vector<TileTerm>& terms, const TileTerm& term) {
  const TileTerm& inner = terms[term.operand[0]];
  return term.operand[0] == term.operand[1] && inner.op == plain(ScalarOp::subtract) && inner.uses == 2;
}

// Whether the term is a sigmoid: select(less(x, 0), z, 1) / (1 + z), where z = exp(-abs(x)).
inline bool is_sigmoid(const std::vector<TileTerm>& terms, const TileTerm& term) {
  const auto of = [&](const TileTerm& from, int o) -> const TileTerm& { return terms[from.operand[o]]; };
  const auto is = [](const TileTerm& of, ScalarOp op, int uses) { return of.op == plain(op) && of.uses == uses; };
  const auto is_one = [](const TileTerm& of) { return of.op == plain(ScalarOp::constant) && std::bit_cast<double>(of.bits) == 1; };
  if (term.op != plain(ScalarOp::divide) || !is(of(term, 0), ScalarOp::select, 1) || !is(of(term, 1), ScalarOp::add, 1)) return false;
  const TileTerm &part = of(term, 0), &total = of(term, 1), &z = of(part, 1);
  if (!is(z, ScalarOp::exponential, 2) || !is(of(part, 0), ScalarOp::less, 1) || !is_one(of(part, 2))) return false;
  const int one = is_one(of(total, 0)) ? 0 : 1;
  if (!is_one(of(total, one)) || total.operand[1 - one] != part.operand[1]) return false;
  const TileTerm &negative = of(z, 0), &less = of(part, 0);
  return is(negative, ScalarOp::negate, 1) && is(of(negative, 0), ScalarOp::absolute, 1) && is_zero(of(less, 1)) && of(negative, 0).operand[0] == less.operand[0];
}

// Merges `term` with an operand that only it uses, where one loop does such a pair.
inline void merge_pair(std::vector<TileTerm>& terms, TileTerm& term) {
  const auto only = [&](int o, ScalarOp op) { return terms[term.operand[o]].op == plain(op) && terms[term.operand[o]].uses == 1; };
  const auto merge = [&](TileOp pair, int o) {
    const TileTerm& inner = terms[term.operand[o]];
    const std::uint16_t other = term.operand[1 - o];
    term.op = pair;
    term.operand[2] = other;
    term.operand[0] = inner.operand[0];
    term.operand[1] = inner.operand[1];
  };
  using enum ScalarOp;
  if (is_sigmoid(terms, term)) {
    term.operand[0] = terms[terms[term.operand[0]].operand[0]].operand[0];
    term.op = TileOp::sigmoid;
    return;
  }
  if (term.op == plain(exponential) && only(0, subtract)) return merge(TileOp::subtract_then_exponential, 0);
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
    if (term.op == plain(multiply) && only(o, add)) return merge(TileOp::add_then_multiply, o);
    if (term.op == plain(multiply) && only(o, multiply)) return merge(TileOp::multiply_then_multiply, o);
    if (term.op == plain(multiply) && only(o, less)) return merge(TileOp::less_then_multiply, o);
  }
}

// Counts the uses of each term by outputs, and by terms that are needed.
inline void count_uses(const Expression& expression, std::vector<TileTerm>& terms) {
  for (auto& term : terms) term.uses = 0;
  for (const auto output : expression.outputs) ++terms[output].uses;
  for (std::size_t i = terms.size(); i-- > 0;)
    if (terms[i].uses > 0)
      for (int o = 0; o < operands_of(terms[i].op); ++o) ++terms[terms[i].operand[o]].uses;
}

}  // namespace detail

// One term per instruction of the expression. Only float32 has loops of pairs, so only its terms are merged.
inline std::vector<TileTerm> tile_terms(const Expression& expression) {
  std::vector<TileTerm> terms;
  for (const auto& i : expression.code) {
    terms.push_back({static_cast<TileOp>(i.op), {i.a, i.b, i.c}, i.bits});
    for (int o = 0; o < operands_of(i.op); ++o) ++terms[terms.back().operand[o]].uses;
  }
  for (const auto output : expression.outputs) ++terms[output].uses;
  if (expression.compute == DType::float32)
    for (auto& term : terms) detail::merge_pair(terms, term);
  detail::count_uses(expression, terms);
  return terms;
}

}  // namespace replicator::detail::cpu
