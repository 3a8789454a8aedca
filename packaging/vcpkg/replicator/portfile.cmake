# SPDX-License-Identifier: Apache-2.0
# An overlay port: packages the checkout that contains it.
set(VCPKG_BUILD_TYPE release)  # headers only: a debug build would install the same files
set(VCPKG_FIXUP_ELF_RPATH OFF)  # no libraries: vcpkg would download patchelf for nothing
get_filename_component(SOURCE_PATH "${CURRENT_PORT_DIR}/../../.." ABSOLUTE)

include("${SOURCE_PATH}/cmake/version.cmake")
if(NOT VERSION STREQUAL REPLICATOR_VERSION)
  message(FATAL_ERROR "vcpkg.json has version ${VERSION}, but cmake/version.cmake has ${REPLICATOR_VERSION}: both must be equal")
endif()

# Every component is off, so that the package does not depend on the libraries of this machine.
include("${SOURCE_PATH}/cmake/components.cmake")
set(options -DREPLICATOR_PROGRAMS=OFF -DREPLICATOR_TESTS=OFF)
foreach(component IN LISTS replicator_components)
  string(TOUPPER "-DREPLICATOR_WITH_${component}=OFF" option)
  list(APPEND options "${option}")
endforeach()
vcpkg_cmake_configure(SOURCE_PATH "${SOURCE_PATH}" OPTIONS ${options})
vcpkg_cmake_install()
vcpkg_cmake_config_fixup(CONFIG_PATH share/cmake/replicator)

vcpkg_install_copyright(FILE_LIST "${SOURCE_PATH}/LICENSE")
file(INSTALL "${CURRENT_PORT_DIR}/usage" DESTINATION "${CURRENT_PACKAGES_DIR}/share/${PORT}")
