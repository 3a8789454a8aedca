# SPDX-License-Identifier: Apache-2.0
"""The headers of replicator as a Conan 2 package: `conan create packaging/conan -s compiler.cppstd=20`."""
import os
import re

from conan import ConanFile
from conan.tools.build import check_min_cppstd
from conan.tools.cmake import CMake, CMakeToolchain
from conan.tools.files import copy, load


class Replicator(ConanFile):
    name = "replicator"
    description = "One step function, any number of replicas, any placement, the same bits"
    license = "Apache-2.0"
    topics = ("distributed-training", "collectives", "determinism", "header-only")
    package_type = "header-library"
    settings = "os", "arch", "compiler", "build_type"

    @property
    def root(self):
        return os.path.join(self.recipe_folder, "..", "..")

    def set_version(self):
        self.version = re.search("REPLICATOR_VERSION ([0-9.]+)", load(self, os.path.join(self.root, "cmake", "version.cmake")))[1]

    def export_sources(self):
        for pattern in ("CMakeLists.txt", "LICENSE", "cmake/*", "include/*"):
            copy(self, pattern, self.root, self.export_sources_folder)

    def validate(self):
        check_min_cppstd(self, 20)

    def package_id(self):
        self.info.clear()

    def generate(self):
        toolchain = CMakeToolchain(self)
        for name in ("PROGRAMS", "TESTS", "WITH_COMPILED", "WITH_C"):
            toolchain.cache_variables["REPLICATOR_" + name] = "OFF"
        toolchain.generate()

    def build(self):
        CMake(self).configure()

    def package(self):
        CMake(self).install()
        copy(self, "LICENSE", self.source_folder, os.path.join(self.package_folder, "licenses"))

    def package_info(self):
        self.cpp_info.set_property("cmake_find_mode", "none")  # it brings its own package file
        self.cpp_info.builddirs = ["share/cmake/replicator"]
        self.cpp_info.bindirs = self.cpp_info.libdirs = []
