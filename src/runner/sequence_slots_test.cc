#include "runner/sequence_slots.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include "models/testing/golden.h"

namespace tokamak {
namespace {

// A full group and one with a window of 5; blocks of 4; 10 device blocks, 2 host blocks.
SequenceSlots MakeTable() {
  return SequenceSlots({.max_seqs = 4, .max_step_tokens = 16, .max_context = 24, .vocab_size = 50},
                       {.groups = {{.kind = CacheGroupKind::kFull, .block_size = 4, .window = 0},
                                   {.kind = CacheGroupKind::kWindow, .block_size = 4, .window = 5}},
                        .block_bytes = 64,
                        .num_device_blocks = 10,
                        .num_host_blocks = 2});
}

// Slot 1 gets seven tokens, of which the first step computes all but the last.
StepInput GoodStep() {
  return {.admit = {{.slot = 1, .tokens = {1, 2, 3, 4, 5, 6, 7}, .num_prompt_tokens = 7}},
          .append = {{.slot = 1, .group = 0, .blocks = {4, 2}},
                     {.slot = 1, .group = 1, .blocks = {3, 9}}},
          .rows = {{.slot = 1, .num_tokens = 6}}};
}

TEST(SequenceSlots, AppliesAStep) {
  SequenceSlots table = MakeTable();
  StepInput step = GoodStep();
  ASSERT_TRUE(table.Apply(step).ok());
  EXPECT_EQ(table[1].num_known, 7);
  EXPECT_EQ(table[1].num_computed, 6);
  EXPECT_EQ(table[1].block_tables[1], (std::vector<BlockId>{3, 9}));
  StepInput next = {.rows = {{.slot = 1, .num_tokens = 1, .sample = true}}};
  ASSERT_TRUE(table.Apply(next).ok());
  EXPECT_EQ(table[1].num_known, 8);  // including the token that the step draws
  EXPECT_EQ(table[1].num_computed, 7);
  ASSERT_TRUE(table.Apply(next).ok());  // continues from that token, known or not
  StepInput again = GoodStep();
  again.free = {1};
  ASSERT_TRUE(table.Apply(again).ok());
  EXPECT_EQ(table[1].num_known, 7);
}

// The spans of a golden's images, whose grids of patches are merged by two.
std::vector<ImageSpan> SpansOf(const testing::TinyGolden& golden, int32_t placeholder) {
  std::vector<ImageSpan> spans;
  auto at = golden.tokens.begin();
  for (const testing::GoldenImage& image : golden.images) {
    at = std::find(at, golden.tokens.end(), placeholder);
    spans.push_back({.position = static_cast<int32_t>(at - golden.tokens.begin()),
                     .image = spans.size() + 1,
                     .num_rows = static_cast<int32_t>(image.num_rows),
                     .grid_width = image.grid[1] / 2});
    at += static_cast<int64_t>(image.num_rows);
  }
  return spans;
}

TEST(SequenceSlots, PositionsOfGridsAreThoseOfTheReference) {
  for (const char* name : {"qwen2_vl_odd", "qwen2_vl_80", "qwen2_5_vl_odd", "qwen2_5_vl_80",
                           "qwen3_vl_odd", "glm4v_odd", "glm4v_moe_128"}) {
    const testing::TinyGolden golden = testing::ReadTinyGolden("hf/" + std::string(name));
    const auto length = static_cast<int32_t>(golden.tokens.size());
    SequenceSlots table({.max_seqs = 1, .max_context = 512, .vocab_size = 200, .mrope = true},
                        {.groups = {{.block_size = 4}}});
    StepInput step = {.admit = {{.slot = 0,
                                 .tokens = golden.tokens,
                                 .num_prompt_tokens = length,
                                 .images = SpansOf(golden, 126)}}};
    ASSERT_TRUE(table.Apply(step).ok());
    // However the sequence is cut.
    std::vector<std::vector<int32_t>> positions(3);
    for (int32_t begin = 0; begin < length; begin += 7) {
      table[0].ForEachRopePosition(begin, std::min(begin + 7, length),
                                   [&](int32_t time, int32_t row, int32_t column) {
                                     positions[0].push_back(time);
                                     positions[1].push_back(row);
                                     positions[2].push_back(column);
                                   });
    }
    EXPECT_EQ(positions, golden.positions) << name;
  }
}

TEST(SequenceSlots, RefusesWhatIsNoGrid) {
  const auto error = [](const ImageSpan& span, bool mrope) {
    SequenceSlots table({.max_seqs = 1, .max_context = 24, .vocab_size = 50, .mrope = mrope},
                        {.groups = {{.block_size = 4}}});
    StepInput step = {
        .admit = {
            {.slot = 0, .tokens = {1, 2, 3, 4, 5, 6}, .num_prompt_tokens = 6, .images = {span}}}};
    return table.Apply(step).ToString();
  };
  ImageSpan span = {.position = 1, .image = 7, .num_rows = 4, .grid_width = 2};
  EXPECT_EQ(error(span, true), "ok");
  EXPECT_EQ(
      error(span, false),
      "internal error: admit: slot 0 shows image 7 as a grid 2 wide of 4 rows from row 0 on, but "
      "positions have one dimension");
  span.grid_width = 3;
  EXPECT_EQ(error(span, true),
            "internal error: admit: slot 0 shows image 7 as a grid 3 wide of 4 rows from row 0 on");
  span.grid_width = -2;
  EXPECT_NE(error(span, true), "ok");
  span = {.position = 1, .image = 7, .first_row = 2, .num_rows = 2, .grid_width = 2};
  EXPECT_NE(error(span, true), "ok");
}

TEST(SequenceSlots, ASequenceThatOutgrowsItsOriginalContextIsAdmittedAgain) {
  CacheSpec cache = {.groups = {{.kind = CacheGroupKind::kFull, .block_size = 4, .window = 0}},
                     .block_bytes = 64,
                     .num_device_blocks = 10};
  cache.original_context = 6;
  SequenceSlots table({.max_seqs = 4, .max_step_tokens = 16, .max_context = 24, .vocab_size = 50},
                      cache);
  const auto admit = [](SequenceSlotId slot, std::vector<TokenId> tokens) {
    const auto count = static_cast<int32_t>(tokens.size());
    return StepInput{
        .admit = {{.slot = slot, .tokens = std::move(tokens), .num_prompt_tokens = count}},
        .append = {{.slot = slot, .group = 0, .blocks = {slot, slot + 4}}},
        .rows = {{.slot = slot, .num_tokens = count, .sample = true}}};
  };
  StepInput six = admit(0, {1, 2, 3, 4, 5, 6});
  ASSERT_TRUE(table.Apply(six).ok());
  EXPECT_FALSE(table[0].long_rope);
  StepInput seven = admit(1, {1, 2, 3, 4, 5, 6, 7});
  ASSERT_TRUE(table.Apply(seven).ok());
  EXPECT_TRUE(table[1].long_rope);
  StepInput next = {.rows = {{.slot = 0, .num_tokens = 1}}};
  const Status status = table.Apply(next);
  EXPECT_EQ(status.message(),
            "rows: slot 0 would reach position 6, but was admitted with the RoPE factors for "
            "positions below 6");
}

TEST(SequenceSlots, AStateIsThatBehindTheLastPositionAndNoOther) {
  CacheSpec cache = {.groups = {{.block_size = 4}}, .num_device_blocks = 10};
  cache.sequence_state = true;
  const SequenceSlots::Limits limits = {.max_seqs = 2,
                                        .max_step_tokens = 16,
                                        .max_step_drafts = 3,
                                        .max_context = 24,
                                        .vocab_size = 50};
  const auto admit = [](int32_t num_computed) {
    return StepInput{.admit = {{.slot = 0,
                                .tokens = {1, 2, 3},
                                .num_prompt_tokens = 3,
                                .num_computed = num_computed}},
                     .append = {{.slot = 0, .group = 0, .blocks = {4, 2}}}};
  };
  StepInput resumed = admit(2);
  EXPECT_EQ(SequenceSlots(limits, cache).Apply(resumed).message(),
            "admit: slot 0 has 2 computed positions, but nobody has kept their state");
  SequenceSlots table(limits, cache);
  StepInput whole = admit(0);
  whole.rows = {{.slot = 0, .num_tokens = 3, .sample = true}};
  ASSERT_TRUE(table.Apply(whole).ok());
  StepInput next = {.rows = {{.slot = 0, .num_tokens = 2, .sample = true, .drafts = {7}}}};
  EXPECT_EQ(table.Apply(next).message(), "rows: slot 0 has drafts, but a state cannot go back");
}

// Up to 3 drafts and 3 proposals in a step.
SequenceSlots SlotsForDrafts() {
  return SequenceSlots({.max_seqs = 4,
                        .max_step_tokens = 16,
                        .max_step_drafts = 3,
                        .max_step_proposals = 3,
                        .max_context = 24,
                        .vocab_size = 50},
                       {.groups = {{.kind = CacheGroupKind::kFull, .block_size = 4, .window = 0}},
                        .block_bytes = 64,
                        .num_device_blocks = 10});
}

TEST(SequenceSlots, KeepsThePositionsOfAcceptedDrafts) {
  SequenceSlots table = SlotsForDrafts();
  StepInput first = {.admit = {{.slot = 1, .tokens = {1, 2, 3}, .num_prompt_tokens = 3}},
                     .append = {{.slot = 1, .group = 0, .blocks = {4, 2, 5}}},
                     .rows = {{.slot = 1, .num_tokens = 6, .sample = true, .drafts = {7, 8, 9}}}};
  ASSERT_TRUE(table.Apply(first).ok());
  EXPECT_EQ(table[1].num_computed, 6);
  StepInput next = {.rows = {{.slot = 1, .num_tokens = 1, .sample = true}}};
  EXPECT_EQ(table.Apply(next).message(), "rows: slot 1 has 3 drafts that no Wait has settled");
  table.Settle(1, 2);  // drew 7 and another token than 8
  EXPECT_EQ(table[1].num_computed, 4);
  EXPECT_EQ(table[1].num_known, 5);
  ASSERT_TRUE(table.Apply(next).ok());
  table.Settle(1, 1);  // without drafts there is nothing to settle
  EXPECT_EQ(table[1].num_computed, 5);
  const auto refused = [&table](StepRow row) {
    StepInput step = {.rows = {std::move(row)}};
    return std::string(table.Apply(step).message());
  };
  EXPECT_EQ(refused({.slot = 1, .num_tokens = 2, .drafts = {7}}),
            "rows: slot 1 has drafts, but its row does not sample");
  EXPECT_EQ(refused({.slot = 1, .num_tokens = 2, .sample = true, .drafts = {50}}),
            "rows: slot 1 has draft 50, but the vocabulary has 50");
  EXPECT_EQ(refused({.slot = 1, .num_tokens = 5, .sample = true, .drafts = {1, 2, 3, 4}}),
            "a step has 4 drafts, but at most 3 fit");
}

TEST(SequenceSlots, NoRowFollowsOneWhoseProposalsAreNotKnown) {
  SequenceSlots table = SlotsForDrafts();
  StepInput first = {.admit = {{.slot = 1, .tokens = {1, 2, 3}, .num_prompt_tokens = 3}},
                     .append = {{.slot = 1, .group = 0, .blocks = {4, 2}}},
                     .rows = {{.slot = 1, .num_tokens = 3, .sample = true}}};
  ASSERT_TRUE(table.Apply(first).ok());
  StepInput next = {.rows = {{.slot = 1, .num_tokens = 1, .sample = true, .num_proposals = 2}}};
  ASSERT_TRUE(table.Apply(next).ok());
  table.Settle(1, 1);  // the first step's row
  EXPECT_EQ(table.Apply(next).message(), "rows: slot 1 wants proposals that no Wait has returned");
  table.EndProposals(1);
  EXPECT_TRUE(table.Apply(next).ok());
}

// Slot 1 has three tokens, all computed; slot 2 two that it was given and one that it draws.
StepInput BeforeForks() {
  return {
      .admit = {{.slot = 1, .tokens = {1, 2, 3}, .num_prompt_tokens = 2},
                {.slot = 2, .tokens = {4, 5}, .num_prompt_tokens = 2}},
      .append = {{.slot = 1, .group = 0, .blocks = {4}}, {.slot = 2, .group = 0, .blocks = {5}}},
      .rows = {{.slot = 1, .num_tokens = 3, .num_candidates = 2},
               {.slot = 2, .num_tokens = 2, .sample = true}}};
}

TEST(SequenceSlots, AForkTakesTheTokensButNotTheBlocks) {
  SequenceSlots table = SlotsForDrafts();
  StepInput first = BeforeForks();
  ASSERT_TRUE(table.Apply(first).ok());
  EXPECT_EQ(table[1].num_known, 3);  // nothing was drawn
  StepInput step = {
      .fork = {{.slot = 0, .source = 1, .tokens = {7, 8}}, {.slot = 1, .source = 1, .tokens = {9}}},
      .append = {{.slot = 0, .group = 0, .blocks = {6, 3}}},
      .rows = {{.slot = 0, .num_tokens = 2, .num_candidates = 1},
               {.slot = 1, .num_tokens = 1, .sample = true}}};
  ASSERT_TRUE(table.Apply(step).ok());
  EXPECT_EQ(table[0].tokens, (std::vector<TokenId>{1, 2, 3, 7, 8}));
  EXPECT_EQ(table[0].num_prompt, 2);
  EXPECT_EQ(table[0].block_tables[0], (std::vector<BlockId>{6, 3}));
  EXPECT_EQ(table[0].num_computed, 5);
  EXPECT_EQ(table[1].tokens, (std::vector<TokenId>{1, 2, 3, 9}));
  EXPECT_EQ(table[1].block_tables[0], (std::vector<BlockId>{4}));
  EXPECT_EQ(table[1].num_known, 5);
}

TEST(SequenceSlots, RefusesInvalidForksAndCandidates) {
  const auto refused = [](const std::function<void(StepInput&)>& change) {
    SequenceSlots table = SlotsForDrafts();
    StepInput first = BeforeForks();
    EXPECT_TRUE(table.Apply(first).ok());
    StepInput step = {.fork = {{.slot = 0, .source = 1, .tokens = {7}}},
                      .append = {{.slot = 0, .group = 0, .blocks = {6}}},
                      .rows = {{.slot = 0, .num_tokens = 1, .num_candidates = 1}}};
    change(step);
    return std::string(table.Apply(step).message());
  };
  EXPECT_EQ(refused([](StepInput&) {}), "");
  EXPECT_EQ(refused([](StepInput& s) { s.fork[0].slot = 4; }),
            "slot 4 does not exist; there are 4 slots");
  EXPECT_EQ(refused([](StepInput& s) { s.fork[0].source = 3; }), "fork: slot 3 is free");
  EXPECT_EQ(refused([](StepInput& s) { s.fork[0].slot = 2; }), "fork: slot 2 is in use");
  EXPECT_EQ(refused([](StepInput& s) { s.fork[0].source = 2; }),
            "fork: slot 2 has 3 tokens, 2 of them given and 2 computed");
  EXPECT_EQ(refused([](StepInput& s) { s.fork[0].tokens = {}; }),
            "fork: slot 0 gets 3 tokens, but the context holds 24");
  EXPECT_EQ(refused([](StepInput& s) { s.fork[0].tokens.assign(22, 1); }),
            "fork: slot 0 gets 25 tokens, but the context holds 24");
  EXPECT_EQ(refused([](StepInput& s) { s.fork[0].tokens = {50}; }),
            "fork: slot 0 has token 50, but the vocabulary has 50");
  // A source that has gone on has a token that is not computed.
  EXPECT_EQ(refused([](StepInput& s) {
              s.fork.insert(s.fork.begin(), {.slot = 1, .source = 1, .tokens = {9}});
            }),
            "fork: slot 1 has 4 tokens, 4 of them given and 3 computed");
  EXPECT_EQ(refused([](StepInput& s) { s.rows[0].sample = true; }),
            "rows: slot 0 wants 1 candidates behind position 3, but has 4 tokens, 4 of them given, "
            "and samples");
  EXPECT_EQ(
      refused([](StepInput& s) { s.rows[0].num_candidates = -1; }),
      "rows: slot 0 wants -1 candidates behind position 3, but has 4 tokens, 4 of them given");
  EXPECT_EQ(
      refused([](StepInput& s) { s.rows[0] = {.slot = 2, .num_tokens = 1, .num_candidates = 1}; }),
      "rows: slot 2 wants 1 candidates behind position 2, but has 3 tokens, 2 of them given");
}

struct Violation {
  const char* name;
  std::function<void(StepInput&)> break_it;
  const char* message;
};

// Violations of the rules for slots, copies and admissions.
std::vector<Violation> AdmissionViolations() {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const auto copy = [](Tier from, BlockId source, Tier to, BlockId destination) {
    return [=](StepInput& s) { s.copies = {{from, source, to, destination}}; };
  };
  return {
      {"FreeUnknownSlot", [](auto& s) { s.free = {4}; }, "slot 4 does not exist; there are 4"},
      {"FreeNegativeSlot", [](auto& s) { s.free = {-1}; }, "slot -1 does not exist"},
      {"FreeFreeSlot", [](auto& s) { s.free = {2}; }, "slot 2 is free already"},
      {"FreeTwice",
       [](auto& s) {
         s.free = {0, 0};
       },
       "slot 0 is free already"},
      {"CopyFromNoBlock", copy(Tier::kDevice, 10, Tier::kDevice, 1),
       "source device block 10 does not exist; there are 10"},
      {"CopyToNoBlock", copy(Tier::kDevice, 1, Tier::kHost, 2),
       "destination host block 2 does not exist; there are 2"},
      {"CopyToNegativeBlock", copy(Tier::kHost, 1, Tier::kDevice, -1),
       "destination device block -1 does not exist"},
      {"CopyHostToHost", copy(Tier::kHost, 0, Tier::kHost, 1), "from host block 0 to host block 1"},
      {"AdmitToUsedSlot", [](auto& s) { s.admit[0].slot = 0; }, "slot 0 is in use"},
      {"AdmitNoTokens", [](auto& s) { s.admit[0].tokens = {}; }, "cannot have 0 tokens"},
      {"AdmitTooManyTokens", [](auto& s) { s.admit[0].tokens.resize(25); },
       "slot 1 has 25 tokens, but the context holds 24"},
      {"AdmitAllComputed", [](auto& s) { s.admit[0].num_computed = 7; },
       "slot 1 cannot have 7 tokens with 7 in the prompt and 7 computed"},
      {"AdmitLongPrompt", [](auto& s) { s.admit[0].num_prompt_tokens = 8; },
       "with 8 in the prompt"},
      {"AdmitUnknownToken", [](auto& s) { s.admit[0].tokens[3] = 50; },
       "has token 50, but the vocabulary has 50"},
      {"AdmitNegativeToken", [](auto& s) { s.admit[0].tokens[3] = -1; }, "has token -1"},
      {"AdmitBiasOnNoToken",
       [](auto& s) {
         s.admit[0].sampling.logit_bias = {{50, 1.0f}};
       },
       "logit_bias: token 50"},
      {"AdmitNanBias",
       [nan](auto& s) {
         s.admit[0].sampling.logit_bias = {{5, nan}};
       },
       "logit_bias: token 5 with bias nan"},
      {"AdmitStopOnNoToken", [](auto& s) { s.admit[0].sampling.stop_token_ids = {-3}; },
       "stop id -3"},
      {"AdmitNegativeLogprobs", [](auto& s) { s.admit[0].sampling.logprobs = -3; }, "-3 logprobs"},
      {"AdmitNegativePromptLogprobs", [](auto& s) { s.admit[0].sampling.prompt_logprobs = -1; },
       "-1 logprobs"},
      {"AdmitNanTopP", [nan](auto& s) { s.admit[0].sampling.top_p = nan; }, "is nan"},
      {"AdmitCold", [](auto& s) { s.admit[0].sampling.temperature = -1; }, "temperature is -1"},
      {"AdmitNoRepetition", [](auto& s) { s.admit[0].sampling.repetition_penalty = 0; },
       "repetition_penalty 0"},
  };
}

// Violations of the rules for block tables and rows.
std::vector<Violation> RowViolations() {
  return {
      {"AppendToFreeSlot", [](auto& s) { s.append[0].slot = 3; }, "append: slot 3 is free"},
      {"AppendToNoGroup", [](auto& s) { s.append[0].group = 2; },
       "has blocks for cache group 2, but there are 2"},
      {"AppendNoSuchBlock", [](auto& s) { s.append[0].blocks[1] = 10; },
       "gets block 10 in group 0, but there are 10"},
      {"AppendNothingToFull", [](auto& s) { s.append[0].blocks[0] = kNoBlock; },
       "gets block -1 in group 0"},
      {"AppendTooMany", [](auto& s) { s.append[0].blocks.assign(7, 1); },
       "slot 1 would have 7 blocks in group 0, but the context holds 6"},
      {"RowOfFreeSlot", [](auto& s) { s.rows[0].slot = 2; }, "rows: slot 2 is free"},
      {"TwoRows",
       [](auto& s) {
         s.rows = {{1, 2, false}, {1, 2, false}};
       },
       "slot 1 has two rows"},
      {"RowOfNothing", [](auto& s) { s.rows[0].num_tokens = 0; }, "a row of 0 does not fit"},
      {"RowBeyondKnown", [](auto& s) { s.rows[0].num_tokens = 8; },
       "slot 1 has 7 tokens, 0 of them computed; a row of 8 does not fit"},
      {"HugeRow", [](auto& s) { s.rows[0].num_tokens = std::numeric_limits<int32_t>::max(); },
       "does not fit"},
      {"SampleInTheMiddle", [](auto& s) { s.rows[0].sample = true; },
       "slot 1 would sample after position 5, but has 7 known tokens"},
      {"TableTooShort", [](auto& s) { s.append[0].blocks = {4}; },
       "the block table of group 0 has 1 blocks, but positions below 6 need 2"},
      {"WindowBlockMissing", [](auto& s) { s.append[1].blocks[0] = kNoBlock; },
       "entry 0 of the block table of group 1 is empty, but positions [0, 6) need it"},
      {"TooManyTokens",
       [](auto& s) {
         s.admit[0].tokens.resize(17);
         s.append[0].blocks.assign(5, 1);
         s.append[1].blocks.assign(5, 1);
         s.rows[0].num_tokens = 17;
       },
       "a step has 17 tokens, but at most 16 fit"},
  };
}

TEST(SequenceSlots, RefusesInvalidStepsAndNamesTheRule) {
  std::vector<Violation> violations = AdmissionViolations();
  for (Violation& violation : RowViolations()) violations.push_back(std::move(violation));
  for (const Violation& violation : violations) {
    SCOPED_TRACE(violation.name);
    SequenceSlots table = MakeTable();
    StepInput first = {.admit = {{.slot = 0, .tokens = {1}, .num_prompt_tokens = 1}}};
    ASSERT_TRUE(table.Apply(first).ok());
    StepInput step = GoodStep();
    violation.break_it(step);
    const Status status = table.Apply(step);
    EXPECT_EQ(status.code(), StatusCode::kInternal);
    EXPECT_NE(status.message().find(violation.message), std::string::npos) << status.ToString();
  }
}

TEST(SequenceSlots, RefusesPositionsBeyondTheContext) {
  SequenceSlots table = MakeTable();
  StepInput step = {.admit = {{.slot = 0,
                               .tokens = std::vector<TokenId>(24, 1),
                               .num_prompt_tokens = 24,
                               .num_computed = 23}},
                    .append = {{.slot = 0, .group = 0, .blocks = {0, 1, 2, 3, 4, 5}},
                               {.slot = 0, .group = 1, .blocks = {-1, -1, -1, -1, 7, 6}}},
                    .rows = {{.slot = 0, .num_tokens = 1, .sample = true}}};
  ASSERT_TRUE(table.Apply(step).ok());
  StepInput next = {.rows = {{.slot = 0, .num_tokens = 1, .sample = true}}};
  EXPECT_EQ(table.Apply(next).message(),
            "rows: slot 0 would reach position 24, but the context holds 24");
}

TEST(SequenceSlots, AWindowNeedsOnlyTheBlocksFromItsFirstKeyOn) {
  // With a window of 5, position 8 sees keys from 4 on, position 7 from 3 on; blocks hold 4.
  for (const int32_t computed : {7, 8}) {
    SequenceSlots table = MakeTable();
    StepInput step = {.admit = {{.slot = 0,
                                 .tokens = std::vector<TokenId>(12, 1),
                                 .num_prompt_tokens = 12,
                                 .num_computed = computed}},
                      .append = {{.slot = 0, .group = 0, .blocks = {0, 1, 2}},
                                 {.slot = 0, .group = 1, .blocks = {kNoBlock, 4, 5}}},
                      .rows = {{.slot = 0, .num_tokens = 12 - computed}}};
    EXPECT_EQ(table.Apply(step).ok(), computed == 8) << computed;
  }
}

// An encoder cache of 8 rows, of which a step may compute 6.
SequenceSlots SlotsForImages() {
  return SequenceSlots({.max_seqs = 4,
                        .max_step_tokens = 16,
                        .max_context = 24,
                        .vocab_size = 50,
                        .max_encoder_rows = 8,
                        .max_step_image_rows = 6},
                       {.groups = {{.kind = CacheGroupKind::kFull, .block_size = 4, .window = 0}},
                        .block_bytes = 64,
                        .num_device_blocks = 10});
}

// Slot 1 shows image 7, which has 5 rows, at positions 1 to 5. The step computes positions 0 to 2.
StepInput StepWithImage() {
  return {.encode = {{.id = 7, .num_rows = 5}},
          .admit = {{.slot = 1,
                     .tokens = {1, 2, 2, 2, 2, 2, 3},
                     .num_prompt_tokens = 7,
                     .images = {{.position = 1, .image = 7, .num_rows = 5}}}},
          .append = {{.slot = 1, .group = 0, .blocks = {4, 2}}},
          .rows = {{.slot = 1, .num_tokens = 3}}};
}

TEST(SequenceSlots, RowsOfForgottenImagesAreUsedAgain) {
  SequenceSlots table = SlotsForImages();
  StepInput step = StepWithImage();
  ASSERT_TRUE(table.Apply(step).ok());
  ASSERT_NE(table.encoder_rows().Find(7), nullptr);
  const std::vector<int32_t> first = *table.encoder_rows().Find(7);
  EXPECT_EQ(std::set<int32_t>(first.begin(), first.end()).size(), 5u);
  StepInput next = {.encode = {{.id = 8, .num_rows = 3}}, .rows = {{.slot = 1, .num_tokens = 4}}};
  ASSERT_TRUE(table.Apply(next).ok());
  // All positions that show the image are computed.
  StepInput last = {.forget = {7}, .encode = {{.id = 9, .num_rows = 5}}};
  ASSERT_TRUE(table.Apply(last).ok());
  EXPECT_EQ(table.encoder_rows().Find(7), nullptr);
  std::vector<int32_t> all = *table.encoder_rows().Find(9);
  EXPECT_TRUE(std::is_permutation(all.begin(), all.end(), first.begin(), first.end()));
  all.insert(all.end(), table.encoder_rows().Find(8)->begin(), table.encoder_rows().Find(8)->end());
  EXPECT_EQ(*std::max_element(all.begin(), all.end()), 7);
  EXPECT_EQ(std::set<int32_t>(all.begin(), all.end()).size(), 8u);
  table.Clear();
  EXPECT_EQ(table.encoder_rows().Find(9), nullptr);
  StepInput again = StepWithImage();
  EXPECT_TRUE(table.Apply(again).ok());
}

TEST(SequenceSlots, RefusesImagesThatBreakARule) {
  struct Violation {
    std::function<void(StepInput&)> change;
    const char* message;
  };
  const Violation violations[] = {
      {[](StepInput& s) { s.forget = {7}; }, "forget: the encoder cache does not have image 7"},
      {[](StepInput& s) { s.encode.push_back({.id = 7, .num_rows = 1}); },
       "encode: the encoder cache has image 7 already"},
      {[](StepInput& s) { s.encode[0].num_rows = 9; },
       "encode: image 7 has 9 rows, but 8 of 8 are free in the encoder cache"},
      {[](StepInput& s) { s.encode[0].num_rows = 0; },
       "encode: image 7 has 0 rows, but 8 of 8 are free in the encoder cache"},
      {[](StepInput& s) { s.encode[0].num_rows = 7; },
       "a step encodes images with 7 rows, but at most 6 fit"},
      {[](StepInput& s) { s.encode.clear(); },
       "rows: slot 1: positions 1 to 2 show image 7, of which the encoder cache has 0 rows"},
      {[](StepInput& s) { s.encode[0].num_rows = 4; },
       "rows: slot 1: positions 1 to 2 show image 7, of which the encoder cache has 4 rows"},
      {[](StepInput& s) { s.admit[0].images[0].num_rows = 7; },
       "admit: slot 1 shows 7 rows of image 7 from row 0 on at position 1 of 7"},
      {[](StepInput& s) { s.admit[0].images[0].num_rows = 0; },
       "admit: slot 1 shows 0 rows of image 7 from row 0 on at position 1 of 7"},
      {[](StepInput& s) { s.admit[0].images[0].first_row = -1; },
       "admit: slot 1 shows 5 rows of image 7 from row -1 on at position 1 of 7"},
      {[](StepInput& s) {
         s.admit[0].images.push_back({.position = 5, .image = 7, .num_rows = 1});
       },
       "admit: slot 1 shows 1 rows of image 7 from row 0 on at position 5 of 7"},
  };
  for (const Violation& violation : violations) {
    SequenceSlots table = SlotsForImages();
    StepInput step = StepWithImage();
    violation.change(step);
    const Status status = table.Apply(step);
    EXPECT_EQ(status.code(), StatusCode::kInternal);
    EXPECT_EQ(status.message(), violation.message);
  }
}

TEST(SequenceSlots, ClearFreesAllSlots) {
  SequenceSlots table = MakeTable();
  StepInput step = GoodStep();
  ASSERT_TRUE(table.Apply(step).ok());
  table.Clear();
  StepInput again = GoodStep();
  EXPECT_TRUE(table.Apply(again).ok());
}

}  // namespace
}  // namespace tokamak
