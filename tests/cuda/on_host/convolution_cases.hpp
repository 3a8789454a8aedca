// SPDX-License-Identifier: Apache-2.0
// Shapes and options of convolutions, for tests that compare kernels.
#pragma once

#include <replicator/ops/convolution.hpp>

namespace replicator::test {

using namespace replicator::detail;

struct ConvolutionCase {
  Shape x, w;
  ConvolutionOptions options = {};
  Shape y() const { return detail::convolution_shape(x, w, options); }
};

// These cover padding, also of one side, strides, dilation, groups, one channel, and one pixel.
inline const ConvolutionCase convolution_cases[] = {{{2, 3, 9, 8}, {4, 3, 3, 3}, {.padding = {1, 1}}},
                                                    {{2, 5, 8, 6}, {7, 5, 1, 1}, {.stride = {2, 2}}},
                                                    {{1, 3, 17, 16}, {5, 3, 7, 7}, {.stride = {2, 2}, .padding = {3, 3}}},
                                                    {{2, 8, 10, 10}, {8, 4, 3, 3}, {.padding = {2, 2}, .dilation = {2, 2}, .groups = 2}},
                                                    {{3, 1, 6, 5}, {4, 1, 3, 2}},
                                                    {{2, 6, 1, 1}, {4, 6, 1, 1}},
                                                    {{2, 3, 7, 6}, {4, 3, 3, 2}, {.padding = {{1, 0}, {0, 1}}}},
                                                    {{1, 4, 6, 7}, {8, 1, 3, 3}, {.stride = {2, 1}, .padding = {1, 1}, .groups = 4}}};

}  // namespace replicator::test
