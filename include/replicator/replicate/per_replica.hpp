// SPDX-License-Identifier: Apache-2.0
// PerReplica: the values of one result of a step, one for each replica.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iosfwd>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <replicator/core/array.hpp>
#include <replicator/core/error.hpp>
#include <replicator/core/replicas_text.hpp>

namespace replicator {

namespace detail {
// Throws BuildError for a replica whose value this host does not have.
template <class = void>
[[noreturn]] void refuse_replica(int replica, int first, int count, int replicas) {
  if (replica < 0 || replica >= replicas)
    throw BuildError{"asked for the value of replica " + std::to_string(replica) + ": there are " + std::to_string(replicas) + ", counted from 0"};
  throw BuildError{"the value of replica " + std::to_string(replica) + " is on another host: this one has " +
                   (count == 1 ? "that of " : "those of ") + replicas_text(first, first + count - 1) +
                   "; results above 4 KiB stay where they were made: all_gather them in the step, or return something smaller"};
}
}  // namespace detail

// What a host has depends on the size of one replica's value:
// - Up to 4 KiB: the values of all replicas. They are equal on every host; in the asynchronous regime they are the latest
//   that this host has heard of.
// - Above 4 KiB: the values of this host's own replicas. It has all only if it is the job's only host, or if the step's
//   graph proves that they are equal on all replicas.
template <class V>
class PerReplica {
 public:
  // `first`: the replica of values[0]; `replicas`: the number of replicas on all hosts.
  PerReplica(std::vector<V> values, int first, int replicas) : values_{std::move(values)}, first_{first}, replicas_{replicas} {}

  int replicas() const { return replicas_; }
  // True if this host has the values of all replicas.
  bool whole() const { return static_cast<int>(values_.size()) == replicas_; }
  int first() const { return first_; }
  // The value of a replica. Throws BuildError if there is no such replica, or if its value is on another host.
  const V& operator[](int replica) const {
    const int index = replica - first_, count = static_cast<int>(values_.size());
    if (index < 0 || index >= count) detail::refuse_replica(replica, first_, count, replicas_);
    return values_[static_cast<std::size_t>(index)];
  }
  auto begin() const { return values_.begin(); }
  auto end() const { return values_.end(); }
  // There is a value for each replica: rp::mean(loss) is the mean over them, and loss[0].item() the number of replica 0.
  operator double() const = delete;  // an rp::PerReplica has a value for each replica: write rp::mean(loss), or loss[0].item()

 private:
  std::vector<V> values_;
  int first_;
  int replicas_;
};

// Copies this host's values into the caller's memory, one behind the other, in the order of the replicas from
// `first()`. Throws BuildError unless `out` has exactly as many elements.
//
// Results are copied twice: out of the program's own array when the whole step has succeeded, and here. A step cannot
// write into the caller's memory directly:
//
// - A step that fails must leave the results of the step before. But devices write before they know how the step ends.
// - A program has fixed buffers, and each set of shapes has its own program.
// - A GPU cannot write into the caller's memory.
template <Element T>
void copy_to(const PerReplica<Array<T>>& values, std::span<T> out) {
  std::size_t count = 0;
  for (const auto& value : values) count += static_cast<std::size_t>(value.size());
  if (count != out.size())
    throw BuildError{"copy_to: the results have " + std::to_string(count) + " elements on this host, and the memory given has room for " +
                     std::to_string(out.size())};
  T* to = out.data();
  for (const auto& value : values) {
    if (value.size() > 0) std::memcpy(to, value.data(), static_cast<std::size_t>(value.size()) * sizeof(T));
    to += value.size();
  }
}

// The mean of all elements of all replicas, added in the order of the replicas. Throws BuildError unless `values.whole()`.
// Values of up to 4 KiB are whole on every host. Of larger ones a host may have only a part: let the step return
// rp::mean(x), a single number, instead of x.
template <FloatingElement T>
T mean(const PerReplica<Array<T>>& values) {
  double sum = 0;
  std::int64_t count = 0;
  for (int replica = 0; replica < values.replicas(); ++replica)
    for (const T value : values[replica]) {
      sum += static_cast<double>(value);
      ++count;
    }
  return count ? static_cast<T>(sum / static_cast<double>(count)) : T{};
}

// The sum of all elements of all replicas, added in the order of the replicas: of floating numbers in double, of integers
// and bool as a std::int64_t. Throws BuildError as mean() does.
template <Element T>
auto sum(const PerReplica<Array<T>>& values) {
  using Wide = std::conditional_t<FloatingElement<T>, double, std::int64_t>;
  Wide sum = 0;
  for (int replica = 0; replica < values.replicas(); ++replica)
    for (const T value : values[replica]) sum += static_cast<Wide>(value);
  if constexpr (FloatingElement<T>) return static_cast<T>(sum);
  else return sum;
}

// Prints the values of the replicas that this host has: "[0.5, 0.25]" for one number each, "[[1, 2], [3, 4]]" for more.
// Of each value it prints at most eight elements. A part begins with its replicas: "replicas 2 to 3: [0.5, 0.25]".
template <Element T, class Traits>
std::basic_ostream<char, Traits>& operator<<(std::basic_ostream<char, Traits>& out, const PerReplica<Array<T>>& values) {
  const auto count = static_cast<int>(values.end() - values.begin());
  if (!values.whole()) out << "replicas " << values.first() << " to " << values.first() + count - 1 << ": ";
  out << '[';
  for (int i = 0; i < count; ++i) out << (i > 0 ? ", " : "") << *(values.begin() + i);
  return out << ']';
}
// Prints the results of a step one after the other, with ", " between them: std::cout << train.step().
template <class... A, class Traits>
std::basic_ostream<char, Traits>& operator<<(std::basic_ostream<char, Traits>& out, const std::tuple<PerReplica<A>...>& results) {
  std::apply([&](const auto&... each) { [[maybe_unused]] const char* between = ""; ((out << std::exchange(between, ", ") << each), ...); }, results);
  return out;
}

}  // namespace replicator
