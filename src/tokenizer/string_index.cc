#include "tokenizer/string_index.h"

#include <bit>
#include <cstring>
#include <utility>

#include "base/hash.h"

namespace tokamak {
namespace {

uint32_t Hash32(std::string_view text) {
  return static_cast<uint32_t>(Hash64(text.data(), text.size()));
}

}  // namespace

StringIndex::StringIndex(size_t expected) : slots_(std::bit_ceil(2 * expected + 2)) {}

const StringIndex::Slot& StringIndex::Probe(std::string_view text, uint32_t hash) const {
  for (size_t i = hash;; ++i) {
    const Slot& slot = slots_[i & (slots_.size() - 1)];
    if (slot.data == nullptr) return slot;
    if (slot.hash == hash && slot.size == text.size() &&
        std::memcmp(slot.data, text.data(), text.size()) == 0) {
      return slot;
    }
  }
}

bool StringIndex::Insert(std::string_view text, int32_t id) {
  if (2 * (count_ + 1) > slots_.size()) Grow();
  const uint32_t hash = Hash32(text);
  auto& slot = const_cast<Slot&>(Probe(text, hash));
  if (slot.data != nullptr) return false;
  slot = {text.data(), static_cast<uint32_t>(text.size()), hash, id};
  ++count_;
  if (text.size() > longest_) longest_ = text.size();
  return true;
}

int32_t StringIndex::Find(std::string_view text) const {
  return text.size() > longest_ ? kMissing : Probe(text, Hash32(text)).id;
}

void StringIndex::Grow() {
  const std::vector<Slot> old = std::exchange(slots_, std::vector<Slot>(2 * slots_.size()));
  for (const Slot& slot : old) {
    if (slot.data == nullptr) continue;
    size_t i = slot.hash;
    while (slots_[i & (slots_.size() - 1)].data != nullptr) ++i;
    slots_[i & (slots_.size() - 1)] = slot;
  }
}

}  // namespace tokamak
