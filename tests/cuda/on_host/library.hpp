// SPDX-License-Identifier: Apache-2.0
// The CUDA runtime's libraries of compiled kernels, on the host: shared libraries that nvrtc.h builds.
#pragma once

#include <dlfcn.h>
#include <unistd.h>

#include <memory>
#include <string>

#include "launch.hpp"

struct CUlib_st {
  void* handle;
};
using cudaLibrary_t = CUlib_st*;
struct OnHostLaunch {  // as in compiled_prelude.h
  virtual ~OnHostLaunch() = default;
  virtual void run() const = 0;
};
struct CUkern_st {
  OnHostLaunch* (*bind)(void** arguments);
};
using cudaKernel_t = CUkern_st*;
enum cudaJitOption {
};
enum cudaLibraryOption {
};

// `code` is a path; the file is not needed any more.
inline cudaError_t cudaLibraryLoadData(cudaLibrary_t* library, const void* code, cudaJitOption*, void**, unsigned, cudaLibraryOption*, void**,
                                       unsigned) {
  const auto* path = static_cast<const char*>(code);
  void* handle = ::dlopen(path, RTLD_NOW | RTLD_LOCAL);
  ::unlink(path);
  if (!handle) return cudaErrorInvalidValue;
  const auto set = [&](const char* name, auto* value) { *static_cast<decltype(value)*>(::dlsym(handle, name)) = value; };
  set("on_host_block_index", &blockIdx);
  set("on_host_thread_index", &threadIdx);
  set("on_host_block_extent", &blockDim);
  set("on_host_grid_extent", &gridDim);
  set("on_host_synchronise", &__syncthreads);
  *library = new CUlib_st{handle};
  return cudaSuccess;
}
inline cudaError_t cudaLibraryGetKernel(cudaKernel_t* kernel, cudaLibrary_t library, const char* name) {
  void* bind = ::dlsym(library->handle, ("bind_" + std::string{name}).c_str());
  if (!bind) return cudaErrorInvalidValue;
  *kernel = new CUkern_st{reinterpret_cast<OnHostLaunch* (*)(void**)>(bind)};
  return cudaSuccess;
}
struct cudaFuncAttributes {};
inline cudaError_t cudaFuncGetAttributes(cudaFuncAttributes*, const void*) { return cudaSuccess; }
inline cudaError_t cudaLaunchKernel(const void* kernel, dim3 grid, dim3 threads, void** arguments, std::size_t shared, cudaStream_t stream) {
  const std::shared_ptr<const OnHostLaunch> bound{static_cast<const CUkern_st*>(kernel)->bind(arguments)};
  on_host::launch([bound] { bound->run(); }, grid, threads, shared, stream)();
  return cudaSuccess;
}
