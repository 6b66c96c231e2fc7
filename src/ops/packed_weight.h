// Weights in a backend's layout.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "ops/weight_source.h"
#include "tensor/dtype.h"

namespace tokamak {

enum class WeightUse {
  kLinear,  // multiplied with activations; the outputs are f32
  // The same, but only operations read the outputs, so they are of the type that the backend
  // prefers between operations.
  kInnerLinear,
  kRouter,  // multiplied with f32 activations, because a small difference may choose another expert
  // For HeadLinear and LatentAttention, which round inputs in f32 if they need to. Outputs are as
  // kInnerLinear's.
  kHeads,
  kEmbedding,  // rows looked up by token id
  kTied,       // both, from one copy
};

// A [rows, cols] weight to pack: out features × in features, or vocabulary × hidden size.
struct WeightSpec {
  // Stacked along the rows (merged projections). Parts have equal cols; their dtypes may differ.
  std::vector<std::shared_ptr<const WeightSource>> parts;
  WeightUse use = WeightUse::kLinear;
};

// The type of a Linear's output on a backend that prefers `inner_type` between operations.
inline DType LinearOutput(const WeightSpec& spec, DType inner_type) {
  const bool is_inner = spec.use == WeightUse::kInnerLinear || spec.use == WeightUse::kHeads;
  return is_inner ? inner_type : DType::kF32;
}

// A weight in a backend's own layout. Only the backend that packed it can use it.
class PackedWeight {
 public:
  virtual ~PackedWeight() = default;

  int64_t rows() const { return rows_; }
  int64_t cols() const { return cols_; }
  // The type of a Linear's input: f32, bf16, or a block type.
  DType activation() const { return activation_; }
  // The type of a Linear's output: f32 or bf16.
  DType output() const { return output_; }
  // Bytes of device memory.
  int64_t bytes() const { return bytes_; }

 protected:
  PackedWeight(int64_t rows, int64_t cols, DType activation, int64_t bytes,
               DType output = DType::kF32)
      : rows_(rows), cols_(cols), activation_(activation), output_(output), bytes_(bytes) {}

 private:
  int64_t rows_;
  int64_t cols_;
  DType activation_;
  DType output_;
  int64_t bytes_;
};

// Weights of one shape and one type of activations and of outputs, such as a layer's experts or an
// attention's heads, in a backend's own layout. Only the backend that packed it can use it.
class PackedStack {
 public:
  // Takes weights that were packed one by one; at least one.
  explicit PackedStack(std::vector<std::unique_ptr<PackedWeight>> members);
  virtual ~PackedStack() = default;

  int64_t size() const { return size_; }  // number of members
  // The same for every member; as in PackedWeight.
  int64_t rows() const { return rows_; }
  int64_t cols() const { return cols_; }
  DType activation() const { return activation_; }
  DType output() const { return output_; }
  // Bytes of device memory of all members.
  int64_t bytes() const { return bytes_; }
  // Empty if the backend does not pack them one by one.
  std::span<const std::unique_ptr<PackedWeight>> members() const { return members_; }

 protected:
  PackedStack(int64_t size, int64_t rows, int64_t cols, DType activation, int64_t bytes,
              DType output)
      : size_(size),
        rows_(rows),
        cols_(cols),
        activation_(activation),
        output_(output),
        bytes_(bytes) {}

 private:
  int64_t size_;
  int64_t rows_;
  int64_t cols_;
  DType activation_;
  DType output_;
  int64_t bytes_;
  std::vector<std::unique_ptr<PackedWeight>> members_;
};

}  // namespace tokamak
