// SPDX-License-Identifier: Apache-2.0
// The declaration of a variable in a graph. The values live in the runtime's store.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <string_view>

#include <replicator/core/array.hpp>
#include <replicator/core/error.hpp>
#include <replicator/core/location.hpp>
#include <replicator/core/number.hpp>
#include <replicator/core/number_text.hpp>

namespace replicator {

// Whether replicas share the variable.
enum class VariableKind : std::uint8_t {
  mirrored,       // the same on all replicas
  replica_local,  // each replica has its own, for example batch-norm statistics
};

// The kind of declared variables while a scope of ReplicaContext::local_variables lives.
enum class LocalVariables : std::uint8_t {
  no,           // as declared
  begin_equal,  // replica-local, with the same first values on all replicas
  begin_apart   // replica-local; each replica draws first values of its own
};

// "mirrored" or "replica_local"
constexpr std::string_view name_of(VariableKind kind) {
  return kind == VariableKind::mirrored ? "mirrored" : "replica_local";
}

// A variable's first value: a pure function of (seed, name), the same on every replica, unless the variable begins apart.
struct Initializer {
  enum class Kind : std::uint8_t {
    constant,
    uniform,
    normal,
    truncated_normal,  // see nn::truncated_normal
    orthogonal,        // see nn::orthogonal
    value
  };
  Kind kind = Kind::constant;
  Number a = 0;                           // constant: the value; uniform: lower bound; normal: mean; orthogonal: gain
  double b = 0;                           // uniform: upper bound; normal: standard deviation
  std::shared_ptr<const AnyArray> array;  // for kind `value`

  static Initializer constant(Number value) { return {Kind::constant, value, 0, nullptr}; }
  static Initializer zeros() { return constant(0); }
  static Initializer ones() { return constant(1); }
  static Initializer uniform(double low, double high) { return {Kind::uniform, low, high, nullptr}; }
  static Initializer normal(double mean, double stddev) { return {Kind::normal, mean, stddev, nullptr}; }
  template <class = void>
  static Initializer value(AnyArray array) {  // throws BuildError for an array without memory
    if (array.empty()) detail::refuse_without_memory("Initializer::value");
    return {Kind::value, 0, 0, std::make_shared<const AnyArray>(std::move(array))};
  }
  template <Element T>
  static Initializer value(const Array<T>& array) { return value(array.any()); }

  // Whether the values are random numbers.
  bool draws() const { return kind != Kind::constant && kind != Kind::value; }

  // Whether both give the same first value, for every seed and name.
  friend bool operator==(const Initializer& x, const Initializer& y) {
    if (x.kind != y.kind) return false;
    if (x.kind == Kind::value)
      return x.array == y.array ||
             (x.array->type() == y.array->type() && std::equal(x.array->bytes().begin(), x.array->bytes().end(), y.array->bytes().begin()));
    const auto same = [](double a, double b) { return a == b || (a != a && b != b); };
    return same(x.a.real(), y.a.real()) && x.a.whole() == y.a.whole() && same(x.b, y.b);
  }
  // "constant 0", "normal with mean 0 and standard deviation 0.02"
  template <class = void>
  std::string text() const;

  // Throws BuildError for bounds in the wrong order, a negative standard deviation, figures that are not finite, and a type that
  // cannot be orthogonal. `whose` begins the sentence.
  template <class = void>
  void require_valid(const std::string& whose, const TensorType& type) const;
};

template <class>
std::string Initializer::text() const {
  const std::string first = detail::number_text(a.real()), second = detail::number_text(b);
  switch (kind) {
    case Kind::uniform: return "uniform from " + first + " to " + second;
    case Kind::normal: return "normal with mean " + first + " and standard deviation " + second;
    case Kind::truncated_normal: return "normal with mean " + first + " and standard deviation " + second + ", cut at two of them";
    case Kind::orthogonal: return "orthogonal with gain " + first;
    case Kind::value: return "the values of an array";
    default: return "constant " + first;
  }
}

template <class>
void Initializer::require_valid(const std::string& whose, const TensorType& type) const {
  constexpr double largest = std::numeric_limits<double>::max();
  const double low = a.real();
  if (kind == Kind::uniform && !(-largest <= low && low <= b && b <= largest))
    throw BuildError{whose + " is to begin uniform from " + detail::number_text(low) + " to " + detail::number_text(b) +
                     ": both bounds must be finite, the lower one first"};
  if ((kind == Kind::normal || kind == Kind::truncated_normal) && !(-largest <= low && low <= largest && 0 <= b && b <= largest))
    throw BuildError{whose + " is to begin normal with mean " + detail::number_text(low) + " and standard deviation " + detail::number_text(b) +
                     ": both must be finite, the latter not negative"};
  if (kind == Kind::orthogonal && !(-largest <= low && low <= largest))
    throw BuildError{whose + " is to begin orthogonal with gain " + detail::number_text(low) + ": the gain must be finite"};
  if (kind == Kind::orthogonal && (type.shape.rank() < 2 || !is_floating(type.dtype)))
    throw BuildError{whose + " is to begin orthogonal, but it is " + type.text() + ": only a floating type with two axes or more can"};
}

// A variable as declared in a step function.
struct VariableDeclaration {
  std::string name;
  TensorType type;
  VariableKind kind = VariableKind::mirrored;
  bool trainable = true;
  Initializer initializer;
  Location where;
  std::int32_t device = -1;  // logical device; -1: the graph decides when it is declared
  bool left_out = false;     // replica-local and not marked as untrained, but minimize leaves it out: see nn::local
  bool apart = false;        // replica-local, and each replica draws first values of its own: see LocalVariables::begin_apart
};

namespace detail {
// The moving average of a variable is the variable "<name>/average". Its first value means: no average yet.
inline constexpr std::string_view average_suffix = "/average";
inline constexpr double not_averaged = std::numeric_limits<double>::infinity();

// Throws BuildError if a later declaration of a variable differs from the known one.
template <class = void>
void require_same(const VariableDeclaration& known, const VariableDeclaration& later) {
  const auto refuse = [&](const std::string& asked, const std::string& declared, const std::string& same) {
    throw BuildError{"the variable \"" + known.name + "\" was asked for as " + asked + " at " + later.where.text() + ", but it was declared as " +
                     declared + " at " + known.where.text() + ": give the two different names or the same " + same};
  };
  const auto type = [](const VariableDeclaration& d) { return std::string{name_of(d.kind)} + " " + d.type.text(); };
  // Only local_variables() makes a variable that is trainable and not mirrored.
  const auto by_scope = [](const VariableDeclaration& d) { return d.kind == VariableKind::replica_local && d.trainable; };
  if (known.type != later.type) refuse(type(later), type(known), "type");
  if (known.kind != later.kind)
    refuse(type(later), type(known), by_scope(known) || by_scope(later) ? "kind: let replica.local_variables() live at both lines or at neither" : "kind");
  if (!(known.initializer == later.initializer)) {
    const bool both_arrays = known.initializer.kind == Initializer::Kind::value && later.initializer.kind == Initializer::Kind::value;
    refuse(both_arrays ? "the values of another array" : later.initializer.text(), known.initializer.text(), "initialiser");
  }
  const auto begins = [](const VariableDeclaration& d) { return d.apart ? "one that begins apart on each replica" : "one that begins equal on all replicas"; };
  if (known.apart != later.apart) refuse(begins(later), begins(known), "argument of replica.local_variables() at both lines");
}
}  // namespace detail

}  // namespace replicator
