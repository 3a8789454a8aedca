// SPDX-License-Identifier: Apache-2.0
// Rows: Maps and Reduces over the same rows as one node. A kernel runs all of them on a block of rows before it goes to the next
// block, so values between them stay in the cache. Softmax, layer norm and their derivatives become such nodes.
//
// No user writes this operation. graph/passes/fuse_rows.hpp makes it for kinds of devices that have a kernel of it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <replicator/graph/map.hpp>

namespace replicator::detail {

// What a value has an element for.
enum class RowsExtent : std::uint8_t {
  full,    // each row and column: [rows, columns]
  row,     // each row: [rows]
  column,  // each column: [columns]
  scalar   // one element
};
constexpr std::string_view name_of(RowsExtent extent) {
  constexpr std::string_view names[] = {"full", "row", "column", "scalar"};
  return names[static_cast<std::size_t>(extent)];
}

// The values are numbered: first the inputs, then the outputs of the steps in their order. Each step gives the bits of the Map or
// Reduce that it stands for.
struct Rows {
  static constexpr std::string_view name = "rows";

  struct Step {
    enum class What : std::uint8_t {
      map,            // of full elements
      map_rows,       // of one element for each row
      reduce_row,     // each row to one element
      reduce_column,  // each column to one element; no other step reads it
    } what = What::map;
    ReduceKind kind = ReduceKind::sum;
    ExpressionPtr expression = {};
    std::vector<std::uint32_t> operands = {};  // values
    std::vector<DType> dtypes = {};            // of the outputs; those that other steps read have the type of computation

    bool reduces() const { return what == What::reduce_row || what == What::reduce_column; }
    RowsExtent extent() const {
      return what == What::map ? RowsExtent::full : what == What::reduce_column ? RowsExtent::column
                                                                                : RowsExtent::row;
    }
    template <class V>
    void describe(V& v) const {
      v("what", what);
      v("kind", kind);
      v("expression", *expression);
      v("operands", operands);
      v("dtypes", dtypes);
    }
    std::string text(std::size_t length = 1000) const {
      return (reduces() ? std::string{replicator::name_of(kind)} + " of " : std::string{}) + expression->text(length);
    }
  };

  std::int64_t rows = 0, columns = 0;
  std::vector<RowsExtent> inputs = {};
  std::vector<Step> steps = {};
  std::vector<std::uint32_t> outputs = {};  // values that steps make
  std::vector<Shape> shapes = {};           // of the outputs
  std::vector<DType> dtypes = {};           // likewise

  template <class V>
  void describe(V& v) const {
    v("rows", rows);
    v("columns", columns);
    v("inputs", inputs);
    v("steps", steps);
    v("outputs", outputs);
    v("shapes", shapes);
    v("dtypes", dtypes);
  }
  std::vector<TensorType> infer_shape(std::span<const TensorType>) const {
    std::vector<TensorType> result;
    for (std::size_t o = 0; o < outputs.size(); ++o) result.push_back({dtypes[o], shapes[o]});
    return result;
  }
  std::string formula(std::size_t length) const {
    std::string text;
    for (const auto& step : steps) text += (text.empty() ? "" : "; ") + step.text(length);
    if (text.size() > length) text.replace(length - 3, std::string::npos, "...");
    return text;
  }
};

}  // namespace replicator::detail
