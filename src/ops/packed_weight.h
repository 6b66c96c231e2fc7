// Weights as a backend wants them.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "ops/weight_source.h"
#include "tensor/dtype.h"

namespace tokamak {

enum class WeightUse {
  kLinear,     // multiplied with activations
  kRouter,     // the same, where a small difference may choose another expert: activations in f32
  kEmbedding,  // rows looked up by token id
  kTied,       // both, from one copy
};

// A [rows, cols] weight to pack: out features × in features, or vocabulary × hidden size.
struct WeightSpec {
  // Stacked along the rows (merged projections); equal cols, dtypes may differ.
  std::vector<std::shared_ptr<const WeightSource>> parts;
  WeightUse use = WeightUse::kLinear;
};

// A weight in a backend's own layout; only the backend that made it can use it.
class PackedWeight {
 public:
  virtual ~PackedWeight() = default;

  int64_t rows() const { return rows_; }
  int64_t cols() const { return cols_; }
  // The type that a Linear's input must have: f32, bf16, or a block type.
  DType activation() const { return activation_; }
  // Device memory held.
  int64_t bytes() const { return bytes_; }

 protected:
  PackedWeight(int64_t rows, int64_t cols, DType activation, int64_t bytes)
      : rows_(rows), cols_(cols), activation_(activation), bytes_(bytes) {}

 private:
  int64_t rows_;
  int64_t cols_;
  DType activation_;
  int64_t bytes_;
};

}  // namespace tokamak
