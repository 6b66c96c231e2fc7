// Sampling: one CTA per row of logits f32 [rows, vocab_size], or a cluster of CTAs if rows are few
// and need neither filters nor edits nor logprobs. It reads the row a few times (the first time
// from memory, then from the L2 cache) and writes it only for edits and masks. Compiled without
// fused multiply-adds, so that for equal logits the token and the logprobs are those of
// ops/sampling, bit for bit. Bound: rows · vocab_size · 4 bytes per pass; a greedy row takes one
// pass, a draw without filters two.
//
// The steps are those of HostSampler::SampleOne: check, log-softmax of the raw logits if logprobs
// are wanted, edits (SlotSampling::Edit) and mask, filters, draw.
#include <climits>

#include "ops/cuda/cta.cuh"
#include "ops/cuda/launch.h"
#include "ops/cuda/sample_edits.cuh"
#include "ops/cuda/sample_filters.cuh"
#include "ops/cuda/sample_layout.h"
#include "ops/cuda/sample_row.cuh"
#include "ops/sampler.h"
#include "ops/sampling/best_draw.h"
#include "ops/sampling/row_sums.h"
#include "ops/sampling/synthetic_draw.h"
#include "step/step_output.h"

namespace tokamak::cuda {
namespace {

using sampling::BestDraw;

// Writes the `count` most likely tokens, in any order, and how to get their logprobs. All threads
// call it.
__device__ void WriteTop(const Row& row, const LogSoftmax& log_softmax, int32_t count,
                         SampleRecord* record, CutMemory& memory) {
  SHARED(found, int32_t);
  if (threadIdx.x == 0) found = 0;
  __syncthreads();
  if (count > 0) {
    const float max = log_softmax.max;
    const Cut cut = FindCut<BelowMax>(memory, static_cast<Mass>(count), [&](auto visit) {
      row.ForEach([&](int32_t id, float x) {
        if (x > -INFINITY) visit(static_cast<uint32_t>(id), BelowMax(max, x), Mass{1});
      });
    });
    row.ForEach([&](int32_t id, float x) {
      if (!(x > -INFINITY) || !cut.Keeps(BelowMax(max, x).key, static_cast<uint32_t>(id))) return;
      record->top[atomicAdd(&found, 1)] = {id, x};
    });
    __syncthreads();
  }
  if (threadIdx.x != 0) return;
  record->num_top = found;
  record->max = log_softmax.max;
  record->log_total = log_softmax.log_total;
}

// Does what sampling::KeepSigmas does. All threads call it.
__device__ void KeepSigmas(const Row& row, float max, float n) {
  float min = max;
  row.ForEach([&](int32_t, float x) { min = x < min && x > -INFINITY ? x : min; });
  min = CtaReduce(min, [](float a, float b) { return a < b ? a : b; });
  sampling::SigmaCut cut(max, min);
  sampling::SigmaCut::Sums sums;
  row.ForEach([&](int32_t, float x) {
    if (x > -INFINITY) cut.Add(x, &sums);
  });
  cut.SetReach({CtaSum(sums.count), CtaSum(sums.distances), CtaSum(sums.squares)}, n);
  row.ForEach([&](int32_t id, float x) {
    if (x > -INFINITY && !cut.Keeps(x)) row.logits[id] = -INFINITY;
  });
  __syncthreads();
}

// Does what sampling::DynamicTemperatureOf does. All threads call it.
__device__ float DynamicTemperatureOf(const Row& row, float max, const DeviceSlot& slot) {
  sampling::EntropySums sums;
  row.ForEach([&](int32_t, float x) {
    if (x > -INFINITY) sums.Add(x - max);
  });
  return sampling::DynamicTemperature(
      {CtaSum(sums.count), CtaSum(sums.total), CtaSum(sums.weighted)}, slot.temperature,
      slot.dynatemp_range, slot.dynatemp_exponent);
}

// Gumbel-max over the survivors. Without filters the token of `highest` (y = 0) is one of them, so
// every thread starts with its score and skips tokens that cannot reach it.
__device__ int32_t Draw(const Row& row, const Highest& highest, const Survivors& survivors,
                        const DrawKey& key, float temperature) {
  BestDraw best;
  best.token = INT_MAX;
  if (!survivors.any_filter) {
    const auto id = static_cast<uint32_t>(highest.id);
    best.Offer(0.0f, highest.id, DrawWords(key, id / 4)[id % 4]);
  }
  const int32_t quads = (row.size + 3) / 4;
  for (int32_t quad = row.First(); quad < quads; quad += row.Step()) {
    float y[4];
    row.LoadQuad(quad, y);
    float largest = -INFINITY;
#pragma unroll
    for (int32_t j = 0; j < 4; ++j) {
      y[j] = (y[j] - highest.value) / temperature;
      if (!survivors.Keep(y[j], static_cast<uint32_t>(4 * quad + j))) y[j] = -INFINITY;
      largest = fmaxf(largest, y[j]);
    }
    if (largest == -INFINITY || best.IsOutOfReach(largest)) continue;
    const int zero_bits = best.BitsThatMustBeZero(largest);
    const auto words = DrawWords(key, static_cast<uint32_t>(quad));
#pragma unroll
    for (int32_t j = 0; j < 4; ++j) {
      if (y[j] == -INFINITY || BestDraw::AnyOfTopBits(words[j], zero_bits)) continue;
      best.Offer(y[j], 4 * quad + j, words[j]);
    }
  }
  struct Packed {  // whole words, without padding
    double score;
    int32_t token, unused;
  };
  return ReduceParts(Packed{best.score, best.token, 0}, row.parts,
                     [](const Packed& a, const Packed& b) {
                       BestDraw both;
                       both.score = a.score;
                       both.token = a.token;
                       both.Offer(b.score, b.token);
                       return Packed{both.score, both.token, 0};
                     })
      .token;
}

// Returns the row's token and sets *health. Writes the record's logprobs.
__device__ int32_t SampleRow(const SampleArgs& a, const SampleArgs::Row& where, const Row& row,
                             const DeviceSlot& slot, int index, SampleRecord* record,
                             RowHealth* health, CutMemory& memory) {
  const bool wants_logprobs = slot.top_logprobs >= 0;
  bool usable = true;
  Highest highest = row.Scan(&usable);
  const float raw_max = highest.value;
  *health = RowHealth::kNotFinite;
  if (!usable || raw_max == -INFINITY) return 0;
  const LogSoftmax log_softmax = wants_logprobs ? LogSoftmax(row, raw_max) : LogSoftmax();
  if (wants_logprobs) WriteTop(row, log_softmax, slot.top_logprobs, record, memory);
  const bool edits = HasEdits(slot, where.position);
  const bool masks = where.mask >= 0 || slot.allowed != nullptr;
  __syncthreads();  // the raw row has been read
  if (edits) Edit(row, slot, EarlierDrafts::Of(a, index), where.position, wants_logprobs);
  if (where.mask >= 0) ApplyMask(row, a.masks + int64_t{where.mask} * a.mask_words);
  if (slot.allowed != nullptr) ApplyMask(row, slot.allowed);
  if (edits || masks) highest = row.Scan(&usable);
  *health = RowHealth::kNoCandidate;
  if (highest.value == -INFINITY) return 0;
  *health = RowHealth::kOk;
  int32_t token = highest.id;
  if (slot.temperature != 0.0f) {
    const DrawKey key = {.seed = slot.seed, .choice = slot.choice, .position = where.position};
    if (slot.top_n_sigma > 0.0f) KeepSigmas(row, highest.value, slot.top_n_sigma);
    const float temperature = slot.dynatemp_range > 0.0f
                                  ? DynamicTemperatureOf(row, highest.value, slot)
                                  : slot.temperature;
    const auto tempered = [&](int32_t id) {
      return (row.logits[id] - highest.value) / temperature;
    };
    token =
        Draw(row, highest, ApplyFilters(slot, key, row.size, tempered, memory), key, temperature);
  }
  if (wants_logprobs) {
    const float logit =
        edits ? RawLogit(row, slot, EarlierDrafts::Of(a, index), token) : row.logits[token];
    const float logprob = log_softmax(logit);
    if (threadIdx.x == 0) record->logprob = logprob;
  }
  return token;
}

// Does what HostSampler::FindCandidates does. Changes the row and writes the record.
__device__ void FindCandidates(const SampleArgs& a, const SampleArgs::Row& where, const Row& row,
                               const DeviceSlot& slot, int index, SampleRecord* record,
                               CutMemory& memory) {
  bool usable = true;
  Highest highest = row.Scan(&usable);
  RowHealth health = RowHealth::kNotFinite;
  if (usable && highest.value > -INFINITY) {
    const LogSoftmax log_softmax(row, highest.value);
    __syncthreads();  // the raw row has been read
    row.ForEach([&](int32_t id, float x) { row.logits[id] = log_softmax(x); });
    __syncthreads();
    if (HasEdits(slot, where.position)) {
      Edit(row, slot, EarlierDrafts::Of(a, index), where.position, /*keep_raw=*/false);
    }
    if (where.mask >= 0) ApplyMask(row, a.masks + int64_t{where.mask} * a.mask_words);
    if (slot.allowed != nullptr) ApplyMask(row, slot.allowed);
    highest = row.Scan(&usable);
    health = highest.value == -INFINITY ? RowHealth::kNoCandidate : RowHealth::kOk;
    LogSoftmax identity;
    identity.max = highest.value;
    if (health == RowHealth::kOk) {
      WriteTop(row, identity, record->num_candidates, record, memory);
    }
  }
  if (threadIdx.x != 0) return;
  record->health = static_cast<int32_t>(health);
  record->token = kNotDrawn;
}

// Whether several CTAs can share the row.
__device__ bool CanBeShared(const DeviceSlot& slot, const SampleArgs::Row& where, int32_t size) {
  const bool edits = HasEdits(slot, where.position) || slot.allowed != nullptr;
  const bool sums = slot.top_n_sigma > 0.0f || slot.dynatemp_range > 0.0f;
  return !edits && !sums && where.mask < 0 && slot.top_logprobs < 0 && !HasFilters(slot, size);
}

// Adds a drawn token to the slot's history.
__device__ void CountToken(const DeviceSlot& slot, int32_t position, int32_t token) {
  if (slot.counts != nullptr) {
    const CountedTokens counted(slot.window);
    slot.counts[token] = counted.Plus(slot.counts[token], true);
    const int32_t pushed_out = position - slot.window;
    if (slot.window > 0 && pushed_out >= 0) {
      int32_t& entry = slot.counts[slot.history[pushed_out & slot.history_mask]];
      entry = counted.Minus(entry, pushed_out >= slot.num_prompt);
    }
  }
  if (slot.history != nullptr) slot.history[position & slot.history_mask] = token;
}

// Whether the draws of a slot use the same memory, for DRY or for their raw logits. If so, one CTA
// makes them in turn.
__device__ bool InTurn(const SampleArgs& a, const DeviceSlot& slot) {
  if (a.drafts == nullptr) return false;
  const bool keeps_raw = slot.top_logprobs >= 0 && (slot.num_biases > 0 || slot.counts != nullptr);
  return keeps_raw || slot.dry_window > 0;
}

// Writes a row's proposal, which is `token` or none. One thread calls it.
__device__ void WriteProposal(const SampleArgs& a, int32_t slot, int32_t token,
                              SampleRecord* record) {
  a.proposals.tokens[slot * a.proposals.max_proposals + a.proposals.number] = token;
  record->health = static_cast<int32_t>(RowHealth::kOk);
  record->token = token;
  record->num_top = -1;
}

__device__ bool ProposalsHaveEnded(const SampleArgs& a, int32_t slot) {
  const ProposalArgs& p = a.proposals;
  return p.tokens != nullptr && p.number > 0 &&
         p.tokens[slot * p.max_proposals + p.number - 1] == kNotDrawn;
}

__device__ void SampleIndex(const SampleArgs& a, int index, const DeviceSlot& slot, int part,
                            CutMemory& memory) {
  const SampleArgs::Row& where = a.rows[index];
  if (ProposalsHaveEnded(a, where.slot)) {
    if (threadIdx.x == 0 && part == 0) WriteProposal(a, where.slot, kNotDrawn, a.records + index);
    return;
  }
  Row row = {a.logits + index * a.logits_stride, a.vocab_size};
  if (a.any_candidates && a.records[index].num_candidates > 0) {
    if (part == 0) FindCandidates(a, where, row, slot, index, a.records + index, memory);
    return;
  }
  if (a.parts > 1 && CanBeShared(slot, where, a.vocab_size)) {
    row.part = part;
    row.parts = a.parts;
  } else if (part > 0) {
    return;
  }
  SampleRecord* record = a.records + index;
  if (threadIdx.x == 0 && part == 0) record->num_top = -1;
  RowHealth health = RowHealth::kOk;
  const int32_t token = SampleRow(a, where, row, slot, index, record, &health, memory);
  if (threadIdx.x != 0 || part != 0) return;
  if (a.proposals.tokens != nullptr) {
    const bool unlikely =
        slot.top_logprobs >= 0 && static_cast<double>(record->logprob) < a.proposals.least_logprob;
    const bool none = health != RowHealth::kOk || unlikely;
    WriteProposal(a, where.slot, none ? kNotDrawn : token, record);
    return;
  }
  record->health = static_cast<int32_t>(health);
  record->token = token;
  if (a.drafts != nullptr) {
    a.drawn[index] = health == RowHealth::kOk ? token : kUnhealthy;
    return;
  }
  a.last[where.slot] = token;
  if (health == RowHealth::kOk) CountToken(slot, where.position, token);
}

__global__ void __launch_bounds__(kCtaThreads) SampleKernel(const __grid_constant__ SampleArgs a) {
  SHARED(memory, CutMemory);
  int index = static_cast<int>(blockIdx.x) / a.parts;
  const int part = static_cast<int>(blockIdx.x) % a.parts;
  SHARED(slot, DeviceSlot);  // its fields would not fit registers
  if (threadIdx.x == 0) {
    slot = a.slots[a.rows[index].slot];
    if (a.proposals.tokens != nullptr) {  // needs a logprob only to compare it
      slot.top_logprobs = a.proposals.least_logprob > -INFINITY ? 0 : -1;
    }
  }
  __syncthreads();
  if (InTurn(a, slot) && index > 0 && a.drafts[index - 1] != kNoDraft) return;
  do {
    SampleIndex(a, index, slot, part, memory);
  } while (InTurn(a, slot) && a.drafts[index++] != kNoDraft);
}

// Each thread decides for the draws of one slot, from its first row on: as
// HostSampler::DrawUntilRefused.
__global__ void AcceptKernel(const __grid_constant__ SampleArgs a, int num_rows) {
  int index = static_cast<int>(threadIdx.x);
  if (index >= num_rows || (index > 0 && a.drafts[index - 1] != kNoDraft)) return;
  const int32_t slot = a.rows[index].slot;
  const int first = index;
  for (bool goes_on = true; goes_on; ++index) {
    int32_t token = a.drawn[index];
    if (token == kUnhealthy && index > first) break;
    if (token != kUnhealthy) CountToken(a.slots[slot], a.rows[index].position, token);
    const int32_t draft = a.drafts[index];
    if (a.acceptance >= 0 && draft != kNoDraft) {
      token =
          sampling::SyntheticDraw(a.acceptance, slot, a.rows[index].position, draft, a.vocab_size);
      a.records[index].token = token;
    }
    a.last[slot] = token == kUnhealthy ? 0 : token;
    goes_on = draft != kNoDraft && token == draft;
  }
  for (; a.drafts[index - 1] != kNoDraft; ++index) {
    a.records[index].health = static_cast<int32_t>(RowHealth::kOk);
    a.records[index].token = kNotDrawn;
    a.records[index].num_top = -1;
  }
}

__global__ void __launch_bounds__(kCtaThreads) ScoreKernel(const __grid_constant__ ScoreArgs a) {
  SHARED(memory, CutMemory);
  // The row is only read.
  const Row row = {const_cast<float*>(a.logits) + blockIdx.x * a.logits_stride, a.vocab_size};
  SampleRecord* record = a.records + blockIdx.x;
  const int32_t token = a.tokens[blockIdx.x];
  bool usable = true;
  const Highest highest = row.Scan(&usable);
  if (!usable || highest.value == -INFINITY) {
    if (threadIdx.x == 0) {
      record->health = static_cast<int32_t>(RowHealth::kNotFinite);
      record->token = 0;
      record->num_top = -1;
    }
    return;
  }
  const LogSoftmax log_softmax(row, highest.value);
  WriteTop(row, log_softmax, a.top, record, memory);
  if (threadIdx.x != 0) return;
  record->health = static_cast<int32_t>(RowHealth::kOk);
  record->token = token;
  record->logprob = log_softmax(row.logits[token]);
}

__global__ void SetSlotKernel(DeviceSlot* slots, int32_t* last, int32_t slot, DeviceSlot value) {
  slots[slot] = value;
  last[slot] = 0;
}

__global__ void CountTokensKernel(const int32_t* tokens, int32_t num_tokens, int32_t num_prompt,
                                  int32_t window, int32_t* counts) {
  const auto i = static_cast<int32_t>(blockIdx.x * kCtaThreads + threadIdx.x);
  if (i >= num_tokens) return;
  const CountedTokens counted(window);
  if (counted.whole) {
    atomicOr(&counts[tokens[i]], counted.one_prompt);
  } else {
    atomicAdd(&counts[tokens[i]], counted.one_prompt);
  }
  if (i >= num_prompt) atomicAdd(&counts[tokens[i]], counted.one_output);
}

__global__ void FillTokensKernel(const __grid_constant__ FillArgs a) {
  const FillArgs::Fill& fill = a.fills[threadIdx.x];
  if (static_cast<int32_t>(threadIdx.x) < a.num_fills) {
    const int32_t token = a.last[fill.slot * a.stride];
    a.token_ids[fill.index] = token < 0 ? 0 : token;
  }
}

}  // namespace

cudaError_t LaunchSample(SampleArgs args, int num_rows, cudaStream_t stream) {
  // A CTA fills an SM. GPUs with clusters have a few more SMs than this.
  constexpr int kSms = 128;
  constexpr int kMostParts = 8;  // of a cluster, on every GPU that has clusters
  args.parts = 1;
  if (HasDependents()) {  // those GPUs have clusters too
    while (args.parts < kMostParts && 2 * args.parts * num_rows <= kSms) args.parts *= 2;
  }
  const auto parts = static_cast<unsigned>(args.parts);
  const cudaError_t status =
      LaunchGroups({.cluster = parts}, SampleKernel, parts * static_cast<unsigned>(num_rows),
                   kCtaThreads, 0, stream, args);
  if (args.drafts == nullptr || status != cudaSuccess) return status;
  return LaunchKernel(AcceptKernel, 1, kRowsPerLaunch, 0, stream, args, num_rows);
}

cudaError_t LaunchScore(const ScoreArgs& args, int num_rows, cudaStream_t stream) {
  return LaunchKernel(ScoreKernel, static_cast<unsigned>(num_rows), kCtaThreads, 0, stream, args);
}

cudaError_t LaunchSetSlot(DeviceSlot* slots, int32_t* last, int32_t slot, const DeviceSlot& value,
                          cudaStream_t stream) {
  return LaunchKernel(SetSlotKernel, 1, 1, 0, stream, slots, last, slot, value);
}

cudaError_t LaunchCountTokens(const int32_t* tokens, int32_t num_tokens, int32_t num_prompt,
                              int32_t window, int32_t* counts, cudaStream_t stream) {
  const auto ctas = static_cast<unsigned>((num_tokens + kCtaThreads - 1) / kCtaThreads);
  return LaunchKernel(CountTokensKernel, ctas, kCtaThreads, 0, stream, tokens, num_tokens,
                      num_prompt, window, counts);
}

cudaError_t LaunchFillTokens(const FillArgs& args, cudaStream_t stream) {
  return LaunchKernel(FillTokensKernel, 1, kRowsPerLaunch, 0, stream, args);
}

}  // namespace tokamak::cuda
