// One KV cache for two models that compute the same positions.
#pragma once

#include <cstdint>
#include <vector>

#include "nn/cache_layout.h"

namespace tokamak {

struct JoinedCache {
  nn::CacheLayout cache;              // the layers of the model, then those of the draft model
  std::vector<int32_t> draft_groups;  // for each group of the draft model, its group in `cache`
};

// The cache of `model`, and of a draft model if there is one. The draft model's layers join a group
// that keeps the positions that they read, so that a block holds the same positions of both models.
// Where there is none, they get a group of their own.
JoinedCache JoinCaches(const nn::CacheLayout& model, const nn::CacheLayout* draft);

}  // namespace tokamak
