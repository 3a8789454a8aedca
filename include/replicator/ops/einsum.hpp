// SPDX-License-Identifier: Apache-2.0
// rp::einsum: sums of products of tensors, written with a letter for each axis.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <source_location>
#include <string>
#include <string_view>
#include <vector>

#include <replicator/ops/elementwise.hpp>
#include <replicator/ops/matmul.hpp>
#include <replicator/ops/movement/reshape.hpp>
#include <replicator/ops/movement/transpose.hpp>
#include <replicator/ops/reduce.hpp>

namespace replicator {

namespace detail {

// The letters of "ij,jk->ik".
struct EinsumFormula {
  std::vector<std::string> operands;
  std::string result;
};

// Throws BuildError where the text is no such formula for so many operands.
template <class = void>
EinsumFormula parse_einsum(std::string_view text, std::size_t operands) {
  EinsumFormula formula;
  std::string letters;
  for (const char c : text)
    if (c != ' ') letters += c;
  const auto arrow = letters.find("->");
  std::string left = letters.substr(0, arrow);
  for (std::size_t from = 0; from <= left.size();) {
    const auto comma = std::min(left.find(',', from), left.size());
    formula.operands.push_back(left.substr(from, comma - from));
    from = comma + 1;
  }
  if (formula.operands.size() != operands)
    throw BuildError{"the formula has " + std::to_string(formula.operands.size()) + " operand(s), but " + std::to_string(operands) +
                     " tensor(s) were given: write letters for each, with commas between"};
  const auto require_letters = [](const std::string& part, const char* what) {
    for (const char c : part) {
      if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')))
        throw BuildError{std::string{"found '"} + c + "' in \"" + part + "\": an axis is a letter, and \"...\" is not supported"};
      if (std::count(part.begin(), part.end(), c) > 1)
        throw BuildError{std::string{"the letter '"} + c + "' comes twice in " + what + " \"" + part + "\": give each axis of it another letter"};
    }
  };
  for (const auto& operand : formula.operands) require_letters(operand, "the operand");
  if (arrow != std::string::npos) formula.result = letters.substr(arrow + 2);
  else
    for (int c = 0; c < 128; ++c)  // without an arrow: the letters that come once, in alphabetical order
      if (std::count(left.begin(), left.end(), static_cast<char>(c)) == 1 && c != ',') formula.result += static_cast<char>(c);
  require_letters(formula.result, "the result");
  for (const char c : formula.result)
    if (left.find(c) == std::string::npos) throw BuildError{std::string{"the letter '"} + c + "' of the result is in no operand"};
  return formula;
}

// A tensor with a letter for each axis.
template <Element T>
struct Lettered {
  Tensor<T> x;
  std::string letters;
};

inline bool has(const std::string& letters, char c) { return letters.find(c) != std::string::npos; }

// Sums the axes away whose letters are not among `kept`.
template <Element T>
Lettered<T> summed(Lettered<T> a, const std::string& kept, std::source_location where) {
  std::vector<std::int64_t> axes;
  std::string letters;
  for (std::size_t i = 0; i < a.letters.size(); ++i)
    if (has(kept, a.letters[i])) letters += a.letters[i];
    else axes.push_back(static_cast<std::int64_t>(i));
  if (axes.empty()) return a;
  Axes gone;
  gone.axes = axes;
  return {sum(a.x, gone, where), letters};
}

template <Element T>
Lettered<T> in_order(Lettered<T> a, const std::string& letters, std::source_location where) {
  if (a.letters == letters) return a;
  AxisValues permutation;
  for (const char c : letters) permutation.push_back(static_cast<std::int64_t>(a.letters.find(c)));
  return {transpose(a.x, permutation, where), letters};
}

// The sum over the letters `inner` of the products of elements, without a matrix product. It has the letters `result`. Sums and
// products are computed in the compute type and rounded once.
template <Element T>
Lettered<T> multiplied(Lettered<T> a, Lettered<T> b, const std::string& result, const std::string& inner, const std::map<char, std::int64_t>& extents,
                       std::source_location where) {
  const std::string all = result + inner;
  const auto spread = [&](const Lettered<T>& from) {
    std::string own;
    Shape shape;
    for (const char c : all) {
      if (has(from.letters, c)) own += c;
      shape.push_back(has(from.letters, c) ? extents.at(c) : 1);
    }
    return replicator::reshape(in_order(from, own, where).x.any(), shape, Location{where});
  };
  Shape domain;
  std::vector<std::int64_t> gone;
  for (std::size_t i = 0; i < all.size(); ++i) {
    domain.push_back(extents.at(all[i]));
    if (i >= result.size()) gone.push_back(static_cast<std::int64_t>(i));
  }
  Expression product;
  product.compute = compute_type(dtype_of<T>);
  product.inputs = 2;
  product.outputs = {product.apply(ScalarOp::multiply, product.input(0), product.input(1))};
  const AnyTensor operands[] = {spread(a), spread(b)};
  Graph& graph = a.x.graph();
  const AnyTensor y = gone.empty() ? map_node(graph, std::move(product), operands, domain, dtype_of<T>, where)
                                   : reduce_node(graph, ReduceKind::sum, std::move(product), operands, domain, gone, dtype_of<T>, where);
  return {Tensor<T>{y}, result};
}

// The product of two operands: letters in both are batch axes if `kept` has them, else they are summed. It is a matrix product where a
// summed letter meets a letter of one operand alone.
template <Element T>
Lettered<T> contracted(Lettered<T> a, Lettered<T> b, const std::string& kept, const std::map<char, std::int64_t>& extents, std::source_location where) {
  a = summed(a, kept + b.letters, where), b = summed(b, kept + a.letters, where);
  std::string batch, inner, rows, columns;
  for (const char c : a.letters) (!has(b.letters, c) ? rows : has(kept, c) ? batch
                                                                           : inner) += c;
  for (const char c : b.letters)
    if (!has(a.letters, c)) columns += c;
  if ((batch + rows + columns).size() > Shape::max_rank)
    throw BuildError{"the product of \"" + a.letters + "\" and \"" + b.letters + "\" would have the " +
                     std::to_string((batch + rows + columns).size()) + " axes \"" + batch + rows + columns + "\": a tensor may have at most 8"};
  if (inner.empty() || (rows.empty() && columns.empty())) return multiplied(a, b, batch + rows + columns, inner, extents, where);
  const auto size = [&](const std::string& letters) {
    std::int64_t product = 1;
    for (const char c : letters) product *= extents.at(c);
    return product;
  };
  a = in_order(a, batch + rows + inner, where), b = in_order(b, batch + inner + columns, where);
  const auto reshaped = [&](const Tensor<T>& x, const Shape& shape) { return Tensor<T>{replicator::reshape(x.any(), shape, Location{where})}; };
  const std::int64_t n = size(batch);
  const auto product = matmul(reshaped(a.x, {n, size(rows), size(inner)}), reshaped(b.x, {n, size(inner), size(columns)}), where);
  Shape shape;
  for (const char c : batch + rows + columns) shape.push_back(extents.at(c));
  return {reshaped(product, shape), batch + rows + columns};
}

template <Element T>
Tensor<T> einsum(std::string_view text, const std::vector<Tensor<T>>& operands, std::source_location where) {
  const std::string name = "einsum \"" + std::string{text} + "\"";
  const EinsumFormula formula = at_line(name, where, [&] { return parse_einsum(text, operands.size()); });
  std::map<char, std::int64_t> extents;
  at_line(name, where, [&] {
    for (std::size_t i = 0; i < operands.size(); ++i) {
      const auto& letters = formula.operands[i];
      const auto& shape = operands[i].shape();
      if (letters.size() != shape.rank())
        throw BuildError{"operand " + std::to_string(i) + " is " + operands[i].any().type().text() + ", but \"" + letters + "\" names " +
                         std::to_string(letters.size()) + " axes"};
      for (std::size_t axis = 0; axis < letters.size(); ++axis)
        if (const auto [known, added] = extents.emplace(letters[axis], shape[axis]); !added && known->second != shape[axis])
          throw BuildError{std::string{"'"} + letters[axis] + "' is " + std::to_string(known->second) + " in one operand, and " +
                           std::to_string(shape[axis]) + " in operand " + std::to_string(i) + ", which is " + operands[i].any().type().text()};
    }
  });
  Lettered<T> left{operands[0], formula.operands[0]};
  for (std::size_t i = 1; i < operands.size(); ++i) {
    std::string kept = formula.result;  // and what later operands need
    for (std::size_t later = i + 1; later < operands.size(); ++later) kept += formula.operands[later];
    left = at_line(name, where, [&] { return contracted(left, {operands[i], formula.operands[i]}, kept, extents, where); });
  }
  return in_order(summed(left, formula.result, where), formula.result, where).x;
}

}  // namespace detail

// The sum of products over all letters that the result does not have. Each axis has a letter; letters of one name have one
// extent. Without "->" the result has the letters that come once, in alphabetical order, as in NumPy. Several operands are
// taken from the left, two at a time: by a matmul where a summed letter meets a letter of one operand alone, else by a product of
// elements with its sum in one pass. No product on the way may have more than 8 letters. A letter cannot come twice in one operand,
// and "..." is not supported.
//   rp::einsum("bij,bjk->bik", a, b)   // a matmul for each b
//   rp::einsum("bhqd,bhkd->bhqk", queries, keys)
//   rp::einsum("ij->j", x)             // sums of columns
// Throws BuildError where formula and shapes do not fit, and for types that matmul or sum does not take.
template <Element T>
Tensor<T> einsum(std::string_view formula, Tensor<T> a, std::source_location where = std::source_location::current()) {
  return detail::einsum<T>(formula, {a}, where);
}
template <Element T>
Tensor<T> einsum(std::string_view formula, Tensor<T> a, Tensor<T> b, std::source_location where = std::source_location::current()) {
  return detail::einsum<T>(formula, {a, b}, where);
}
template <Element T>
Tensor<T> einsum(std::string_view formula, Tensor<T> a, Tensor<T> b, Tensor<T> c, std::source_location where = std::source_location::current()) {
  return detail::einsum<T>(formula, {a, b, c}, where);
}

}  // namespace replicator
