// SPDX-License-Identifier: Apache-2.0
// Reads numbers and labels from CSV files. <replicator/replicator.hpp>, or csv_file.hpp, brings the code. Source: RFC 4180.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <replicator/core/array.hpp>
#include <replicator/core/dtype.hpp>
#include <replicator/data/files/table.hpp>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace replicator::data {

struct CsvOptions {
  bool header = true;  // the first line has the names of the columns
  char separator = ',';
  std::optional<double> missing = std::nullopt;  // the number that an empty field stands for; without it, one is an error
};

// A column, by its name in the header or by its number from 0. {"area", 3} is a list of columns.
class CsvColumn {
 public:
  CsvColumn(std::string name) : name_{std::move(name)}, named_{true} {}
  CsvColumn(const char* name) : CsvColumn{std::string{name}} {}
  CsvColumn(int number) : number_{number} {}

  bool named() const { return named_; }
  std::int64_t number() const { return number_; }  // -1 for a column that is named
  const std::string& name() const { return name_; }

 private:
  std::string name_;
  std::int64_t number_ = -1;
  bool named_ = false;
};

namespace detail {

template <Element T>
class CsvRows {
  static_assert(!std::is_same_v<T, bool>, "replicator: csv() reads numbers: ask for std::uint8_t, and compare it with 0");
  static_assert(!std::is_same_v<T, bfloat16>, "replicator: csv() reads no bfloat16: ask for float, and convert it");

 public:
  CsvRows(Shape row, std::vector<T> values) : row_{row}, values_{std::move(values)} {}
  std::int64_t size() const { return static_cast<std::int64_t>(values_.size()) / row_.elements(); }
  Array<T> operator[](std::int64_t item) const {
    const auto count = static_cast<std::size_t>(row_.elements());
    return {row_, std::span{values_}.subspan(static_cast<std::size_t>(item) * count, count)};
  }

 private:
  Shape row_;
  std::vector<T> values_;
};

// What the columns hold, row by row.
template <Element T>
std::vector<T> csv_numbers(const std::string& path, const std::vector<CsvColumn>& columns, const CsvOptions& options, std::size_t& row);

}  // namespace detail

// The rows of a CSV file: Array<T> of the shape [columns]. Without `columns`, all of them in their order. Fields in
// quotes, both kinds of line ends and empty lines are read as RFC 4180 and its usual readers do; columns that were not
// asked for may hold anything. The numbers are read at once and kept in memory, sizeof(T) bytes each, so make the source
// outside of the input function: copies share it.
// Throws DataError "<path>:<line>: ..." for a field that is empty (unless `missing` is given) or no T, and for a row with
// more or fewer fields than the first. Throws DataError for a column that does not exist, BuildError for impossible options.
template <Element T>
TableSource<detail::CsvRows<T>> csv(const std::string& path, const std::vector<CsvColumn>& columns = {}, const CsvOptions& options = {}) {
  std::size_t row = 0;
  std::vector<T> values = detail::csv_numbers<T>(path, columns, options, row);
  return TableSource<detail::CsvRows<T>>{{Shape{static_cast<std::int64_t>(row)}, std::move(values)}, path};
}

// One column of a CSV file, as scalars: join it with others by zip(). Throws as csv() does.
template <Element T>
TableSource<detail::CsvRows<T>> csv_column(const std::string& path, const CsvColumn& column, const CsvOptions& options = {}) {
  std::size_t row = 0;
  return TableSource<detail::CsvRows<T>>{{Shape{}, detail::csv_numbers<T>(path, {column}, options, row)}, path};
}

// A column of words, as scalars: each is the place of its word in `words`. Throws DataError "<path>:<line>: ..." for a
// word that is not among them.
template <class = void>
TableSource<detail::CsvRows<std::int32_t>> csv_labels(const std::string& path, const CsvColumn& column, const std::vector<std::string>& words,
                                                      const CsvOptions& options = {});

}  // namespace replicator::data
