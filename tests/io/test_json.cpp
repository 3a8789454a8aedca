// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch.hpp>

#include <clocale>
#include <cmath>
#include <cstdlib>
#include <string>

#include <nlohmann/json.hpp>
#include <rapidcheck.h>

#include <replicator/core/json.hpp>

#include "../input/temporary_folder.hpp"

namespace test_json {

using namespace replicator;

namespace {

std::string text_of(double number) {
  JsonWriter json;
  json.value(number);
  return json.text();
}

// A locale that writes 0,5: one that is installed, or made here of the sources of the C library's. False where there is neither.
bool enter_comma_locale(const std::string& folder) {
  for (const char* name : {"de_DE.UTF-8", "fr_FR.UTF-8", "ru_RU.UTF-8"})
    if (std::setlocale(LC_NUMERIC, name)) return true;
  if (std::system(("localedef -i de_DE -f UTF-8 '" + folder + "/de_DE.UTF-8' > /dev/null 2>&1").c_str()) != 0) return false;
  ::setenv("LOCPATH", folder.c_str(), 1);
  const bool entered = std::setlocale(LC_NUMERIC, "de_DE.UTF-8") != nullptr;
  ::unsetenv("LOCPATH");
  return entered;
}

}  // namespace

TEST_CASE("numbers are JSON whatever the program's locale") {
  const TemporaryFolder folder;
  if (!enter_comma_locale(folder.path())) {
    WARN("skipped: no locale with a decimal comma is installed, and localedef cannot make one (Debian: locales)");
    return;
  }
  const auto text = text_of(0.5);
  std::setlocale(LC_NUMERIC, "C");
  CHECK(text == "0.5");
}

TEST_CASE("what is written of a number is read as that number to 10 digits; what is not finite is null") {
  CHECK(rc::check([] {
    const auto number = *rc::gen::arbitrary<double>();
    RC_PRE(std::isfinite(number));
    const auto read = nlohmann::json::parse(text_of(number)).get<double>();
    RC_ASSERT(std::abs(read - number) <= 1e-9 * std::abs(number));
  }));
  CHECK(text_of(INFINITY) == "null");
  CHECK(text_of(-NAN) == "null");
  CHECK(text_of(1e300) == "1e+300");
  CHECK(text_of(-0.000125) == "-0.000125");
}

}  // namespace test_json
