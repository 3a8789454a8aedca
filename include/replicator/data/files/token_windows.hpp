// SPDX-License-Identifier: Apache-2.0
// The code of text.hpp: cuts the tokens of texts into windows.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <replicator/core/array.hpp>
#include <replicator/core/error.hpp>
#include <replicator/data/files/files.hpp>
#include <replicator/data/files/table.hpp>
#include <replicator/data/files/text.hpp>
#include <replicator/data/index_stages.hpp>
#include <replicator/io/mapped_file.hpp>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

namespace replicator::data {

namespace detail {

template <class>
TokenWindows::TokenWindows(const WindowOptions& options) : length_{options.length}, stride_{options.stride == 0 ? options.length : options.stride} {
  if (length_ < 1 || stride_ < 1)
    throw BuildError{"token windows of length " + std::to_string(length_) + " and stride " + std::to_string(options.stride) +
                     ": the length is at least 1, and the stride at least 1 (or 0 for the length)"};
}

template <class>
void TokenWindows::append(std::vector<std::int32_t> tokens, const std::string& name) {
  for (std::size_t i = 0; i < tokens.size(); ++i)
    if (tokens[i] < 0) throw DataError{name + ": token " + std::to_string(i) + " is " + std::to_string(tokens[i]) + "; tokens are at least 0"};
  const auto count = static_cast<std::int64_t>(tokens.size());
  most_ = std::max(most_, count);
  if (count <= length_) return;  // the last input has a target, too
  ends_.push_back(size() + (count - length_ - 1) / stride_ + 1);
  texts_.push_back(std::move(tokens));
}

template <class>
void TokenWindows::require_windows(const std::string& name) const {
  if (size() == 0)
    throw DataError{name + ": " + std::to_string(most_) + " tokens; a window of length " + std::to_string(length_) + " takes at least " + std::to_string(length_ + 1) +
                    ", for the last one has a target, too"};
}

template <class>
std::tuple<Array<std::int32_t>, Array<std::int32_t>> TokenWindows::operator[](std::int64_t item) const {
  const auto text = static_cast<std::size_t>(std::upper_bound(ends_.begin(), ends_.end(), item) - ends_.begin());
  const std::int64_t first = item - (text == 0 ? 0 : ends_[text - 1]);
  const auto window = [&](std::int64_t begin) {
    return Array<std::int32_t>{Shape{length_}, std::span{texts_[text]}.subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(length_))};
  };
  return {window(first * stride_), window(first * stride_ + 1)};
}

template <class>
TableSource<TokenWindows> windows_of_files(const std::string& path, const std::function<std::vector<std::int32_t>(std::string_view)>& tokenizer, const WindowOptions& options) {
  detail::TokenWindows windows{options};
  for (const std::string& file : detail::files_at(path, "files *.txt", [](std::string_view name) { return name.ends_with(".txt"); })) {
    const io::detail::MappedFile text{file};
    windows.append(tokenizer(std::string_view{reinterpret_cast<const char*>(text.bytes().data()), text.bytes().size()}), file);
  }
  windows.require_windows(path);
  return TableSource<detail::TokenWindows>{std::move(windows), path};
}

}  // namespace detail

template <class>
TableSource<detail::TokenWindows> token_windows(std::vector<std::int32_t> tokens, const WindowOptions& options) {
  detail::TokenWindows windows{options};
  windows.append(std::move(tokens), "the text");
  windows.require_windows("the text");
  return TableSource<detail::TokenWindows>{std::move(windows)};
}

}  // namespace replicator::data
