// SPDX-License-Identifier: Apache-2.0
// Owned handles for oneDNN 2 or 3 through its C interface, and the process's engine. <dnnl.hpp> does not compile under nvcc.
#pragma once

#include <dnnl.h>
#include <dnnl_debug.h>
#include <omp.h>

#include <cstddef>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <replicator/core/dtype.hpp>
#include <replicator/core/error.hpp>
#include <replicator/devices/kernel_library_text.hpp>

#if DNNL_VERSION_MAJOR == 2
#include <replicator/cpu/onednn/onednn_2.hpp>
#elif DNNL_VERSION_MAJOR == 3
namespace replicator::detail::cpu::onednn {
using MemoryPointer = dnnl_memory_desc_t;
using ConstMemoryPointer = const_dnnl_memory_desc_t;
}  // namespace replicator::detail::cpu::onednn
#else
#error "replicator uses the C interface of oneDNN 2 or 3"
#endif

namespace replicator::detail::cpu::onednn {

constexpr std::string_view name_of(dnnl_status_t status) {
  constexpr std::string_view names[] = {"success", "out of memory", "invalid arguments", "unimplemented",
                                        "iterator ends", "runtime error", "not required"};
  const auto index = static_cast<std::size_t>(status);
  return index < std::size(names) ? names[index] : "unknown status";
}

// Throws DeviceError unless the call succeeded.
inline void require(dnnl_status_t status, std::string_view call) {
  if (status != dnnl_success)
    throw DeviceError{"oneDNN refused " + std::string{call} + ": " + std::string{name_of(status)}};
}

// Owns the object that a `create` call made.
template <class T, dnnl_status_t (*destroy)(T)>
class Handle {
 public:
  Handle() = default;
  Handle(Handle&& other) noexcept : value_{std::exchange(other.value_, nullptr)} {}
  Handle& operator=(Handle&& other) noexcept {
    std::swap(value_, other.value_);
    return *this;
  }
  ~Handle() {
    if (value_) destroy(value_);
  }
  T get() const { return value_; }
  T* out() { return &value_; }  // where a `create` call writes; the handle must be empty
  explicit operator bool() const { return value_ != nullptr; }

 private:
  T value_ = nullptr;
};

using Engine = Handle<dnnl_engine_t, dnnl_engine_destroy>;
using Stream = Handle<dnnl_stream_t, dnnl_stream_destroy>;
using Memory = Handle<dnnl_memory_t, dnnl_memory_destroy>;
using Attributes = Handle<dnnl_primitive_attr_t, dnnl_primitive_attr_destroy>;
using PrimitiveDescription = Handle<dnnl_primitive_desc_t, dnnl_primitive_desc_destroy>;

// The one engine of the process. It holds no state of a computation.
inline dnnl_engine_t engine() {
  static const Engine shared = [] {
    Engine created;
    require(dnnl_engine_create(created.out(), dnnl_cpu, 0), "dnnl_engine_create");
    return created;
  }();
  return shared.get();
}

// A stream of the calling thread. oneDNN does not promise that streams are thread-safe.
inline dnnl_stream_t stream() {
  thread_local const Stream own = [] {
    Stream created;
    require(dnnl_stream_create(created.out(), engine(), dnnl_stream_default_flags), "dnnl_stream_create");
    return created;
  }();
  return own.get();
}

// Describes the shared library that runs, not the one that was compiled against, and its settings from the environment.
// ONEDNN_MAX_CPU_ISA, ONEDNN_CPU_ISA_HINTS and ONEDNN_DEFAULT_FPMATH_MODE choose other kernels, with other bits.
inline std::string describe_library() {
  const dnnl_version_t& version = *dnnl_version();
  dnnl_fpmath_mode_t mode{};
  require(dnnl_get_default_fpmath_mode(&mode), "dnnl_get_default_fpmath_mode");
  return "oneDNN " + std::to_string(version.major) + "." + std::to_string(version.minor) + "." + std::to_string(version.patch) + " (" +
         (version.hash ? version.hash : "no hash") + ") for " + dnnl_cpu_isa2str(dnnl_get_effective_cpu_isa()) + ", " +
         dnnl_cpu_isa_hints2str(dnnl_get_cpu_isa_hints()) + ", floating-point mode " + dnnl_fpmath_mode2str(mode);
}

inline const bool library_registered = [] {
  kernel_library_slot[static_cast<std::size_t>(DeviceKind::cpu)].store(&describe_library);
  return true;
}();

// Sets the number of OpenMP threads while it lives. oneDNN fixes the split of the work, and so the order of additions, when a
// primitive is *created*. So create it under the number of threads with which it will run.
class OpenMpThreads {
 public:
  explicit OpenMpThreads(int threads) : before_{omp_get_max_threads()} { omp_set_num_threads(threads); }
  OpenMpThreads(const OpenMpThreads&) = delete;
  OpenMpThreads& operator=(const OpenMpThreads&) = delete;
  ~OpenMpThreads() { omp_set_num_threads(before_); }

 private:
  int before_;
};

constexpr std::optional<dnnl_data_type_t> data_type(DType dtype) {
  switch (dtype) {
    case DType::float32: return dnnl_f32;
    case DType::int32: return dnnl_s32;
    case DType::uint8: return dnnl_u8;
    case DType::bfloat16: return dnnl_bf16;
    default: return std::nullopt;
  }
}

}  // namespace replicator::detail::cpu::onednn
