// SPDX-License-Identifier: Apache-2.0
// NVIDIA's run-time compiler, which compiles a source to the machine code of one kind of GPU.
#pragma once

#include <nvrtc.h>

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include <replicator/core/error.hpp>
#include <replicator/with/rtc_headers.hpp>

namespace replicator::detail::cuda {

namespace detail {

inline void require_nvrtc(nvrtcResult status, const char* call) {
  if (status != NVRTC_SUCCESS) throw DeviceError{std::string{"NVRTC: "} + call + " gave " + nvrtcGetErrorString(status)};
}

class RtcProgram {
 public:
  explicit RtcProgram(const std::string& source) {
    std::vector<const char*> texts, names;
    for (const auto& header : rtc_headers) {
      texts.push_back(header.text);
      names.push_back(header.name);
    }
    require_nvrtc(nvrtcCreateProgram(&program_, source.c_str(), "expression.cu", static_cast<int>(names.size()), texts.data(), names.data()),
                  "nvrtcCreateProgram");
  }
  RtcProgram(const RtcProgram&) = delete;
  RtcProgram& operator=(const RtcProgram&) = delete;
  ~RtcProgram() { (void)nvrtcDestroyProgram(&program_); }

  bool compile(const std::vector<const char*>& options) {
    return nvrtcCompileProgram(program_, static_cast<int>(options.size()), options.data()) == NVRTC_SUCCESS;
  }
  std::string log() const { return read(&nvrtcGetProgramLogSize, &nvrtcGetProgramLog, "nvrtcGetProgramLog"); }
  std::string cubin() const { return read(&nvrtcGetCUBINSize, &nvrtcGetCUBIN, "nvrtcGetCUBIN"); }

 private:
  std::string read(nvrtcResult (*size_of)(nvrtcProgram, std::size_t*), nvrtcResult (*get)(nvrtcProgram, char*), const char* call) const {
    std::size_t size = 0;
    require_nvrtc(size_of(program_, &size), call);
    std::string text(size, '\0');
    require_nvrtc(get(program_, text.data()), call);
    return text;
  }

  nvrtcProgram program_ = nullptr;
};

}  // namespace detail

// Says why NVRTC must not be used in a program that was built with this CUDART_VERSION. Empty where it may be used. NVRTC has
// nvcc's own device functions only if both are of one version. Otherwise compiled and interpreted expressions would have
// different bits.
inline std::string refused_nvrtc(int built_with) {
  int major = 0, minor = 0;
  detail::require_nvrtc(nvrtcVersion(&major, &minor), "nvrtcVersion");
  if (major == built_with / 1000 && minor == built_with % 1000 / 10) return {};
  return "libnvrtc is of CUDA " + std::to_string(major) + "." + std::to_string(minor) + ", the program was built with CUDA " +
         std::to_string(built_with / 1000) + "." + std::to_string(built_with % 1000 / 10) + ", and only equal versions have equal bits";
}

// Says why expressions are interpreted in a program that was built with this CUDART_VERSION. Empty where NVRTC may compile them.
// `chosen` is the variable REPLICATOR_CUDA_EXPRESSIONS, or null where it is not set. Throws BuildError unless it is "compiled" or "interpreted".
inline std::string reason_to_interpret(const char* chosen, int built_with) {
  const std::string_view text = chosen ? chosen : "compiled";
  if (text == "interpreted") return "REPLICATOR_CUDA_EXPRESSIONS=interpreted";
  if (text != "compiled") throw BuildError{"REPLICATOR_CUDA_EXPRESSIONS is \"" + std::string{text} + "\": it must be compiled or interpreted"};
  return refused_nvrtc(built_with);
}

// Compiles a source for an architecture, for example "sm_90". Throws DeviceError with the compiler's messages.
inline std::string compile_to_cubin(const std::string& source, const std::string& architecture) {
  const std::string target = "--gpu-architecture=" + architecture;
  detail::RtcProgram program{source};
  if (!program.compile({target.c_str(), "--std=c++20", "--fmad=false"}))
    throw DeviceError{"NVRTC refused for " + architecture + ":\n" + source + "\n" + program.log()};
  return program.cubin();
}

}  // namespace replicator::detail::cuda
