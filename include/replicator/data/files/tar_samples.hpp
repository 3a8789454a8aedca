// SPDX-License-Identifier: Apache-2.0
// The code of tar.hpp: finds the samples of tar archives.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <replicator/core/array.hpp>
#include <replicator/core/error.hpp>
#include <replicator/data/files/files.hpp>
#include <replicator/data/files/tar.hpp>
#include <replicator/data/files/tar_header.hpp>
#include <replicator/data/index_stages.hpp>
#include <replicator/io/mapped_file.hpp>
#include <replicator/io/number_encoding.hpp>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace replicator::data {

namespace detail {

inline std::vector<std::string> archives_at(const std::string& path) {
  return files_at(path, "files *.tar", [](std::string_view name) { return name.ends_with(".tar"); });
}

struct TarName {
  std::string key;
  std::string ending;
};
// Splits "train/0001.seg.png" into key "train/0001" and ending "seg.png", in lower case. The key is empty for a hidden
// file and for a file without an ending.
inline TarName split_tar_name(std::string_view name) {
  while (name.substr(0, 2) == "./") name.remove_prefix(2);
  const std::size_t slash = name.rfind('/');
  const std::size_t file = slash == std::string_view::npos ? 0 : slash + 1;
  const std::size_t dot = name.find('.', file);
  if (dot == std::string_view::npos || dot == file) return {};
  TarName result{std::string{name.substr(0, dot)}, std::string{name.substr(dot + 1)}};
  for (char& c : result.ending)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return result;
}

// Whether `ending` is one of several choices such as "jpg;jpeg;png".
inline bool among(std::string_view choices, std::string_view ending) {
  while (true) {
    const std::size_t end = choices.find(';');
    if (choices.substr(0, end) == ending) return true;
    if (end == std::string_view::npos) return false;
    choices.remove_prefix(end + 1);
  }
}

// The places of all samples' components, found by one pass over the headers of the archives.
class TarSamples {
 public:
  struct Part {
    std::uint32_t archive = 0;
    std::uint64_t begin = 0;
    std::uint64_t size = 0;
  };

  TarSamples(const std::vector<std::string>& paths, std::vector<std::string> wanted) : wanted_{std::move(wanted)} {
    for (const std::string& path : paths) {
      archives_.emplace_back(path);
      scan(static_cast<std::uint32_t>(archives_.size() - 1));
    }
  }

  std::int64_t size() const { return static_cast<std::int64_t>(keys_.size()); }
  const std::string& key(std::int64_t item) const { return keys_[static_cast<std::size_t>(item)]; }
  const std::string& archive(std::int64_t item) const { return archives_[part(item, 0).archive].path(); }
  std::span<const std::byte> bytes(std::int64_t item, std::size_t component) const {
    const Part& found = part(item, component);
    return archives_[found.archive].bytes().subspan(found.begin, found.size);
  }

 private:
  const Part& part(std::int64_t item, std::size_t component) const { return parts_[static_cast<std::size_t>(item) * wanted_.size() + component]; }

  struct Sample {
    std::string key;
    std::uint64_t header = 0;
    std::vector<Part> parts;
    std::vector<bool> found;
  };

  void scan(std::uint32_t archive) {
    const std::string& path = archives_[archive].path();
    TarReader reader{path, archives_[archive].bytes()};
    Sample sample;
    while (const auto member = reader.next()) {
      const TarName name = split_tar_name(member->name);
      if (name.key.empty()) continue;
      if (name.key != sample.key) {
        finish(path, sample);
        sample = {name.key, member->header, std::vector<Part>(wanted_.size()), std::vector<bool>(wanted_.size())};
      }
      for (std::size_t i = 0; i < wanted_.size(); ++i) {
        if (!among(wanted_[i], name.ending)) continue;
        if (sample.found[i])
          io::detail::refuse(path, member->header,
                             "tar: the sample \"" + sample.key + "\" has two files that end in \"" + wanted_[i] + "\"");
        sample.found[i] = true;
        sample.parts[i] = {archive, member->begin, member->size};
      }
    }
    finish(path, sample);
  }
  void finish(const std::string& path, const Sample& sample) {
    if (sample.key.empty()) return;
    for (std::size_t i = 0; i < wanted_.size(); ++i)
      if (!sample.found[i])
        io::detail::refuse(path, sample.header,
                           "tar: the sample \"" + sample.key + "\" has no file that ends in \"" + wanted_[i] +
                               "\"; the files of a sample lie one behind the other");
    keys_.push_back(sample.key);
    parts_.insert(parts_.end(), sample.parts.begin(), sample.parts.end());
  }

  std::vector<std::string> wanted_;
  std::vector<io::detail::MappedFile> archives_;
  std::vector<std::string> keys_;
  std::vector<Part> parts_;  // [sample][component]
};

template <class>
std::shared_ptr<const TarSamples> scan_tar(const std::string& path, std::vector<std::string> endings) {
  return std::make_shared<const TarSamples>(archives_at(path), std::move(endings));
}
template <class>
std::int64_t sample_count(const TarSamples& samples) {
  return samples.size();
}
template <class>
Array<std::uint8_t> sample_part(const TarSamples& samples, std::int64_t item, std::size_t component) {
  return array_of_bytes(samples.bytes(item, component));
}

// The label: a decimal number, as in WebDataset's "cls".
inline std::int32_t tar_label(const std::string& name, std::span<const std::byte> bytes) {
  std::string_view text{reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  while (!text.empty() && (text.back() == '\n' || text.back() == '\r' || text.back() == ' ')) text.remove_suffix(1);
  std::int64_t value = text.empty() ? -1 : 0;
  for (const char c : text) {
    value = c < '0' || c > '9' || value < 0 ? -1 : value * 10 + (c - '0');
    if (value < 0 || value > 2147483647) break;
  }
  if (value < 0 || value > 2147483647)
    throw DataError{name + ": the label is no decimal number from 0 to 2147483647, but \"" + std::string{text.substr(0, 40)} + "\""};
  return static_cast<std::int32_t>(value);
}

}  // namespace detail

template <class>
TarPictures::TarPictures(const std::string& path, const std::string& picture, const std::string& label)
    : samples_{std::make_shared<const detail::TarSamples>(detail::archives_at(path), std::vector{picture, label})}, index_{samples_->size()} {
  if (samples_->size() < 1) throw DataError{path + ": it has no samples; an input needs at least one"};
}

template <class>
TarPictures::Item TarPictures::operator()(std::int64_t position) const {
  const Index::Place place = index_(position);
  std::string name = samples_->archive(place.item) + ": " + samples_->key(place.item);
  const std::int32_t label = detail::tar_label(name, samples_->bytes(place.item, 1));
  return {std::move(name), samples_->bytes(place.item, 0), label, place.epoch, place.number};
}

}  // namespace replicator::data
