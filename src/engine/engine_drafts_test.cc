// Tests drafts on simulated machines: an executor whose texts and step times are given. What the
// engine chooses is compared with a simulation of its own, which drafts as many tokens in every
// step.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <vector>

#include "base/testing/manual_clock.h"
#include "engine/engine_core.h"
#include "engine/testing/engine_core_fixture.h"

namespace tokamak {
namespace {

using Text = std::vector<TokenId>;
// Seconds of a step with so many tokens.
using Machine = std::function<double(int32_t)>;

constexpr int32_t kVocab = 1000;
constexpr int32_t kPrompt = 100;
constexpr int32_t kOutput = 600;
constexpr int32_t kMostDrafts = 4;

// Continues each prompt with the rest of the text that begins with it. Every text begins with a
// token of its own.
class TextExecutor final : public Executor {
 public:
  TextExecutor(std::vector<Text> texts, Machine machine, ManualClock* clock)
      : texts_(std::move(texts)), machine_(std::move(machine)), clock_(clock) {
    limits_.cache.groups = {{CacheGroupKind::kFull, 16, 0}};
    limits_.cache.num_device_blocks = 64 * 64;
    limits_.max_seqs = 64;
    limits_.max_step_tokens = 8192;
    limits_.max_step_drafts = 64;
    limits_.max_context = 1024;
    limits_.vocab_size = kVocab;
  }

  const ExecutorLimits& limits() const override { return limits_; }
  Status Submit(StepInput step) override {
    output_ = {.number = step.number};
    for (const AdmitSequence& admit : step.admit) {
      slots_[admit.slot] = {&TextOf(admit.tokens[0]), admit.num_computed};
    }
    int32_t num_tokens = 0;
    bool prompts = false;
    for (const StepRow& row : step.rows) {
      Slot& slot = slots_.at(row.slot);
      num_tokens += row.num_tokens;
      const auto num_drafts = static_cast<int32_t>(row.drafts.size());
      prompts |= row.num_tokens - num_drafts > 1;
      slot.computed += row.num_tokens - num_drafts;
      RowOutput out;
      out.slot = row.slot;
      for (size_t i = 0; row.sample && i <= row.drafts.size(); ++i) {
        out.tokens.push_back(slot.text->at(static_cast<size_t>(slot.computed)));
        if (i == row.drafts.size() || row.drafts[i] != out.tokens.back()) break;
        ++slot.computed;
      }
      output_.rows.push_back(std::move(out));
    }
    seconds_ = machine_(num_tokens) * (0.95 + 0.001 * (random_() % 101));
    if (!prompts) decode_seconds += seconds_;
    return Status();
  }
  Status Sample(uint64_t) override { return Status(); }
  Status SampleMasked(uint64_t, std::vector<TokenMask>) override { return Status(); }
  bool Done(uint64_t) override { return false; }
  Result<StepOutput> Wait(uint64_t) override {
    clock_->Advance(std::chrono::nanoseconds(std::llround(seconds_ * 1e9)));
    return output_;
  }
  Status Reset() override { return Status(); }

  double decode_seconds = 0;  // of steps without prompts

 private:
  struct Slot {
    const Text* text = nullptr;
    int32_t computed = 0;
  };
  const Text& TextOf(TokenId first) const {
    return *std::find_if(texts_.begin(), texts_.end(),
                         [first](const Text& text) { return text[0] == first; });
  }

  const std::vector<Text> texts_;
  const Machine machine_;
  ManualClock* const clock_;
  ExecutorLimits limits_;
  std::map<SequenceSlotId, Slot> slots_;
  StepOutput output_;
  double seconds_ = 0;  // of the step
  std::mt19937 random_{1};
};

// Texts of a prompt and an answer. `copied` of the answer's tokens repeat the prompt, in runs.
std::vector<Text> MakeTexts(int32_t count, double copied, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<Text> texts;
  for (int32_t i = 0; i < count; ++i) {
    Text text = {i};
    // Half of the words are from a small vocabulary, so that short matches occur by chance.
    const auto word = [&] {
      return static_cast<TokenId>(100 + (random() % 2 == 0 ? random() % 12 : random() % 800));
    };
    while (text.size() < kPrompt) text.push_back(word());
    while (text.size() < kPrompt + kOutput) {
      const size_t run = 5 + random() % 30;
      const size_t from = 1 + random() % (kPrompt - 1);
      const bool copy = random() % 1000 < 1000 * copied;
      for (size_t j = 0; j < run; ++j) {
        text.push_back(copy ? text[1 + (from + j) % (kPrompt - 1)] : word());
      }
    }
    text.resize(kPrompt + kOutput);
    texts.push_back(std::move(text));
  }
  return texts;
}

struct Outcome {
  double seconds = 0;     // of steps without prompts
  double per_second = 0;  // tokens in these steps, until the first answer is complete
  EngineStats stats;
  std::map<RequestId, RequestTimings> timings;
};

// Runs all texts at once. `speculate` of their requests.
Outcome RunEngine(const std::vector<Text>& texts, const Machine& machine, DraftOptions drafts,
                  const std::function<bool(RequestId)>& speculate = nullptr) {
  ManualClock clock;
  clock.Advance(std::chrono::seconds(1));
  TextExecutor executor(texts, machine, &clock);
  EngineCoreOptions options;
  options.max_seqs = 64;
  options.max_step_tokens = 8192;
  options.drafts = drafts;
  auto core = EngineCore::Create(options, &clock, &executor).value();
  Outcome run;
  std::map<RequestId, Text> answers;
  int64_t num_tokens = 0;
  for (size_t i = 0; i < texts.size(); ++i) {
    Arrival arrival;
    arrival.id = i;
    arrival.prompt.assign(texts[i].begin(), texts[i].begin() + kPrompt);
    arrival.sampling.max_tokens = static_cast<int32_t>(texts[i].size()) - kPrompt;
    arrival.speculate = !speculate || speculate(i);
    arrival.on_output = [&, i](OutputChunk chunk) {
      answers[i].insert(answers[i].end(), chunk.token_ids.begin(), chunk.token_ids.end());
      run.timings[i] = chunk.timings;
      num_tokens += static_cast<int64_t>(chunk.token_ids.size());
      if (!chunk.finish_reason || run.per_second > 0) return;
      const auto first_tokens = static_cast<int64_t>(answers.size());  // drawn with the prompts
      run.per_second = static_cast<double>(num_tokens - first_tokens) / executor.decode_seconds;
    };
    EXPECT_TRUE(core->Submit(std::move(arrival)).ok());
  }
  while (core->HasWork()) core->Step();
  for (size_t i = 0; i < texts.size(); ++i) {
    EXPECT_EQ(answers[i], Text(texts[i].begin() + kPrompt, texts[i].end()));
  }
  run.seconds = executor.decode_seconds;
  run.stats = core->stats(clock.Now());
  return run;
}

// How many tokens repeat in a row from text[known] on what followed the latest of the longest
// matches of 2 to 5 tokens, at most `most`; -1: there is no match.
int32_t Accepted(const Text& text, int32_t known, int32_t most) {
  int32_t best_end = 0, best_length = 1;
  for (int32_t end = known - 1; end >= 2; --end) {
    int32_t length = 0;
    while (length < std::min(end, 5) && text[end - 1 - length] == text[known - 1 - length]) {
      ++length;
    }
    if (length > best_length) best_length = length, best_end = end;
  }
  if (best_end == 0) return -1;
  int32_t accepted = 0;
  while (accepted < most && text[best_end + accepted] == text[known + accepted]) ++accepted;
  return accepted;
}

// Outcome::per_second if each row has `count` drafts wherever there is a match.
double FixedPerSecond(const std::vector<Text>& texts, const Machine& machine, int32_t count) {
  std::vector<int32_t> known(texts.size(), kPrompt + 1);
  const auto streams = static_cast<int32_t>(texts.size());
  double seconds = 0;
  int32_t num_tokens = 0;
  for (bool complete = false; !complete;) {
    int32_t positions = 0;
    for (size_t i = 0; i < texts.size(); ++i) {
      const int32_t left = static_cast<int32_t>(texts[i].size()) - known[i];
      const int32_t most = std::min({count, left - 1, 64 / streams});
      const int32_t accepted = most > 0 ? Accepted(texts[i], known[i], most) : -1;
      positions += 1 + (accepted < 0 ? 0 : most);
      known[i] += 1 + std::max(0, accepted);
      num_tokens += 1 + std::max(0, accepted);
      complete |= known[i] == static_cast<int32_t>(texts[i].size());
    }
    seconds += machine(positions);
  }
  return num_tokens / seconds;
}

struct Situation {
  const char* name;
  Machine machine;
};

std::vector<Situation> Machines() {
  return {
      // Reading weights takes most of the time.
      {"memory bound", [](int32_t n) { return 3e-3 + 1e-4 * n; }},
      // Two cores: a token costs a fifth of reading the weights.
      {"between", [](int32_t n) { return 2e-3 + 4e-4 * n; }},
      {"compute bound", [](int32_t n) { return 2e-4 + 1e-3 * n; }},
      // Tokens of short steps cost more than those of prompts.
      {"tiles of 8", [](int32_t n) { return 1e-3 + 4e-3 * ((n + 7) / 8); }},
      {"matrix kernels from 3 tokens on",
       [](int32_t n) { return n < 3 ? 1e-3 + 1e-3 * n : 5e-3 + 2e-4 * n; }},
  };
}

TEST(EngineDrafts, AreAsFastAsTheBestFixedNumber) {
  for (const Situation& situation : Machines()) {
    for (const int32_t streams : {1, 8, 32}) {
      for (const double copied : {0.0, 0.5, 0.95}) {
        SCOPED_TRACE(fmt::format("{}, {} streams, {} copied", situation.name, streams, copied));
        const std::vector<Text> texts = MakeTexts(streams, copied, 9);
        const double without = FixedPerSecond(texts, situation.machine, 0);
        double best = without;
        for (int32_t count = 1; count <= kMostDrafts; ++count) {
          best = std::max(best, FixedPerSecond(texts, situation.machine, count));
        }
        const Outcome run = RunEngine(texts, situation.machine, {.most = kMostDrafts});
        EXPECT_GT(run.per_second, 0.96 * best);
        EXPECT_GT(run.per_second, 0.98 * without);
      }
    }
  }
}

TEST(EngineDrafts, AreNoneWhereThereWouldBeFewerThanTheLeast) {
  const std::vector<Text> texts = MakeTexts(4, 0.7, 5);
  const auto drafts_at = [&](DraftOptions drafts) {
    return RunEngine(texts, Machines()[0].machine, drafts).stats.drafts_at;
  };
  const std::vector<int64_t> any = drafts_at({.most = 4});
  EXPECT_GT(any.at(0), any.at(2));
  const std::vector<int64_t> three = drafts_at({.most = 4, .least = 3});
  EXPECT_GT(three.at(2), 0);
  EXPECT_EQ(three[0], three[2]);
  EXPECT_EQ(three[1], three[2]);
}

TEST(EngineDrafts, HaveTheLeastProbability) {
  const std::vector<Text> texts = MakeTexts(4, 0.5, 5);
  const auto run = [&](float probability) {
    const DraftOptions drafts = {.most = 4, .min_probability = probability};
    const EngineStats stats = RunEngine(texts, Machines()[0].machine, drafts).stats;
    EXPECT_GT(stats.drafts, 0) << probability;
    return static_cast<double>(stats.accepted_drafts) / static_cast<double>(stats.drafts);
  };
  EXPECT_GT(run(0.9f), run(0) + 0.05);
}

TEST(EngineDrafts, AreReported) {
  const std::vector<Text> texts = MakeTexts(2, 0.95, 3);
  const Machine machine = Machines()[0].machine;
  const Outcome run =
      RunEngine(texts, machine, {.most = kMostDrafts}, [](RequestId id) { return id == 0; });
  EXPECT_EQ(run.timings.at(1).drafts, 0);  // the request asked for none
  EXPECT_EQ(run.timings.at(1).accepted_drafts, 0);
  const RequestTimings& timings = run.timings.at(0);
  EXPECT_GT(timings.accepted_drafts, kOutput / 2);
  // Every step draws a token besides the accepted drafts; the first one computes the prompt.
  EXPECT_EQ(timings.steps + timings.accepted_drafts, kOutput);
  const EngineStats& stats = run.stats;
  EXPECT_EQ(stats.drafts, timings.drafts);
  EXPECT_EQ(stats.accepted_drafts, timings.accepted_drafts);
  ASSERT_EQ(stats.drafts_at.size(), static_cast<size_t>(kMostDrafts));
  ASSERT_EQ(stats.accepted_drafts_at.size(), stats.drafts_at.size());
  int64_t drafts = 0, accepted = 0;
  for (size_t i = 0; i < stats.drafts_at.size(); ++i) {
    drafts += stats.drafts_at[i];
    accepted += stats.accepted_drafts_at[i];
    EXPECT_LE(stats.accepted_drafts_at[i], stats.drafts_at[i]);
    if (i == 0) continue;
    EXPECT_LE(stats.drafts_at[i], stats.drafts_at[i - 1]);
    EXPECT_LE(stats.accepted_drafts_at[i], stats.accepted_drafts_at[i - 1]);
  }
  EXPECT_EQ(drafts, stats.drafts);
  EXPECT_EQ(accepted, stats.accepted_drafts);
  const auto wide = [](const std::vector<int32_t>& counts) {
    return std::vector<int64_t>(counts.begin(), counts.end());
  };
  EXPECT_EQ(wide(timings.drafts_at), stats.drafts_at);
  EXPECT_EQ(wide(timings.accepted_drafts_at), stats.accepted_drafts_at);
}

TEST(EngineDrafts, TheTimeSavedIsThatOfTheStepsSaved) {
  const std::vector<Text> texts = MakeTexts(1, 0.95, 3);
  const Machine machine = Machines()[0].machine;
  const Outcome without = RunEngine(texts, machine, {});
  EXPECT_EQ(without.stats.saved_seconds, 0);
  const Outcome with = RunEngine(texts, machine, {.most = kMostDrafts});
  const double saved = without.seconds - with.seconds;
  EXPECT_GT(saved, 0);
  EXPECT_NEAR(with.stats.saved_seconds, saved, 0.1 * saved);
  EXPECT_EQ(with.timings.at(0).saved_seconds, with.stats.saved_seconds);
}

TEST(EngineDrafts, SyntheticOnesFillEveryRow) {
  const std::vector<Text> texts = MakeTexts(3, 0, 3);
  const Machine machine = Machines()[0].machine;
  const Outcome run = RunEngine(texts, machine, {.most = 2, .always = true});
  // All rows but the last of each answer, which draws the last token, and the last but one.
  EXPECT_GE(run.stats.drafts, 3 * (kOutput - 10) * 2 - 2 * 2 * run.stats.accepted_drafts);
}

class DraftsInAllSteps : public EngineCoreTest {};

// With all sequences drafting, no step is in flight while the next one is prepared, so the work
// between two steps must be little.
TEST_F(DraftsInAllSteps, TheNextStepIsSubmittedBeforeOutputsAreDelivered) {
  executor_.limits_.depth = 2;
  executor_.limits_.max_step_drafts = 4;
  EngineCoreOptions options;
  options.drafts = {.most = 2, .always = true};
  Start(options);
  int delivered = 0;
  std::vector<int> delivered_before;  // each step
  executor_.on_submit = [&](const StepInput&) { delivered_before.push_back(delivered); };
  Arrival arrival = Make(1, {1}, 7);  // goes on with 1, 2, 4, 8, 16, 32, 64: no draft is right
  arrival.on_output = [&, inner = arrival.on_output](OutputChunk chunk) {
    delivered += static_cast<int>(chunk.token_ids.size());
    inner(std::move(chunk));
  };
  ASSERT_TRUE(core_->Submit(std::move(arrival)).ok());
  RunAll();
  EXPECT_EQ(results_.at({1, 0}).tokens, Continue({1}, 7));
  EXPECT_GT(executor_.steps[2].rows[0].drafts.size(), 0u);
  EXPECT_EQ(delivered_before, (std::vector<int>{0, 0, 1, 2, 3, 4, 5}));
}

class LongPrompts : public EngineCoreTest {};

// The second and the third choice begin in the same step.
TEST_F(LongPrompts, AreIndexedOneAfterAnother) {
  executor_.limits_.max_context = kMostIndexed;
  executor_.limits_.cache.num_device_blocks = kMostIndexed;
  executor_.limits_.max_step_drafts = 6;
  EngineCoreOptions options;
  options.drafts = {.most = 2, .always = true};
  Start(options);
  // The first drawn token, 30, follows 29, as it does at the begin of the prompt.
  std::vector<TokenId> prompt(3 * kMostIndexed / 4, 40);
  prompt[0] = prompt.back() = 29;
  prompt[1] = 30;
  prompt[2] = 31;
  prompt[3] = 0;
  prompt[3] = (130 - std::accumulate(prompt.begin(), prompt.end(), 0) % 100) % 100;
  Arrival arrival = Make(1, prompt, 4);
  arrival.sampling.n = 3;
  ASSERT_TRUE(core_->Submit(std::move(arrival)).ok());
  RunAll();
  std::map<SequenceSlotId, TokenId> first;  // drafts
  for (const StepInput& step : executor_.steps) {
    for (const StepRow& row : step.rows) {
      if (!row.drafts.empty()) first.emplace(row.slot, row.drafts[0]);
    }
  }
  // Without a match, drafts repeat the last token.
  EXPECT_EQ(first, (std::map<SequenceSlotId, TokenId>{{0, 31}, {1, 31}, {2, 30}}));
}

}  // namespace
}  // namespace tokamak
