// Builder: how layers get their weights. A layer's constructor names its weights below the builder
// that it was given, as the checkpoint does, and states their shapes:
//
//   norm_(b / "input_layernorm", hidden_size, eps)
//
// The first error is kept and everything after it does nothing, so constructors need no error
// handling; whoever started the load looks at WeightLoad::status before using the model.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "nn/cache_layout.h"
#include "nn/owned_tensor.h"
#include "nn/parallel.h"
#include "ops/ops.h"
#include "weights/checkpoint.h"

namespace tokamak::nn {

// One model being loaded by one thread: where weights come from, where they go, and what has come
// of it so far.
struct WeightLoad {
  TensorSource& tensors;
  Ops& ops;
  ParallelContext parallel;
  // Bytes of the checkpoint read so far; called after each weight.
  std::function<void(int64_t bytes)> progress;

  Status status;  // the first error
  int64_t num_parameters = 0;
  int64_t bytes_read = 0;    // as stored
  int64_t weight_bytes = 0;  // as prepared
  int64_t expert_bytes = 0;  // of which a token reads expert_share
  double expert_share = 1;   // top_k / num_experts
  CacheLayout cache;
};

using WeightPtr = std::shared_ptr<const PackedWeight>;
using SourcePtr = std::shared_ptr<const WeightSource>;

// A place in the checkpoint's tree of names. Cheap to copy; valid while its load lives.
class Builder {
 public:
  explicit Builder(WeightLoad& load, std::string path = "")
      : load_(&load), path_(std::move(path)) {}

  Builder operator/(std::string_view name) const;
  Builder operator/(int64_t index) const { return *this / std::to_string(index); }

  const std::string& path() const { return path_; }
  Ops& ops() const { return load_->ops; }
  const ParallelContext& parallel() const { return load_->parallel; }
  bool ok() const { return load_->status.ok(); }
  // Notes weights that were prepared, of which each token uses `share`.
  void AddExperts(int64_t bytes, double share) const {
    load_->expert_bytes += bytes;
    load_->expert_share = share;
  }
  void Fail(Status status) const;

  // The tensor at this place, which must exist with this shape; null after an error. `meaning` says
  // where the shape comes from: "num_heads 9 × head_dim 64".
  SourcePtr Find(const Shape& shape, std::string_view meaning = {}) const;
  // Stacks the parts (equal cols) in the backend's layout; null after an error.
  WeightPtr Prepare(std::vector<SourcePtr> parts, WeightUse use) const;
  bool Has() const { return load_->tensors.Has(path_); }
  // Reads parts as f32, one after the other; empty after an error.
  std::vector<float> ReadValues(const std::vector<SourcePtr>& parts) const;
  // The same into device memory: [Σ elements].
  OwnedTensor ReadVectors(const std::vector<SourcePtr>& parts) const;
  // The vector at this place: f32 [length].
  OwnedTensor ReadVector(int64_t length) const;

  // Notes an attention layer with `window` (0: none) in the cache layout; its index.
  int32_t AddKvLayer(int32_t window, int32_t num_heads, int32_t num_kv_heads,
                     int32_t head_dim) const;
  // The cache group of a layer that was added.
  int32_t KvGroup(int32_t layer) const {
    return load_->cache.layers[static_cast<size_t>(layer)].group;
  }

 private:
  WeightLoad* load_;
  std::string path_;
};

// Views of a stored weight, for a rank's share. Column ranges must be whole blocks of the stored
// type: an error otherwise.
SourcePtr RowRange(SourcePtr source, IndexRange rows);
Result<SourcePtr> ColumnRange(SourcePtr source, IndexRange cols);

}  // namespace tokamak::nn
