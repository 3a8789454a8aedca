# SPDX-License-Identifier: Apache-2.0
# Determines the external libraries that a file of this project needs, from its #include lines. So no list must be
# kept.

# Patterns of included headers and file names, each with the library they need.
set(replicator_include_needs
  "^dnnl" onednn  "^uc[pst]/" ucx  "^pmix" pmix  "^mpi\\.h$" mpi  "^curl/" curl  "^turbojpeg" jpeg  "^png\\.h$" png  "^mujoco/" mujoco  "^EGL/" egl  "^cublas" cublaslt  "^cudnn" cudnn  "^nvrtc" nvrtc
  "^replicator/with/onednn" onednn  "^replicator/with/ucx" ucx  "^replicator/with/pmix" pmix
  "^replicator/with/jpeg" jpeg  "^replicator/with/png" png
  "^(cuda_runtime|cuda_|nvtx3/)|\\.cuh$" cuda
  "^catch2/" catch2  "^rapidcheck" rapidcheck  "^CLI/" cli11  "^nlohmann/" json  "^benchmark/" benchmark  "^zlib\\.h$" zlib
  "^replicator/replicator_c\\.h$" c)
set(replicator_name_needs onednn onednn  ucx ucx  pmix pmix  _mpi mpi  jpeg jpeg  cuda cuda  "\\.cuh?$" cuda)

# replicator_includes(<file> <variable>): the file and everything it includes from this project, directly or not.
function(replicator_includes file out)
  get_property(seen GLOBAL PROPERTY "replicator closure ${file}")
  if(NOT seen)
    set_property(GLOBAL PROPERTY "replicator closure ${file}" "${file}")  # ends a circle of includes
    replicator_read_includes("${file}")
    get_property(included GLOBAL PROPERTY "replicator includes ${file}")
    set(seen "${file}")
    foreach(next IN LISTS included)
      replicator_includes("${next}" more)
      list(APPEND seen ${more})
    endforeach()
    list(REMOVE_DUPLICATES seen)
    set_property(GLOBAL PROPERTY "replicator closure ${file}" "${seen}")
  endif()
  set(${out} "${seen}" PARENT_SCOPE)
endfunction()

# replicator_needs(<file> <variable>): the needs of the file and of everything it includes.
function(replicator_needs file out)
  get_property(known GLOBAL PROPERTY "replicator all needs ${file}" SET)
  if(NOT known)
    replicator_includes("${file}" files)
    set(needs "")
    foreach(included IN LISTS files)
      get_property(own GLOBAL PROPERTY "replicator needs ${included}")
      list(APPEND needs ${own})
    endforeach()
    list(REMOVE_DUPLICATES needs)
    set_property(GLOBAL PROPERTY "replicator all needs ${file}" "${needs}")
  endif()
  get_property(needs GLOBAL PROPERTY "replicator all needs ${file}")
  set(${out} "${needs}" PARENT_SCOPE)
endfunction()

# Reads one file, once. Sets "replicator includes <file>" to the files of this project that it includes, and
# "replicator needs <file>" to its own needs. Ignores includes between #if and #endif: the file works without them.
function(replicator_read_includes file)
  get_property(known GLOBAL PROPERTY "replicator includes ${file}" SET)
  if(known)
    return()
  endif()
  cmake_path(GET file PARENT_PATH folder)
  cmake_path(GET file FILENAME name)
  replicator_match("${name}" "${replicator_name_needs}" needs)
  set(includes "")
  set(depth 0)
  file(STRINGS "${file}" lines REGEX "^ *# *(include|if|endif)")
  foreach(line IN LISTS lines)
    if(line MATCHES "# *if")
      math(EXPR depth "${depth} + 1")
    elseif(line MATCHES "# *endif")
      math(EXPR depth "${depth} - 1")
    elseif(depth EQUAL 0 AND line MATCHES "include *[<\"]([^>\"]+)[>\"]")
      set(include "${CMAKE_MATCH_1}")
      replicator_match("${include}" "${replicator_include_needs}" more)
      list(APPEND needs ${more})
      foreach(base "${PROJECT_SOURCE_DIR}/include" "${folder}")
        if(EXISTS "${base}/${include}")
          cmake_path(SET path NORMALIZE "${base}/${include}")
          list(APPEND includes "${path}")
          break()
        endif()
      endforeach()
    endif()
  endforeach()
  set_property(GLOBAL PROPERTY "replicator includes ${file}" "${includes}")
  set_property(GLOBAL PROPERTY "replicator needs ${file}" "${needs}")
endfunction()

# The needs in `table` (pattern, need, pattern, need, ...) with a pattern that matches the text.
function(replicator_match text table out)
  set(needs "")
  while(table)
    list(POP_FRONT table pattern need)
    if(text MATCHES "${pattern}")
      list(APPEND needs ${need})
    endif()
  endwhile()
  set(${out} "${needs}" PARENT_SCOPE)
endfunction()

# replicator_missing(<file> <variable>): says why <file> cannot be built here; empty if it can.
function(replicator_missing file out)
  replicator_needs("${file}" needs)
  set(sentences "")
  foreach(need IN LISTS needs)
    if(NOT TARGET replicator::${need})
      list(APPEND sentences "${need}: ${replicator_${need}_NOT_FOUND_MESSAGE}")
    endif()
  endforeach()
  list(JOIN sentences ", " sentences)
  set(${out} "${sentences}" PARENT_SCOPE)
endfunction()

# Libraries that tests, examples and benchmarks use besides the components.
function(replicator_find_tool name target package)
  if(TARGET ${target})
    add_library(replicator::${name} INTERFACE IMPORTED GLOBAL)
    target_link_libraries(replicator::${name} INTERFACE ${target})
  else()
    set(replicator_${name}_NOT_FOUND_MESSAGE "not found (Debian: ${package})" PARENT_SCOPE)
  endif()
endfunction()

set(CMAKE_FIND_PACKAGE_TARGETS_GLOBAL ON)
find_package(Catch2 2.13 QUIET)
if(NOT TARGET Catch2::Catch2)  # its single header is enough
  find_path(REPLICATOR_CATCH2_INCLUDE_DIR catch2/catch.hpp)
  mark_as_advanced(REPLICATOR_CATCH2_INCLUDE_DIR)
  if(REPLICATOR_CATCH2_INCLUDE_DIR)
    add_library(Catch2::Catch2 INTERFACE IMPORTED GLOBAL)
    target_include_directories(Catch2::Catch2 INTERFACE "${REPLICATOR_CATCH2_INCLUDE_DIR}")
  endif()
endif()
find_package(rapidcheck QUIET)
find_package(CLI11 QUIET)
find_package(nlohmann_json QUIET)
find_package(benchmark QUIET)
find_package(ZLIB QUIET)
replicator_find_tool(catch2 Catch2::Catch2 catch2)
replicator_find_tool(rapidcheck rapidcheck librapidcheck-dev)
replicator_find_tool(cli11 CLI11::CLI11 libcli11-dev)
replicator_find_tool(json nlohmann_json::nlohmann_json nlohmann-json3-dev)
replicator_find_tool(benchmark benchmark::benchmark libbenchmark-dev)
replicator_find_tool(zlib ZLIB::ZLIB zlib1g-dev)

# All components except cuda, cublaslt, cudnn and nvrtc, which only code compiled by nvcc links. --as-needed
# drops unused libraries.
add_library(replicator-everything INTERFACE)
target_link_libraries(replicator-everything INTERFACE replicator::replicator)
foreach(component onednn ucx pmix mpi curl jpeg png mujoco egl)
  target_link_libraries(replicator-everything INTERFACE $<TARGET_NAME_IF_EXISTS:replicator::${component}>)
endforeach()
target_link_options(replicator-everything INTERFACE LINKER:--as-needed)

# replicator_link(<target> <files>...): links the libraries that these files need. It adds every component for files
# that choose by __has_include.
function(replicator_link target)
  get_target_property(type ${target} TYPE)
  set(scope PRIVATE)
  if(type STREQUAL "INTERFACE_LIBRARY")
    set(scope INTERFACE)
  endif()
  set(all_needs "")
  foreach(file IN LISTS ARGN)
    replicator_needs("${file}" needs)
    list(APPEND all_needs ${needs})
    replicator_includes("${file}" includes)
    foreach(header replicate/engine world/world)  # replicator::compiled holds their code
      if(TARGET replicator::compiled AND "${PROJECT_SOURCE_DIR}/include/replicator/${header}.hpp" IN_LIST includes)
        list(APPEND all_needs compiled)
      endif()
    endforeach()
  endforeach()
  foreach(optional cublaslt cudnn nvrtc)  # cuda/kernels.cuh chooses by __has_include
    if(TARGET replicator::${optional} AND "cuda" IN_LIST all_needs)
      list(APPEND all_needs ${optional})
    endif()
  endforeach()
  list(REMOVE_DUPLICATES all_needs)
  list(TRANSFORM all_needs PREPEND "replicator::")
  target_link_libraries(${target} ${scope} replicator-everything ${all_needs})
  target_compile_options(${target} ${scope}
    "$<$<COMPILE_LANGUAGE:CXX>:-Wall;-Wextra;-Wpedantic>"
    "$<$<COMPILE_LANG_AND_ID:CXX,Clang>:-Wno-unknown-pragmas;-Wno-unknown-warning-option>"  # hints for g++
    $<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-Wall,-Wextra>)
endfunction()

# replicator_link_cuda_kernels(<target> <files>...): replicator_link, plus the kernels of `cuda`. The kernels register
# themselves, so one slow compilation by nvcc serves all programs.
function(replicator_link_cuda_kernels target)
  if(NOT TARGET replicator-cuda-kernels)
    set(source "${PROJECT_BINARY_DIR}/cuda_kernels.cu")
    file(CONFIGURE OUTPUT "${source}" CONTENT "#include <replicator/cuda/kernels.cuh>\n" @ONLY)
    add_library(replicator-cuda-kernels OBJECT "${source}")
    replicator_link(replicator-cuda-kernels "${source}")
  endif()
  target_sources(${target} PRIVATE $<TARGET_OBJECTS:replicator-cuda-kernels>)
  replicator_link(${target} ${ARGN} "${PROJECT_SOURCE_DIR}/include/replicator/cuda/kernels.cuh")
endfunction()

# replicator_add_cuda_twin(<target> <file>): adds the program <target>_cuda from the objects of <target>, compiled from
# this file, and the kernels of `cuda`.
function(replicator_add_cuda_twin target file)
  if(NOT TARGET ${target} OR NOT TARGET replicator::cuda OR TARGET ${target}_cuda)
    return()
  endif()
  cmake_path(GET file STEM name)
  add_executable(${target}_cuda $<TARGET_OBJECTS:${target}>)
  set_target_properties(${target}_cuda PROPERTIES OUTPUT_NAME ${name}_cuda LINKER_LANGUAGE CXX)
  replicator_link_cuda_kernels(${target}_cuda "${file}")
endfunction()

# replicator_add_programs(<folder> <prefix>): one executable per *.cpp and *.cu of the folder, with the target
# <prefix><name>. Prints why an executable is left out.
function(replicator_add_programs folder prefix)
  file(GLOB files CONFIGURE_DEPENDS "${folder}/*.cpp" "${folder}/*.cu")
  foreach(file IN LISTS files)
    cmake_path(GET file STEM name)
    replicator_missing("${file}" missing)
    if(missing)
      message(STATUS "${folder}/${name} is left out: it needs ${missing}")
    else()
      add_executable(${prefix}${name} "${file}")
      set_target_properties(${prefix}${name} PROPERTIES OUTPUT_NAME ${name})
      replicator_link(${prefix}${name} "${file}")
    endif()
  endforeach()
endfunction()
