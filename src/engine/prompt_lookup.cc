#include "engine/prompt_lookup.h"

#include <algorithm>
#include <utility>

namespace tokamak {
namespace {

constexpr size_t kFirstEntries = 256;
// Entries that a hash may be in. A bound, because a client could choose a prompt whose hashes are
// all the same. With the table at most half full, hardly any other text reaches it.
constexpr size_t kMaxProbes = 64;

uint64_t AddToHash(uint64_t hash, ContentId id) {
  hash = (hash ^ static_cast<uint64_t>(id)) * 0x9E3779B97F4A7C15u;
  return hash ^ (hash >> 32);
}

// How many tokens before `a` and before `b` are the same, up to `most`.
int32_t SameBefore(std::span<const ContentId> text, int32_t a, int32_t b, int32_t most) {
  int32_t length = 0;
  while (length < std::min(a, most) &&
         text[static_cast<size_t>(a - 1 - length)] == text[static_cast<size_t>(b - 1 - length)]) {
    ++length;
  }
  return length;
}

}  // namespace

PromptLookup::PromptLookup(int32_t min_match, int32_t max_match)
    : min_match_(std::max(1, min_match)), max_match_(std::max(min_match_, max_match)) {}

void PromptLookup::Extend(std::span<const ContentId> text) {
  const auto known = static_cast<int32_t>(text.size());
  while (size_ < known) {
    ++size_;
    match_ = {};
    uint64_t hash = 0;
    const int32_t longest = std::min(max_match_, size_);
    for (int32_t length = 1; length <= longest; ++length) {
      hash = AddToHash(hash, text[static_cast<size_t>(size_ - length)]);
      if (length < min_match_) continue;
      // Lengths share the table.
      const int32_t end = Exchange(static_cast<uint32_t>(AddToHash(hash, length)), size_);
      if (end > 0 && SameBefore(text, end, size_, length) == length) match_ = {end, length};
    }
  }
  if (match_.end > 0) match_.length = SameBefore(text, match_.end, size_, kMaxLength);
}

int32_t PromptLookup::Exchange(uint32_t hash, int32_t end) {
  if (2 * num_entries_ >= entries_.size()) Grow();
  const size_t mask = entries_.size() - 1;
  for (size_t i = 0; i < kMaxProbes; ++i) {
    Entry& entry = entries_[(hash + i) & mask];
    if (entry.end == 0) {
      entry = {hash, end};
      ++num_entries_;
      return 0;
    }
    if (entry.hash == hash) return std::exchange(entry.end, end);
  }
  entries_[hash & mask] = {hash, end};
  return 0;
}

void PromptLookup::Grow() {
  const std::vector<Entry> old =
      std::exchange(entries_, std::vector<Entry>(std::max(kFirstEntries, 2 * entries_.size())));
  num_entries_ = 0;
  for (const Entry& entry : old) {
    if (entry.end > 0) Exchange(entry.hash, entry.end);
  }
}

}  // namespace tokamak
