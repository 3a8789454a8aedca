# SPDX-License-Identifier: Apache-2.0
# Finds the optional components of replicator, for the build and for the installed package.
#
#   replicator_find_component(<name>)
#
# defines the target replicator::<name>, which links replicator::replicator. If the component is missing, it sets
# replicator_<name>_NOT_FOUND_MESSAGE to the reason in the caller's scope.
set(replicator_components onednn ucx pmix mpi jpeg mujoco egl cuda cublaslt cudnn nvrtc compiled c)

set(REPLICATOR_CUDA_FOLDERS "" CACHE STRING "Folders with include/ and lib/ of NVIDIA's libraries, beside the CUDA toolkit's, as Python's packages have")
mark_as_advanced(REPLICATOR_CUDA_FOLDERS)

function(replicator_find_component name)
  if(TARGET replicator::${name})
    return()
  endif()
  set(CMAKE_FIND_PACKAGE_TARGETS_GLOBAL ON)
  if(name STREQUAL "onednn")
    replicator_find_onednn()
  elseif(name STREQUAL "ucx")
    replicator_find_library(ucx HEADER ucp/api/ucp.h LIBRARIES ucp ucs PACKAGE libucx-dev)
  elseif(name STREQUAL "pmix")
    replicator_find_library(pmix HEADER pmix.h LIBRARIES pmix PACKAGE libpmix-dev
                            HINTS /usr/lib/${CMAKE_LIBRARY_ARCHITECTURE}/pmix2)
  elseif(name STREQUAL "mpi")
    replicator_find_mpi()
  elseif(name STREQUAL "jpeg")
    replicator_find_library(jpeg HEADER turbojpeg.h LIBRARIES turbojpeg PACKAGE libturbojpeg0-dev)
  elseif(name STREQUAL "mujoco")
    replicator_find_library(mujoco HEADER mujoco/mujoco.h LIBRARIES mujoco PACKAGE libmujoco-dev)
  elseif(name STREQUAL "egl")
    replicator_find_library(egl HEADER EGL/egl.h LIBRARIES EGL PACKAGE libegl-dev)
  elseif(name STREQUAL "cuda")
    replicator_find_cuda()
  elseif(name STREQUAL "cudnn")
    replicator_find_for_cuda(cudnn HEADER cudnn.h LIBRARIES cudnn VERSION 9 PACKAGE "NVIDIA's cuDNN 9")
  elseif(name STREQUAL "cublaslt")
    replicator_find_for_cuda(cublaslt HEADER cublasLt.h LIBRARIES cublasLt VERSION 13 PACKAGE "the CUDA toolkit")
  elseif(name STREQUAL "nvrtc")
    replicator_find_nvrtc()
  elseif(name STREQUAL "compiled")
    replicator_find_compiled()
  elseif(name STREQUAL "c")
    replicator_find_c()
  else()
    list(JOIN replicator_components ", " names)
    set(reason "replicator has no such component; it has ${names}")
  endif()
  if(NOT TARGET replicator::${name})
    set(replicator_${name}_NOT_FOUND_MESSAGE "${reason}" PARENT_SCOPE)
  endif()
endfunction()

# Each function below defines the target, or sets `reason` in the caller's scope.

# Finds one header and its libraries. PACKAGE: the package to name in the message if they are missing. VERSION: accept
# lib<library>.so.<VERSION> as well, for machines with run-time files only.
function(replicator_find_library name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "HEADER;PACKAGE;VERSION" "LIBRARIES;HINTS")
  string(TOUPPER "REPLICATOR_${name}_INCLUDE_DIR" include_dir)
  find_path(${include_dir} ${arg_HEADER} HINTS ${arg_HINTS} PATH_SUFFIXES include)
  mark_as_advanced(${include_dir})
  set(missing "")
  if(NOT ${include_dir})
    list(APPEND missing "<${arg_HEADER}>")
  endif()
  set(libraries "")
  foreach(library IN LISTS arg_LIBRARIES)
    string(TOUPPER "REPLICATOR_${library}_LIBRARY" path)
    set(names ${library})
    if(arg_VERSION)
      list(APPEND names lib${library}.so.${arg_VERSION})
    endif()
    find_library(${path} NAMES ${names} HINTS ${arg_HINTS} PATH_SUFFIXES lib lib64)
    mark_as_advanced(${path})
    if(NOT ${path})
      list(APPEND missing "lib${library}")
    endif()
    list(APPEND libraries "${${path}}")
  endforeach()
  if(missing)
    list(JOIN missing ", " missing)
    set(reason "${missing} not found (it comes with ${arg_PACKAGE})" PARENT_SCOPE)
    return()
  endif()
  add_library(replicator::${name} INTERFACE IMPORTED GLOBAL)
  target_include_directories(replicator::${name} SYSTEM INTERFACE "${${include_dir}}")
  target_link_libraries(replicator::${name} INTERFACE replicator::replicator ${libraries})
  # Holds <replicator/with/${name}.hpp>. replicator.hpp looks for it to know that the component is part of the program.
  set(marker "${CMAKE_CURRENT_FUNCTION_LIST_DIR}/components/${name}")
  if(EXISTS "${marker}")
    target_include_directories(replicator::${name} INTERFACE "${marker}")
  endif()
endfunction()

# Only the C header and the library: oneDNN's own CMake package also requires OpenCL's development files.
function(replicator_find_onednn)
  find_path(REPLICATOR_ONEDNN_INCLUDE_DIR dnnl.h)
  set(version_file "${REPLICATOR_ONEDNN_INCLUDE_DIR}/oneapi/dnnl/dnnl_version.h")
  if(EXISTS "${version_file}")
    file(STRINGS "${version_file}" line REGEX "define DNNL_VERSION_MAJOR")
    string(REGEX MATCH "[0-9]+" major "${line}")
    if(NOT major MATCHES "^[23]$")
      set(reason "${version_file} is of oneDNN ${major}, but replicator uses the C interface of oneDNN 2 or 3" PARENT_SCOPE)
      return()
    endif()
  endif()
  replicator_find_library(onednn HEADER dnnl.h LIBRARIES dnnl PACKAGE libdnnl-dev)
  set(reason "${reason}" PARENT_SCOPE)
endfunction()

# For programs that call MPI_Init themselves (job/mpi.hpp). Jobs of mpirun alone need PMIx, not MPI.
function(replicator_find_mpi)
  set(MPI_CXX_SKIP_MPICXX TRUE)
  find_package(MPI QUIET COMPONENTS CXX)
  if(NOT TARGET MPI::MPI_CXX)
    set(reason "no MPI found (Debian: libopenmpi-dev or libmpich-dev)" PARENT_SCOPE)
    return()
  endif()
  add_library(replicator::mpi INTERFACE IMPORTED GLOBAL)
  target_link_libraries(replicator::mpi INTERFACE replicator::replicator MPI::MPI_CXX)
endfunction()

# The static runtime is CMake's default for CUDA programs; two runtimes in one program would not share their state.
# Never link CUDA::cuda_driver: a program linked with it cannot start on a machine without a driver.
function(replicator_find_cuda)
  if(NOT CMAKE_CUDA_COMPILER)
    set(reason "the language CUDA is not enabled (nvcc not found, or the project did not enable it)" PARENT_SCOPE)
    return()
  endif()
  find_package(CUDAToolkit QUIET)
  # CUB is installed beside nvcc, which finds it by itself.
  include(CheckSourceCompiles)
  set(CMAKE_REQUIRED_QUIET TRUE)
  check_source_compiles(CUDA "#include <cub/version.cuh>\nint main() {}" REPLICATOR_NVCC_FINDS_CUB)
  if(NOT TARGET CUDA::cudart_static)
    set(reason "libcudart_static not found (it comes with the CUDA toolkit)" PARENT_SCOPE)
  elseif(NOT REPLICATOR_NVCC_FINDS_CUB)
    set(reason "nvcc does not find <cub/version.cuh> (CUB comes with the CUDA toolkit, as part of CCCL)" PARENT_SCOPE)
  else()
    add_library(replicator::cuda INTERFACE IMPORTED GLOBAL)
    target_link_libraries(replicator::cuda INTERFACE replicator::replicator CUDA::cudart_static)
  endif()
endfunction()

# Finds a library beside the CUDA toolkit. ARGN: arguments of replicator_find_library.
function(replicator_find_for_cuda name)
  replicator_find_component(cuda)
  if(NOT TARGET replicator::cuda)
    set(reason "it needs the component cuda: ${replicator_cuda_NOT_FOUND_MESSAGE}" PARENT_SCOPE)
    return()
  endif()
  find_package(CUDAToolkit QUIET)
  cmake_path(GET CUDAToolkit_LIBRARY_DIR PARENT_PATH root)
  replicator_find_library(${name} ${ARGN} HINTS "${root}" ${REPLICATOR_CUDA_FOLDERS})
  if(TARGET replicator::${name})
    target_link_libraries(replicator::${name} INTERFACE replicator::cuda)
  endif()
  set(reason "${reason}" PARENT_SCOPE)
endfunction()

# NVRTC, with the headers of cuda/rtc as text for it.
function(replicator_find_nvrtc)
  replicator_find_for_cuda(nvrtc HEADER nvrtc.h LIBRARIES nvrtc VERSION 13 PACKAGE "the CUDA toolkit")
  if(TARGET replicator::nvrtc)
    replicator_write_rtc_headers("${CMAKE_CURRENT_BINARY_DIR}/replicator-rtc")
    target_include_directories(replicator::nvrtc INTERFACE "${CMAKE_CURRENT_BINARY_DIR}/replicator-rtc")
  endif()
  set(reason "${reason}" PARENT_SCOPE)
endfunction()

# Writes <folder>/replicator/with/rtc_headers.hpp: the headers that a running program passes to NVRTC.
function(replicator_write_rtc_headers folder)
  get_target_property(include_dirs replicator::replicator HEADER_DIRS)
  list(GET include_dirs 0 include_dir)
  file(GLOB headers RELATIVE "${include_dir}" CONFIGURE_DEPENDS "${include_dir}/replicator/cuda/rtc/*")
  set(entries "")
  foreach(header IN LISTS headers)
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${include_dir}/${header}")
    file(READ "${include_dir}/${header}" text)
    string(APPEND entries "    {\"${header}\", R\"text(${text})text\"},\n")
  endforeach()
  file(CONFIGURE OUTPUT "${folder}/replicator/with/rtc_headers.hpp" @ONLY CONTENT [[
// Written by CMake from the headers of replicator/cuda/rtc.
#pragma once

namespace replicator::detail::cuda {

struct RtcHeader {
  const char* name;
  const char* text;
};
inline constexpr RtcHeader rtc_headers[] = {
@entries@};

}  // namespace replicator::detail::cuda
]])
endfunction()

# The given components without those that REPLICATOR_WITH_<component> switches off.
function(replicator_wanted result)
  set(wanted "")
  foreach(component IN LISTS ARGN)
    string(TOUPPER "REPLICATOR_WITH_${component}" option)
    if(NOT DEFINED ${option} OR "${${option}}" STREQUAL "AUTO" OR "${${option}}")
      list(APPEND wanted ${component})
    endif()
  endforeach()
  set(${result} ${wanted} PARENT_SCOPE)
endfunction()

# Engine, kernels and transports compiled once, in several units (compiled/*.cpp). Files that include replicator.hpp
# then compile several times faster. Includes the other available components. An installed package holds the objects; a
# project that cannot use those compiles its own, and says why.
function(replicator_find_compiled)
  replicator_wanted(wanted onednn ucx pmix)
  foreach(component IN LISTS wanted)
    replicator_find_component(${component})
  endforeach()
  replicator_use_installed_objects("${wanted}" target)
  if(NOT target)
    replicator_compile_units("${wanted}")
    set(target replicator-compiled)
  endif()
  add_library(replicator::compiled INTERFACE IMPORTED GLOBAL)
  target_link_libraries(replicator::compiled INTERFACE ${target} $<TARGET_OBJECTS:${target}>)
  target_include_directories(replicator::compiled INTERFACE "${CMAKE_CURRENT_FUNCTION_LIST_DIR}/components/compiled")
endfunction()

function(replicator_compile_units wanted)
  file(GLOB units CONFIGURE_DEPENDS "${CMAKE_CURRENT_FUNCTION_LIST_DIR}/compiled/*.cpp")
  add_library(replicator-compiled OBJECT EXCLUDE_FROM_ALL ${units})
  target_link_libraries(replicator-compiled PUBLIC replicator::replicator)
  target_include_directories(replicator-compiled PRIVATE "${CMAKE_CURRENT_FUNCTION_LIST_DIR}/components/compiled")
  # The engines drive a step and compute nothing: -O1 costs no instruction and saves a quarter of the longest compilation.
  set_source_files_properties("${CMAKE_CURRENT_FUNCTION_LIST_DIR}/compiled/engine.cpp" PROPERTIES COMPILE_OPTIONS $<$<NOT:$<CONFIG:Debug>>:-O1>)
  # In a project without a CMAKE_BUILD_TYPE the kernels would be silently unoptimised.
  target_compile_options(replicator-compiled PRIVATE $<$<STREQUAL:$<CONFIG>,>:-O2>)
  # A program keeps only the functions that it uses. (Sanitizers register globals, which must all stay.)
  if(NOT REPLICATOR_SANITIZE)
    target_compile_options(replicator-compiled PRIVATE -ffunction-sections -fdata-sections)
    target_link_options(replicator-compiled INTERFACE LINKER:--gc-sections)
  endif()
  foreach(component IN LISTS wanted)
    target_link_libraries(replicator-compiled PUBLIC $<TARGET_NAME_IF_EXISTS:replicator::${component}>)
  endforeach()
endfunction()

# The compiler that objects must come from: name and major version.
function(replicator_compiler result)
  string(REGEX MATCH "^[0-9]+" major "${CMAKE_CXX_COMPILER_VERSION}")
  set(${result} "${CMAKE_CXX_COMPILER_ID} ${major}" PARENT_SCOPE)
endfunction()

# Sets `result` to the target with the objects of the installed package; empty where there are none for this project.
function(replicator_use_installed_objects wanted result)
  set(${result} "" PARENT_SCOPE)
  set(folder "${CMAKE_CURRENT_FUNCTION_LIST_DIR}")
  if(NOT EXISTS "${folder}/replicator-compiled.cmake")
    return()
  endif()
  include("${folder}/replicator-compiled.cmake")
  replicator_compiler(compiler)
  set(difference "")
  if(NOT compiler STREQUAL replicator_compiled_by)
    set(difference "the installed objects are of ${replicator_compiled_by}, and this project's compiler is ${compiler}")
  elseif(CMAKE_BUILD_TYPE STREQUAL "Debug")
    set(difference "the installed objects are optimised, and this is a Debug build")
  endif()
  foreach(component IN LISTS wanted)
    if(TARGET replicator::${component} AND NOT component IN_LIST replicator_compiled_with)
      set(difference "the installed objects are without ${component}")
    endif()
  endforeach()
  foreach(component IN LISTS replicator_compiled_with)
    if(NOT TARGET replicator::${component})
      set(difference "the installed objects need ${component}, which is absent here")
    endif()
  endforeach()
  if(difference)
    message(STATUS "replicator::compiled is compiled in this project: ${difference}")
    return()
  endif()
  include("${folder}/replicator-compiled-targets.cmake")
  set(${result} replicator::replicator-compiled PARENT_SCOPE)
endfunction()

# The C interface of the collectives as a shared library, libreplicator-c. An installed package contains it built.
function(replicator_find_c)
  get_filename_component(include_dir "${CMAKE_CURRENT_FUNCTION_LIST_DIR}/../include" ABSOLUTE)
  if(NOT EXISTS "${CMAKE_CURRENT_FUNCTION_LIST_DIR}/c.cpp")
    set(reason "the package was installed without it (REPLICATOR_WITH_C was off)" PARENT_SCOPE)
    return()
  endif()
  add_library(replicator-c SHARED "${CMAKE_CURRENT_FUNCTION_LIST_DIR}/c.cpp")
  add_library(replicator::c ALIAS replicator-c)
  target_sources(replicator-c PUBLIC FILE_SET HEADERS BASE_DIRS "${include_dir}"
                                     FILES "${include_dir}/replicator/replicator_c.h")
  target_link_libraries(replicator-c PRIVATE $<BUILD_INTERFACE:replicator::replicator>)
  replicator_wanted(wanted ucx pmix)
  foreach(component IN LISTS wanted)
    replicator_find_component(${component})
    target_link_libraries(replicator-c PRIVATE $<BUILD_INTERFACE:$<TARGET_NAME_IF_EXISTS:replicator::${component}>>)
  endforeach()
  # Exports nothing but replicator_*.
  set(exports "${CMAKE_CURRENT_FUNCTION_LIST_DIR}/c.map")
  target_link_options(replicator-c PRIVATE LINKER:--as-needed LINKER:--no-undefined LINKER:--version-script=${exports})
  set_target_properties(replicator-c PROPERTIES
    EXPORT_NAME c VERSION ${REPLICATOR_VERSION} SOVERSION 0 LINK_DEPENDS "${exports}"
    CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON)
endfunction()
