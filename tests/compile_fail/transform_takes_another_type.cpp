// SPDX-License-Identifier: Apache-2.0
// EXPECT: the function of transform() cannot take the components of the elements before it, nor the element
#include <replicator/data/generator.hpp>
#include <replicator/data/transform.hpp>

using namespace replicator;

int main() {
  auto input = data::from_generator([] { return Array<float>{Shape{}}; }) | data::transform([](Array<bool> x) { return x; });
}
