// SPDX-License-Identifier: Apache-2.0
// A folder with one sub-folder of JPEG files per class, read as torchvision's ImageFolder reads it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <replicator/core/error.hpp>
#include <replicator/data/index.hpp>
#include <string>
#include <string_view>
#include <system_error>
#include <tuple>
#include <utility>
#include <vector>

namespace replicator::data {

// The list of the files, shared by copies (one scan serves all replicas), and the order in which to read them.
class ImageFolder {
 public:
  struct Item {
    std::string path;
    std::int32_t label = 0;
    std::int64_t epoch = 0;
    std::int64_t number = 0;  // the position in the whole job
  };

  // Throws DataError that names the folder when it is not as image_folder() describes.
  explicit ImageFolder(const std::string& root) : list_{std::make_shared<const List>(scan(root))}, index_{images()} {}

  // Names of the classes, sorted; a label counts in this order.
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
  struct List {
    std::string root;
    std::vector<std::string> classes;
    std::vector<std::string> files;  // relative to the root
    std::vector<std::int32_t> labels;
  };

  static bool is_jpeg(std::string_view name) {
    const auto dot = name.rfind('.');
    if (dot == std::string_view::npos) return false;
    std::string ending{name.substr(dot)};
    for (char& c : ending)
      if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
    return ending == ".jpg" || ending == ".jpeg";
  }

  [[noreturn]] static void refuse(const std::string& folder, const std::string& found) {
    throw DataError{folder + ": " + found + "; expected one sub-folder per class with .jpg or .jpeg files in it, as " +
                    "in <folder>/cat/1.jpg, <folder>/dog/2.jpg"};
  }

  // JPEG files of one class: those of a folder by name, the folders below it by their whole path.
  static std::vector<std::string> files_of(const std::string& root, const std::string& name) {
    namespace fs = std::filesystem;
    std::vector<std::pair<std::string, std::string>> found;  // folder, file
    for (const auto& entry :
         fs::recursive_directory_iterator{root + "/" + name, fs::directory_options::follow_directory_symlink})
      if (is_jpeg(entry.path().filename().native()) && !entry.is_directory()) {
        if (!entry.is_regular_file()) throw DataError{entry.path().native() + " is no file: a link that leads nowhere, or a device"};
        found.emplace_back(entry.path().parent_path().native(), entry.path().filename().native());
      }
    std::sort(found.begin(), found.end());
    std::vector<std::string> files;
    for (const auto& [folder, file] : found) files.push_back((folder + "/" + file).substr(root.size() + 1));
    return files;
  }

  static List scan(const std::string& root) try {
    namespace fs = std::filesystem;
    if (!fs::is_directory(root)) refuse(root, fs::exists(root) ? "this is not a folder" : "there is no such folder");
    List list{root, {}, {}, {}};
    for (const auto& entry : fs::directory_iterator{root})
      if (entry.is_directory()) list.classes.push_back(entry.path().filename().native());
    if (list.classes.empty()) refuse(root, "the folder has no sub-folders");
    std::sort(list.classes.begin(), list.classes.end());
    for (std::size_t label = 0; label < list.classes.size(); ++label) {
      std::vector<std::string> files = files_of(root, list.classes[label]);
      if (files.empty()) refuse(root, "the sub-folder \"" + list.classes[label] + "\" has no JPEG files");
      list.labels.insert(list.labels.end(), files.size(), static_cast<std::int32_t>(label));
      std::move(files.begin(), files.end(), std::back_inserter(list.files));
    }
    return list;
  } catch (const std::filesystem::filesystem_error& error) {
    throw DataError{root + ": " + error.what()};
  }

  std::shared_ptr<const List> list_;
  Index index_;
};

// Scans `root` at once: its sub-folders are the classes (sorted by name), their .jpg and .jpeg files (upper case too,
// sorted, folders below included) the images. Throws DataError when the folder is missing, has no sub-folders, one
// of them has no JPEG files, or what is named so is no file.
inline ImageFolder image_folder(const std::string& root) { return ImageFolder{root}; }

}  // namespace replicator::data
