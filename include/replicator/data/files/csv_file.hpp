// SPDX-License-Identifier: Apache-2.0
// The code of csv.hpp: parses CSV files. Source: RFC 4180.
#pragma once

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <replicator/core/dtype.hpp>
#include <replicator/core/error.hpp>
#include <replicator/core/number_text.hpp>
#include <replicator/core/printable.hpp>
#include <replicator/data/files/csv.hpp>
#include <replicator/data/files/table.hpp>
#include <replicator/data/index_stages.hpp>
#include <replicator/io/mapped_file.hpp>
#include <string>
#include <string_view>
#include <system_error>
#include <type_traits>
#include <utility>
#include <vector>

namespace replicator::data {

namespace detail {

// The records of a CSV file, one after the other.
class CsvFile {
 public:
  // Reads the header. Throws DataError for a file without a record, and BuildError for an impossible separator.
  CsvFile(const std::string& path, const CsvOptions& options) : file_{path}, options_{options} {
    for (const char c : {'"', '\r', '\n'})
      if (options.separator == c) throw BuildError{path + ": the separator cannot be a quote or the end of a line"};
    rest_ = {reinterpret_cast<const char*>(file_.bytes().data()), file_.bytes().size()};
    if (rest_.starts_with("\xEF\xBB\xBF")) rest_.remove_prefix(3);  // UTF-8's mark
    if (!read_record()) throw DataError{path + ": the file is empty; " + (options.header ? "its first line would name the columns" : "an input needs at least one line")};
    columns_ = fields_.size();
    for (std::size_t i = 0; options.header && i < columns_; ++i) names_.emplace_back(text(i));
    unread_ = !options.header;
  }

  // The number of a column. Throws DataError where the file has no such column, and BuildError for an empty name
  // and for a name without a header.
  std::size_t find(const CsvColumn& column) const {
    if (!column.named()) {
      const auto number = static_cast<std::size_t>(column.number());
      if (column.number() >= 0 && number < columns_) return number;
      throw DataError{path() + ": there is no column " + std::to_string(column.number()) + ": the first line has " + std::to_string(columns_) + " columns, counted from 0"};
    }
    if (column.name().empty())
      throw BuildError{path() + ": a column was asked for by an empty name: give its name, or its number from 0, which also finds a column without a name"};
    if (!options_.header) throw BuildError{path() + ": the column \"" + column.name() + "\" has a name, but .header = false says that the file names none: ask for a number"};
    const auto found = std::find(names_.begin(), names_.end(), column.name());
    if (found == names_.end()) throw DataError{path() + ": there is no column \"" + column.name() + "\": the first line names " + listed(names_)};
    if (std::find(found + 1, names_.end(), column.name()) != names_.end())
      throw DataError{path() + ": two columns are named \"" + column.name() + "\": ask for a number"};
    return static_cast<std::size_t>(found - names_.begin());
  }
  std::vector<std::size_t> find(const std::vector<CsvColumn>& columns) const {
    std::vector<std::size_t> result;
    for (const CsvColumn& column : columns) result.push_back(find(column));
    for (std::size_t i = 0; columns.empty() && i < columns_; ++i) result.push_back(i);
    return result;
  }

  // Reads the next record; false at the end. Throws DataError for one with more or fewer fields than the first.
  bool next() {
    if (!std::exchange(unread_, false) && !read_record()) return false;
    if (fields_.size() != columns_)
      fail_at(record_line_, std::to_string(fields_.size()) + " fields; the first line has " + std::to_string(columns_));
    return true;
  }

  // The text of a column, without blanks around it.
  std::string_view text(std::size_t column) const {
    std::string_view text = fields_[column];
    const auto blank = [](char c) { return c == ' ' || c == '\t'; };
    while (!text.empty() && blank(text.front())) text.remove_prefix(1);
    while (!text.empty() && blank(text.back())) text.remove_suffix(1);
    return text;
  }

  // Throws DataError for an empty field without `missing`, and for one that is no T.
  template <class T>
  T number(std::size_t column) const {
    std::string_view text = this->text(column);
    if (text.empty()) {
      if (options_.missing) return static_cast<T>(*options_.missing);
      fail(column, "is empty: fill it in, or say with {.missing = 0} what it stands for");
    }
    const std::string_view whole = text;
    if (text.size() > 1 && text[0] == '+' && text[1] != '-') text.remove_prefix(1);
    T value{};
    auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    const std::string type{replicator::name_of(dtype_of<T>)};
    if (error == std::errc::result_out_of_range && !too_small(text, value))
      fail(column, "is " + quoted(whole) + ", which does not fit into " + type);
    if (error == std::errc::invalid_argument || end != text.data() + text.size())
      fail(column, "is " + quoted(whole) + ", which is no " + (std::is_integral_v<T> ? type : "number"));
    return value;
  }

  // Throws DataError for a column of the current record.
  [[noreturn]] void fail(std::size_t column, const std::string& what) const {
    fail_at(record_line_, "column " + (options_.header ? quoted(names_[column]) : std::to_string(column)) + " " + what);
  }

  const std::string& path() const { return file_.path(); }
  static std::string quoted(std::string_view text) { return '"' + replicator::detail::printable(text, 60) + '"'; }
  static std::string listed(const std::vector<std::string>& names) {
    std::string result;
    for (std::size_t i = 0; i < names.size() && i < 20; ++i) result += (i ? ", " : "") + quoted(names[i]);
    return names.size() > 20 ? result + ", ..." : result;
  }

 private:
  [[noreturn]] void fail_at(std::int64_t line, const std::string& what) const { throw DataError{path() + ":" + std::to_string(line) + ": " + what}; }

  // True for a number next to 0 that T has not: `value` is then 0.
  template <class T>
  static bool too_small(std::string_view text, T& value) {
    if constexpr (std::is_floating_point_v<T>) {
      long double wide = text.find('-', 1) == std::string_view::npos ? 1 : 0;  // stays where it has not the number either
      std::from_chars(text.data(), text.data() + text.size(), wide);
      value = static_cast<T>(wide);
      return std::abs(wide) < 1;
    } else {
      return false;
    }
  }

  // Skips empty lines.
  bool read_record() {
    while (true) {
      if (rest_.empty()) return false;
      record_line_ = line_;
      used_ = 0;
      const bool empty = rest_[0] == '\n' || rest_[0] == '\r';  // a line "" has a field
      while (read_field()) {}
      fields_.resize(used_);
      if (!empty) return true;
    }
  }

  std::string& new_field() {
    if (used_ == fields_.size()) fields_.emplace_back();
    fields_[used_].clear();
    return fields_[used_++];
  }

  // Reads a field and what ends it. True if another one follows in the record.
  bool read_field() {
    std::string& field = new_field();
    if (rest_.starts_with('"')) {
      read_quoted(field);
    } else {
      const char ends[] = {options_.separator, '\n', '\r'};
      const std::size_t size = std::min(rest_.find_first_of(std::string_view{ends, 3}), rest_.size());
      field = rest_.substr(0, size);
      rest_.remove_prefix(size);
    }
    if (rest_.empty()) return false;
    const char end = rest_[0];
    if (end != options_.separator && end != '\n' && end != '\r') fail_at(line_, "text stands behind the quote that ends " + quoted(field));
    rest_.remove_prefix(end == '\r' && rest_.substr(1, 1) == "\n" ? 2 : 1);
    if (end == options_.separator) return true;
    ++line_;
    return false;
  }

  void read_quoted(std::string& field) {
    const std::int64_t begin = line_;
    rest_.remove_prefix(1);
    while (true) {
      const std::size_t quote = rest_.find('"');
      if (quote == std::string_view::npos) fail_at(begin, "a quote begins here, and none ends it");
      field += rest_.substr(0, quote);
      line_ += std::count(rest_.begin(), rest_.begin() + static_cast<std::ptrdiff_t>(quote), '\n');
      rest_.remove_prefix(quote + 1);
      if (!rest_.starts_with('"')) return;
      field += '"';
      rest_.remove_prefix(1);
    }
  }

  io::detail::MappedFile file_;
  CsvOptions options_;
  std::string_view rest_;
  std::int64_t line_ = 1;  // of the beginning of rest_
  std::int64_t record_line_ = 1;
  std::vector<std::string> fields_;
  std::size_t used_ = 0;  // fields of the current record
  std::vector<std::string> names_;
  std::size_t columns_ = 0;
  bool unread_ = false;  // the first record is no header, and next() has not returned it yet
};

// What the columns hold, row by row.
template <Element T>
std::vector<T> csv_numbers(const std::string& path, const std::vector<CsvColumn>& columns, const CsvOptions& options, std::size_t& row) {
  if constexpr (std::is_integral_v<T>)
    if (options.missing && !(std::trunc(*options.missing) == *options.missing && *options.missing >= std::numeric_limits<T>::lowest() && *options.missing < std::ldexp(1.0, std::numeric_limits<T>::digits)))
      throw BuildError{path + ": .missing is " + replicator::detail::number_text(*options.missing) + ", which is no " + std::string{replicator::name_of(dtype_of<T>)}};
  CsvFile file{path, options};
  const std::vector<std::size_t> places = file.find(columns);
  row = places.size();
  std::vector<T> values;
  while (file.next())
    for (const std::size_t place : places) values.push_back(file.number<T>(place));
  return values;
}

}  // namespace detail

template <class>
TableSource<detail::CsvRows<std::int32_t>> csv_labels(const std::string& path, const CsvColumn& column, const std::vector<std::string>& words, const CsvOptions& options) {
  detail::CsvFile file{path, options};
  const std::size_t place = file.find(column);
  std::vector<std::int32_t> labels;
  while (file.next()) {
    const auto found = std::find(words.begin(), words.end(), file.text(place));
    if (found == words.end()) file.fail(place, "is " + file.quoted(file.text(place)) + "; the words are " + file.listed(words));
    labels.push_back(static_cast<std::int32_t>(found - words.begin()));
  }
  return TableSource<detail::CsvRows<std::int32_t>>{{Shape{}, std::move(labels)}, path};
}

}  // namespace replicator::data
