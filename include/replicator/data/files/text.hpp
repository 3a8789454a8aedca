// SPDX-License-Identifier: Apache-2.0
// Cuts the tokens of texts into windows, for models that predict the next token.
// <replicator/replicator.hpp>, or token_windows.hpp, brings the code.
#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <replicator/core/array.hpp>
#include <replicator/data/files/table.hpp>
#include <string>
#include <string_view>
#include <tuple>
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
  template <class = void>
  explicit TokenWindows(const WindowOptions& options);

  // `name` is for errors. Throws DataError for a negative token.
  template <class = void>
  void append(std::vector<std::int32_t> tokens, const std::string& name);
  // Throws DataError if there are no windows.
  template <class = void>
  void require_windows(const std::string& name) const;

  std::int64_t size() const { return ends_.empty() ? 0 : ends_.back(); }
  // The tokens, and for each the one behind it: int32 [length] each.
  template <class = void>
  std::tuple<Array<std::int32_t>, Array<std::int32_t>> operator[](std::int64_t item) const;

 private:
  std::int64_t length_;
  std::int64_t stride_;
  std::int64_t most_ = 0;                         // tokens of the longest text
  std::vector<std::vector<std::int32_t>> texts_;  // those with windows
  std::vector<std::int64_t> ends_;                // the number of windows up to the end of each text
};

template <class = void>
TableSource<TokenWindows> windows_of_files(const std::string& path, const std::function<std::vector<std::int32_t>(std::string_view)>& tokenizer, const WindowOptions& options);

}  // namespace detail

// The windows of one text in memory. Elements are (int32 [length] tokens, int32 [length] targets): the target of a token
// is the token behind it. Tokens at the end that do not fill a window come in none.
// Throws DataError for a text of fewer than length + 1 tokens and for a negative token, BuildError for impossible options.
template <class = void>
TableSource<detail::TokenWindows> token_windows(std::vector<std::int32_t> tokens, const WindowOptions& options = {});

// The same for a text file, or for all *.txt of a folder, sorted by name. `tokenizer` is a Tokenizer. No window reaches
// over the end of a file, and a file that is too short for one is left out. The texts are read and tokenized at once, and
// their tokens are kept in memory, so make the source outside of the input function: copies share it.
// Throws as above, and DataError for a file that cannot be read.
template <class F>
TableSource<detail::TokenWindows> text_windows(const std::string& path, F&& tokenizer, const WindowOptions& options = {}) {
  if constexpr (detail::require_tokenizer<F>())
    return detail::windows_of_files(
        path, [&](std::string_view text) { return tokenizer(text); }, options);
  else
    return TableSource<detail::TokenWindows>{detail::TokenWindows{options}, path};
}

}  // namespace replicator::data
