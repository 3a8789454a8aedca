// SPDX-License-Identifier: Apache-2.0
// A stand-in on the host for the part of NVRTC that expressions use. The compiler that built the tests makes a shared library of
// a source. The "cubin" is the path of the library.
#pragma once

#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <regex>
#include <sstream>
#include <string>

#include "cuda_runtime.h"

enum nvrtcResult {
  NVRTC_SUCCESS = 0,
  NVRTC_ERROR_COMPILATION = 6
};
struct OnHostRtcProgram {
  std::filesystem::path folder;
  std::string source, log, library;
};
using nvrtcProgram = OnHostRtcProgram*;

inline const char* nvrtcGetErrorString(nvrtcResult) { return "NVRTC_ERROR_COMPILATION"; }
inline nvrtcResult nvrtcVersion(int* major, int* minor) {
  *major = CUDART_VERSION / 1000;
  *minor = CUDART_VERSION % 1000 / 10;
  return NVRTC_SUCCESS;
}
// A source can include these headers only.
inline nvrtcResult nvrtcCreateProgram(nvrtcProgram* program, const char* source, const char*, int headers, const char* const* texts,
                                      const char* const* names) {
  std::string folder = (std::filesystem::temp_directory_path() / "on-host-XXXXXX").string();
  if (!::mkdtemp(folder.data())) return NVRTC_ERROR_COMPILATION;
  for (int h = 0; h < headers; ++h) {
    const auto path = std::filesystem::path{folder} / names[h];
    std::filesystem::create_directories(path.parent_path());
    std::ofstream{path} << texts[h];
  }
  *program = new OnHostRtcProgram{folder, source, {}, {}};
  return NVRTC_SUCCESS;
}
inline nvrtcResult nvrtcDestroyProgram(nvrtcProgram* program) {
  std::filesystem::remove_all((*program)->folder);
  delete *program;
  return NVRTC_SUCCESS;
}
inline nvrtcResult nvrtcCompileProgram(nvrtcProgram program, int, const char* const*) {
  const std::regex kernels{"__launch_bounds__\\([^)]*\\) (\\w+)\\("};
  const auto file = program->folder / "expression.cpp", log = program->folder / "log";
  std::ofstream text{file};
  text << program->source;
  for (std::sregex_iterator at{program->source.begin(), program->source.end(), kernels}, end; at != end; ++at)
    text << "extern \"C\" OnHostLaunch* bind_" << (*at)[1] << "(void** arguments) { return on_host_launch(&replicator::detail::cuda::" << (*at)[1]
         << ", arguments); }\n";
  text.close();
  static int made = 0;
  program->library = (std::filesystem::temp_directory_path() / ("on-host-" + std::to_string(::getpid()) + "-" + std::to_string(made++) + ".so")).string();
  // -fno-builtin: functions of constants are called too, as they are in the interpreter. -fsanitize: an address that is no
  // multiple of an access's size ends the program, as it ends a kernel on a GPU. -nostdlib: the program has all that the
  // library calls, and the linker takes most of the time otherwise.
  const std::string command = std::string{ON_HOST_COMPILER} + " -std=c++20 -O1 -ffp-contract=off -fno-builtin -fsanitize=alignment" +
                              " -fsanitize-undefined-trap-on-error -shared -fPIC -nostdinc -nostdlib -w -include " +
                              ON_HOST_FOLDER + "/compiled_prelude.h -I" + program->folder.string() + " -o " + program->library + " " +
                              file.string() + " > " + log.string() + " 2>&1";
  const int status = std::system(command.c_str());
  std::stringstream said;
  said << std::ifstream{log}.rdbuf();
  program->log = said.str();
  return status == 0 ? NVRTC_SUCCESS : NVRTC_ERROR_COMPILATION;
}
inline nvrtcResult nvrtcGetProgramLogSize(nvrtcProgram program, std::size_t* size) { return *size = program->log.size() + 1, NVRTC_SUCCESS; }
inline nvrtcResult nvrtcGetProgramLog(nvrtcProgram program, char* log) { return std::strcpy(log, program->log.c_str()), NVRTC_SUCCESS; }
inline nvrtcResult nvrtcGetCUBINSize(nvrtcProgram program, std::size_t* size) { return *size = program->library.size() + 1, NVRTC_SUCCESS; }
inline nvrtcResult nvrtcGetCUBIN(nvrtcProgram program, char* cubin) { return std::strcpy(cubin, program->library.c_str()), NVRTC_SUCCESS; }
