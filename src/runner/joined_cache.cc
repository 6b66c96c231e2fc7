#include "runner/joined_cache.h"

#include <algorithm>

namespace tokamak {
namespace {

// The index of the group that suits best, or the number of groups if none does.
size_t FindGroup(const std::vector<nn::CacheLayout::Group>& groups,
                 const nn::CacheLayout::Group& wanted) {
  const auto find = [&groups](const nn::CacheLayout::Group& group) {
    const auto found = std::find_if(groups.begin(), groups.end(), [&](const auto& other) {
      return other.kind == group.kind && other.window == group.window;
    });
    return static_cast<size_t>(found - groups.begin());
  };
  const size_t equal = find(wanted);
  return equal < groups.size() ? equal : find({.kind = CacheGroupKind::kFull, .window = 0});
}

}  // namespace

JoinedCache JoinCaches(const nn::CacheLayout& model, const nn::CacheLayout* draft) {
  JoinedCache joined{.cache = model, .draft_groups = {}};
  if (draft == nullptr) return joined;
  std::vector<nn::CacheLayout::Group>& groups = joined.cache.groups;
  for (const nn::CacheLayout::Group& group : draft->groups) {
    const size_t index = FindGroup(groups, group);
    if (index == groups.size()) groups.push_back(group);
    joined.draft_groups.push_back(static_cast<int32_t>(index));
  }
  for (nn::KvLayerSpec layer : draft->layers) {
    layer.group = joined.draft_groups[static_cast<size_t>(layer.group)];
    joined.cache.layers.push_back(layer);
  }
  return joined;
}

}  // namespace tokamak
