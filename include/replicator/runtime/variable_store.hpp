// SPDX-License-Identifier: Apache-2.0
// VariableStore: the values of all variables of a Replicator on this host: mirrored ones once per device, replica-local
// ones once per replica.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <deque>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <replicator/core/array.hpp>
#include <replicator/core/hash.hpp>
#include <replicator/core/nearest_word.hpp>
#include <replicator/cpu/initialize.hpp>
#include <replicator/devices/pages.hpp>
#include <replicator/graph/variable.hpp>
#include <replicator/runtime/host_memory.hpp>
#include <replicator/runtime/memory_need.hpp>
#include <replicator/runtime/variable_memory.hpp>
#include <replicator/runtime/variable_value.hpp>

namespace replicator::detail {

// A zero-filled array. A large one has its own untouched pages, which cost neither time nor memory until they are
// written. With `staging` it is in memory that a device can copy fast.
inline AnyArray untouched_array(const TensorType& type, const StagingSupport* staging) {
  if (staging) return host_array(staging, type);
  if (type.bytes() < huge_page) return AnyArray{type};
  auto pages = std::make_shared<Pages>(map_pages(type.bytes()));
  auto* const data = pages->get();
  return data ? AnyArray::borrow(type, data, std::move(pages)) : AnyArray{type};
}
inline AnyArray copy_of(const AnyArray& array, const StagingSupport* staging) {
  auto copy = untouched_array(array.type(), staging);
  std::memcpy(copy.data(), array.data(), array.size_bytes());
  return copy;
}
// The first value of a variable. `replica` is counted in the job. Throws BuildError if the initializer's array has another type.
inline AnyArray initial_value(const VariableDeclaration& variable, std::uint64_t seed, int replica = 0, const StagingSupport* staging = nullptr) {
  const auto& initializer = variable.initializer;
  if (initializer.kind == Initializer::Kind::value) {
    if (initializer.array->type() != variable.type)
      throw BuildError{"\"" + variable.name + "\" is " + variable.type.text() + " (declared at " + variable.where.text() +
                       "), but its first value is " + initializer.array->type().text()};
    return detail::copy_of(*initializer.array, staging);
  }
  auto array = detail::untouched_array(variable.type, staging);
  Hasher name;
  name.text(variable.name);
  if (variable.apart) name.word(static_cast<std::uint64_t>(replica));
  cpu::initialize(array, initializer, seed, name.result().low);
  return array;
}

class VariableStore {
 public:
  // `replicas`: of this host, from `first_replica` of the job. `devices`: the number of mirrored copies on this host.
  // `staging`: of their kind of device.
  VariableStore(std::uint64_t seed, int devices, int replicas, int first_replica = 0, const StagingSupport* staging = nullptr)
      : seed_{seed}, devices_{devices}, replicas_{replicas}, first_replica_{first_replica}, staging_{staging} {}

  // Adds the variable with its first value, or finds it. Throws BuildError if an earlier declaration differs, and
  // DeviceError if there is not enough memory.
  void declare(const VariableDeclaration& variable) {
    const auto found = entries_.find(variable.name);
    if (found == entries_.end()) {
      const int copies = variable.kind == VariableKind::mirrored ? devices_ : replicas_;
      std::deque<VariableValue> values;
      try {
        while (static_cast<int>(values.size()) < copies) values.emplace_back(variable.name, first_value(variable, values));
      } catch (const std::bad_alloc&) {
        throw DeviceError{"the variable \"" + variable.name + "\" " + variable.type.text() + " (declared at " + variable.where.text() + ") takes " +
                          text_of_bytes(variable.type.bytes()) + " in each of " + std::to_string(copies) + " place(s) of this process, which has no memory for it"};
      }
      entries_.emplace(variable.name, Entry{variable, std::move(values)});
      return;
    }
    auto& known = found->second.declaration;
    // What came with the state of another process has neither initialiser nor line.
    const auto received = [](const VariableDeclaration& d) { return *d.where.file == '\0'; };
    if (known.type != variable.type || known.kind != variable.kind || (!received(known) && !received(variable))) detail::require_same(known, variable);
    if (received(known)) known = variable;
  }

  std::vector<std::string> names() const {
    std::vector<std::string> result;
    for (const auto& [name, entry] : entries_) result.push_back(name);
    return result;
  }
  bool contains(const std::string& name) const { return entries_.contains(name); }
  const VariableDeclaration& declaration(const std::string& name) const { return entry(name).declaration; }

  // `copy`: the device for mirrored variables, the replica for replica-local ones, both counted on this host. The value
  // does not move while the store lives. Throws BuildError if there is no such variable or copy.
  VariableValue& at(const std::string& name, int copy) { return const_cast<VariableValue&>(std::as_const(*this).at(name, copy)); }
  const VariableValue& at(const std::string& name, int copy) const {
    const auto& values = entry(name).values;
    if (copy < 0 || static_cast<std::size_t>(copy) >= values.size())
      throw BuildError{"the variable \"" + name + "\" was asked for copy " + std::to_string(copy) + ", but this process holds " +
                       std::to_string(values.size()) + ": count them from 0"};
    return values[static_cast<std::size_t>(copy)];
  }
  // The same on the host: the present value; the memory to overwrite completely; and its address.
  const AnyArray& value(const std::string& name, int copy) const { return at(name, copy).read(); }
  AnyArray& overwrite(const std::string& name, int copy) { return at(name, copy).overwrite(); }
  std::byte* data(const std::string& name, int copy) const { return at(name, copy).host_memory(); }

  // The number of copies on this host.
  int copies(const std::string& name) const { return static_cast<int>(entry(name).values.size()); }

  // Sets every copy, or one. Throws BuildError if the type differs, the name is unknown, the array has no memory, or one copy of a
  // mirrored variable is asked for.
  void set(const std::string& name, const AnyArray& array, std::optional<int> copy = {}) {
    auto& target = entry(name);
    if (array.type() != target.declaration.type)
      throw BuildError{"\"" + name + "\" is " + target.declaration.type.text() + " (declared at " + target.declaration.where.text() +
                       "), but the value given is " + array.type().text() + ": give one of the variable's type"};
    if (array.empty()) refuse_without_memory("the value given for \"" + name + "\"");
    if (copy && target.declaration.kind == VariableKind::mirrored)
      throw BuildError{"\"" + name + "\" is mirrored (declared at " + target.declaration.where.text() +
                       "), so all replicas have one value: set it without a replica, or declare it replica_local"};
    const auto write = [&](VariableValue& value) { std::memcpy(value.overwrite().data(), array.data(), array.size_bytes()); };
    if (copy) write(at(name, *copy));
    else std::for_each(target.values.begin(), target.values.end(), write);
  }

  // Gives these values memory on a device too: one block for all that have none there. Throws DeviceError if the device
  // has not enough memory.
  VariableMemory& reside(std::span<VariableValue* const> values, DeviceKind kind, int index) {
    const std::lock_guard lock{mutex_};
    auto& memory = memory_of(kind, index);
    std::map<VariableValue*, std::size_t> offsets;
    std::size_t bytes = 0;
    for (auto* const value : values)
      if (!value->resident(memory) && offsets.try_emplace(value, bytes).second)
        bytes += (value->bytes() / buffer_alignment + 1) * buffer_alignment;
    if (offsets.empty()) return memory;
    auto* const block = memory.allocate(bytes);
    for (const auto& [value, offset] : offsets) value->reside(memory, block + offset);
    return memory;
  }

 private:
  struct Entry {
    VariableDeclaration declaration;
    std::deque<VariableValue> values;
  };
  AnyArray first_value(const VariableDeclaration& variable, const std::deque<VariableValue>& others) const {
    const bool alike = !others.empty() && !cpu::is_zero(variable.initializer) && !variable.apart;
    return alike ? detail::copy_of(others.front().read(), staging_) : initial_value(variable, seed_, first_replica_ + static_cast<int>(others.size()), staging_);
  }
  VariableMemory& memory_of(DeviceKind kind, int index) {
    for (auto& memory : memories_)
      if (memory.is(kind, index)) return memory;
    return memories_.emplace_back(kind, index);
  }
  Entry& entry(const std::string& name) { return const_cast<Entry&>(std::as_const(*this).entry(name)); }
  const Entry& entry(const std::string& name) const {
    const auto found = entries_.find(name);
    if (found == entries_.end())
      throw BuildError{"there is no variable \"" + name + "\"" +
                       (entries_.empty() ? std::string{": replicate() declares the variables of its step function, so call it first"} : meant(name))};
    return found->second;
  }
  // ": was "fc.weight" meant?", or ": there are "b" and "w"" where no name is similar.
  std::string meant(const std::string& typed) const {
    std::vector<std::string_view> names;
    for (const auto& [name, entry] : entries_) names.push_back(name);
    const auto nearest = nearest_word(typed, names);
    if (!nearest.empty()) return ": was \"" + std::string{nearest} + "\" meant?";
    constexpr std::size_t most = 8;
    std::string text = ": there " + std::string{names.size() == 1 ? "is" : "are"};
    for (std::size_t i = 0; i < std::min(most, names.size()); ++i) text += (i == 0 ? " \"" : ", \"") + std::string{names[i]} + "\"";
    return names.size() <= most ? text : text + " and " + std::to_string(names.size() - most) + " others";
  }

  std::uint64_t seed_;
  int devices_;
  int replicas_;
  int first_replica_;
  const StagingSupport* staging_;
  std::map<std::string, Entry> entries_;
  std::mutex mutex_;  // guards memories_: devices are planned at the same time
  std::list<VariableMemory> memories_;
};

}  // namespace replicator::detail
