// SPDX-License-Identifier: Apache-2.0
#include <rapidcheck.h>
#include <catch2/catch.hpp>

#include <map>
#include <string>
#include <vector>

#include <replicator/cpu/kernels.hpp>
#include <replicator/graph/gradients.hpp>
#include <replicator/ops/einsum.hpp>

#include "../support/differences.hpp"
#include "../support/errors.hpp"
#include "../support/evaluate.hpp"

namespace test_einsum {

using namespace replicator;
using test::error_of;
using V = std::vector<double>;

namespace {

const std::map<char, std::int64_t> extents{{'a', 2}, {'b', 3}, {'c', 4}, {'d', 1}, {'e', 2}};

Shape shape_of(const std::string& letters) {
  Shape shape;
  for (const char c : letters) shape.push_back(extents.at(c));
  return shape;
}

// The sum of products by a loop over all letters.
V reference(const std::vector<std::string>& operands, const std::string& result, const std::vector<V>& values) {
  std::string all;
  for (const auto& [letter, extent] : extents) all += letter;
  V out(static_cast<std::size_t>(shape_of(result).elements()));
  std::string used;
  for (const auto& operand : operands) used += operand;
  test::for_each_index(shape_of(all), [&](const std::vector<std::int64_t>& index) {
    for (std::size_t i = 0; i < all.size(); ++i)
      if (used.find(all[i]) == std::string::npos && index[i] > 0) return;  // a letter that nobody has counts once
    const auto place = [&](const std::string& letters) {
      std::int64_t at = 0;
      for (const char c : letters) at = at * extents.at(c) + index[all.find(c)];
      return static_cast<std::size_t>(at);
    };
    double product = 1;
    for (std::size_t o = 0; o < operands.size(); ++o) product *= values[o][place(operands[o])];
    out[place(result)] += product;
  });
  return out;
}

// einsum of small whole numbers, whose sums are exact.
void check(const std::vector<std::string>& operands, const std::string& result) {
  Graph graph;
  std::vector<Tensor<double>> tensors;
  std::vector<V> values;
  std::string formula;
  for (std::size_t o = 0; o < operands.size(); ++o) {
    Array<double> array{shape_of(operands[o])};
    for (std::int64_t i = 0; i < array.size(); ++i) array[i] = static_cast<double>((i * 7 + static_cast<std::int64_t>(o) * 3) % 5 - 2);
    values.emplace_back(array.begin(), array.end());
    tensors.push_back(constant(graph, array));
    formula += (o > 0 ? "," : "") + operands[o];
  }
  formula += "->" + result;
  INFO(formula);
  const auto y = tensors.size() == 1   ? einsum(formula, tensors[0])
                 : tensors.size() == 2 ? einsum(formula, tensors[0], tensors[1])
                                       : einsum(formula, tensors[0], tensors[1], tensors[2]);
  CHECK(y.shape() == shape_of(result));
  CHECK(test::doubles(test::evaluate(y, {})) == reference(operands, result, values));
}

}  // namespace

TEST_CASE("einsum is the sum of products over the letters that the result does not have") {
  for (const char* result : {"ab", "ba", "a", "b", ""}) check({"ab"}, result);
  check({"cba"}, "ac");
  check({"ab", "bc"}, "ac");     // a product
  check({"ab", "cb"}, "ca");     // of a transposed matrix, transposed
  check({"abc", "acd"}, "abd");  // batches
  check({"abc", "bca"}, "b");    // a letter in both operands and in the result
  check({"ab", "ab"}, "ab");     // no sum
  check({"a", "b"}, "ba");       // an outer product
  check({"ab", "ab"}, "");       // one number
  check({"abc", "d"}, "c");      // letters of one operand alone are summed
  check({"eabc", "ecbd"}, "ceda");
  check({"ab", "bc", "cd"}, "ad");  // a chain
  check({"ab", "ab", "ac"}, "bc");
}

TEST_CASE("a matmul computes what is one, and nothing else") {
  Graph graph;
  const auto kinds = [&](const std::string& formula, const Shape& x, const Shape& y) {
    const auto before = graph.nodes().size();
    (void)einsum(formula, full<float>(graph, x, 1), full<float>(graph, y, 1));
    std::string found;
    for (std::size_t i = before; i < graph.nodes().size(); ++i) {
      const std::string kind{graph.nodes()[i].kind()};
      if (!graph.nodes()[i].inputs.empty() && kind != "reshape" && kind != "transpose") found += (found.empty() ? "" : " ") + kind;
    }
    return found;
  };
  CHECK(kinds("ij,ij->ij", {2, 3}, {2, 3}) == "map");
  CHECK(kinds("i,j->ij", {2}, {3}) == "map");
  CHECK(kinds("bij,b->bij", {4, 2, 3}, {4}) == "map");
  CHECK(kinds("bi,bi->b", {2, 3}, {2, 3}) == "reduce");
  CHECK(kinds("ij,ij->", {2, 3}, {2, 3}) == "reduce");
  CHECK(kinds("ij,jk->ik", {2, 3}, {3, 4}) == "matmul");
  CHECK(kinds("ij,j->i", {2, 3}, {3}) == "matmul");
  CHECK(kinds("bij,bkj->bik", {2, 3, 4}, {2, 5, 4}) == "matmul");
}

TEST_CASE("a product of elements takes whole numbers too, and rounds bfloat16 once") {
  Graph graph;
  const auto n = constant(graph, Array<std::int32_t>{{2, 2}, {1, 2, 3, 4}});
  CHECK(test::doubles(test::evaluate(einsum("ij,ij->i", n, n), {})) == V{5, 25});
  // 1 + 2^-7 squared, rounded, would make the sum the middle between 2 and 2 + 2^-6. The square itself is a little more.
  const auto x = constant(graph, Array<bfloat16>{{2}, {1.0078125f, 0.9921875f}}), y = constant(graph, Array<bfloat16>{{2}, {1.0078125f, 1.0f}});
  CHECK(test::doubles(test::evaluate(einsum("i,i->", x, y), {})) == V{2.015625});
}

TEST_CASE("without an arrow the letters that come once are the result, in alphabetical order") {
  Graph graph;
  const auto a = constant(graph, Array<float>{{2, 3}, {1, 2, 3, 4, 5, 6}});
  CHECK(einsum("ba", a).shape() == Shape{3, 2});
  CHECK(test::doubles(test::evaluate(einsum("ij, kj", a, a), {})) == V{14, 32, 32, 77});
}

TEST_CASE("gradients of einsum equal differences") {
  const auto f = [](Graph&, std::span<const AnyTensor> x) {
    return einsum("bij,bjk->kb", Tensor<double>{x[0]}, Tensor<double>{x[1]}).any();
  };
  const std::vector<AnyArray> x{test::random_array<double>({2, 3, 4}, 1).any(), test::random_array<double>({2, 4, 2}, 2).any()};
  CHECK(test::gradient_error(f, x, 1) < 1e-6);
  CHECK(test::gradient_error(f, x, 2) < 1e-6);
  const auto of_elements = [](Graph&, std::span<const AnyTensor> in) {
    return einsum("bij,bji->ib", Tensor<double>{in[0]}, Tensor<double>{in[1]}).any();
  };
  const std::vector<AnyArray> both{test::random_array<double>({2, 3, 4}, 1).any(), test::random_array<double>({2, 4, 3}, 2).any()};
  CHECK(test::gradient_error(of_elements, both, 1) < 1e-6);
  CHECK(test::gradient_error(of_elements, both, 2) < 1e-6);
}

TEST_CASE("mistakes of a formula are named with the formula and the line") {
  Graph graph;
  const auto a = constant(graph, Array<float>{{2, 3}}), b = constant(graph, Array<float>{{4, 2}});
  const auto says = [](auto f, const std::string& text) { CHECK_THAT(error_of(f), Catch::StartsWith("einsum \"") && Catch::Contains("\" at test_einsum.cpp:") && Catch::Contains(text)); };
  says([&] { (void)einsum("ij,jk->ik", a); }, "the formula has 2 operand(s), but 1 tensor(s) were given");
  says([&] { (void)einsum("ij,jk->ik", a, b); }, "'j' is 3 in one operand, and 4 in operand 1, which is float32[4, 2]");
  says([&] { (void)einsum("ijk->i", a); }, "operand 0 is float32[2, 3], but \"ijk\" names 3 axes");
  says([&] { (void)einsum("ij->ix", a); }, "the letter 'x' of the result is in no operand");
  says([&] { (void)einsum("ii->i", a); }, "the letter 'i' comes twice in the operand \"ii\"");
  const auto wide = full<float>(graph, {1, 1, 1, 1, 1}, 1);
  says([&] { (void)einsum("abcde,fghij->abcdefghij", wide, wide); },
       "the product of \"abcde\" and \"fghij\" would have the 10 axes \"abcdefghij\": a tensor may have at most 8");
  says([&] { (void)einsum("...i->i", a); }, "found '.' in \"...i\": an axis is a letter");
}

}  // namespace test_einsum
