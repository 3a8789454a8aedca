// SPDX-License-Identifier: Apache-2.0
// The Inception score: how sure a classifier is of each picture, and how evenly its classes occur.
#pragma once

#include <cmath>
#include <cstddef>
#include <string>
#include <vector>

#include <replicator/core/array.hpp>

namespace sngan {

namespace rp = replicator;

// exp(mean over the examples of KL(p(class | example) || p(class))) of probabilities [N, C] with rows that sum to one.
// It ranges from 1 (all alike, or never sure) to C (always sure, all classes equally often). With Inception v3 it is
// the Inception score.
// Throws BuildError for another rank or no examples, and DataError for an invalid probability.
// Source: Salimans et al., "Improved techniques for training GANs", 2016.
inline double inception_score(const rp::Array<float>& probabilities) {
  const rp::Shape& shape = probabilities.shape();
  if (shape.rank() != 2 || shape.elements() == 0)
    throw rp::BuildError{"inception_score: the probabilities must be [N, C] and not empty, found " + shape.text()};
  const auto count = static_cast<std::size_t>(shape[0]), classes = static_cast<std::size_t>(shape[1]);
  std::vector<double> marginal(classes);
  for (std::size_t n = 0; n < count; ++n)
    for (std::size_t c = 0; c < classes; ++c) {
      const auto p = static_cast<double>(probabilities.data()[n * classes + c]);
      if (!(p >= 0 && p < 1.5))  // rounding may bring a softmax slightly above 1
        throw rp::DataError{"inception_score: example " + std::to_string(n) + " has the probability " + std::to_string(p) + " of class " + std::to_string(c) +
                            ": take the softmax of the logits, and look for NaN in what they were computed from"};
      marginal[c] += p / static_cast<double>(count);
    }
  double divergence = 0;
  for (std::size_t n = 0; n < count; ++n)
    for (std::size_t c = 0; c < classes; ++c)
      if (const auto p = static_cast<double>(probabilities.data()[n * classes + c]); p > 0) divergence += p * std::log(p / marginal[c]);
  return std::exp(divergence / static_cast<double>(count));
}

}  // namespace sngan
