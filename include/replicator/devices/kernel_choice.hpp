// SPDX-License-Identifier: Apache-2.0
// What a run allows libraries of kernels (oneDNN, cuDNN, cuBLAS) to do for speed. By default they add rounded products in a fixed order.
#pragma once

#include <string>
#include <string_view>

#include <replicator/devices/convolution_fusions.hpp>

namespace replicator {

// Each option changes bits, so all processes of a job must allow the same. `winograd` is for CPUs. `fuse_convolutions` changes
// graphs, so it holds for all kinds of devices. The others are for GPUs.
struct KernelChoice {
  bool winograd = false;          // convolutions of float32 with windows of 3x3 may add transformed factors, where that is faster
  bool tf32 = false;              // products and convolutions of float32 may cut the fractions of factors to 10 bits
  bool fastest = false;           // the algorithm that the library thinks fastest, even one with different bits from run to run
  bool row_major_images = false;  // convolutions in NCHW instead of NHWC, to compare their speed
  ConvolutionFusions fuse_convolutions = {};

  // The flags that ask for it, for example "--tf32 --fastest-kernels", or "none of them".
  std::string text() const {
    std::string flags;
    const auto add = [&](bool given, const std::string& flag) {
      if (given) flags += (flags.empty() ? "" : " ") + flag;
    };
    add(winograd, "--winograd");
    add(tf32, "--tf32");
    add(fastest, "--fastest-kernels");
    add(row_major_images, "--row-major-images");
    add(fuse_convolutions.any(), std::string{fusions} + fuse_convolutions.text());
    return flags.empty() ? "none of them" : flags;
  }
  // Parses what text() gives.
  static KernelChoice from(const std::string& text) {
    const auto given = [&](const char* flag) { return text.find(flag) != std::string::npos; };
    KernelChoice choice{given("--winograd"), given("--tf32"), given("--fastest-kernels"), given("--row-major-images")};
    if (const auto at = text.find(fusions); at != std::string::npos)
      choice.fuse_convolutions = ConvolutionFusions::parse("--fuse-convolutions", std::string_view{text}.substr(at + fusions.size()));
    return choice;
  }
  friend bool operator==(const KernelChoice&, const KernelChoice&) = default;

 private:
  static constexpr std::string_view fusions = "--fuse-convolutions ";  // the last of the flags
};

}  // namespace replicator
