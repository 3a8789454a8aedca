// SPDX-License-Identifier: Apache-2.0
// EXPECT: from_generator takes a function of nothing or of the position
#include <string>

#include <replicator/data/generator.hpp>

auto input = replicator::data::from_generator([](std::string) { return replicator::Array<float>{}; });
