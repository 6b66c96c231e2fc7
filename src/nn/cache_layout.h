// What a model's layers keep in the KV cache. The runner turns it into blocks.
#pragma once

#include <cstdint>
#include <vector>

#include "step/cache_spec.h"

namespace tokamak::nn {

struct KvLayerSpec {
  int32_t group = 0;  // index into CacheLayout::groups
  int32_t num_heads = 0;
  int32_t num_kv_heads = 0;
  int32_t head_dim = 0;
};

struct CacheLayout {
  struct Group {
    CacheGroupKind kind = CacheGroupKind::kFull;
    int32_t window = 0;  // kWindow: keys that a query sees, its own included
  };
  std::vector<Group> groups;
  std::vector<KvLayerSpec> layers;  // attention layers, first to last
};

}  // namespace tokamak::nn
