// SPDX-License-Identifier: Apache-2.0
// Help: writes a program's own flags as Deployment::help() writes those of the deployment: "  --steps N    what it is (default)".
#pragma once

#include <algorithm>
#include <cstddef>
#include <sstream>
#include <string>

#include <CLI/CLI.hpp>

namespace example {

class Help : public CLI::Formatter {
 public:
  std::string make_option(const CLI::Option* option, bool) const override {
    const auto& names = option->get_lnames();  // two where "no-" switches it off
    std::string flag = (names.size() > 1 ? "--[no-]" : "--") + names.front();
    const std::string type = option->get_type_size() == 0 ? "" : option->get_type_name();  // "INT:{18,34}", "FLOAT:FLOAT in [0 - 1]"
    if (!type.empty()) flag += type.starts_with("INT") ? " N" : type.starts_with("FLOAT") ? " X"
                                                                                          : " TEXT";
    const auto choices = type.find('{');
    std::string text = option->get_description();
    if (choices != std::string::npos) text += ": " + CLI::detail::find_and_replace(type.substr(choices + 1, type.find('}') - choices - 1), ",", ", ");
    if (const std::string value = option->get_default_str(); !value.empty()) text += " (" + value + ")";
    return in_columns(flag, text);
  }

 private:
  static constexpr std::size_t column = 26;  // where Deployment::help() begins its texts
  static constexpr std::size_t line = 140;

  static std::string in_columns(const std::string& flag, const std::string& text) {
    std::string result = "  " + flag;
    result.resize(std::max(column, result.size() + 2), ' ');
    std::size_t width = result.size();
    std::istringstream words{text};
    for (std::string word, gap; words >> word; gap = " ") {
      if (width + gap.size() + word.size() > line) {
        result += '\n' + std::string(column, ' ');
        width = column;
        gap.clear();
      }
      result += gap + word;
      width += gap.size() + word.size();
    }
    return result + '\n';
  }
};

}  // namespace example
