// SPDX-License-Identifier: Apache-2.0
// Encodes JPEG files. <replicator/replicator.hpp>, or jpeg_decoder.hpp, brings the code if the program links the component `jpeg`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <replicator/core/array.hpp>
#include <vector>

namespace replicator::data {

// Encodes `pixels` of shape [height, width, 3], or [height, width] for grey, as a JPEG file; quality is 1 to 100.
// Colours are stored at half the resolution, as in most JPEG files.
// Throws BuildError for another shape, an empty picture or another quality.
template <class = void>
std::vector<std::byte> encode_jpeg(const Array<std::uint8_t>& pixels, int quality = 90);

}  // namespace replicator::data
