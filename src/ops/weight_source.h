// Where a weight comes from: rows of one checkpoint tensor, read on demand in the stored format.
// Implemented under weights/ (files, dummy weights) and by tests; consumed by Ops::PackWeight,
// which reads many row ranges at once, straight into its own layout.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "ops/random_weight.h"
#include "tensor/dtype.h"
#include "tensor/shape.h"
#include "tokamak/status.h"

namespace tokamak {

class WeightSource {
 public:
  virtual ~WeightSource() = default;

  // For messages: "model.gguf: blk.0.attn_q.weight".
  virtual const std::string& name() const = 0;
  virtual DType dtype() const = 0;
  // [cols] for a vector, [rows, cols] for a matrix (out features × in features),
  // [experts, rows, cols] for stacked experts.
  virtual const Shape& shape() const = 0;
  // Copies rows [begin, end) of the tensor seen as [shape().rows(), shape().cols()], each
  // RowBytes(dtype(), cols()) long and densely packed. Thread-safe.
  virtual Status ReadRows(int64_t begin, int64_t end, std::byte* destination) const = 0;
  // The formula, where the weights are random: ReadRows gives its values rounded to dtype().
  virtual std::optional<RandomWeight> random() const { return std::nullopt; }
};

}  // namespace tokamak
