// SPDX-License-Identifier: Apache-2.0
// The shape of a tensor (its extents, outermost first), and its type.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <iosfwd>
#include <limits>
#include <optional>
#include <span>
#include <string>

#include <replicator/core/dtype.hpp>
#include <replicator/core/error.hpp>

namespace replicator {

// At most eight dimensions, stored without allocation: tracing copies shapes freely.
class Shape {
 public:
  static constexpr std::size_t max_rank = 8;

  constexpr Shape() = default;
  Shape(std::initializer_list<std::int64_t> extents) : Shape(std::span{extents.begin(), extents.size()}) {}
  explicit Shape(std::span<const std::int64_t> extents) {
    for (const auto extent : extents) push_back(extent);
  }

  std::size_t rank() const { return rank_; }
  // Axis -1 is the last one. Throws BuildError for an axis that does not exist.
  std::int64_t operator[](std::int64_t axis) const { return extents_[place(axis)]; }
  std::int64_t& operator[](std::int64_t axis) { return extents_[place(axis)]; }
  const std::int64_t* begin() const { return extents_.data(); }
  const std::int64_t* end() const { return extents_.data() + rank_; }

  // Throws BuildError for a ninth dimension and for a negative extent.
  void push_back(std::int64_t extent) {
    if (rank_ == max_rank || extent < 0) refuse_extent(extent);
    extents_[rank_++] = extent;
  }

  // The limit for one tensor. The bytes of a tensor, and the sum of a few such counts, then fit into 63 bits.
  static constexpr std::int64_t max_elements = (std::int64_t{1} << 59) - 1;
  // True beyond max_elements. Empty extents count as 1, so that no stride or other partial product overflows either.
  bool too_large() const {
    std::int64_t product = 1;
    for (const auto extent : *this)
      if (__builtin_mul_overflow(product, extent > 1 ? extent : 1, &product) || product > max_elements) return true;
    return false;
  }
  // The product of the extents; 1 for a scalar. Throws BuildError if too_large().
  std::int64_t elements() const {
    if (too_large()) refuse_size();
    std::int64_t product = 1;
    for (const auto extent : *this) product *= extent;
    return product;
  }
  // "a tensor of shape [1099511627776, 1099511627776] has more than 2^59 - 1 elements: one of these extents must be wrong"
  template <class = void>
  std::string too_large_text() const;

  // Sum and product that saturate on overflow. A shape with the saturated extent is then refused as too large.
  static std::int64_t sum(std::int64_t a, std::int64_t b) {
    std::int64_t result = 0;
    return __builtin_add_overflow(a, b, &result) ? std::numeric_limits<std::int64_t>::max() : result;
  }
  static std::int64_t product(std::int64_t a, std::int64_t b) {
    std::int64_t result = 0;
    return __builtin_mul_overflow(a, b, &result) ? std::numeric_limits<std::int64_t>::max() : result;
  }

  // Row-major strides in elements.
  std::array<std::int64_t, max_rank> strides() const {
    std::array<std::int64_t, max_rank> result{};
    std::int64_t stride = 1;
    for (std::size_t axis = rank_; axis-- > 0;) {
      result[axis] = stride;
      stride *= extents_[axis];
    }
    return result;
  }

  // "[16, 3, 224, 224]"
  template <class = void>
  std::string text() const;

  template <class Traits>
  friend std::basic_ostream<char, Traits>& operator<<(std::basic_ostream<char, Traits>& out, const Shape& shape) {
    return out << shape.text();
  }
  friend bool operator==(const Shape& a, const Shape& b) {
    if (a.rank_ != b.rank_) return false;
    for (std::size_t axis = 0; axis < a.rank_; ++axis)
      if (a.extents_[axis] != b.extents_[axis]) return false;
    return true;
  }

 private:
  std::size_t place(std::int64_t axis) const {
    const auto rank = static_cast<std::int64_t>(rank_);
    if (axis < -rank || axis >= rank) refuse(axis);
    return static_cast<std::size_t>(axis < 0 ? axis + rank : axis);
  }
  template <class = void>
  [[noreturn, gnu::noinline]] void refuse(std::int64_t axis) const;
  template <class = void>
  [[noreturn, gnu::noinline]] void refuse_extent(std::int64_t extent) const;
  template <class = void>
  [[noreturn, gnu::noinline]] void refuse_size() const;

  std::array<std::int64_t, max_rank> extents_{};
  std::size_t rank_ = 0;
};

template <class>
std::string Shape::too_large_text() const {
  return "a tensor of shape " + text() + " has more than 2^59 - 1 elements: one of these extents must be wrong";
}

template <class>
std::string Shape::text() const {
  std::string result = "[";
  for (std::size_t axis = 0; axis < rank_; ++axis) result += (axis ? ", " : "") + std::to_string(extents_[axis]);
  return result + "]";
}

template <class>
void Shape::refuse(std::int64_t axis) const {
  throw BuildError{"asked for axis " + std::to_string(axis) + " of the shape " + text() + ", which has " + std::to_string(rank_) +
                   ": axes count from 0, or from -1 at the end"};
}

template <class>
void Shape::refuse_extent(std::int64_t extent) const {
  if (rank_ == max_rank) throw BuildError{"a tensor may have at most 8 dimensions"};
  throw BuildError{"a tensor cannot have the extent " + std::to_string(extent)};
}

template <class>
void Shape::refuse_size() const {
  throw BuildError{too_large_text()};
}

namespace detail {
// The shape without its axes of extent 1.
inline Shape without_ones(const Shape& shape) {
  Shape result;
  for (const auto extent : shape)
    if (extent != 1) result.push_back(extent);
  return result;
}
}  // namespace detail

// NumPy's broadcasting: shapes align at the right, and extents must be equal or one of them 1. Empty if they do not
// fit.
template <class = void>
std::optional<Shape> broadcast(const Shape& a, const Shape& b) {
  const std::size_t rank = a.rank() > b.rank() ? a.rank() : b.rank();
  Shape result;
  for (std::size_t axis = 0; axis < rank; ++axis) {
    const std::int64_t x = axis + a.rank() < rank ? 1 : a[axis + a.rank() - rank];
    const std::int64_t y = axis + b.rank() < rank ? 1 : b[axis + b.rank() - rank];
    if (x != y && x != 1 && y != 1) return std::nullopt;
    result.push_back(x == 1 ? y : x);
  }
  return result;
}

// The dtype and shape of a tensor: known before it has a value.
struct TensorType {
  DType dtype = DType::float32;
  Shape shape;

  std::size_t bytes() const { return static_cast<std::size_t>(shape.elements()) * size_of(dtype); }
  // "float32[16, 10]"
  template <class = void>
  std::string text() const;
  friend bool operator==(const TensorType&, const TensorType&) = default;
};

template <class>
std::string TensorType::text() const {
  return std::string{name_of(dtype)} + shape.text();
}

}  // namespace replicator
