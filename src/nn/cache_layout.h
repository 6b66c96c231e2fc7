// What a model's layers keep of sequences: keys and values, for which the runner allocates blocks,
// and states, for which it has slots.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "base/ceil_div.h"
#include "ops/attention.h"
#include "ops/gated_delta.h"
#include "step/cache_spec.h"

namespace tokamak::nn {

// Which tokens of an image see each other in a layer of a vision tower (ImageLayout).
enum class ImageScope : uint8_t {
  kSequence,  // those of a sequence
  kWindow,    // those of a window
  kMerged,    // those of a sequence, of which squares have become one token each
};

struct KvLayerSpec {
  int32_t group = 0;  // index into CacheLayout::groups
  int32_t num_heads = 0;
  int32_t num_kv_heads = 0;
  int32_t head_dim = 0;
  int32_t value_dim = 0;           // as in KvLayerView
  bool values_in_keys = false;     // as in KvLayerView; true for layers of latents
  LatentExpansion expansion = {};  // as in AttentionShape
  bool causal = true;  // as in AttentionShape; if false, a sequence must come in one step
  ImageScope image_scope = ImageScope::kSequence;

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
           causal == other.causal && image_scope == other.image_scope;
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
  std::vector<KvLayerSpec> layers;                // attention layers, first to last
  std::vector<StateLayerSpec> state_layers = {};  // layers with a state per sequence, first to last
  bool other_stages_keep_states = false;          // of a pipeline
  int32_t original_context = 0;                   // as in CacheSpec
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
  bool keeps_states() const { return !state_layers.empty() || other_stages_keep_states; }
  // Bytes of a sequence's states in all layers.
  int64_t StateBytes() const {
    int64_t elements = 0;
    for (const StateLayerSpec& layer : state_layers) {
      elements += AlignState(layer.ConvElements()) + AlignState(layer.MatrixElements());
    }
    return elements * static_cast<int64_t>(sizeof(float));
  }
  // The layers' views of states that lie in slots of StateBytes() from `base` on, which is aligned
  // to 64 bytes. Null: views without memory, for counting.
  std::vector<StateLayerView> StateViews(float* base) const {
    std::vector<StateLayerView> views;
    const auto take = [&base](int64_t elements) {
      return base == nullptr ? base : std::exchange(base, base + AlignState(elements));
    };
    for (const StateLayerSpec& layer : state_layers) {
      StateLayerView& view = views.emplace_back();
      view.spec = layer;
      view.conv = take(layer.ConvElements());
      view.matrix = take(layer.MatrixElements());
      view.slot_stride = StateBytes() / static_cast<int64_t>(sizeof(float));
    }
    return views;
  }

 private:
  static int64_t AlignState(int64_t elements) { return CeilDiv(elements, int64_t{16}) * 16; }
};

}  // namespace tokamak::nn
