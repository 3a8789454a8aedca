// SPDX-License-Identifier: Apache-2.0
// Reads a picture file as bytes. <replicator/replicator.hpp>, or picture_decoder.hpp, brings the code; the components `jpeg`
// and `png` hold the decoders.
#pragma once

#include <cstdint>
#include <replicator/core/array.hpp>
#include <string>

namespace replicator::data {

namespace detail {

// The same limit as in Python's PIL, which suspects an attack above it.
inline constexpr std::int64_t most_picture_pixels = 178'956'970;

}  // namespace detail

// Reads a JPEG or PNG picture as bytes of shape [height, width, 3], turned upright as its EXIF data say. What becomes of
// other colours than 8-bit RGB stands at decode_images().
// Throws DataError that names the file, also where it claims more than `most_pixels`: before memory is taken for them.
template <class = void>
Array<std::uint8_t> read_image(const std::string& path, std::int64_t most_pixels = detail::most_picture_pixels);

}  // namespace replicator::data
