// The changes of a row of raw logits before a draw: SlotSampling::Edit, by one CTA.
#pragma once

#include <cfloat>
#include <cmath>
#include <cstdint>

#include "ops/cuda/cta.cuh"
#include "ops/cuda/launch.h"
#include "ops/cuda/sample_layout.h"
#include "ops/cuda/sample_row.cuh"

namespace tokamak::cuda {

// Makes a logit that overflowed finite, and keeps -Inf.
inline __device__ float Clamp(float before, float after) {
  return before == -INFINITY ? before
         : after < -FLT_MAX  ? -FLT_MAX
         : after > FLT_MAX   ? FLT_MAX
                             : after;
}

inline __device__ bool ForbidsStop(const DeviceSlot& slot, int32_t position) {
  return position - slot.num_prompt < slot.min_tokens && slot.num_stops > 0;
}

inline __device__ bool HasEdits(const DeviceSlot& slot, int32_t position) {
  return slot.num_biases > 0 || slot.counts != nullptr || slot.dry_window > 0 ||
         slot.num_bad_words > 0 || ForbidsStop(slot, position);
}

// Sets tokens without a set bit to -Inf. All threads call it.
inline __device__ void ApplyMask(const Row& row, const uint32_t* allowed) {
  row.ForEach([&](int32_t id, float) {
    if ((allowed[id / 32] >> (id % 32) & 1) == 0) row.logits[id] = -INFINITY;
  });
  __syncthreads();
}

// The drafts or proposals before a draw, which are tokens of its history although the slot does not
// count them.
struct EarlierDrafts {
  const int32_t* tokens = nullptr;
  int32_t count = 0;
  int32_t position = 0;  // of the first one, or of the draw if there is none

  // Returns the ones before row `index` of the launch.
  __device__ static EarlierDrafts Of(const SampleArgs& a, int index) {
    if (const ProposalArgs& p = a.proposals; p.tokens != nullptr) {
      const SampleArgs::Row& row = a.rows[index];
      return {p.tokens + row.slot * p.max_proposals, p.number, row.position - p.number};
    }
    int first = index;
    while (a.drafts != nullptr && first > 0 && a.drafts[first - 1] != kNoDraft) --first;
    return {a.drafts == nullptr ? nullptr : a.drafts + first, index - first,
            a.rows[first].position};
  }
};

// Returns the token at a position before the draw, among the last ones that slot.history has room
// for.
inline __device__ int32_t TokenAt(const DeviceSlot& slot, const EarlierDrafts& earlier,
                                  int32_t position) {
  return position < earlier.position ? slot.history[position & slot.history_mask]
                                     : earlier.tokens[position - earlier.position];
}

// Returns the entry that slot.counts[id] would have with the earlier drafts.
inline __device__ int32_t CountOf(const DeviceSlot& slot, const EarlierDrafts& earlier,
                                  int32_t id) {
  const CountedTokens counted(slot.window);
  int32_t entry = slot.counts[id];
  for (int32_t i = 0; i < earlier.count; ++i) {
    if (earlier.tokens[i] == id) entry = counted.Plus(entry, true);
    const int32_t pushed_out = earlier.position + i - slot.window;
    if (slot.window > 0 && pushed_out >= 0 && TokenAt(slot, earlier, pushed_out) == id) {
      entry = counted.Minus(entry, pushed_out >= slot.num_prompt);
    }
  }
  return entry;
}

// Whether drawing the last token of a bad word, which has `size` tokens, would complete it.
inline __device__ bool Completes(const DeviceSlot& slot, const EarlierDrafts& earlier,
                                 int32_t position, const int32_t* word, int32_t size) {
  const int32_t first = position - (size - 1);
  if (first < slot.num_prompt) return false;
  for (int32_t i = 0; i < size - 1; ++i) {
    if (TokenAt(slot, earlier, first + i) != word[i]) return false;
  }
  return true;
}

// Lowers the logits of tokens that would go on with a repeat, as DryFinder finds them. All threads
// call it.
inline __device__ void PenalizeRepeats(const Row& row, const DeviceSlot& slot,
                                       const EarlierDrafts& earlier, int32_t position) {
  const int32_t window = min(slot.dry_window, position);
  const auto token = [&](int32_t i) { return TokenAt(slot, earlier, position - 1 - i); };
  int32_t nearest = window;  // breaker
  for (int32_t i = static_cast<int32_t>(threadIdx.x); i < nearest; i += kCtaThreads) {
    if (sampling::BreakerAt(slot.dry_breakers, i, token) >= 0) nearest = i;
  }
  nearest = CtaReduce(nearest, [](int32_t a, int32_t b) { return min(a, b); });
  int32_t limit = slot.dry_longest_match;
  if (nearest < window) {
    limit = min(limit, nearest - sampling::BreakerAt(slot.dry_breakers, nearest, token));
  }
  if (limit < slot.dry_allowed_length) return;
  const int32_t first = 1 + static_cast<int32_t>(threadIdx.x);
  for (int32_t k = first; k < window; k += kCtaThreads) {
    const int32_t length = sampling::DryMatch(k, window, limit, token);
    if (length < slot.dry_allowed_length) continue;
    atomicMax(&slot.dry_lengths[token(k - 1)], length + 1);
  }
  __syncthreads();
  for (int32_t k = first; k < window; k += kCtaThreads) {
    const int32_t id = token(k - 1);
    const int32_t length = atomicExch(&slot.dry_lengths[id], 0) - 1;
    if (length < 0 || slot.dry_breakers.IsSingle(id)) continue;  // -1: another thread has taken it
    if (id >= row.size) continue;
    const float x = row.logits[id];
    row.logits[id] = Clamp(x, x - sampling::DryPenalty(slot.dry_multiplier, slot.dry_base,
                                                       length - slot.dry_allowed_length));
  }
  __syncthreads();
}

// Does what SlotSampling::Edit does. With `keep_raw`, saves the logits from before any change. All
// threads call it. A draft model's row may lack the last tokens.
inline __device__ void Edit(const Row& row, const DeviceSlot& slot, const EarlierDrafts& earlier,
                            int32_t position, bool keep_raw) {
  if (keep_raw && slot.dry_window > 0) {
    row.ForEach([&](int32_t id, float x) { slot.dry_raw[id] = x; });
    __syncthreads();
  }
  for (int32_t i = static_cast<int32_t>(threadIdx.x); i < slot.num_biases; i += kCtaThreads) {
    const int32_t token = slot.biases[i].token;
    if (i > 0 && slot.biases[i - 1].token == token) continue;  // its first entry handles all
    if (token >= row.size) continue;
    float x = row.logits[token];
    if (keep_raw) slot.biases[i].raw = x;
    for (int32_t j = i; j < slot.num_biases && slot.biases[j].token == token; ++j) {
      x = Clamp(x, x + slot.biases[j].bias);
    }
    row.logits[token] = x;
  }
  __syncthreads();
  if (slot.counts != nullptr) {
    row.ForEach([&](int32_t id, float before) {
      const int32_t entry = CountOf(slot, earlier, id);
      if (entry == 0) return;
      if (keep_raw) slot.raw[id] = before;
      float x = before > 0 ? before / slot.repetition_penalty : before * slot.repetition_penalty;
      x = Clamp(before, x);
      if (const int32_t outputs = CountedTokens(slot.window).Outputs(entry); outputs > 0) {
        const auto count = static_cast<float>(outputs);
        x = Clamp(before, (x - slot.presence_penalty) - slot.frequency_penalty * count);
      }
      row.logits[id] = x;
    });
    __syncthreads();
  }
  if (slot.dry_window > 0) PenalizeRepeats(row, slot, earlier, position);
  if (ForbidsStop(slot, position)) {
    for (int32_t i = static_cast<int32_t>(threadIdx.x); i < slot.num_stops; i += kCtaThreads) {
      if (slot.stops[i] < row.size) row.logits[slot.stops[i]] = -INFINITY;
    }
    __syncthreads();
  }
  if (slot.num_bad_words == 0) return;
  for (int32_t i = static_cast<int32_t>(threadIdx.x); i < slot.num_bad_words; i += kCtaThreads) {
    const int32_t begin = i == 0 ? 0 : slot.bad_word_ends[i - 1];
    const int32_t* const word = slot.bad_word_tokens + begin;
    const int32_t size = slot.bad_word_ends[i] - begin;
    const int32_t last = word[size - 1];
    if (last >= row.size) continue;
    if (Completes(slot, earlier, position, word, size)) row.logits[last] = -INFINITY;
  }
  __syncthreads();
}

// Returns the token's logit from before any edit. With DRY, slot.dry_raw has it. Otherwise the
// first edit of a token stored it: a bias in the first of the token's biases, else a penalty in
// slot.raw. `token` can be drawn, so mask and min_tokens have not changed its logit. All threads
// call it.
inline __device__ float RawLogit(const Row& row, const DeviceSlot& slot,
                                 const EarlierDrafts& earlier, int32_t token) {
  if (slot.dry_window > 0) return slot.dry_raw[token];
  SHARED(raw, float);
  if (threadIdx.x == 0) {
    const bool counted = slot.counts != nullptr && CountOf(slot, earlier, token) != 0;
    raw = counted ? slot.raw[token] : row.logits[token];
  }
  __syncthreads();
  for (int32_t i = static_cast<int32_t>(threadIdx.x); i < slot.num_biases; i += kCtaThreads) {
    const bool first = i == 0 || slot.biases[i - 1].token != token;
    if (slot.biases[i].token == token && first) raw = slot.biases[i].raw;
  }
  __syncthreads();
  return raw;
}

}  // namespace tokamak::cuda
