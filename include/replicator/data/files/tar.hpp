// SPDX-License-Identifier: Apache-2.0
// Reads samples from tar archives in WebDataset's layout: the files of a sample have one name with different endings,
// and follow one another. <replicator/replicator.hpp>, or tar_samples.hpp, brings the code.
// Source: github.com/webdataset/webdataset ("The WebDataset Format").
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <replicator/core/array.hpp>
#include <replicator/data/files/table.hpp>
#include <replicator/data/index.hpp>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace replicator::data {

namespace detail {

// The places of all samples' components.
class TarSamples;
// Reads the headers of the archives at `path`. Throws DataError as tar() does.
template <class = void>
std::shared_ptr<const TarSamples> scan_tar(const std::string& path, std::vector<std::string> endings);
template <class = void>
std::int64_t sample_count(const TarSamples& samples);
template <class = void>
Array<std::uint8_t> sample_part(const TarSamples& samples, std::int64_t item, std::size_t component);

template <std::size_t N>
struct TarComponents {
  std::shared_ptr<const TarSamples> samples;
  std::int64_t size() const { return sample_count(*samples); }
  auto operator[](std::int64_t item) const {
    return [&]<std::size_t... i>(std::index_sequence<i...>) {
      return std::tuple{sample_part(*samples, item, i)...};
    }
    (std::make_index_sequence<N>{});
  }
};

}  // namespace detail

// The samples of a tar archive, or of all *.tar in a folder. The files of a sample follow one another, and have the
// same name up to the first dot of the file's name. `endings` choose the components: "jpg", "cls"; "jpg;jpeg" for
// either. Elements are tuples of uint8 [bytes] for transform() to decode; for pictures, use tar_pictures(). The
// archives are memory-mapped and their headers read once, so shuffle(), shard() and seeking work over all samples.
// Throws DataError that names archive and byte for a damaged or shortened archive, and for a sample without a
// component.
template <class... Ending>
auto tar(const std::string& path, const Ending&... endings) {
  static_assert(sizeof...(Ending) > 0, "replicator: tar(path, \"jpg\", \"cls\") names the endings of at least one component");
  using Samples = detail::TarComponents<sizeof...(Ending)>;
  return TableSource<Samples>{Samples{detail::scan_tar(path, {std::string{endings}...})}, path};
}

// The pictures and labels of such archives, for decode_images(), as from image_folder().
class TarPictures {
 public:
  struct Item {
    std::string name;  // "<archive>: <key>"
    std::span<const std::byte> bytes;
    std::int32_t label = 0;
    std::int64_t epoch = 0;
    std::int64_t number = 0;  // the position in the whole job
  };

  template <class = void>
  TarPictures(const std::string& path, const std::string& picture, const std::string& label);

  std::int64_t images() const { return index_.size(); }
  template <class = void>
  Item operator()(std::int64_t position) const;
  Index& index() { return index_; }
  const Index& index() const { return index_; }

 private:
  std::shared_ptr<const detail::TarSamples> samples_;
  Index index_;
};

// The archive, or all *.tar of a folder. Every sample is a JPEG or PNG file and its label, a decimal number.
// Throws as tar() does; reading throws DataError for a label that is no number.
template <class = void>
TarPictures tar_pictures(const std::string& path, const std::string& picture = "jpg;jpeg;png", const std::string& label = "cls") {
  return {path, picture, label};
}

}  // namespace replicator::data
