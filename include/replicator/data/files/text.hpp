// SPDX-License-Identifier: Apache-2.0
// Cuts the tokens of texts into windows, for models that predict the next token.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <replicator/core/array.hpp>
#include <replicator/core/error.hpp>
#include <replicator/data/files/files.hpp>
#include <replicator/data/files/table.hpp>
#include <replicator/io/mapped_file.hpp>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

namespace replicator::data {

// Makes tokens, numbers of at least 0, from a text. Any function or object that does so is a tokenizer.
template <class F>
concept Tokenizer = requires(F& tokenizer, std::string_view text) {
  { tokenizer(text) } -> std::same_as<std::vector<std::int32_t>>;
};

// The simplest tokenizer: each byte of the text is a token from 0 to 255.
inline std::vector<std::int32_t> byte_tokens(std::string_view text) {
  std::vector<std::int32_t> tokens;
  tokens.reserve(text.size());
  for (const char c : text) tokens.push_back(static_cast<unsigned char>(c));
  return tokens;
}

struct WindowOptions {
  std::int64_t length = 128;  // tokens of a window
  std::int64_t stride = 0;    // from the beginning of a window to that of the next; 0: `length`, so that none overlap
};

namespace detail {

// The compiler's first line of the error shows F.
template <class F>
constexpr bool require_tokenizer() {
  static_assert(Tokenizer<F>,
                "replicator: the tokenizer of text_windows() must be callable with a std::string_view and return a std::vector<std::int32_t>; it is F above");
  return Tokenizer<F>;
}

class TokenWindows {
 public:
  explicit TokenWindows(const WindowOptions& options) : length_{options.length}, stride_{options.stride == 0 ? options.length : options.stride} {
    if (length_ < 1 || stride_ < 1)
      throw BuildError{"token windows of length " + std::to_string(length_) + " and stride " + std::to_string(options.stride) +
                       ": the length is at least 1, and the stride at least 1 (or 0 for the length)"};
  }

  // `name` is for errors. Throws DataError for a negative token.
  void append(std::vector<std::int32_t> tokens, const std::string& name) {
    for (std::size_t i = 0; i < tokens.size(); ++i)
      if (tokens[i] < 0) throw DataError{name + ": token " + std::to_string(i) + " is " + std::to_string(tokens[i]) + "; tokens are at least 0"};
    const auto count = static_cast<std::int64_t>(tokens.size());
    most_ = std::max(most_, count);
    if (count <= length_) return;  // the last input has a target, too
    ends_.push_back(size() + (count - length_ - 1) / stride_ + 1);
    texts_.push_back(std::move(tokens));
  }
  // Throws DataError if there are no windows.
  void require_windows(const std::string& name) const {
    if (size() == 0)
      throw DataError{name + ": " + std::to_string(most_) + " tokens; a window of length " + std::to_string(length_) + " takes at least " + std::to_string(length_ + 1) +
                      ", for the last one has a target, too"};
  }

  std::int64_t size() const { return ends_.empty() ? 0 : ends_.back(); }
  // The tokens, and for each the one behind it: int32 [length] each.
  std::tuple<Array<std::int32_t>, Array<std::int32_t>> operator[](std::int64_t item) const {
    const auto text = static_cast<std::size_t>(std::upper_bound(ends_.begin(), ends_.end(), item) - ends_.begin());
    const std::int64_t first = item - (text == 0 ? 0 : ends_[text - 1]);
    const auto window = [&](std::int64_t begin) {
      return Array<std::int32_t>{Shape{length_}, std::span{texts_[text]}.subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(length_))};
    };
    return {window(first * stride_), window(first * stride_ + 1)};
  }

 private:
  std::int64_t length_;
  std::int64_t stride_;
  std::int64_t most_ = 0;                         // tokens of the longest text
  std::vector<std::vector<std::int32_t>> texts_;  // those with windows
  std::vector<std::int64_t> ends_;                // the number of windows up to the end of each text
};

}  // namespace detail

// The windows of one text in memory. Elements are (int32 [length] tokens, int32 [length] targets): the target of a token
// is the token behind it. Tokens at the end that do not fill a window come in none.
// Throws DataError for a text of fewer than length + 1 tokens and for a negative token, BuildError for impossible options.
inline TableSource<detail::TokenWindows> token_windows(std::vector<std::int32_t> tokens, const WindowOptions& options = {}) {
  detail::TokenWindows windows{options};
  windows.append(std::move(tokens), "the text");
  windows.require_windows("the text");
  return TableSource<detail::TokenWindows>{std::move(windows)};
}

// The same for a text file, or for all *.txt of a folder, sorted by name. `tokenizer` is a Tokenizer. No window reaches
// over the end of a file, and a file that is too short for one is left out. The texts are read and tokenized at once, and
// their tokens are kept in memory, so make the source outside of the input function: copies share it.
// Throws as above, and DataError for a file that cannot be read.
template <class F>
TableSource<detail::TokenWindows> text_windows(const std::string& path, F&& tokenizer, const WindowOptions& options = {}) {
  detail::TokenWindows windows{options};
  if constexpr (detail::require_tokenizer<F>()) {
    for (const std::string& file : detail::files_at(path, "files *.txt", [](std::string_view name) { return name.ends_with(".txt"); })) {
      const io::detail::MappedFile text{file};
      windows.append(tokenizer(std::string_view{reinterpret_cast<const char*>(text.bytes().data()), text.bytes().size()}), file);
    }
    windows.require_windows(path);
  }
  return TableSource<detail::TokenWindows>{std::move(windows), path};
}

}  // namespace replicator::data
