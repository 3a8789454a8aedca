// SPDX-License-Identifier: Apache-2.0
// The code of image_folder.hpp: finds the picture files of a folder with one sub-folder per class.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <iterator>
#include <memory>
#include <mutex>
#include <replicator/core/error.hpp>
#include <replicator/core/printable.hpp>
#include <replicator/data/files/image_folder.hpp>
#include <replicator/data/index_stages.hpp>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace replicator::data::detail {

class ImageFolderScan {
 public:
  static PictureFiles scan(const std::string& root) try {
    namespace fs = std::filesystem;
    if (!fs::is_directory(root)) refuse(root, fs::exists(root) ? "this is not a folder" : "there is no such folder");
    PictureFiles list{root, {}, {}, {}};
    for (const auto& entry : fs::directory_iterator{root})
      if (entry.is_directory()) list.classes.push_back(entry.path().filename().native());
    if (list.classes.empty()) refuse(root, "the folder has no sub-folders");
    std::sort(list.classes.begin(), list.classes.end());
    Skipped skipped;
    for (std::size_t label = 0; label < list.classes.size(); ++label) {
      std::vector<std::string> files = files_of(root, list.classes[label], skipped);
      if (files.empty()) refuse(root, "the sub-folder \"" + list.classes[label] + "\" has no JPEG or PNG files");
      list.labels.insert(list.labels.end(), files.size(), static_cast<std::int32_t>(label));
      std::move(files.begin(), files.end(), std::back_inserter(list.files));
    }
    report(root, skipped);
    return list;
  } catch (const std::filesystem::filesystem_error& error) {
    throw DataError{root + ": " + error.what()};
  }

 private:
  // ".jpg" of "1.JPG"; empty where the name has no dot.
  static std::string ending_of(std::string_view name) {
    const auto dot = name.rfind('.');
    if (dot == std::string_view::npos) return {};
    std::string ending{name.substr(dot)};
    for (char& c : ending)
      if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
    return ending;
  }
  static bool is_picture(std::string_view ending) { return ending == ".jpg" || ending == ".jpeg" || ending == ".png"; }
  static bool is_other_picture(std::string_view ending) {
    static constexpr std::array<std::string_view, 12> endings{".gif", ".bmp", ".webp", ".tif", ".tiff", ".ppm", ".pgm", ".jp2", ".jxl", ".heic", ".avif", ".jpe"};
    return std::find(endings.begin(), endings.end(), ending) != endings.end();
  }

  // Pictures of other formats.
  struct Skipped {
    std::int64_t count = 0;
    std::string first;  // the first in the order of their names
  };
  // Says it once for each folder: every replica may scan it.
  static void report(const std::string& root, const Skipped& skipped) {
    static std::mutex mutex;
    static std::set<std::string> reported;
    const std::lock_guard lock{mutex};
    if (skipped.count > 0 && reported.insert(root).second)
      std::fprintf(stderr, "replicator: %s: skipped %lld picture(s) that are no .jpg, .jpeg or .png files, \"%s\" for instance: convert them, or move them elsewhere\n",
                   replicator::detail::printable(root).c_str(), static_cast<long long>(skipped.count), replicator::detail::printable(skipped.first).c_str());
  }

  [[noreturn]] static void refuse(const std::string& folder, const std::string& found) {
    throw DataError{folder + ": " + found + "; expected one sub-folder per class with .jpg, .jpeg or .png files in it, as " +
                    "in <folder>/cat/1.jpg, <folder>/dog/2.jpg"};
  }

  // The pictures of one class, sorted by folder and then by name.
  static std::vector<std::string> files_of(const std::string& root, const std::string& name, Skipped& skipped) {
    namespace fs = std::filesystem;
    std::vector<std::pair<std::string, std::string>> found;  // folder, file
    for (const auto& entry :
         fs::recursive_directory_iterator{root + "/" + name, fs::directory_options::follow_directory_symlink})
      if (const std::string ending = ending_of(entry.path().filename().native()); is_other_picture(ending) && !entry.is_directory()) {
        const std::string file = entry.path().native().substr(root.size() + 1);
        if (skipped.count++ == 0 || file < skipped.first) skipped.first = file;
      } else if (is_picture(ending) && !entry.is_directory()) {
        if (!entry.is_regular_file()) throw DataError{entry.path().native() + " is no file: a link that leads nowhere, or a device"};
        found.emplace_back(entry.path().parent_path().native(), entry.path().filename().native());
      }
    std::sort(found.begin(), found.end());
    std::vector<std::string> files;
    for (const auto& [folder, file] : found) files.push_back((folder + "/" + file).substr(root.size() + 1));
    return files;
  }
};

template <class>
std::shared_ptr<const PictureFiles> scan_image_folder(const std::string& root) {
  return std::make_shared<const PictureFiles>(ImageFolderScan::scan(root));
}

}  // namespace replicator::data::detail
