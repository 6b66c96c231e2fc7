#include "runner/flight.h"

#include <algorithm>

namespace tokamak {
namespace {

constexpr int64_t kAlignment = 256;  // bytes, as Arena's

// Sections of the staging buffer.
constexpr int kTokenIds = 0;
constexpr int kPositions = 1;
constexpr int kLogitRows = 2;
constexpr int kSlots = 3;  // two sections per group: i64

int32_t BlocksFor(int32_t positions, int32_t block_size) {
  return (positions + block_size - 1) / block_size;
}

}  // namespace

int64_t FlightShape::SectionBytes() const {
  const int64_t bytes = int64_t{max_tokens} * static_cast<int64_t>(sizeof(int32_t));
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

int64_t FlightShape::StagingBytes() const { return SectionBytes() * (kSlots + 2 * num_groups); }

namespace {

// Writes one step's sections.
class Packer {
 public:
  Packer(const SlotTable& slots, const CacheSpec& cache, const FlightShape& shape, Flight* flight)
      : slots_(slots),
        cache_(cache),
        shape_(shape),
        flight_(*flight),
        token_ids_(Section<int32_t>(kTokenIds)),
        positions_(Section<int32_t>(kPositions)),
        logit_rows_(Section<int32_t>(kLogitRows)) {}

  void Pack(std::span<const StepRow> rows) {
    Clear();
    for (const StepRow& row : rows) PackRow(row);
    PackTables(rows);
    // After all rows that sample, so that their logits are one range.
    for (size_t i = 0; i < rows.size(); ++i) PackPromptLogprobs(rows[i], &flight_.rows[i]);
    flight_.num_tokens = num_tokens_;
    flight_.sampled_results.resize(flight_.sample_rows.size());
    flight_.scored_results.resize(flight_.scored_tokens.size());
  }

 private:
  template <typename T>
  T* Section(int index) const {
    return reinterpret_cast<T*>(flight_.staging.data() + shape_.SectionBytes() * index);
  }

  void Clear() {
    flight_.rows.clear();
    flight_.query_begin.assign(1, 0);
    flight_.kv_length.clear();
    flight_.fills.clear();
    flight_.sample_rows.clear();
    flight_.scored_tokens.clear();
    flight_.masks.clear();
  }

  void PackRow(const StepRow& row) {
    const Slot& slot = slots_[row.slot];
    const int32_t begin = slot.num_computed - row.num_tokens;
    const auto admitted = static_cast<int32_t>(slot.tokens.size());
    for (int32_t i = 0; i < row.num_tokens; ++i) {
      const int32_t position = begin + i;
      const int32_t t = num_tokens_ + i;
      positions_[t] = position;
      if (position < admitted) {
        token_ids_[t] = slot.tokens[static_cast<size_t>(position)];
      } else {
        token_ids_[t] = 0;  // drawn since; filled in on the device
        flight_.fills.push_back({.slot = row.slot, .index = t});
      }
    }
    for (int32_t g = 0; g < shape_.num_groups; ++g) PackSlots(g, slot, begin, row.num_tokens);
    num_tokens_ += row.num_tokens;
    flight_.query_begin.push_back(num_tokens_);
    flight_.kv_length.push_back(slot.num_computed);
    Flight::Row& packed = flight_.rows.emplace_back();
    packed.slot = row.slot;
    if (!row.sample) return;
    packed.sampled = static_cast<int32_t>(flight_.sample_rows.size());
    packed.wants_logprobs = slot.top_logprobs >= 0;
    logit_rows_[packed.sampled] = num_tokens_ - 1;
    flight_.sample_rows.push_back({.slot = row.slot, .position = slot.num_computed});
  }

  void PackSlots(int32_t g, const Slot& slot, int32_t begin, int32_t count) {
    int64_t* slots = Section<int64_t>(kSlots + 2 * g) + num_tokens_;
    const int32_t block_size = cache_.groups[static_cast<size_t>(g)].block_size;
    const std::vector<BlockId>& table = slot.tables[static_cast<size_t>(g)];
    for (int32_t i = 0; i < count; ++i) {
      const int32_t position = begin + i;
      const BlockId block = table[static_cast<size_t>(position / block_size)];
      slots[i] = int64_t{block} * block_size + position % block_size;
    }
  }

  void PackTables(std::span<const StepRow> rows) {
    for (int32_t g = 0; g < shape_.num_groups; ++g) {
      const int32_t block_size = cache_.groups[static_cast<size_t>(g)].block_size;
      std::vector<BlockId>& packed = flight_.tables[static_cast<size_t>(g)];
      const size_t stride = static_cast<size_t>(shape_.max_blocks_per_seq);
      for (size_t s = 0; s < rows.size(); ++s) {
        const Slot& slot = slots_[rows[s].slot];
        const std::vector<BlockId>& table = slot.tables[static_cast<size_t>(g)];
        std::copy_n(table.begin(), BlocksFor(slot.num_computed, block_size),
                    packed.begin() + static_cast<std::ptrdiff_t>(s * stride));
      }
    }
  }

  void PackPromptLogprobs(const StepRow& row, Flight::Row* packed) {
    const Slot& slot = slots_[row.slot];
    packed->scored_begin = static_cast<int32_t>(flight_.scored_tokens.size());
    packed->prompt_top = slot.prompt_top_logprobs;
    const int32_t begin = slot.num_computed - row.num_tokens;
    const int32_t end =
        packed->prompt_top < 0 ? begin : std::min(slot.num_computed, slot.num_prompt - 1);
    const int32_t first = flight_.query_begin[static_cast<size_t>(packed - flight_.rows.data())];
    for (int32_t position = begin; position < end; ++position) {
      logit_rows_[flight_.sample_rows.size() + flight_.scored_tokens.size()] =
          first + (position - begin);
      flight_.scored_tokens.push_back(slot.tokens[static_cast<size_t>(position) + 1]);
    }
    packed->scored_end = static_cast<int32_t>(flight_.scored_tokens.size());
  }

  const SlotTable& slots_;
  const CacheSpec& cache_;
  const FlightShape& shape_;
  Flight& flight_;
  int32_t* token_ids_;
  int32_t* positions_;
  int32_t* logit_rows_;
  int32_t num_tokens_ = 0;
};

}  // namespace

void PackRows(std::span<const StepRow> rows, const SlotTable& slots, const CacheSpec& cache,
              const FlightShape& shape, Flight* flight) {
  Packer(slots, cache, shape, flight).Pack(rows);
}

DeviceBatch ViewDeviceBatch(const FlightShape& shape, Flight* flight) {
  const auto view = [&](int section, DType dtype, int64_t count) {
    return Tensor(flight->device.data() + shape.SectionBytes() * section, dtype, Shape{count});
  };
  for (int32_t g = 0; g < shape.num_groups; ++g) {
    flight->groups[static_cast<size_t>(g)] = {
        .plan = flight->plans[static_cast<size_t>(g)].get(),
        .slots = view(kSlots + 2 * g, DType::kI64, flight->num_tokens)};
  }
  const size_t num_logits = flight->sample_rows.size() + flight->scored_tokens.size();
  return {.token_ids = view(kTokenIds, DType::kI32, flight->num_tokens),
          .positions = view(kPositions, DType::kI32, flight->num_tokens),
          .logit_rows = view(kLogitRows, DType::kI32, static_cast<int64_t>(num_logits))};
}

}  // namespace tokamak
