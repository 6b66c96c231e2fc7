// The CUDA backend's sampler against the host's: for equal logits the same tokens, healths and
// logprobs, bit for bit.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <deque>
#include <random>
#include <vector>

#include "ops/cuda/testing/sampler_pair.h"

namespace tokamak {
namespace {

// The parameter: the vocabulary.
class CudaDraws : public CudaSampling, public ::testing::WithParamInterface<int32_t> {};

TEST_P(CudaDraws, AreTheHostsInRandomRows) {
  const int32_t vocab = GetParam();
  std::mt19937 random(static_cast<uint32_t>(vocab));
  const int32_t slots = vocab > 10'000 ? 24 : 300;  // more rows than one launch takes
  const int rounds = vocab > 10'000 ? 4 : 6;
  Pair pair(*ops_, *stream_, slots, vocab);
  std::vector<int32_t> lengths;  // of the slots' histories
  for (int32_t slot = 0; slot < slots; ++slot) {
    std::vector<TokenId> tokens(random() % 50 + 1);
    const uint32_t kinds = static_cast<uint32_t>(slot % 2 == 0 ? vocab : std::min(9, vocab));
    for (TokenId& t : tokens) t = static_cast<TokenId>(random() % kinds);
    pair.Admit(slot, RandomSpec(random, vocab), tokens,
               static_cast<int32_t>(tokens.size() - tokens.size() / 3), /*choice=*/slot % 3);
    lengths.push_back(static_cast<int32_t>(tokens.size()));
  }
  for (int32_t round = 0; round < rounds; ++round) {
    std::vector<float> logits;
    std::vector<SampleRow> rows;
    std::vector<TokenMask> masks;
    std::deque<std::vector<TokenId>> drafts;  // rows refer to them
    for (int32_t i = 0; i < slots; ++i) {
      const SequenceSlotId slot = (i * 7 + round) % slots;
      const bool seen = std::any_of(rows.begin(), rows.end(),
                                    [slot](const SampleRow& r) { return r.slot == slot; });
      if (seen) continue;
      rows.push_back({.slot = slot, .position = lengths[static_cast<size_t>(slot)]});
      const bool masked = random() % 6 == 0;
      std::vector<TokenId>& row_drafts = drafts.emplace_back();
      if (!masked && random() % 3 == 0) row_drafts.resize(1 + random() % 3);
      for (size_t draw = 0; draw <= row_drafts.size(); ++draw) {
        const std::vector<float> row = RandomLogits(random, vocab, static_cast<Kind>(random() % 5));
        logits.insert(logits.end(), row.begin(), row.end());
        if (draw == row_drafts.size()) break;
        const auto likely = std::max_element(row.begin(), row.end()) - row.begin();
        row_drafts[draw] = static_cast<TokenId>(
            random() % 6 > 0 ? static_cast<uint32_t>(likely)
                             : static_cast<uint32_t>(random()) % static_cast<uint32_t>(vocab));
      }
      rows.back().drafts = row_drafts;
      if (masked) {
        TokenMask& mask = masks.emplace_back();
        mask.slot = slot;
        mask.allowed.resize(static_cast<size_t>(vocab + 31) / 32);
        for (uint32_t& word : mask.allowed) {
          word = static_cast<uint32_t>(random()) & static_cast<uint32_t>(random());
        }
      }
    }
    const std::vector<SampleResult> results = pair.Sample(logits, rows, masks);
    if (HasFatalFailure()) return;
    size_t next = 0;
    for (const SampleRow& row : rows) {
      for (int32_t draw = 0; draw < row.num_draws(); ++draw, ++next) {
        const bool drawn =
            results[next].health == RowHealth::kOk && results[next].token != kNotDrawn;
        if (drawn) ++lengths[static_cast<size_t>(row.slot)];
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Vocabularies, CudaDraws, ::testing::Values(1, 3, 48, 1025, 5000, 128'256),
                         ::testing::PrintToStringParamName());

// The sequences that proposals are for: what they ask for depends on proposals before, and on
// tokens that a smaller draft model lacks.
SamplingParams SpecForProposals(std::mt19937& random, int32_t slot, int32_t vocab,
                                int32_t draft_vocab) {
  SamplingParams spec = RandomSpec(random, vocab);
  if (slot % 3 == 0) {
    spec.logit_bias = {{vocab - 1, 9.0f}, {4, 2.0f}, {4, 1.0f}};
    spec.bad_words_ids = {{vocab - 2}};
    spec.dry_multiplier = 90;  // behind a 7, vocab - 2 repeats the prompt
    spec.dry_allowed_length = 1;
  } else if (slot % 3 == 1 && draft_vocab < vocab) {
    // Would show a bad word or a repeat of the row before.
    spec.logit_bias = {{vocab - 2 - draft_vocab, 50.0f}};
  }
  if (slot % 4 == 0) {
    spec.min_tokens = 9;
    spec.stop_token_ids = {3, vocab - 3};
  } else if (slot % 4 == 1) {
    spec.logit_bias.emplace_back(12, 60.0f);
    spec.bad_words_ids = {{12, 12, 12}, {12, 12}, {vocab - 2}};
  } else {  // draws no token twice, or not while a window has it
    spec.temperature = 0;
    spec.allowed_token_ids.clear();
    spec.frequency_penalty = 90;
    spec.repeat_last_n = slot % 4 == 2 ? -1 : 1 + slot % 3;
  }
  return spec;
}

// The draft models have fewer tokens, as many and more. Draws in between continue the histories.
TEST_F(CudaSampling, ProposesWhatTheHostDoes) {
  std::mt19937 random(9);
  constexpr int32_t kVocab = 300, kSlots = 12;
  for (const int32_t draft_vocab : {kVocab - 7, kVocab, kVocab + 5}) {
    Pair pair(*ops_, *stream_, kSlots, kVocab);
    for (int32_t slot = 0; slot < kSlots; ++slot) {
      pair.Admit(slot, SpecForProposals(random, slot, kVocab, draft_vocab), {7, kVocab - 2, 8, 7},
                 2);
    }
    int32_t num_none = 0, position = 4;
    for (const double least : {-static_cast<double>(kInf), -3.0}) {
      std::vector<float> logits;
      for (int32_t slot = 0; slot < kSlots; ++slot) {
        std::vector<float> row = RandomLogits(random, draft_vocab, static_cast<Kind>(random() % 5));
        if (random() % 30 == 0) row[1] = std::numeric_limits<float>::quiet_NaN();
        logits.insert(logits.end(), row.begin(), row.end());
      }
      for (int32_t number = 0; number < 4; ++number) {
        std::vector<ProposalRow> rows;
        for (int32_t slot = 0; slot < kSlots - number; ++slot) {
          rows.push_back({.slot = slot, .position = position + number});
        }
        logits.resize(rows.size() * static_cast<size_t>(draft_vocab));
        for (const SampleResult& result : pair.Propose(logits, rows, number, least)) {
          num_none += result.token == kNotDrawn ? 1 : 0;
        }
      }
      logits.clear();
      std::vector<SampleRow> draws;
      for (int32_t slot = 0; slot < kSlots; ++slot) {
        const std::vector<float> row = RandomLogits(random, kVocab, Kind::kNormal);
        logits.insert(logits.end(), row.begin(), row.end());
        draws.push_back({.slot = slot, .position = position});
      }
      pair.Sample(logits, draws);
      ++position;
    }
    EXPECT_GT(num_none, 5);
    EXPECT_LT(num_none, 75);  // of 84
  }
}

TEST_F(CudaSampling, AcceptsTheDraftsThatTheHostAcceptsForBenchmarks) {
  std::mt19937 random(3);
  constexpr int32_t kVocab = 50, kSlots = 16;
  Pair pair(*ops_, *stream_, kSlots, kVocab, 0.6f);
  for (int32_t slot = 0; slot < kSlots; ++slot) {
    pair.Admit(slot, {.temperature = 0, .seed = 1}, {1}, 1);
  }
  int32_t accepted = 0;
  for (int32_t position = 3; position < 9; ++position) {
    const std::vector<TokenId> drafts = {5, 6, 7};
    std::vector<float> logits;
    std::vector<SampleRow> rows;
    for (int32_t slot = 0; slot < kSlots; ++slot) {
      rows.push_back({.slot = slot, .position = position, .drafts = drafts});
      for (size_t draw = 0; draw <= drafts.size(); ++draw) {
        const std::vector<float> row = RandomLogits(random, kVocab, Kind::kNormal);
        logits.insert(logits.end(), row.begin(), row.end());
      }
    }
    const std::vector<SampleResult> drawn = pair.Sample(logits, rows);
    for (size_t i = 0; i < drawn.size(); i += 4) accepted += drawn[i].token == 5 ? 1 : 0;
  }
  EXPECT_NEAR(accepted, 0.6 * 6 * kSlots, 15);
}

// The same parameters drawn many times: filters near their edges.
TEST_F(CudaSampling, EveryFilterCutsWhereTheHostDoes) {
  std::mt19937 random(2);
  constexpr int32_t kVocab = 2000, kSlots = 64;
  for (const SamplingParams& spec : std::vector<SamplingParams>{
           {.top_k = 1},
           {.top_k = 1999},
           {.top_k = 2000},
           {.top_p = 1e-6f},
           {.top_p = 0.5f},
           {.top_p = 0.999999f},
           {.typical_p = 1e-6f},
           {.typical_p = 0.7f},
           {.typical_p = 0.999999f},
           {.dynatemp_range = 0.5f},
           {.temperature = 0.4f, .dynatemp_range = 0.9f, .dynatemp_exponent = 0.3f},
           {.top_n_sigma = 1e-6f},
           {.top_n_sigma = 1.0f},
           {.xtc_probability = 1.0f, .xtc_threshold = 0.0f},
           {.xtc_probability = 0.5f, .xtc_threshold = 0.02f},
           {.top_k = 9, .xtc_probability = 1.0f},
           {.min_p = 1.0f},
           {.min_p = 1e-12f},
           {.temperature = 0.02f, .top_k = 500},
           {.temperature = 50.0f, .top_k = 40, .top_p = 0.8f, .min_p = 0.5f, .typical_p = 0.9f}}) {
    Pair pair(*ops_, *stream_, kSlots, kVocab);
    std::vector<float> logits;
    std::vector<SampleRow> rows;
    for (int32_t slot = 0; slot < kSlots; ++slot) {
      SamplingParams own = spec;
      own.seed = random();
      pair.Admit(slot, own, {1}, 1);
      const std::vector<float> row = RandomLogits(random, kVocab, static_cast<Kind>(slot % 5));
      logits.insert(logits.end(), row.begin(), row.end());
      rows.push_back({.slot = slot, .position = 7});
    }
    pair.Sample(logits, rows);
    if (HasFatalFailure()) return;
  }
}

// A slot draws with drafts what it draws one by one, up to the first draft that is wrong, and then
// goes on the same way.
TEST_F(CudaSampling, DrawsBehindDraftsAsOneByOne) {
  std::mt19937 random(5);
  constexpr int32_t kVocab = 300, kSlots = 12, kDraws = 3;
  std::vector<SamplingParams> specs;
  for (int32_t slot = 0; slot < kSlots; ++slot) {
    SamplingParams spec = RandomSpec(random, kVocab);
    // Without noise a penalty decides the second of two equal rows.
    if (slot % 2 == 0) spec.frequency_penalty = 2.0f, spec.temperature = 0;
    if (slot % 4 == 0) spec.logprobs = 3;
    specs.push_back(spec);
  }
  const std::vector<TokenId> history = {7, 8, 7};
  const auto admit = [&](Pair& pair) {
    for (int32_t slot = 0; slot < kSlots; ++slot) {
      pair.Admit(slot, specs[static_cast<size_t>(slot)], history, 2);
    }
  };
  std::vector<std::vector<float>> logits;  // by slot, the same for all its draws
  for (int32_t slot = 0; slot < kSlots; ++slot) {
    logits.push_back(RandomLogits(random, kVocab, Kind::kNormal));
  }
  std::vector<std::vector<SampleResult>> expected;  // by draw
  Pair alone(*ops_, *stream_, kSlots, kVocab);
  admit(alone);
  for (int32_t draw = 0; draw <= kDraws; ++draw) {
    std::vector<float> all;
    std::vector<SampleRow> rows;
    for (int32_t slot = 0; slot < kSlots; ++slot) {
      const std::vector<float>& row = logits[static_cast<size_t>(slot)];
      all.insert(all.end(), row.begin(), row.end());
      rows.push_back({.slot = slot, .position = 3 + draw});
    }
    expected.push_back(alone.Sample(all, rows));
  }
  for (int32_t wrong = 0; wrong < kDraws; ++wrong) {  // the last time, none is
    Pair pair(*ops_, *stream_, kSlots, kVocab);
    admit(pair);
    std::vector<float> all;
    std::vector<SampleRow> rows, next_rows;
    std::vector<std::vector<TokenId>> drafts(kSlots);
    for (int32_t slot = 0; slot < kSlots; ++slot) {
      std::vector<TokenId>& own = drafts[static_cast<size_t>(slot)];
      for (int32_t i = 0; i < kDraws; ++i) {
        const std::vector<float>& row = logits[static_cast<size_t>(slot)];
        all.insert(all.end(), row.begin(), row.end());
        const TokenId token = expected[static_cast<size_t>(i)][static_cast<size_t>(slot)].token;
        if (i + 1 < kDraws) own.push_back((token + (i == wrong ? 1 : 0)) % kVocab);
      }
      rows.push_back({.slot = slot, .position = 3, .drafts = own});
      next_rows.push_back({.slot = slot, .position = 4 + wrong});
    }
    const std::vector<SampleResult> results = pair.Sample(all, rows);
    std::vector<float> next;
    for (const std::vector<float>& row : logits) next.insert(next.end(), row.begin(), row.end());
    const std::vector<SampleResult> after = pair.Sample(next, next_rows);
    if (HasFatalFailure()) return;
    for (size_t slot = 0; slot < kSlots; ++slot) {
      for (size_t i = 0; i < kDraws; ++i) {
        const bool drawn = i <= static_cast<size_t>(wrong);
        const SampleResult& result = results[slot * kDraws + i];
        EXPECT_EQ(result.token, drawn ? expected[i][slot].token : kNotDrawn);
        EXPECT_EQ(result.logprobs, drawn ? expected[i][slot].logprobs : TokenLogprobs());
      }
      const SampleResult& then = expected[static_cast<size_t>(wrong) + 1][slot];
      EXPECT_EQ(after[slot].token, then.token) << "slot " << slot;
      EXPECT_EQ(after[slot].logprobs, then.logprobs) << "slot " << slot;
    }
  }
}

// The repeated 2 5 6 3 holds the breaker 5 6, so what counts is too short. Without it 4 is
// penalized.
TEST_F(CudaSampling, RepeatsEndAtSequenceBreakers) {
  constexpr int32_t kVocab = 48;
  Pair pair(*ops_, *stream_, 2, kVocab);
  SamplingParams spec = {.temperature = 0, .seed = 1, .max_tokens = 9};
  spec.dry_multiplier = 50;
  spec.dry_penalty_last_n = -1;
  const std::vector<TokenId> history = {1, 2, 5, 6, 3, 4, 9, 2, 5, 6, 3};
  pair.Admit(0, spec, history, 11);
  spec.dry_breaker_sequences = {{5, 6}};
  pair.Admit(1, spec, history, 11);
  std::vector<float> logits(2 * kVocab, 0.0f);
  for (const size_t row : {0, kVocab}) {
    logits[row + 4] = 10;
    logits[row + 7] = 9;
  }
  const auto results =
      pair.Sample(logits, {{.slot = 0, .position = 11}, {.slot = 1, .position = 11}});
  EXPECT_EQ(results[0].token, 7);
  EXPECT_EQ(results[1].token, 4);
}

TEST_F(CudaSampling, DraftsEndAtABadRow) {
  constexpr int32_t kVocab = 2000;
  Pair pair(*ops_, *stream_, 3, kVocab);
  for (SequenceSlotId slot = 0; slot < 3; ++slot) pair.Admit(slot, {.temperature = 0}, {1}, 1);
  std::vector<float> logits(6 * kVocab, 0.0f);
  logits[17] = 1;
  logits[kVocab + 3] = NAN;                         // behind an accepted draft
  logits[2 * kVocab + 4] = kInf;                    // the first of its slot, whose draft is token 0
  logits[4 * kVocab + 5] = logits[5 * kVocab] = 1;  // behind a refused draft
  const std::vector<TokenId> right = {17}, zero = {0}, wrong = {6};
  const std::vector<SampleResult> results =
      pair.Sample(logits, {{.slot = 2, .position = 1, .drafts = right},
                           {.slot = 0, .position = 1, .drafts = zero},
                           {.slot = 1, .position = 1, .drafts = wrong}});
  const std::vector<TokenId> tokens = {17, kNotDrawn, 0, kNotDrawn, 5, kNotDrawn};
  for (size_t i = 0; i < tokens.size(); ++i) {
    EXPECT_EQ(results[i].token, tokens[i]) << "row " << i;
    EXPECT_EQ(results[i].health, i == 2 ? RowHealth::kNotFinite : RowHealth::kOk) << "row " << i;
  }
  OpRunner run(*ops_);
  const Tensor ids = run.Ints({7, 8, 9});
  (void)run.DownloadBytes(ids.data, 4);  // everything is there
  const std::vector<TokenFill> fills = {
      {.slot = 0, .index = 0}, {.slot = 1, .index = 1}, {.slot = 2, .index = 2}};
  pair.device().FillTokens(ids, fills, *stream_);
  ASSERT_TRUE(ops_->Synchronize(*stream_).ok());
  std::vector<int32_t> last(3);
  std::memcpy(last.data(), run.DownloadBytes(ids.data, 12).data(), 12);
  EXPECT_EQ(last, (std::vector<int32_t>{0, 5, 17}));
}

TEST_F(CudaSampling, BadRowsFailAlone) {
  std::mt19937 random(3);
  constexpr int32_t kVocab = 3000;
  Pair pair(*ops_, *stream_, 6, kVocab);
  std::vector<float> logits;
  std::vector<SampleRow> rows;
  for (int32_t slot = 0; slot < 6; ++slot) {
    pair.Admit(slot, {.temperature = slot % 2 == 0 ? 0.0f : 1.0f, .logprobs = 3}, {1}, 1);
    std::vector<float> row = RandomLogits(random, kVocab, Kind::kNormal);
    if (slot == 1) row[2999] = NAN;
    if (slot == 2) row[5] = kInf;
    if (slot == 3) row.assign(kVocab, -kInf);
    logits.insert(logits.end(), row.begin(), row.end());
    rows.push_back({.slot = slot, .position = 7});
  }
  const std::vector<TokenMask> masks = {
      {.slot = 4, .allowed = std::vector<uint32_t>((kVocab + 31) / 32)}};
  const auto results = pair.Sample(logits, rows, masks);
  EXPECT_EQ(results[0].health, RowHealth::kOk);
  EXPECT_EQ(results[1].health, RowHealth::kNotFinite);
  EXPECT_EQ(results[4].health, RowHealth::kNoCandidate);
  EXPECT_EQ(results[5].health, RowHealth::kOk);
  pair.Score(logits, {0, 1, 2, 3, 4, 2999}, 5);
}

TEST_F(CudaSampling, ScoresAreTheHosts) {
  std::mt19937 random(4);
  for (const int32_t vocab : {7, 50'257}) {
    Pair pair(*ops_, *stream_, 64, vocab);
    std::vector<float> logits;
    std::vector<TokenId> tokens;
    for (int i = 0; i < 30; ++i) {
      const std::vector<float> row = RandomLogits(random, vocab, static_cast<Kind>(i % 5));
      logits.insert(logits.end(), row.begin(), row.end());
      tokens.push_back(static_cast<TokenId>(random() % static_cast<uint32_t>(vocab)));
    }
    for (const int32_t top : {0, 1, 20, 5000, vocab, INT32_MAX}) pair.Score(logits, tokens, top);
  }
}

// The differences from the largest logit, in floats and even in doubles, are the same.
TEST_F(CudaSampling, FindsTheLargestOfLogitsThatAreNearlyEqual) {
  constexpr int32_t kVocab = 3000;
  Pair pair(*ops_, *stream_, 1, kVocab);
  std::vector<float> logits(kVocab);
  for (int32_t id = 0; id < kVocab; ++id) {
    const int32_t place = id * 7 % kVocab;
    logits[static_cast<size_t>(id)] = static_cast<float>(place - kVocab / 2) * 1e-30f;
  }
  logits[100] = 1e8f;
  logits[200] = logits[300] = -0.0f;
  for (const int32_t top : {1, 700, 1501, 2000}) {
    pair.Score(logits, {5}, top);
    if (HasFatalFailure()) return;
  }
}

// A step is enqueued before its predecessor was waited for. Each step gets its own results, the
// token gets into the next input on the device, and a slot given to another sequence draws by its
// new parameters only from then on.
TEST_F(CudaSampling, StepsInFlightKeepTheirOrder) {
  constexpr int32_t kVocab = 64;
  Pair pair(*ops_, *stream_, 2, kVocab);
  Sampler& sampler = pair.device();
  OpRunner run(*ops_);
  std::vector<float> first(kVocab, 0.0f), second(kVocab, 0.0f);
  first[17] = 1;
  second[29] = 1;
  const Tensor first_logits = run.Floats(first, {1, kVocab});
  const Tensor second_logits = run.Floats(second, {1, kVocab});
  const Tensor ids = run.Ints({7, 8, 9});
  (void)run.DownloadBytes(ids.data, 4);  // everything is there
  const std::vector<SampleRow> rows = {{.slot = 1, .position = 1}};
  const std::vector<TokenFill> fills = {{.slot = 1, .index = 1}};
  std::vector<SampleResult> first_result(1), second_result(1);
  const auto done = ops_->MakeEvent();
  sampler.Admit(1, {.temperature = 0}, 0, std::vector<TokenId>{1}, 1, *stream_);
  sampler.Sample(first_logits, rows, {}, first_result, *stream_);
  sampler.FillTokens(ids, fills, *stream_);
  ops_->Record(*done, *stream_);
  sampler.Admit(1, {.temperature = 0, .logit_bias = {{29, -5.0f}}}, 0, std::vector<TokenId>{1}, 1,
                *stream_);
  sampler.Sample(second_logits, rows, {}, second_result, *stream_);
  ASSERT_TRUE(ops_->Await(*done).ok());
  EXPECT_EQ(first_result[0].token, 17);
  ASSERT_TRUE(ops_->Synchronize(*stream_).ok());
  EXPECT_EQ(second_result[0].token, 0);
  std::vector<int32_t> got(3);
  const std::vector<std::byte> bytes = run.DownloadBytes(ids.data, 12);
  std::memcpy(got.data(), bytes.data(), 12);
  EXPECT_EQ(got, (std::vector<int32_t>{7, 17, 9}));
}

}  // namespace
}  // namespace tokamak
