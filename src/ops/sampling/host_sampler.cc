#include "ops/sampling/host_sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/gumbel.h"
#include "ops/sampling/filters.h"
#include "ops/sampling/logits_row.h"
#include "ops/sampling/slot_sampling.h"
#include "ops/sampling/synthetic_draw.h"

namespace tokamak {
namespace {

using sampling::Mass;
using sampling::RowScan;

constexpr float kInf = std::numeric_limits<float>::infinity();

struct LogSoftmax {
  float max = 0;
  double log_total = 0;  // the logarithm of Σ e^(x - max)

  LogSoftmax(std::span<const float> row, float max)
      : max(max), log_total(sampling::LogOfMass(sampling::TotalMass(row, max))) {}

  float operator()(float logit) const {
    return static_cast<float>((static_cast<double>(logit) - static_cast<double>(max)) - log_total);
  }
};

// Scratch memory of one worker.
struct Worker {
  std::vector<float> tempered;
  std::vector<float> proposed;  // a row of a draft model's logits, for the slots' vocabulary
  std::vector<TokenId> top;
  std::vector<std::pair<TokenId, float>> raw;
  sampling::Filter filter;
};

class HostSampler final : public Sampler {
 public:
  HostSampler(const SamplerShape& shape, ThreadPool* pool)
      : shape_(shape),
        pool_(*pool),
        slots_(static_cast<size_t>(shape.max_seqs)),
        last_(static_cast<size_t>(shape.max_seqs), 0),
        proposals_(static_cast<size_t>(shape.max_seqs) * static_cast<size_t>(shape.max_proposals)),
        workers_(static_cast<size_t>(pool->num_threads())) {}

  void Admit(SequenceSlotId slot, const SamplingParams& params, int32_t choice,
             std::span<const TokenId> tokens, int32_t num_prompt, Stream&) override {
    slots_[static_cast<size_t>(slot)].Reset(params, choice, tokens, num_prompt);
    last_[static_cast<size_t>(slot)] = 0;
  }

  void FillTokens(Tensor token_ids, std::span<const TokenFill> fills, Stream&) override {
    for (const TokenFill& fill : fills) {
      token_ids.Row<TokenId>(0)[fill.index] = last_[static_cast<size_t>(fill.slot)];
    }
  }

  void Sample(Tensor logits, std::span<const SampleRow> rows, std::span<const TokenMask> masks,
              std::span<SampleResult> results, Stream&) override {
    CHECK(results.size() == FindDraws(rows) && logits.cols() == shape_.vocab_size);
    pool_.ParallelFor(static_cast<int64_t>(rows.size()), [&](int64_t i, int worker) {
      const SampleRow& row = rows[static_cast<size_t>(i)];
      const size_t first = first_draws_[static_cast<size_t>(i)];
      DrawUntilRefused(row, results.subspan(first), [&](int32_t draw) {
        const auto mask = std::find_if(masks.begin(), masks.end(), [&](const TokenMask& m) {
          return m.slot == row.slot && m.draw == draw;
        });
        const TokenMask* const of_draw = mask == masks.end() ? nullptr : &*mask;
        const std::span<float> logits_row = RowSpan(logits, static_cast<int64_t>(first) + draw);
        Worker& scratch = workers_[static_cast<size_t>(worker)];
        if (row.num_candidates > 0) return FindCandidates(logits_row, row, of_draw, scratch);
        return SampleOne(logits_row, {.slot = row.slot, .position = row.position + draw}, of_draw,
                         scratch);
      });
    });
  }

  bool has_candidates() const override { return true; }

  bool IsGreedy(const SampleRow& row) const override {
    const sampling::SlotSampling& slot = slots_[static_cast<size_t>(row.slot)];
    return row.num_candidates == 0 && slot.params().temperature == 0.0f &&
           !slot.params().logprobs && !slot.Edits(row.position);
  }

  void SampleGreedy(const ArgmaxLogits& argmax, std::span<const SampleRow> rows,
                    std::span<SampleResult> results, Stream&) override {
    CHECK(results.size() == FindDraws(rows));
    const auto* values = static_cast<const float*>(argmax.values.data);
    const auto* ids = static_cast<const TokenId*>(argmax.ids.data);
    for (size_t i = 0; i < rows.size(); ++i) {
      const size_t first = first_draws_[i];
      DrawUntilRefused(rows[i], results.subspan(first), [&](int32_t draw) {
        const size_t at = first + static_cast<size_t>(draw);
        if (!std::isfinite(values[at])) return SampleResult{.health = RowHealth::kNotFinite};
        slots_[static_cast<size_t>(rows[i].slot)].Append(ids[at]);
        return SampleResult{.token = ids[at]};
      });
    }
  }

  void Propose(Tensor logits, std::span<const ProposalRow> rows, int32_t number,
               double least_logprob, std::span<SampleResult> results, Stream&) override {
    CHECK(results.size() == rows.size() && logits.rows() == static_cast<int64_t>(rows.size()));
    CHECK(number < shape_.max_proposals);
    pool_.ParallelFor(static_cast<int64_t>(rows.size()), [&](int64_t i, int worker) {
      const ProposalRow& row = rows[static_cast<size_t>(i)];
      const std::span<TokenId> proposals =
          ProposalsOf(row.slot).first(static_cast<size_t>(number) + 1);
      const bool ended = number > 0 && proposals[static_cast<size_t>(number) - 1] == kNotDrawn;
      const std::span<const float> values(logits.Row<float>(i), static_cast<size_t>(logits.cols()));
      proposals.back() = ended
                             ? kNotDrawn
                             : ProposeOne(values, row, proposals.first(static_cast<size_t>(number)),
                                          least_logprob, workers_[static_cast<size_t>(worker)]);
      results[static_cast<size_t>(i)].token = proposals.back();
    });
  }

  void FillProposals(Tensor token_ids, std::span<const TokenFill> fills, int32_t number,
                     Stream&) override {
    for (const TokenFill& fill : fills) {
      token_ids.Row<TokenId>(0)[fill.index] =
          std::max(0, ProposalsOf(fill.slot)[static_cast<size_t>(number)]);
    }
  }

  void Score(Tensor logits, std::span<const TokenId> tokens, int32_t top,
             std::span<SampleResult> results, Stream&) override {
    CHECK(results.size() == tokens.size() && logits.cols() == shape_.vocab_size);
    pool_.ParallelFor(static_cast<int64_t>(tokens.size()), [&](int64_t i, int worker) {
      const std::span<const float> row = RowSpan(logits, i);
      SampleResult& result = results[static_cast<size_t>(i)];
      const TokenId token = tokens[static_cast<size_t>(i)];
      const RowScan scan = sampling::Scan(row);
      result = {};
      if (!scan.usable || scan.max == -kInf) {
        result.health = RowHealth::kNotFinite;
        return;
      }
      const LogSoftmax log_softmax(row, scan.max);
      result.token = token;
      result.logprobs.token = {token, log_softmax(row[static_cast<size_t>(token)])};
      AddTop(row, log_softmax, top, workers_[static_cast<size_t>(worker)], &result.logprobs);
    });
  }

 private:
  // Finds each row's first draw. Returns the number of all draws.
  size_t FindDraws(std::span<const SampleRow> rows) {
    size_t count = 0;
    first_draws_.clear();
    for (const SampleRow& row : rows) {
      first_draws_.push_back(count);
      count += static_cast<size_t>(row.num_draws());
    }
    return count;
  }

  // Fills a row's results with sample(0), sample(1), ... as far as it is to be drawn.
  template <typename Sample>
  void DrawUntilRefused(const SampleRow& row, std::span<SampleResult> results, Sample sample) {
    const auto num_draws = static_cast<size_t>(row.num_draws());
    size_t draw = 0;
    for (bool goes_on = true; goes_on; ++draw) {
      SampleResult result = sample(static_cast<int32_t>(draw));
      if (draw > 0 && result.health != RowHealth::kOk) break;
      if (shape_.synthetic_acceptance && draw + 1 < num_draws) {
        result.token = sampling::SyntheticDraw(double{*shape_.synthetic_acceptance}, row.slot,
                                               row.position + static_cast<int32_t>(draw),
                                               row.drafts[draw], shape_.vocab_size);
      }
      last_[static_cast<size_t>(row.slot)] = result.token;
      goes_on = result.health == RowHealth::kOk && draw + 1 < num_draws &&
                result.token == row.drafts[draw];
      results[draw] = std::move(result);
    }
    for (; draw < num_draws; ++draw) results[draw] = {.token = kNotDrawn};
  }

  std::span<float> RowSpan(const Tensor& logits, int64_t i) const {
    return {logits.Row<float>(i), static_cast<size_t>(shape_.vocab_size)};
  }

  static void AddTop(std::span<const float> row, const LogSoftmax& log_softmax, int32_t top,
                     Worker& worker, TokenLogprobs* logprobs) {
    sampling::TopTokens(row, top, &worker.top);
    for (const TokenId id : worker.top) {
      logprobs->top.push_back({id, log_softmax(row[static_cast<size_t>(id)])});
    }
  }

  SampleResult SampleOne(std::span<float> row, const SampleRow& where, const TokenMask* mask,
                         Worker& worker);
  SampleResult FindCandidates(std::span<float> row, const SampleRow& where, const TokenMask* mask,
                              Worker& worker);
  TokenId ProposeOne(std::span<const float> logits, const ProposalRow& where,
                     std::span<const TokenId> earlier, double least_logprob, Worker& worker);
  std::span<TokenId> ProposalsOf(SequenceSlotId slot) {
    const auto most = static_cast<size_t>(shape_.max_proposals);
    return std::span(proposals_).subspan(static_cast<size_t>(slot) * most, most);
  }
  // Changes the row.
  TokenId Draw(std::span<float> row, float max, const SampleRow& where, Worker& worker);

  const SamplerShape shape_;
  ThreadPool& pool_;
  std::vector<sampling::SlotSampling> slots_;
  std::vector<TokenId> last_;        // drawn for each slot
  std::vector<TokenId> proposals_;   // [max_seqs, max_proposals]
  std::vector<size_t> first_draws_;  // of the rows of one call
  std::vector<Worker> workers_;
};

SampleResult HostSampler::SampleOne(std::span<float> row, const SampleRow& where,
                                    const TokenMask* mask, Worker& worker) {
  sampling::SlotSampling& slot = slots_[static_cast<size_t>(where.slot)];
  const bool wants_logprobs = slot.params().logprobs.has_value();
  SampleResult result;
  RowScan scan = sampling::Scan(row);
  if (!scan.usable || scan.max == -kInf) {
    result.health = RowHealth::kNotFinite;
    return result;
  }
  std::optional<LogSoftmax> log_softmax;
  if (wants_logprobs) {
    log_softmax.emplace(row, scan.max);
    AddTop(row, *log_softmax, *slot.params().logprobs, worker, &result.logprobs);
  }
  const bool edits = slot.Edits(where.position);
  worker.raw.clear();
  if (edits) slot.Edit(where.position, row, wants_logprobs ? &worker.raw : nullptr);
  if (mask != nullptr) sampling::ApplyMask(mask->allowed, row);
  if (edits || mask != nullptr) scan = sampling::Scan(row);
  if (scan.max == -kInf) {
    result.health = RowHealth::kNoCandidate;
    result.logprobs = {};
    return result;
  }
  result.token = Draw(row, scan.max, where, worker);
  if (wants_logprobs) {
    const auto changed =
        std::find_if(worker.raw.begin(), worker.raw.end(),
                     [&result](const auto& entry) { return entry.first == result.token; });
    const float logit =
        changed == worker.raw.end() ? row[static_cast<size_t>(result.token)] : changed->second;
    result.logprobs.token = {result.token, (*log_softmax)(logit)};
  }
  slot.Append(result.token);
  return result;
}

SampleResult HostSampler::FindCandidates(std::span<float> row, const SampleRow& where,
                                         const TokenMask* mask, Worker& worker) {
  const sampling::SlotSampling& slot = slots_[static_cast<size_t>(where.slot)];
  SampleResult result{.token = kNotDrawn};
  const RowScan scan = sampling::Scan(row);
  if (!scan.usable || scan.max == -kInf) {
    result.health = RowHealth::kNotFinite;
    return result;
  }
  const LogSoftmax log_softmax(row, scan.max);
  for (float& x : row) x = log_softmax(x);
  if (slot.Edits(where.position)) slot.Edit(where.position, row, nullptr);
  if (mask != nullptr) sampling::ApplyMask(mask->allowed, row);
  sampling::TopTokens(row, where.num_candidates, &worker.top);
  for (const TokenId id : worker.top) {
    result.candidates.push_back({id, row[static_cast<size_t>(id)]});
  }
  if (result.candidates.empty()) result.health = RowHealth::kNoCandidate;
  return result;
}

TokenId HostSampler::ProposeOne(std::span<const float> logits, const ProposalRow& where,
                                std::span<const TokenId> earlier, double least_logprob,
                                Worker& worker) {
  // Paddings of the two vocabularies may differ.
  const auto vocab_size = static_cast<size_t>(shape_.vocab_size);
  logits = logits.first(std::min(logits.size(), vocab_size));
  const RowScan scan = sampling::Scan(logits);
  if (!scan.usable || scan.max == -kInf) return kNotDrawn;
  worker.proposed.assign(logits.begin(), logits.end());
  worker.proposed.resize(vocab_size, -kInf);
  const std::span<float> row = worker.proposed;
  sampling::SlotSampling& slot = slots_[static_cast<size_t>(where.slot)];
  slot.WithTokens(earlier, [&] {
    if (slot.Edits(where.position)) slot.Edit(where.position, row, nullptr);
  });
  const float max = sampling::Scan(row).max;
  if (max == -kInf) return kNotDrawn;
  const TokenId token = Draw(row, max, {.slot = where.slot, .position = where.position}, worker);
  if (least_logprob == -kInf) return token;
  const LogSoftmax log_softmax(logits, scan.max);
  return log_softmax(logits[static_cast<size_t>(token)]) < least_logprob ? kNotDrawn : token;
}

TokenId HostSampler::Draw(std::span<float> row, float max, const SampleRow& where, Worker& worker) {
  const sampling::SlotSampling& slot = slots_[static_cast<size_t>(where.slot)];
  const SamplingParams& params = slot.params();
  if (params.temperature == 0.0f) return sampling::FirstOf(row, max);
  const DrawKey key = slot.KeyAt(where.position);
  if (params.top_n_sigma > 0.0f) sampling::KeepSigmas(row, max, params.top_n_sigma);
  const float temperature = params.dynatemp_range > 0.0f
                                ? sampling::DynamicTemperatureOf(row, max, params)
                                : params.temperature;
  worker.tempered.resize(row.size());
  sampling::Temper(row, max, temperature, worker.tempered);
  if (!sampling::HasFilters(params, key)) return sampling::DrawFromRow(worker.tempered, key);
  return sampling::DrawFromCandidates(worker.filter.Apply(worker.tempered, params, key), key);
}

}  // namespace

std::unique_ptr<Sampler> MakeHostSampler(const SamplerShape& shape, ThreadPool* pool) {
  return std::make_unique<HostSampler>(shape, pool);
}

}  // namespace tokamak
