#include "ops/cuda/sampler.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/check.h"
#include "base/error.h"
#include "ops/cuda/check_sizes.h"
#include "ops/sampling/dry_finder.h"
#include "ops/sampling/slot_sampling.h"
#include "ops/sampling/token_bits.h"

namespace tokamak::cuda {
namespace {

// Memory reserved at the start for the counts of slots with penalties: at least one slot's, at most
// all slots'. The pool rounds a slot's counts up to a power of two, so it may take up to twice as
// much. Further slots with penalties allocate when they come.
constexpr size_t kReservedCountBytes = 256 << 20;

// Best first, equal ones by id.
void SortTop(const SampleRecord& record) {
  std::sort(record.top, record.top + record.num_top, [](const TopToken& a, const TopToken& b) {
    return a.logit > b.logit || (a.logit == b.logit && a.id < b.id);
  });
}

void AddCandidates(const SampleRecord& record, std::vector<TokenLogprobs::Entry>* candidates) {
  SortTop(record);
  for (int32_t i = 0; i < record.num_top; ++i) {
    candidates->push_back({record.top[i].id, record.top[i].logit});
  }
}

// Appends the record's most likely tokens.
void AddTop(const SampleRecord& record, TokenLogprobs* logprobs) {
  SortTop(record);
  for (int32_t i = 0; i < record.num_top; ++i) {
    const double below_max = double{record.top[i].logit} - double{record.max};
    logprobs->top.push_back({record.top[i].id, static_cast<float>(below_max - record.log_total)});
  }
}

// Turns the records in a block into SampleResults.
void DeliverResults(const std::byte* block, std::span<SampleResult> results) {
  const auto* record = reinterpret_cast<const SampleRecord*>(block);
  for (SampleResult& result : results) {
    result.health = static_cast<RowHealth>(record->health);
    result.token = record->token;
    result.logprobs.token = {};
    result.logprobs.top.clear();
    result.candidates.clear();
    if (result.health == RowHealth::kOk && record->num_candidates > 0) {
      AddCandidates(*record, &result.candidates);
    } else if (result.health == RowHealth::kOk && record->num_top >= 0) {
      result.logprobs.token = {record->token, record->logprob};
      AddTop(*record, &result.logprobs);
    }
    ++record;
  }
}

size_t RecordBytes(size_t num_records, size_t num_top) {
  return num_records * sizeof(SampleRecord) + num_top * sizeof(TopToken);
}

float* Logits(const Tensor& logits, size_t row) {
  return logits.Row<float>(static_cast<int64_t>(row));
}

}  // namespace

CudaSampler::CudaSampler(const SamplerShape& shape, CallGuard& guard, BlockPool& pinned)
    : shape_(shape),
      mask_words_((shape.vocab_size + 31) / 32),
      guard_(guard),
      pinned_(pinned),
      device_(guard, MemoryKind::kDevice),
      held_(static_cast<size_t>(shape.max_seqs)) {}

Result<std::unique_ptr<CudaSampler>> CudaSampler::Make(const SamplerShape& shape, CallGuard& guard,
                                                       BlockPool& pinned) {
  RETURN_IF_ERROR(CheckCudaVocabulary(shape.vocab_size));
  std::unique_ptr<CudaSampler> sampler(new CudaSampler(shape, guard, pinned));
  RETURN_IF_ERROR(sampler->Start());
  return sampler;
}

size_t CudaSampler::CountBytes() const {
  return static_cast<size_t>(shape_.vocab_size) * (sizeof(int32_t) + sizeof(float));
}

Status CudaSampler::Start() {
  const auto max_seqs = static_cast<size_t>(shape_.max_seqs);
  const auto max_rows = static_cast<size_t>(shape_.max_rows);
  ASSIGN_OR_RETURN(slots_,
                   AllocateMemory(guard_, max_seqs * sizeof(DeviceSlot), MemoryKind::kDevice));
  ASSIGN_OR_RETURN(last_, AllocateMemory(guard_, max_seqs * sizeof(int32_t), MemoryKind::kDevice));
  const auto max_proposals = static_cast<size_t>(shape_.max_proposals);
  if (max_proposals > 0) {
    ASSIGN_OR_RETURN(proposals_, AllocateMemory(guard_, max_seqs * max_proposals * sizeof(int32_t),
                                                MemoryKind::kDevice));
    RETURN_IF_ERROR(pinned_.Reserve(kStepsInFlight, max_seqs * sizeof(SampleRecord)));
  }
  const size_t counts =
      std::clamp<size_t>(kReservedCountBytes / std::max<size_t>(1, CountBytes()), 1, max_seqs);
  RETURN_IF_ERROR(device_.Reserve(static_cast<int>(counts), CountBytes()));
  RETURN_IF_ERROR(device_.Reserve(shape_.max_seqs, 1));
  RETURN_IF_ERROR(pinned_.Reserve(shape_.max_seqs, 1));
  RETURN_IF_ERROR(device_.Reserve(1, 2 * max_rows * sizeof(int32_t)));  // for drafts
  RETURN_IF_ERROR(pinned_.Reserve(kStepsInFlight, max_rows * sizeof(int32_t)));
  return pinned_.Reserve(kStepsInFlight, RecordBytes(max_rows, max_rows * kDefaultMaxLogprobs));
}

void CudaSampler::Release(Held& held) {
  device_.Give(held.lists);
  device_.Give(held.breakers);
  device_.Give(held.dry);
  device_.Give(held.counts);
  device_.Give(held.history);
  held = {};
}

void CudaSampler::Upload(BlockPool::Block from, std::byte* to, size_t bytes, CudaStream& stream) {
  CUDA_RUN(guard_, cudaMemcpyAsync(to, from.data, bytes, cudaMemcpyHostToDevice, stream.handle()));
  stream.completions()->Add({.block = from, .deliver = nullptr, .results = {}});
}

void CudaSampler::UploadLists(const SamplingParams& spec, Held& held, DeviceSlot& device,
                              CudaStream& stream) {
  const size_t bias_bytes = spec.logit_bias.size() * sizeof(TokenBias);
  const size_t stop_bytes = spec.stop_token_ids.size() * sizeof(int32_t);
  const bool limited = !spec.allowed_token_ids.empty();
  const size_t allowed_bytes = limited ? static_cast<size_t>(mask_words_) * sizeof(uint32_t) : 0;
  size_t bad_tokens = 0;
  for (const std::vector<TokenId>& word : spec.bad_words_ids) bad_tokens += word.size();
  const size_t bad_bytes = (spec.bad_words_ids.size() + bad_tokens) * sizeof(int32_t);
  const size_t bytes = bias_bytes + stop_bytes + allowed_bytes + bad_bytes;
  if (bytes == 0) return;
  const BlockPool::Block pinned = pinned_.Take(bytes);
  held.lists = device_.Take(bytes);
  if (pinned.data == nullptr || held.lists.data == nullptr) return;
  auto* biases = reinterpret_cast<TokenBias*>(pinned.data);
  for (size_t i = 0; i < spec.logit_bias.size(); ++i) {
    biases[i] = {.token = spec.logit_bias[i].first, .bias = spec.logit_bias[i].second, .raw = 0};
  }
  std::stable_sort(biases, biases + spec.logit_bias.size(),
                   [](const TokenBias& a, const TokenBias& b) { return a.token < b.token; });
  if (stop_bytes > 0) std::memcpy(pinned.data + bias_bytes, spec.stop_token_ids.data(), stop_bytes);
  device.num_biases = static_cast<int32_t>(spec.logit_bias.size());
  device.num_stops = static_cast<int32_t>(spec.stop_token_ids.size());
  device.biases = reinterpret_cast<TokenBias*>(held.lists.data);
  device.stops = reinterpret_cast<const int32_t*>(held.lists.data + bias_bytes);
  if (limited) {
    auto* allowed = reinterpret_cast<uint32_t*>(pinned.data + bias_bytes + stop_bytes);
    std::fill_n(allowed, mask_words_, 0u);
    sampling::SetTokenBits(spec.allowed_token_ids, allowed);
    device.allowed = reinterpret_cast<const uint32_t*>(held.lists.data + bias_bytes + stop_bytes);
  }
  if (bad_bytes > 0) {
    const size_t before = bytes - bad_bytes;
    auto* end = reinterpret_cast<int32_t*>(pinned.data + before);
    auto* const first = end + spec.bad_words_ids.size();
    int32_t* token = first;
    for (const std::vector<TokenId>& word : spec.bad_words_ids) {
      token = std::copy(word.begin(), word.end(), token);
      *end++ = static_cast<int32_t>(token - first);
    }
    device.num_bad_words = static_cast<int32_t>(spec.bad_words_ids.size());
    device.bad_word_ends = reinterpret_cast<const int32_t*>(held.lists.data + before);
    device.bad_word_tokens = device.bad_word_ends + spec.bad_words_ids.size();
  }
  Upload(pinned, held.lists.data, bytes, stream);
}

void CudaSampler::UploadBreakers(const SamplingParams& spec, Held& held, DeviceSlot& device,
                                 CudaStream& stream) {
  std::vector<int32_t> tokens, ends;
  sampling::FlattenDrySequences(spec, &tokens, &ends);
  const auto words = static_cast<size_t>(mask_words_);
  const size_t bytes = (words + tokens.size() + ends.size()) * sizeof(int32_t);
  const BlockPool::Block pinned = pinned_.Take(bytes);
  held.breakers = device_.Take(bytes);
  if (pinned.data == nullptr || held.breakers.data == nullptr) return;
  auto* const single = reinterpret_cast<uint32_t*>(pinned.data);
  std::fill_n(single, words, 0u);
  sampling::SetTokenBits(spec.dry_breaker_tokens, single);
  auto* const rest = reinterpret_cast<int32_t*>(single + words);
  std::copy(ends.begin(), ends.end(), std::copy(tokens.begin(), tokens.end(), rest));
  const auto* const uploaded = reinterpret_cast<const uint32_t*>(held.breakers.data);
  const auto* const uploaded_tokens = reinterpret_cast<const int32_t*>(uploaded + words);
  device.dry_breakers = {.single = uploaded,
                         .num_words = mask_words_,
                         .tokens = uploaded_tokens,
                         .ends = uploaded_tokens + tokens.size(),
                         .num_sequences = static_cast<int32_t>(ends.size())};
  Upload(pinned, held.breakers.data, bytes, stream);
}

void CudaSampler::StartDry(const SamplingParams& spec, Held& held, DeviceSlot& device,
                           CudaStream& stream) {
  if (sampling::DryWindow(spec) == 0) return;
  const auto vocab_size = static_cast<size_t>(shape_.vocab_size);
  const size_t lengths_bytes = vocab_size * sizeof(int32_t);
  held.dry = device_.Take(lengths_bytes + vocab_size * sizeof(float));
  if (held.dry.data == nullptr) return;
  UploadBreakers(spec, held, device, stream);
  device.dry_window = sampling::DryWindow(spec);
  device.dry_multiplier = spec.dry_multiplier;
  device.dry_base = spec.dry_base;
  device.dry_allowed_length = spec.dry_allowed_length;
  device.dry_longest_match = sampling::LongestDryMatch(spec.dry_base, spec.dry_allowed_length);
  device.dry_lengths = reinterpret_cast<int32_t*>(held.dry.data);
  device.dry_raw = reinterpret_cast<float*>(device.dry_lengths + vocab_size);
  CUDA_RUN(guard_, cudaMemsetAsync(device.dry_lengths, 0, lengths_bytes, stream.handle()));
}

void CudaSampler::CountHistory(std::span<const TokenId> tokens, int32_t num_prompt, Held& held,
                               DeviceSlot& device, CudaStream& stream) {
  held.counts = device_.Take(CountBytes());
  if (held.counts.data == nullptr) return;
  const auto vocab_size = static_cast<size_t>(shape_.vocab_size);
  device.counts = reinterpret_cast<int32_t*>(held.counts.data);
  device.raw = reinterpret_cast<float*>(device.counts + vocab_size);
  CUDA_RUN(guard_,
           cudaMemsetAsync(device.counts, 0, vocab_size * sizeof(int32_t), stream.handle()));
  if (const auto window = static_cast<size_t>(device.window);
      window > 0 && tokens.size() > window) {
    const size_t before = tokens.size() - window;
    tokens = tokens.subspan(before);
    num_prompt = std::max(0, num_prompt - static_cast<int32_t>(before));
  }
  if (tokens.empty()) return;
  const BlockPool::Block pinned = pinned_.Take(tokens.size_bytes());
  const BlockPool::Block uploaded = device_.Take(tokens.size_bytes());
  if (pinned.data == nullptr || uploaded.data == nullptr) return;
  std::memcpy(pinned.data, tokens.data(), tokens.size_bytes());
  Upload(pinned, uploaded.data, tokens.size_bytes(), stream);
  CUDA_RUN(guard_, LaunchCountTokens(reinterpret_cast<const int32_t*>(uploaded.data),
                                     static_cast<int32_t>(tokens.size()), num_prompt, device.window,
                                     device.counts, stream.handle()));
  device_.Give(uploaded);
}

void CudaSampler::UploadHistory(std::span<const TokenId> tokens, int32_t size, Held& held,
                                DeviceSlot& device, CudaStream& stream) {
  const size_t capacity = std::bit_ceil(static_cast<size_t>(size));
  const size_t bytes = capacity * sizeof(int32_t);
  const BlockPool::Block pinned = pinned_.Take(bytes);
  held.history = device_.Take(bytes);
  if (pinned.data == nullptr || held.history.data == nullptr) return;
  auto* const history = reinterpret_cast<int32_t*>(pinned.data);
  std::fill_n(history, capacity, 0);
  for (size_t p = tokens.size() - std::min(tokens.size(), capacity); p < tokens.size(); ++p) {
    history[p & (capacity - 1)] = tokens[p];
  }
  device.history = reinterpret_cast<int32_t*>(held.history.data);
  device.history_mask = static_cast<int32_t>(capacity - 1);
  Upload(pinned, held.history.data, bytes, stream);
}

void CudaSampler::Admit(SequenceSlotId slot, const SamplingParams& spec, int32_t choice,
                        std::span<const TokenId> tokens, int32_t num_prompt, Stream& stream) {
  auto& cuda_stream = static_cast<CudaStream&>(stream);
  Held& held = held_[static_cast<size_t>(slot)];
  Release(held);
  DeviceSlot device = {};
  device.seed = spec.seed.value_or(0);
  device.choice = choice;
  device.temperature = spec.temperature;
  device.dynatemp_range = spec.dynatemp_range;
  device.dynatemp_exponent = spec.dynatemp_exponent;
  device.top_n_sigma = spec.top_n_sigma;
  device.top_k = spec.top_k;
  device.top_p = spec.top_p;
  device.min_p = spec.min_p;
  device.typical_p = spec.typical_p;
  device.xtc_probability = spec.xtc_probability;
  device.xtc_threshold = spec.xtc_threshold;
  device.repetition_penalty = spec.repetition_penalty;
  device.presence_penalty = spec.presence_penalty;
  device.frequency_penalty = spec.frequency_penalty;
  device.num_prompt = num_prompt;
  device.min_tokens = spec.min_tokens;
  device.top_logprobs = std::min(spec.logprobs.value_or(-1), shape_.vocab_size);
  held.top_logprobs = std::max(0, device.top_logprobs);
  UploadLists(spec, held, device, cuda_stream);
  if (sampling::Penalizes(spec)) {
    device.window = std::max(0, spec.repeat_last_n);
    CountHistory(tokens, num_prompt, held, device, cuda_stream);
  }
  StartDry(spec, held, device, cuda_stream);
  const int32_t history =
      std::max({device.window, device.dry_window, sampling::HistoryForBadWords(spec)});
  if (history > 0) UploadHistory(tokens, history, held, device, cuda_stream);
  CUDA_RUN(guard_, LaunchSetSlot(reinterpret_cast<DeviceSlot*>(slots_.data()),
                                 reinterpret_cast<int32_t*>(last_.data()), slot, device,
                                 cuda_stream.handle()));
}

void CudaSampler::FillTokens(Tensor token_ids, std::span<const TokenFill> fills, Stream& stream) {
  Fill(token_ids, fills, reinterpret_cast<const int32_t*>(last_.data()), 1, stream);
}

void CudaSampler::FillProposals(Tensor token_ids, std::span<const TokenFill> fills, int32_t number,
                                Stream& stream) {
  Fill(token_ids, fills, reinterpret_cast<const int32_t*>(proposals_.data()) + number,
       shape_.max_proposals, stream);
}

void CudaSampler::Fill(Tensor token_ids, std::span<const TokenFill> fills, const int32_t* last,
                       int32_t stride, Stream& stream) {
  for (size_t begin = 0; begin < fills.size(); begin += kRowsPerLaunch) {
    const size_t count = std::min<size_t>(kRowsPerLaunch, fills.size() - begin);
    FillArgs args;
    args.token_ids = static_cast<int32_t*>(token_ids.data);
    args.last = last;
    args.stride = stride;
    args.num_fills = static_cast<int32_t>(count);
    for (size_t i = 0; i < count; ++i) {
      args.fills[i] = {fills[begin + i].slot, fills[begin + i].index};
    }
    CUDA_RUN(guard_, LaunchFillTokens(args, Handle(stream)));
  }
}

BlockPool::Block CudaSampler::UploadMasks(std::span<const TokenMask> masks, CudaStream& stream) {
  const auto words = static_cast<size_t>(mask_words_);
  const size_t bytes = masks.size() * words * sizeof(uint32_t);
  const BlockPool::Block pinned = pinned_.Take(bytes);
  const BlockPool::Block uploaded = device_.Take(bytes);
  if (pinned.data == nullptr || uploaded.data == nullptr) return {};
  auto* to = reinterpret_cast<uint32_t*>(pinned.data);
  for (const TokenMask& mask : masks) {  // fills missing words with zeros, which allow nothing
    const size_t given = std::min(words, mask.allowed.size());
    to = std::copy_n(mask.allowed.begin(), given, to);
    to = std::fill_n(to, words - given, 0u);
  }
  Upload(pinned, uploaded.data, bytes, stream);
  return uploaded;
}

BlockPool::Block CudaSampler::UploadDrafts(std::span<const SampleRow> rows, size_t num_draws,
                                           CudaStream& stream) {
  const size_t bytes = num_draws * sizeof(int32_t);
  const BlockPool::Block pinned = pinned_.Take(bytes);
  const BlockPool::Block uploaded = device_.Take(2 * bytes);
  if (pinned.data == nullptr || uploaded.data == nullptr) return {};
  auto* to = reinterpret_cast<int32_t*>(pinned.data);
  for (const SampleRow& row : rows) {
    to = std::copy(row.drafts.begin(), row.drafts.end(), to);
    *to++ = kNoDraft;
  }
  Upload(pinned, uploaded.data, bytes, stream);
  return uploaded;
}

// Adds the draws of rows to the launch, as far as they fit. Returns how many rows it has added.
size_t CudaSampler::AddRows(std::span<const SampleRow> rows, std::span<const TokenMask> masks,
                            SampleArgs* args, int* num_draws) {
  *num_draws = 0;
  size_t added = 0;
  for (; added < rows.size(); ++added) {
    const SampleRow& row = rows[added];
    CHECK(row.num_draws() <= kRowsPerLaunch);
    if (*num_draws + row.num_draws() > kRowsPerLaunch) break;
    for (int32_t draw = 0; draw < row.num_draws(); ++draw) {
      const auto mask = std::find_if(masks.begin(), masks.end(), [&](const TokenMask& m) {
        return m.slot == row.slot && m.draw == draw;
      });
      const auto index = mask == masks.end() ? -1 : static_cast<int32_t>(mask - masks.begin());
      args->rows[(*num_draws)++] = {row.slot, row.position + draw, index};
    }
  }
  return added;
}

BlockPool::Block CudaSampler::TakeRecords(std::span<const SampleRow> rows, size_t num_draws) {
  size_t num_top = 0;
  const auto top_of = [this](const SampleRow& row) {
    if (row.num_candidates > 0) {
      return static_cast<size_t>(std::min(row.num_candidates, shape_.vocab_size));
    }
    return static_cast<size_t>(held_[static_cast<size_t>(row.slot)].top_logprobs);
  };
  for (const SampleRow& row : rows) num_top += static_cast<size_t>(row.num_draws()) * top_of(row);
  const BlockPool::Block block = pinned_.Take(RecordBytes(num_draws, num_top));
  if (block.data == nullptr) return block;
  auto* record = reinterpret_cast<SampleRecord*>(block.data);
  auto* top = reinterpret_cast<TopToken*>(record + num_draws);
  for (const SampleRow& row : rows) {
    for (int32_t draw = 0; draw < row.num_draws(); ++draw, top += top_of(row), ++record) {
      record->top = top;
      record->num_candidates = std::min(row.num_candidates, shape_.vocab_size);
    }
  }
  return block;
}

void CudaSampler::Sample(Tensor logits, std::span<const SampleRow> rows,
                         std::span<const TokenMask> masks, std::span<SampleResult> results,
                         Stream& stream) {
  size_t num_draws = 0;
  for (const SampleRow& row : rows) num_draws += static_cast<size_t>(row.num_draws());
  CHECK(results.size() == num_draws && logits.cols() == shape_.vocab_size);
  if (rows.empty()) return;
  auto& cuda_stream = static_cast<CudaStream&>(stream);
  const bool drafted = num_draws > rows.size();
  BlockPool::Block uploaded_masks, drafts;
  if (!masks.empty()) uploaded_masks = UploadMasks(masks, cuda_stream);
  if (drafted) drafts = UploadDrafts(rows, num_draws, cuda_stream);
  const BlockPool::Block records = TakeRecords(rows, num_draws);
  if ((!masks.empty() && uploaded_masks.data == nullptr) || (drafted && drafts.data == nullptr) ||
      records.data == nullptr) {
    return;
  }
  const bool any_candidates = std::any_of(
      rows.begin(), rows.end(), [](const SampleRow& row) { return row.num_candidates > 0; });
  for (size_t begin = 0; !rows.empty();) {
    SampleArgs args = ArgsFor(logits, begin, records);
    args.any_candidates = any_candidates;
    args.masks = reinterpret_cast<const uint32_t*>(uploaded_masks.data);
    auto* const first_draft = reinterpret_cast<int32_t*>(drafts.data);
    args.drafts = drafted ? first_draft + begin : nullptr;
    args.drawn = drafted ? first_draft + num_draws + begin : nullptr;
    int count = 0;
    rows = rows.subspan(AddRows(rows, masks, &args, &count));
    CUDA_RUN(guard_, LaunchSample(args, count, cuda_stream.handle()));
    begin += static_cast<size_t>(count);
  }
  device_.Give(uploaded_masks);
  device_.Give(drafts);
  cuda_stream.completions()->Add(
      {.block = records, .deliver = &DeliverResults, .results = results});
}

SampleArgs CudaSampler::ArgsFor(const Tensor& logits, size_t first, BlockPool::Block records) {
  SampleArgs args;
  args.logits = Logits(logits, first);
  args.logits_stride = logits.row_stride / static_cast<int64_t>(sizeof(float));
  args.vocab_size = std::min(shape_.vocab_size, static_cast<int32_t>(logits.cols()));
  args.slots = reinterpret_cast<DeviceSlot*>(slots_.data());
  args.last = reinterpret_cast<int32_t*>(last_.data());
  args.masks = nullptr;
  args.mask_words = mask_words_;
  args.records = reinterpret_cast<SampleRecord*>(records.data) + first;
  args.drafts = nullptr;
  args.drawn = nullptr;
  args.any_candidates = false;
  args.acceptance = shape_.synthetic_acceptance ? double{*shape_.synthetic_acceptance} : -1;
  return args;
}

void CudaSampler::Propose(Tensor logits, std::span<const ProposalRow> rows, int32_t number,
                          double least_logprob, std::span<SampleResult> results, Stream& stream) {
  CHECK(results.size() == rows.size() && number < shape_.max_proposals);
  if (rows.empty()) return;
  auto& cuda_stream = static_cast<CudaStream&>(stream);
  const BlockPool::Block records = pinned_.Take(rows.size() * sizeof(SampleRecord));
  if (records.data == nullptr) return;
  for (size_t begin = 0; begin < rows.size(); begin += kRowsPerLaunch) {
    const size_t count = std::min<size_t>(kRowsPerLaunch, rows.size() - begin);
    SampleArgs args = ArgsFor(logits, begin, records);
    args.proposals = {.tokens = reinterpret_cast<int32_t*>(proposals_.data()),
                      .max_proposals = shape_.max_proposals,
                      .number = number,
                      .least_logprob = least_logprob};
    for (size_t i = 0; i < count; ++i) {
      args.rows[i] = {rows[begin + i].slot, rows[begin + i].position, -1};
      args.records[i].num_candidates = 0;
    }
    CUDA_RUN(guard_, LaunchSample(args, static_cast<int>(count), cuda_stream.handle()));
  }
  cuda_stream.completions()->Add(
      {.block = records, .deliver = &DeliverResults, .results = results});
}

void CudaSampler::Score(Tensor logits, std::span<const TokenId> tokens, int32_t top,
                        std::span<SampleResult> results, Stream& stream) {
  CHECK(results.size() == tokens.size() && logits.cols() == shape_.vocab_size);
  if (tokens.empty()) return;
  auto& cuda_stream = static_cast<CudaStream&>(stream);
  top = std::min(top, shape_.vocab_size);
  const auto top_per_row = static_cast<size_t>(top);
  const BlockPool::Block records =
      pinned_.Take(RecordBytes(tokens.size(), tokens.size() * top_per_row));
  if (records.data == nullptr) return;
  auto* const record = reinterpret_cast<SampleRecord*>(records.data);
  auto* const tops = reinterpret_cast<TopToken*>(record + tokens.size());
  for (size_t i = 0; i < tokens.size(); ++i) {
    record[i].top = tops + i * top_per_row;
    record[i].num_candidates = 0;
  }
  for (size_t begin = 0; begin < tokens.size(); begin += kRowsPerLaunch) {
    const size_t count = std::min<size_t>(kRowsPerLaunch, tokens.size() - begin);
    ScoreArgs args;
    args.logits = Logits(logits, begin);
    args.logits_stride = logits.row_stride / static_cast<int64_t>(sizeof(float));
    args.vocab_size = shape_.vocab_size;
    args.top = top;
    args.records = record + begin;
    std::copy_n(tokens.begin() + static_cast<std::ptrdiff_t>(begin), count, args.tokens);
    CUDA_RUN(guard_, LaunchScore(args, static_cast<int>(count), cuda_stream.handle()));
  }
  cuda_stream.completions()->Add(
      {.block = records, .deliver = &DeliverResults, .results = results});
}

}  // namespace tokamak::cuda
