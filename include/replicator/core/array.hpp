// SPDX-License-Identifier: Apache-2.0
// Arrays in host memory, row-major. `Array<T>` knows its element type at compile time, `AnyArray` at run time. An array
// owns its elements unless it was made by `borrow`. A copy always owns its elements.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <iosfwd>
#include <memory>
#include <new>
#include <span>
#include <string>
#include <utility>

#include <replicator/core/error.hpp>
#include <replicator/core/shape.hpp>

namespace replicator {

inline constexpr std::size_t buffer_alignment = 64;  // bytes: the alignment of arrays that own their elements

namespace detail {
struct AlignedDelete {
  void operator()(std::byte* p) const { ::operator delete (p, std::align_val_t{buffer_alignment}); }
};
using AlignedBytes = std::unique_ptr<std::byte, AlignedDelete>;
inline AlignedBytes aligned_bytes(std::size_t bytes) {
  return AlignedBytes{static_cast<std::byte*>(::operator new (bytes ? bytes : 1, std::align_val_t{buffer_alignment}))};
}
template <class = void>
std::shared_ptr<std::byte> zero_bytes(std::size_t bytes) {
  AlignedBytes result = aligned_bytes(bytes);
  std::memset(result.get(), 0, bytes);
  return result;
}
// Null for a null pointer.
template <class = void>
std::shared_ptr<std::byte> copied_bytes(std::span<const std::byte> bytes) {
  if (!bytes.data()) return nullptr;
  AlignedBytes result = aligned_bytes(bytes.size());
  std::memcpy(result.get(), bytes.data(), bytes.size());
  return result;
}

// Throws BuildError for an array that was read as another element type.
template <class = void>
[[noreturn]] void refuse_element(const TensorType& type, DType read_as) {
  throw BuildError{"an array of " + type.text() + " was read as " + std::string{name_of(read_as)}};
}
// Throws BuildError for another number of values than the shape has.
template <class = void>
[[noreturn]] void refuse_count(const Shape& shape, std::size_t found) {
  throw BuildError{"an array of shape " + shape.text() + " needs " + std::to_string(shape.elements()) + " values, found " + std::to_string(found)};
}
// Throws BuildError for an array that was read as one number.
template <class = void>
[[noreturn]] void refuse_item(const Shape& shape) {
  throw BuildError{"item() needs one element, found shape " + shape.text() + ": read element i as [i]"};
}
// The place of an element in row-major order. Throws BuildError where it does not exist.
template <class = void>
std::int64_t element_at(const Shape& shape, bool has_memory, std::initializer_list<std::int64_t> indices) {
  std::int64_t place = 0;
  bool exists = has_memory && indices.size() == shape.rank();
  for (std::size_t axis = 0; exists && axis < shape.rank(); ++axis) {
    const std::int64_t index = indices.begin()[axis];
    exists = index >= 0 && index < shape[axis];
    place = place * shape[axis] + index;
  }
  if (exists) return place;
  std::string asked;
  for (const std::int64_t index : indices) asked += (asked.empty() ? "" : ", ") + std::to_string(index);
  throw BuildError{"at(" + asked + ") asks for an element that an array of shape " + shape.text() + " does not have"};
}
// Throws BuildError for an array that was made without a shape, or moved from. `what` was given it.
template <class = void>
[[noreturn]] void refuse_without_memory(const std::string& what) {
  throw BuildError{what + ": the array has no memory: it was made without a shape, or moved from"};
}
}  // namespace detail

class AnyArray {
 public:
  AnyArray() = default;
  // Zero-filled.
  explicit AnyArray(TensorType type) : type_{type}, bytes_{detail::zero_bytes(type.bytes())} {}
  // An array over `type.bytes()` bytes at `data`, without a copy. `data` must be aligned for the element type. The
  // array, and any array moved from it, holds `owner`. Without an owner the caller keeps the memory alive.
  // Throws BuildError for a null pointer and for memory that is not aligned.
  template <class = void>
  static AnyArray borrow(TensorType type, void* data, std::shared_ptr<const void> owner = nullptr);
  AnyArray(const AnyArray& other) : type_{other.type_}, bytes_{detail::copied_bytes(other.bytes())} {}
  AnyArray& operator=(const AnyArray& other) {
    AnyArray copy{other};
    return *this = std::move(copy);
  }
  AnyArray(AnyArray&&) noexcept = default;
  AnyArray& operator=(AnyArray&&) noexcept = default;

  const TensorType& type() const { return type_; }
  const Shape& shape() const { return type_.shape; }
  DType dtype() const { return type_.dtype; }
  // True for an array without memory: default-constructed or moved from.
  bool empty() const { return bytes_ == nullptr; }
  std::size_t size_bytes() const { return bytes_ ? type_.bytes() : 0; }
  std::byte* data() { return bytes_.get(); }
  const std::byte* data() const { return bytes_.get(); }
  std::span<const std::byte> bytes() const { return {bytes_.get(), size_bytes()}; }

  // The elements; an empty span if empty(). Throws BuildError if the dtype is not T.
  template <Element T>
  std::span<T> as() {
    check<T>();
    return {reinterpret_cast<T*>(bytes_.get()), elements()};
  }
  template <Element T>
  std::span<const T> as() const {
    check<T>();
    return {reinterpret_cast<const T*>(bytes_.get()), elements()};
  }

 private:
  std::size_t elements() const { return bytes_ ? static_cast<std::size_t>(type_.shape.elements()) : 0; }
  template <Element T>
  void check() const {
    if (type_.dtype != dtype_of<T>) detail::refuse_element(type_, dtype_of<T>);
  }

  TensorType type_;
  std::shared_ptr<std::byte> bytes_;  // borrowed memory: shares the owner's reference count, if there is one
};

template <class>
AnyArray AnyArray::borrow(TensorType type, void* data, std::shared_ptr<const void> owner) {
  const bool aligned = reinterpret_cast<std::uintptr_t>(data) % size_of(type.dtype) == 0;
  if (!data || !aligned)
    throw BuildError{"an array of " + type.text() + " cannot borrow " +
                     (data ? "memory that is not aligned to its elements: copy it" : "from a null pointer")};
  AnyArray result;
  result.type_ = type;
  result.bytes_ = {std::move(owner), static_cast<std::byte*>(data)};
  return result;
}

template <Element T>
class Array {
 public:
  Array() = default;
  // Zero-filled.
  explicit Array(Shape shape) : any_{TensorType{dtype_of<T>, shape}} {}
  // Throws BuildError unless `values` has shape.elements() values.
  Array(Shape shape, std::span<const T> values) : Array{shape} {
    if (static_cast<std::int64_t>(values.size()) != shape.elements()) detail::refuse_count(shape, values.size());
    if (!values.empty()) std::memcpy(any_.data(), values.data(), values.size_bytes());
  }
  Array(Shape shape, std::initializer_list<T> values) : Array{shape, std::span<const T>{values.begin(), values.size()}} {}
  // Like AnyArray::borrow: an array over shape.elements() elements at `data`.
  static Array borrow(Shape shape, T* data, std::shared_ptr<const void> owner = nullptr) {
    return Array{AnyArray::borrow({dtype_of<T>, shape}, data, std::move(owner))};
  }
  // Throws BuildError if the dtype differs.
  explicit Array(AnyArray any) : any_{std::move(any)} { (void)any_.as<T>(); }

  const Shape& shape() const { return any_.shape(); }
  std::int64_t size() const { return any_.empty() ? 0 : any_.shape().elements(); }
  T* data() { return reinterpret_cast<T*>(any_.data()); }
  const T* data() const { return reinterpret_cast<const T*>(any_.data()); }
  // Element i in row-major order, unchecked.
  T& operator[](std::int64_t i) { return data()[i]; }
  const T& operator[](std::int64_t i) const { return data()[i]; }
  // The element with one index for each axis: a.at(row, column). Throws BuildError for an element that does not exist.
  template <std::integral... Indices>
  T& at(Indices... indices) { return data()[detail::element_at(shape(), !any_.empty(), {static_cast<std::int64_t>(indices)...})]; }
  template <std::integral... Indices>
  const T& at(Indices... indices) const { return data()[detail::element_at(shape(), !any_.empty(), {static_cast<std::int64_t>(indices)...})]; }
  T* begin() { return data(); }
  T* end() { return data() + size(); }
  const T* begin() const { return data(); }
  const T* end() const { return data() + size(); }
  // The value of a one-element array. Throws BuildError otherwise.
  T item() const {
    if (size() != 1) detail::refuse_item(shape());
    return data()[0];
  }
  const AnyArray& any() const& { return any_; }
  AnyArray&& any() && { return std::move(any_); }
  // An array is no number. array.item() is the value of one with a single element, and array[i] is element i. A step's result has
  // an array for each replica: loss[0].item().
  operator T() const = delete;  // an rp::Array is no number: write array.item(), array[i], or loss[0].item() of a step's result

 private:
  AnyArray any_;
};

namespace detail {
template <Element T, class Out>
Out& print_elements(Out& out, std::span<const T> elements, std::size_t rank) {
  constexpr std::size_t most = 8;
  const auto element = [&](T value) {
    if constexpr (std::same_as<T, std::uint8_t>) out << static_cast<int>(value);
    else if constexpr (std::same_as<T, bfloat16>) out << static_cast<float>(value);
    else out << value;
  };
  const std::size_t size = elements.size();
  if (size > 0 && rank == 0) return element(elements[0]), out;
  out << '[';
  for (std::size_t e = 0; e < size && e < most; ++e) {
    out << (e > 0 ? ", " : "");
    element(elements[e]);
  }
  out << (size > most ? ", ...]" : "]");
  return out;
}
}  // namespace detail

// Prints "0.5" for one number without axes, and "[1, 2]" for others: at most eight elements, in row-major order.
template <Element T, class Traits>
std::basic_ostream<char, Traits>& operator<<(std::basic_ostream<char, Traits>& out, const Array<T>& array) {
  return detail::print_elements(out, array.any().template as<T>(), array.shape().rank());
}
template <class Traits>
std::basic_ostream<char, Traits>& operator<<(std::basic_ostream<char, Traits>& out, const AnyArray& array) {
  return visit_dtype(
      array.dtype(), [&]<class T>() -> auto& { return detail::print_elements(out, array.as<T>(), array.shape().rank()); });
}

}  // namespace replicator
