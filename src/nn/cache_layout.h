// What a model's layers keep in the KV cache. The runner turns it into blocks.
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
  bool values_in_keys = false;     // as in KvLayerView: a layer of latents
  LatentExpansion expansion = {};  // as in AttentionShape
  bool causal = true;              // as in AttentionShape: if not, a sequence comes in one step

  int32_t ValueDim() const { return value_dim > 0 ? value_dim : head_dim; }
  // Elements that a position takes besides its keys.
  int32_t StoredValueDim() const { return values_in_keys ? 0 : ValueDim(); }
  // Where the layer's values begin, in bytes from its keys, when `key_bytes` of keys lie before
  // what comes after them.
  int64_t ValuesAfter(DType dtype, int64_t key_bytes) const {
    return values_in_keys ? static_cast<int64_t>(RowBytes(dtype, head_dim - ValueDim()))
                          : key_bytes;
  }
  // Whether another layer can share the plan of this one's group.
  bool SameShape(const KvLayerSpec& other) const {
    return num_heads == other.num_heads && num_kv_heads == other.num_kv_heads &&
           head_dim == other.head_dim && ValueDim() == other.ValueDim() &&
           values_in_keys == other.values_in_keys && expansion == other.expansion &&
           causal == other.causal;
  }
  // The parts of these that depend on the layer.
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
    int32_t window = 0;  // kWindow: keys that a query sees, its own included
  };
  std::vector<Group> groups;
  std::vector<KvLayerSpec> layers;  // attention layers, first to last
  int32_t original_context = 0;     // as in CacheSpec
};

}  // namespace tokamak::nn
