# SPDX-License-Identifier: Apache-2.0
# An overlay port: takes the checkout that it lies in.
set(VCPKG_BUILD_TYPE release)  # headers alone
get_filename_component(SOURCE_PATH "${CURRENT_PORT_DIR}/../../.." ABSOLUTE)
vcpkg_cmake_configure(SOURCE_PATH "${SOURCE_PATH}"
  OPTIONS -DREPLICATOR_PROGRAMS=OFF -DREPLICATOR_TESTS=OFF -DREPLICATOR_WITH_COMPILED=OFF -DREPLICATOR_WITH_C=OFF -DREPLICATOR_WITH_CUDA=OFF)
vcpkg_cmake_install()
vcpkg_cmake_config_fixup(CONFIG_PATH share/cmake/replicator)
vcpkg_install_copyright(FILE_LIST "${SOURCE_PATH}/LICENSE")
