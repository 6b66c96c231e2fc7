#include "engine/encoder_cache.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace tokamak {

void EncoderCache::BeginStep() {
  for (auto& [id, entry] : entries_) entry.used = false;
  num_used_rows_ = num_encoded_rows_ = 0;
}

void EncoderCache::Touch(ImageId image) {
  const auto found = entries_.find(image);
  if (found != entries_.end()) found->second.last_use = ++now_;
}

bool EncoderCache::MayUse(const EncodeImage& image) const {
  const auto found = entries_.find(image.id);
  if (found != entries_.end() && found->second.used) return true;
  if (int64_t{num_used_rows_} + image.num_rows > max_rows_) return false;
  return found != entries_.end() || int64_t{num_encoded_rows_} + image.num_rows <= max_step_rows_;
}

void EncoderCache::MarkUsed(Entry* entry) {
  entry->last_use = ++now_;
  if (!std::exchange(entry->used, true)) num_used_rows_ += entry->num_rows;
}

void EncoderCache::Use(const std::shared_ptr<const EncodeImage>& image) {
  const auto found = entries_.find(image->id);
  if (found != entries_.end()) return MarkUsed(&found->second);
  while (int64_t{num_rows_} + image->num_rows > max_rows_) EvictOne();
  Entry& entry = entries_[image->id];
  entry.num_rows = image->num_rows;
  MarkUsed(&entry);
  num_rows_ += image->num_rows;
  num_encoded_rows_ += image->num_rows;
  work_.encode.push_back(image);
}

void EncoderCache::EvictOne() {
  // The cache holds few images: each has hundreds of rows.
  const auto oldest = std::min_element(
      entries_.begin(), entries_.end(),
      [](const auto& a, const auto& b) { return a.second.last_use < b.second.last_use; });
  CHECK(oldest != entries_.end() && !oldest->second.used);
  num_rows_ -= oldest->second.num_rows;
  num_evicted_rows_ += oldest->second.num_rows;
  work_.forget.push_back(oldest->first);
  entries_.erase(oldest);
}

EncoderCache::StepWork EncoderCache::TakeStepWork() { return std::exchange(work_, StepWork{}); }

void EncoderCache::Reset() {
  entries_.clear();
  num_rows_ = num_used_rows_ = num_encoded_rows_ = 0;
  work_ = StepWork{};
}

}  // namespace tokamak
