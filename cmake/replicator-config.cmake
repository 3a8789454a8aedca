# SPDX-License-Identifier: Apache-2.0
# find_package(replicator [COMPONENTS onednn ucx pmix mpi curl jpeg png mujoco egl cuda cublaslt cudnn nvrtc compiled c]
# [OPTIONAL_COMPONENTS ...]) defines replicator::replicator, and a target for each requested component that was found.
# For the others, replicator_<component>_NOT_FOUND_MESSAGE holds the reason.
include(CMakeFindDependencyMacro)
find_dependency(Threads)
find_dependency(OpenMP COMPONENTS CXX)
include("${CMAKE_CURRENT_LIST_DIR}/replicator-targets.cmake")
include("${CMAKE_CURRENT_LIST_DIR}/components.cmake")
foreach(component IN LISTS replicator_FIND_COMPONENTS)
  replicator_find_component(${component})
  if(TARGET replicator::${component})
    set(replicator_${component}_FOUND TRUE)
  else()
    set(replicator_${component}_FOUND FALSE)
    if(replicator_FIND_REQUIRED_${component})
      set(replicator_FOUND FALSE)
      string(APPEND replicator_NOT_FOUND_MESSAGE "${component}: ${replicator_${component}_NOT_FOUND_MESSAGE}. ")
    elseif(NOT replicator_FIND_QUIETLY)
      message(STATUS "replicator::${component} is absent: ${replicator_${component}_NOT_FOUND_MESSAGE}")
    endif()
  endif()
endforeach()
