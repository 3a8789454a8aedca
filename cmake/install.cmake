# SPDX-License-Identifier: Apache-2.0
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)
set(package_dir "${CMAKE_INSTALL_DATADIR}/cmake/replicator")
set(independent ARCH_INDEPENDENT)
install(TARGETS replicator EXPORT replicator FILE_SET HEADERS)
if(TARGET replicator-c)
  set(package_dir "${CMAKE_INSTALL_LIBDIR}/cmake/replicator")
  set(independent "")
  install(TARGETS replicator-c EXPORT replicator FILE_SET HEADERS)
endif()
install(EXPORT replicator NAMESPACE replicator:: FILE replicator-targets.cmake DESTINATION "${package_dir}")
write_basic_package_version_file("${PROJECT_BINARY_DIR}/replicator-config-version.cmake"
                                 COMPATIBILITY SameMinorVersion ${independent})
install(FILES cmake/replicator-config.cmake cmake/components.cmake cmake/compiled.cpp
              "${PROJECT_BINARY_DIR}/replicator-config-version.cmake" DESTINATION "${package_dir}")
install(DIRECTORY cmake/components DESTINATION "${package_dir}")
