// Source of a weight: rows of one checkpoint tensor, read on demand in the stored format.
// Implemented by weights/ (files, dummy weights) and tests. Ops::PackWeight reads many row ranges
// at once, straight into its layout.
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

  // For messages, e.g. "model.gguf: blk.0.attn_q.weight".
  virtual const std::string& name() const = 0;
  virtual DType dtype() const = 0;
  // [cols] for a vector, [rows, cols] for a matrix (out features × in features),
  // [experts, rows, cols] for stacked experts.
  virtual const Shape& shape() const = 0;
  // Copies rows [begin, end) of the tensor, seen as a matrix [shape().rows(), shape().cols()],
  // densely packed, RowBytes(dtype, cols()) each. Thread-safe.
  virtual Status ReadRows(int64_t begin, int64_t end, std::byte* destination) const = 0;
  // The formula of random weights, which ReadRows rounds to dtype(). None for other weights.
  virtual std::optional<RandomWeight> random() const { return std::nullopt; }
};

}  // namespace tokamak
