// How layers get their weights. A layer's constructor names its weights below the given builder, as
// the checkpoint does, and states their shapes:
//
//   norm_(b / "input_layernorm", hidden_size, eps)
//
// The first error is kept and the rest does nothing, so constructors need no error handling. Check
// WeightLoad::status before using the model.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "nn/model_spec.h"
#include "nn/parallel.h"
#include "ops/ops.h"
#include "weights/checkpoint.h"

namespace tokamak::nn {

struct OwnedTensor {
  Buffer storage;
  Tensor tensor;
};

// Copies shape.elements() values to the device: f32 [shape].
Result<OwnedTensor> Upload(Ops& ops, const std::vector<float>& values, const Shape& shape);

// One model being loaded by one thread: where its weights come from, who packs them, and the
// results so far.
struct WeightLoad {
  TensorSource& tensors;
  Ops* ops;
  ParallelContext parallel;
  int32_t stages = 1;  // of a pipeline; this one is `stage`
  int32_t stage = 0;
  bool uniform_routing = false;  // LoadOptions::uniform_routing
  // Called after each weight with the bytes of the checkpoint read so far.
  std::function<void(int64_t bytes)> progress;

  Status status;                               // the first error
  int64_t bytes_read = 0;                      // as stored
  int64_t bytes_found = 0;                     // as stored, on all ranks of the stage together
  Capabilities needs = {};                     // of the layers built so far
  ModelSpec spec;                              // of these layers; the family sets the rest
  std::vector<KvLayerSpec> group_shapes = {};  // the shape of each cache group's layers
};

using WeightPtr = std::shared_ptr<const PackedWeight>;
using StackPtr = std::shared_ptr<const PackedStack>;
using SourcePtr = std::shared_ptr<const WeightSource>;

// A place in the checkpoint's tree of names. Cheap to copy; valid as long as its load.
class Builder {
 public:
  explicit Builder(WeightLoad& load, std::string path = "")
      : load_(&load), path_(std::move(path)) {}

  Builder operator/(std::string_view name) const;
  Builder operator/(int64_t index) const { return *this / std::to_string(index); }

  const std::string& path() const { return path_; }
  Ops& ops() const { return *load_->ops; }
  const ParallelContext& parallel() const { return load_->parallel; }
  bool uniform_routing() const { return load_->uniform_routing; }
  bool ok() const { return load_->status.ok(); }
  // Records expert weights, of which a token uses `share`.
  void AddExperts(int64_t parameters, int64_t bytes, double share) const {
    load_->spec.expert_parameters += parameters;
    load_->spec.expert_bytes += bytes;
    load_->spec.expert_share = share;
  }
  // Records an MoE layer with this many experts and returns its index.
  int32_t AddMoeLayer(int32_t num_experts) const {
    load_->spec.max_experts = std::max(load_->spec.max_experts, num_experts);
    return load_->spec.num_moe_layers++;
  }
  void Fail(Status status) const;
  // Returns the value; on an error records it and returns null.
  SourcePtr OrFail(Result<SourcePtr> source) const;

  // Returns the tensor at this place, which must exist with this shape; null after an error.
  // `meaning` explains the shape in messages: "num_heads 9 × head_dim 64".
  SourcePtr Find(const Shape& shape, std::string_view meaning = {}) const;
  // The same if the tensor may have either shape; `second` stands in messages.
  SourcePtr FindEither(const Shape& first, const Shape& second, std::string_view meaning) const;
  // These columns of a stored weight, or these elements of a vector, for a rank's shard. They must
  // be whole blocks of the stored type. Null if `source` is, and after an error.
  SourcePtr Columns(SourcePtr source, IndexRange cols) const;
  // This rank's shard of `count` items, `what` in messages, which can be cut after every `unit`. An
  // error if a rank would get none.
  IndexRange Shard(int64_t count, std::string_view what, int64_t unit = 1) const;
  // The heads of each rank. A head's output is `dim` columns of a weight, whose blocks have `block`
  // columns. An error if a rank would get none; empty after any error.
  std::vector<HeadShard> ShardHeads(int64_t num_heads, int64_t num_kv_heads, int64_t dim,
                                    int64_t block) const;
  // Columns of a block of the weight at this place, [out, in], which no cut may go through. 1 on a
  // single rank, which cuts nothing.
  int64_t BlockColumns(const Shape& shape) const;
  // Stacks the parts (equal cols) in the backend's layout. Null after an error.
  WeightPtr PackWeight(std::vector<SourcePtr> parts, WeightUse use) const;
  // The same for each of several weights of one shape.
  StackPtr PackStack(std::vector<std::vector<SourcePtr>> members, WeightUse use) const;
  bool Has() const { return load_->tensors.Has(path_); }
  // Marks tensors here whose names begin so as used, if there are any: the model leaves them out.
  void Skip(std::string_view prefix) const { load_->tensors.Skip((*this / prefix).path()); }
  // Reads the parts as f32, one after another. Empty after an error.
  std::vector<float> ReadValues(const std::vector<SourcePtr>& parts) const;
  // Copies values to device memory. Empty after an error.
  OwnedTensor Store(const std::vector<float>& values, const Shape& shape) const;
  // ReadValues plus `offset`, in device memory: [Σ elements].
  OwnedTensor ReadVectors(const std::vector<SourcePtr>& parts, float offset = 0) const;
  // Reads the vector at this place and adds `offset` to each element: f32 [length].
  OwnedTensor ReadVector(int64_t length, float offset = 0) const;
  // Records optional features of the backend without which the model cannot run.
  void Needs(Capabilities features) const { load_->needs |= features; }

  // Adds an attention layer with `window` (0: none) to the cache layout and returns its index.
  int32_t AddKvLayer(int32_t window, int32_t num_heads, int32_t num_kv_heads,
                     int32_t head_dim) const {
    return AddKvLayer(window,
                      {.num_heads = num_heads, .num_kv_heads = num_kv_heads, .head_dim = head_dim});
  }
  int32_t AddKvLayer(int32_t window, KvLayerSpec layer) const;
  // The cache group of an added layer.
  int32_t KvGroup(int32_t layer) const {
    return load_->spec.cache.layers[static_cast<size_t>(layer)].group;
  }
  // Adds a layer with a state, of this rank's heads and channels, and returns its index.
  int32_t AddStateLayer(const StateLayerSpec& layer) const {
    load_->spec.cache.state_layers.push_back(layer);
    return static_cast<int32_t>(load_->spec.cache.state_layers.size()) - 1;
  }

 private:
  // Counts what was read and packed; null after an error.
  template <typename Packed>
  std::shared_ptr<const Packed> Record(std::span<const WeightSpec> read,
                                       Result<std::unique_ptr<Packed>> packed) const;

  WeightLoad* load_;
  std::string path_;
};

// These rows of a stored weight, for a rank's shard. Null if `source` is.
SourcePtr RowRange(SourcePtr source, IndexRange rows);

}  // namespace tokamak::nn
