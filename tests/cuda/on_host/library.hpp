// SPDX-License-Identifier: Apache-2.0
// The CUDA runtime's libraries of compiled kernels, on the host: shared libraries, made by nvrtc.h.
#pragma once

#include <dlfcn.h>
#include <unistd.h>

#include <string>

#include "launch.hpp"

struct CUlib_st {
  void* handle;
};
using cudaLibrary_t = CUlib_st*;
struct CUkern_st {
  void (*call)(void** arguments);
};
using cudaKernel_t = CUkern_st*;
enum cudaJitOption {};
enum cudaLibraryOption {};

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
  void* call = ::dlsym(library->handle, ("call_" + std::string{name}).c_str());
  if (!call) return cudaErrorInvalidValue;
  *kernel = new CUkern_st{reinterpret_cast<void (*)(void**)>(call)};
  return cudaSuccess;
}
inline cudaError_t cudaLaunchKernel(const void* kernel, dim3 grid, dim3 threads, void** arguments, std::size_t shared, cudaStream_t stream) {
  on_host::launch([=] { static_cast<const CUkern_st*>(kernel)->call(arguments); }, grid, threads, shared, stream)();
  return cudaSuccess;
}
