// SPDX-License-Identifier: Apache-2.0
// RecordOptions: the parsed value of the flag --record replica=3,steps=100:110,file=F.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include <replicator/core/error.hpp>
#include <replicator/core/parse.hpp>
#include <replicator/runtime/see/trace_window.hpp>

namespace replicator {

// Parses "1:11" as the steps 1 to 10. Throws BuildError, with the flag's name, for anything else.
template <class = void>
detail::TraceWindow parse_steps(std::string_view flag, std::string_view text) {
  const auto colon = text.find(':');
  const auto first = detail::whole_number<std::uint64_t>(text.substr(0, colon));
  const auto end = colon == std::string_view::npos ? std::nullopt : detail::whole_number<std::uint64_t>(text.substr(colon + 1));
  if (!first || !end || *first >= *end)
    throw BuildError{std::string{flag} + " is \"" + std::string{text} +
                     "\": it must be two whole numbers, as in 1:11, the first below the second"};
  return {*first, *end};
}

// The replica and steps to record, and the file to write.
struct RecordOptions {
  int replica = 0;
  detail::TraceWindow steps;  // counted for each replicated step
  std::string file;           // default: "replicaN.safetensors"

  // Throws BuildError for anything but replica=N,steps=A:B[,file=F], in any order.
  template <class = void>
  static RecordOptions parse(std::string_view text) {
    RecordOptions result;
    bool replica = false, steps = false;
    const auto bad = [&](const std::string& what) {
      return BuildError{"--record is \"" + std::string{text} + "\": " + what +
                        "; write it as replica=3,steps=100:110 or replica=3,steps=100:110,file=F"};
    };
    for (auto rest = text; !rest.empty();) {
      const auto item = rest.substr(0, rest.find(','));
      rest.remove_prefix(item.size() + (item.size() < rest.size() ? 1 : 0));
      const auto equals = item.find('=');
      const auto value = equals == std::string_view::npos ? std::string_view{} : item.substr(equals + 1);
      const auto key = item.substr(0, equals);
      if (key == "replica") {
        const auto number = detail::whole_number<int>(value);
        if (!number) throw bad("replica must be a whole number, at least 0");
        result.replica = *number;
        replica = true;
      } else if (key == "steps") {
        result.steps = parse_steps("--record: steps", value);
        steps = true;
      } else if (key == "file" && !value.empty()) {
        result.file = value;
      } else {
        throw bad("it has \"" + std::string{item} + "\"");
      }
    }
    if (!replica || !steps) throw bad(std::string{"it does not say which "} + (replica ? "steps" : "replica"));
    if (result.file.empty()) result.file = "replica" + std::to_string(result.replica) + ".safetensors";
    return result;
  }
};

}  // namespace replicator
