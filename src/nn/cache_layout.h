// The KV cache of a model's layers. The runner allocates blocks for it.
#pragma once

#include <cstdint>
#include <vector>

#include "ops/attention.h"
#include "step/cache_spec.h"

namespace tokamak::nn {

struct KvLayerSpec {
  int32_t group = 0;  // index into CacheLayout::groups
  int32_t num_heads = 0;
  int32_t num_kv_heads = 0;
  int32_t head_dim = 0;
  int32_t value_dim = 0;           // as in KvLayerView
  bool values_in_keys = false;     // as in KvLayerView; true for layers of latents
  LatentExpansion expansion = {};  // as in AttentionShape
  bool causal = true;          // as in AttentionShape; if false, a sequence must come in one step
  bool image_windows = false;  // sequences are windows of images (ImageLayout::window_lens)

  int32_t ValueDim() const { return value_dim > 0 ? value_dim : head_dim; }
  // Elements that a position takes in addition to its keys.
  int32_t StoredValueDim() const { return values_in_keys ? 0 : ValueDim(); }
  // Bytes that a position takes.
  int64_t TokenBytes(DType dtype) const {
    return num_kv_heads * static_cast<int64_t>(RowBytes(dtype, head_dim + StoredValueDim()));
  }
  // Offset of the layer's values from its keys, in bytes. `key_bytes` is the size of the keys.
  int64_t ValuesAfter(DType dtype, int64_t key_bytes) const {
    return values_in_keys ? static_cast<int64_t>(RowBytes(dtype, head_dim - ValueDim()))
                          : key_bytes;
  }
  // Returns whether another layer can share the plan of this layer's group.
  bool SameShape(const KvLayerSpec& other) const {
    return num_heads == other.num_heads && num_kv_heads == other.num_kv_heads &&
           head_dim == other.head_dim && ValueDim() == other.ValueDim() &&
           values_in_keys == other.values_in_keys && expansion == other.expansion &&
           causal == other.causal && image_windows == other.image_windows;
  }
  // The fields of these structs that the layer determines.
  KvLayerView View() const {
    KvLayerView view;
    view.num_kv_heads = num_kv_heads;
    view.head_dim = head_dim;
    view.value_dim = value_dim;
    view.values_in_keys = values_in_keys;
    return view;
  }
  AttentionShape Attention() const {
    AttentionShape shape;
    shape.num_heads = num_heads;
    shape.num_kv_heads = num_kv_heads;
    shape.head_dim = head_dim;
    shape.value_dim = value_dim;
    shape.values_in_keys = values_in_keys;
    shape.expansion = expansion;
    shape.causal = causal;
    return shape;
  }
};

struct CacheLayout {
  struct Group {
    CacheGroupKind kind = CacheGroupKind::kFull;
    int32_t window = 0;  // kWindow: number of keys that a query sees, its own included
  };
  std::vector<Group> groups;
  std::vector<KvLayerSpec> layers;  // attention layers, first to last
  int32_t original_context = 0;     // as in CacheSpec
  // Dimensions of positions in prompts with images; 3 with mRoPE (Pass::rope_positions).
  int32_t rope_dimensions = 1;
  // The tokens of an image see each other, so a step computes all that are not cached.
  bool bidirectional_images = false;

  // Bytes that a position takes in all layers.
  int64_t TokenBytes(DType dtype) const {
    int64_t bytes = 0;
    for (const KvLayerSpec& layer : layers) bytes += layer.TokenBytes(dtype);
    return bytes;
  }
};

}  // namespace tokamak::nn
