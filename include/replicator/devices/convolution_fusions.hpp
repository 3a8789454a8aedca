// SPDX-License-Identifier: Apache-2.0
// Which operations are fused with convolutions. They run in one kernel with the convolution where the kind of device has one.
#pragma once

#include <string>
#include <string_view>

#include <replicator/core/error.hpp>

namespace replicator {

// Each fusion changes bits.
struct ConvolutionFusions {
  bool statistics = false;  // the sums of the result that a batch norm needs (ops/fusion/fuse_statistics.hpp)
  bool prologue = false;    // scale, bias and ReLU of an input that only the convolution reads (ops/fusion/fuse_prologues.hpp)
  bool epilogue = false;    // scale, bias, residual sum and ReLU, where nothing else reads the result (ops/fusion/fuse_epilogues.hpp)

  bool any() const { return statistics || prologue || epilogue; }
  // For example "statistics,epilogue". Empty where nothing is fused.
  std::string text() const {
    std::string names;
    const auto add = [&](bool wanted, const char* name) {
      if (wanted) names += (names.empty() ? "" : ",") + std::string{name};
    };
    add(statistics, "statistics");
    add(prologue, "prologue");
    add(epilogue, "epilogue");
    return names;
  }
  // Parses "all", or what text() gives where something is fused. Throws BuildError for any other word. `what` names the text in
  // the error: "--fuse-convolutions".
  static ConvolutionFusions parse(std::string_view what, std::string_view text) {
    ConvolutionFusions result;
    if (text == "all") return {true, true, true};
    for (auto rest = text;;) {
      const auto comma = rest.find(',');
      const auto name = rest.substr(0, comma);
      if (name == "statistics") result.statistics = true;
      else if (name == "prologue") result.prologue = true;
      else if (name == "epilogue") result.epilogue = true;
      else
        throw BuildError{std::string{what} + " is \"" + std::string{text} +
                         "\": it must be all, or some of statistics, prologue and epilogue with commas between them"};
      if (comma == rest.npos) return result;
      rest = rest.substr(comma + 1);
    }
  }
  friend bool operator==(const ConvolutionFusions&, const ConvolutionFusions&) = default;
};

}  // namespace replicator
