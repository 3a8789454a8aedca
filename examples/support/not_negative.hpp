// SPDX-License-Identifier: Apache-2.0
// What options of the examples take that may be any number from 0 on.
#pragma once

#include <cmath>
#include <cstdlib>
#include <string>

#include <CLI/CLI.hpp>

namespace examples {

// As CLI::NonNegativeNumber, which lets "nan" pass and writes its upper bound with 300 digits.
inline const CLI::Validator not_negative{[](const std::string& text) {
                                           char* end = nullptr;
                                           const double value = std::strtod(text.c_str(), &end);
                                           const bool number = !text.empty() && *end == '\0';
                                           return number && std::isfinite(value) && value >= 0 ? std::string{} : "\"" + text + "\" is no number from 0 on";
                                         },
                                         "NONNEGATIVE"};

}  // namespace examples
