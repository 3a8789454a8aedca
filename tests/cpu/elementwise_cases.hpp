// SPDX-License-Identifier: Apache-2.0
// Random expressions, shapes, layouts and data for the tests of Map and Reduce, with plain scalar references.
#pragma once

#include <rapidcheck.h>

#include <array>
#include <cmath>
#include <cstring>
#include <vector>

#include <replicator/core/array.hpp>
#include <replicator/core/philox.hpp>
#include <replicator/cpu/loops/convert.hpp>
#include <replicator/graph/map.hpp>

namespace replicator::test {

using namespace replicator::detail;

using Index = std::array<std::int64_t, Shape::max_rank>;

inline int draw(int low, int high) { return *rc::gen::inRange(low, high); }

// nChw16c and the like: one axis of `shape` in blocks of `size`; padded where the extent is no multiple.
inline Layout blocked(const Shape& shape, std::uint8_t axis, std::int32_t size) {
  Layout layout;
  layout.plain = false;
  layout.blocks = 1;
  layout.axis[0] = axis;
  layout.size[0] = size;
  std::int64_t stride = size;
  for (std::size_t a = shape.rank(); a-- > 0;) {
    layout.strides[a] = stride;
    stride *= a == axis ? (shape[a] + size - 1) / size : shape[a];
  }
  layout.storage = stride;
  return layout;
}

// The axes from outermost to innermost in memory, without blocks (channels last, say).
inline Layout permuted(const Shape& shape, const std::vector<std::size_t>& order) {
  Layout layout;
  layout.plain = false;
  std::int64_t stride = 1;
  for (std::size_t i = order.size(); i-- > 0;) {
    layout.strides[order[i]] = stride;
    stride *= shape[order[i]];
  }
  layout.storage = stride;
  return layout;
}

inline std::int64_t offset_in(const Layout& layout, const Shape& shape, Index index) {
  std::int64_t offset = 0;
  if (layout.plain) {
    const auto strides = shape.strides();
    for (std::size_t a = 0; a < shape.rank(); ++a) offset += index[a] * strides[a];
    return offset;
  }
  std::int64_t stride = 1;
  for (int b = layout.blocks; b-- > 0;) {
    const auto i = static_cast<std::size_t>(b);
    offset += index[layout.axis[i]] % layout.size[i] * stride;
    index[layout.axis[i]] /= layout.size[i];
    stride *= layout.size[i];
  }
  for (std::size_t a = 0; a < shape.rank(); ++a) offset += index[a] * layout.strides[a];
  return offset;
}

template <class F>
void for_each_index(const Shape& shape, F&& f) {
  Index index{};
  for (std::int64_t n = shape.elements(); n-- > 0;) {
    f(index);
    for (std::size_t a = shape.rank(); a-- > 0;) {
      if (++index[a] < shape[a]) break;
      index[a] = 0;
    }
  }
}

// Where the element of a plain, broadcast operand lies.
inline std::int64_t broadcast_offset(const Shape& operand, const Shape& domain, const Index& index) {
  Index own{};
  for (std::size_t a = 0; a < operand.rank(); ++a)
    own[a] = operand[a] == 1 ? 0 : index[a + domain.rank() - operand.rank()];
  return offset_in({}, operand, own);
}

template <class T>
T evaluate(ScalarOp op, T a, T b, T c) {
  T result{};
  [&]<std::size_t... i>(std::index_sequence<i...>) {
    const auto one = [&]<std::size_t k>() {
      constexpr auto candidate = static_cast<ScalarOp>(k);
      if (op != candidate) return;
      if constexpr (candidate == ScalarOp::square_root) {
        if constexpr (std::is_floating_point_v<T>) result = std::sqrt(a);
      } else if constexpr (k > 1 && !(std::is_integral_v<T> ? cpu::detail::needs_floating(candidate) : needs_integers(candidate))) {
        result = cpu::detail::apply_op<k>(a, b, c);
      }
    };
    (one.template operator()<i>(), ...);
  }
  (std::make_index_sequence<static_cast<std::size_t>(ScalarOp::multiply_add) + 1>{});
  return result;
}

// Values of all outputs of the expression for one element.
template <class T>
std::vector<T> evaluate(const Expression& e, const std::vector<T>& inputs) {
  std::vector<T> values;
  for (const auto& i : e.code) {
    if (i.op == ScalarOp::input) values.push_back(inputs[i.a]);
    else if (i.op == ScalarOp::constant)
      values.push_back(std::is_floating_point_v<T> ? static_cast<T>(std::bit_cast<double>(i.bits))
                                                   : static_cast<T>(static_cast<std::int64_t>(i.bits)));
    else values.push_back(evaluate(i.op, values[i.a], values[i.b], values[i.c]));
  }
  std::vector<T> result;
  for (const auto o : e.outputs) result.push_back(values[o]);
  return result;
}

template <class T>
T load(const std::byte* data, DType dtype, std::int64_t at) {
  return visit_dtype(dtype, [&]<class From>() {
    cpu::detail::Stored<From> value;
    std::memcpy(&value, data + static_cast<std::size_t>(at) * sizeof(value), sizeof(value));
    return cpu::detail::convert_element<From, T>(value);
  });
}

// One output element as it is stored: its bytes.
template <class T>
std::vector<std::byte> stored(T value, DType dtype) {
  std::vector<std::byte> bytes(size_of(dtype));
  visit_dtype(dtype, [&]<class To>() {
    const auto converted = cpu::detail::convert_element<T, To>(value);
    std::memcpy(bytes.data(), &converted, sizeof(converted));
  });
  return bytes;
}

inline void fill_random(std::vector<std::byte>& bytes, DType dtype, std::uint64_t seed, bool gentle) {
  PhiloxStream random{seed, 7};
  for (std::size_t i = 0; i < bytes.size() / size_of(dtype); ++i)
    visit_dtype(dtype, [&]<class T>() {
      std::conditional_t<std::is_same_v<T, bool>, std::uint8_t, T> value{};
      if constexpr (std::is_same_v<T, bool>) value = random.below(2) != 0;
      else if constexpr (std::is_integral_v<T>) value = static_cast<T>(static_cast<std::int64_t>(random.below(40)) - 10);
      else {
        value = static_cast<T>(random.uniform() * 8 - 4);
        if (!gentle && random.below(40) == 0) {
          using Limits = std::numeric_limits<std::conditional_t<std::is_same_v<T, bfloat16>, float, T>>;
          constexpr auto infinity = Limits::infinity();
          const T odd[] = {T(0), T(-0.0f), infinity, -infinity, Limits::denorm_min() * 5, Limits::max()};
          value = odd[random.below(6)];
        }
      }
      std::memcpy(bytes.data() + i * sizeof(value), &value, sizeof(value));
    });
}

// A random expression over `inputs` operands with `outputs` outputs; `gentle`: values stay moderate.
inline Expression random_expression(DType compute, int inputs, int outputs, bool gentle) {
  Expression e;
  e.compute = compute;
  e.inputs = static_cast<std::uint16_t>(inputs);
  for (int i = 0; i < inputs; ++i) e.input(static_cast<std::uint16_t>(i));
  if (inputs == 0 || draw(0, 2)) e.constant(draw(-3, 4));
  const int length = draw(0, 8);
  for (int i = 0; i < length; ++i) {
    auto op = static_cast<ScalarOp>(draw(static_cast<int>(ScalarOp::negate), static_cast<int>(ScalarOp::multiply_add) + 1));
    if (draw(0, 2)) {  // pairs that one loop does
      constexpr ScalarOp common[] = {ScalarOp::add, ScalarOp::multiply, ScalarOp::subtract, ScalarOp::rectify, ScalarOp::less};
      op = common[draw(0, 5)];
    }
    if (is_floating(compute) ? needs_integers(op) : cpu::detail::needs_floating(op)) op = ScalarOp::subtract;
    if (gentle && (op == ScalarOp::power || op == ScalarOp::divide || op == ScalarOp::exponential || op == ScalarOp::logarithm ||
                   op == ScalarOp::square_root))
      op = ScalarOp::absolute;
    const auto last = static_cast<int>(e.code.size());
    const auto operand = [&] { return static_cast<std::uint16_t>(draw(0, 2) ? last - 1 : draw(0, last)); };
    const auto a = operand(), b = operand(), c = operand();
    if (draw(0, 8) == 0) {  // and what one loop does of three
      const auto zero = e.constant(0), difference = e.apply(ScalarOp::subtract, a, b);
      if (draw(0, 2)) e.apply(ScalarOp::multiply, difference, difference);
      else e.apply(ScalarOp::select, e.apply(ScalarOp::less_equal, a, zero), zero, b);
      continue;
    }
    e.apply(op, a, operands_of(op) > 1 ? b : std::uint16_t{0}, operands_of(op) > 2 ? c : std::uint16_t{0});
  }
  for (int o = 0; o < outputs; ++o)
    e.outputs.push_back(static_cast<std::uint16_t>(o == 0 ? static_cast<int>(e.code.size()) - 1 : draw(0, static_cast<int>(e.code.size()))));
  return e;
}

// A shape that broadcasts to `domain`.
inline Shape random_operand(const Shape& domain) {
  const int kind = draw(0, 5);
  if (kind <= 1) return domain;
  Shape shape;
  for (std::size_t a = kind == 2 && domain.rank() > 0 ? 1 : 0; a < domain.rank(); ++a)
    shape.push_back(draw(0, 2) ? domain[a] : 1);
  return shape;
}

// A launch's memory: every buffer at its own misalignment, outputs filled with a pattern.
class Memory {
 public:
  std::byte* add(std::size_t bytes, std::size_t misalignment) {
    buffers_.push_back(std::vector<std::byte>(bytes + misalignment + 128, std::byte{0xA5}));
    auto* start = buffers_.back().data();
    const auto address = reinterpret_cast<std::uintptr_t>(start);
    return start + (64 - address % 64) % 64 + misalignment;
  }

 private:
  std::vector<std::vector<std::byte>> buffers_;
};

}  // namespace replicator::test
