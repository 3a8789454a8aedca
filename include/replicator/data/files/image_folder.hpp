// SPDX-License-Identifier: Apache-2.0
// A source of labelled JPEG and PNG files: a folder with one sub-folder per class, as torchvision's ImageFolder.
// <replicator/replicator.hpp>, or scan_image_folder.hpp, brings the code.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <replicator/data/index.hpp>
#include <string>
#include <vector>

namespace replicator::data {

namespace detail {

// The picture files of a folder.
struct PictureFiles {
  std::string root;
  std::vector<std::string> classes;
  std::vector<std::string> files;  // relative to the root
  std::vector<std::int32_t> labels;
};
template <class = void>
std::shared_ptr<const PictureFiles> scan_image_folder(const std::string& root);

}  // namespace detail

// A list of files and the order in which to read them. Copies share the list, so one scan serves all replicas.
class ImageFolder {
 public:
  struct Item {
    std::string path;
    std::int32_t label = 0;
    std::int64_t epoch = 0;
    std::int64_t number = 0;  // the position in the whole job
  };

  // Throws DataError that names the folder if it is not as image_folder() describes.
  explicit ImageFolder(const std::string& root) : list_{detail::scan_image_folder(root)}, index_{images()} {}

  // The names of the classes, sorted; a label is an index into this list.
  const std::vector<std::string>& classes() const { return list_->classes; }
  std::int64_t images() const { return static_cast<std::int64_t>(list_->files.size()); }

  Item operator()(std::int64_t position) const {
    const Index::Place place = index_(position);
    const auto i = static_cast<std::size_t>(place.item);
    return {list_->root + "/" + list_->files[i], list_->labels[i], place.epoch, place.number};
  }
  Index& index() { return index_; }
  const Index& index() const { return index_; }

 private:
  std::shared_ptr<const detail::PictureFiles> list_;
  Index index_;
};

// Scans `root` at once. Its sub-folders are the classes, sorted by name. Their .jpg, .jpeg and .png files, in upper or lower
// case and with those of nested folders, are the images, sorted. Pictures of other formats are skipped, and one line on
// stderr says how many.
// Throws DataError if the folder is missing, has no sub-folders, a sub-folder has no such files, or something with such
// a name is no file.
inline ImageFolder image_folder(const std::string& root) { return ImageFolder{root}; }

}  // namespace replicator::data
