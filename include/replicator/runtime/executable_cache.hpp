// SPDX-License-Identifier: Apache-2.0
// ExecutableCache: the executables (prepared kernels) of a Replicator. Each is made once for an operation, its shapes and
// layouts. Where elements have ever new shapes, the cache drops executables that no program uses.
#pragma once

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>

#include <replicator/core/attributes.hpp>
#include <replicator/core/hash.hpp>
#include <replicator/devices/kernel_choice.hpp>
#include <replicator/graph/choose_kernel.hpp>
#include <replicator/graph/layout_copy.hpp>

namespace replicator::detail {

class ExecutableCache {
 public:
  static constexpr std::size_t most = 4096;  // unused ones are dropped when there are more

  explicit ExecutableCache(int threads, KernelChoice choice = {}) : threads_{threads}, choice_{choice} {}

  // Tries the highest filled tier of kernels first. Throws BuildError if no kernel takes these shapes.
  std::shared_ptr<const Executable> get(DeviceKind kind, const AnyOperation& operation, std::span<const TensorType> inputs, std::span<const TensorType> outputs,
                                        std::span<const Layout> offered, const std::string& where) {
    // An operation with an effect is not determined by its attributes, so its executable is not shared.
    if (operation.effect()) return make(kind, {operation, inputs, outputs, offered, threads_, choice_}, where);
    if (made_.size() >= next_search_) drop_unused();
    auto& slot = made_[key(kind, operation, inputs, offered)];
    if (!slot) slot = make(kind, {operation, inputs, outputs, offered, threads_, choice_}, where);
    return slot;
  }
  std::size_t size() const { return made_.size(); }

 private:
  // Searches again when there are twice as many as are in use, so that it costs little for each executable.
  void drop_unused() {
    std::erase_if(made_, [](const auto& one) { return one.second.use_count() <= 1; });
    next_search_ = std::max(most, 2 * made_.size());
  }
  static Digest key(DeviceKind kind, const AnyOperation& operation, std::span<const TensorType> inputs, std::span<const Layout> offered) {
    Hasher hasher;
    hasher.word(static_cast<std::uint64_t>(kind));
    hasher.digest(operation.digest());
    for (const auto& input : inputs) {
      hasher.word(static_cast<std::uint64_t>(input.dtype));
      hasher.word(input.shape.rank());
      for (const auto extent : input.shape) hasher.word(static_cast<std::uint64_t>(extent));
    }
    AttributeHasher visitor{hasher};
    for (const auto& layout : offered) LayoutCopy{layout}.describe(visitor);
    return hasher.result();
  }

  static std::unique_ptr<Executable> make(DeviceKind kind, const KernelRequest& request, const std::string& where) {
    if (auto executable = make_executable(kind, request)) {
      require_layouts(*executable, request, where);
      return executable;
    }
    const auto& tiers = request.operation.slots()[static_cast<std::size_t>(kind)];
    const bool any = std::any_of(std::begin(tiers), std::end(tiers), [](const auto& slot) { return slot.load(std::memory_order_relaxed) != nullptr; });
    const std::string name{request.operation.name()}, device{name_of(kind)};
    std::string types;
    for (const auto& input : request.inputs) types += (types.empty() ? "" : ", ") + input.text();
    if (any) throw BuildError{name + " at " + where + ": no " + device + " kernel of this program " + (types.empty() ? "makes this: " : "takes " + types + ": cast the tensors, or ") + "register a kernel that does"};
    throw BuildError{name + " at " + where + " has no " + device + " kernel: include <replicator/" + device +
                     "/kernels." + (kind == DeviceKind::cpu ? "hpp" : "cuh") + ">, or register one for your operation"};
  }

  static void require_layouts(const Executable& executable, const KernelRequest& request, const std::string& where) {
    if (executable.input_layouts.size() == request.inputs.size() && executable.output_layouts.size() == request.outputs.size()) return;
    throw BuildError{"the kernel of " + std::string{request.operation.name()} + " at " + where + " gives layouts for " +
                     std::to_string(executable.input_layouts.size()) + " inputs and " + std::to_string(executable.output_layouts.size()) +
                     " outputs, and the operation has " + std::to_string(request.inputs.size()) + " and " + std::to_string(request.outputs.size()) +
                     ": let the kernel resize input_layouts and output_layouts of its Executable"};
  }

  int threads_;
  KernelChoice choice_;
  std::unordered_map<Digest, std::shared_ptr<const Executable>, DigestHash> made_;
  std::size_t next_search_ = most;
};

}  // namespace replicator::detail
