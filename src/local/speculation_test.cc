// Speculative decoding from the engine down to the kernels changes no bit of an answer.
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "base/testing/manual_clock.h"
#include "engine/engine_core.h"
#include "executor/in_process.h"
#include "local/structured_output.h"
#include "ops/cpu/cpu_ops.h"
#include "ops/cuda/cuda_ops.h"
#include "runner/testing/toy_model.h"

namespace tokamak {
namespace {

enum class Drafts { kText, kOfTheModel, kOfAnotherModel };

struct Case {
  bool cuda = false;
  int depth = 1;
  Drafts drafts = Drafts::kText;
};

void PrintTo(const Case& c, std::ostream* out) {
  constexpr const char* kDrafts[] = {"", "_itself", "_another_model"};
  *out << (c.cuda ? "cuda" : "cpu") << "_depth_" << c.depth << kDrafts[static_cast<int>(c.drafts)];
}

Result<std::unique_ptr<Ops>> MakeOps(const Case& c) {
  return c.cuda ? MakeCudaOps({.threads = 1}) : MakeCpuOps({.threads = 1});
}

std::unique_ptr<Executor> MakeExecutor(const Case& c, const testing::ToyConfig& config = {}) {
  std::unique_ptr<Ops> ops = *MakeOps(c);
  std::unique_ptr<const Model> model = testing::MakeToyModel(*ops, config), draft;
  if (c.drafts != Drafts::kText) {
    draft = testing::MakeToyModel(*ops, {.seed = c.drafts == Drafts::kOfTheModel ? 1u : 2u});
  }
  auto executor = MakeInProcessExecutor(
      std::move(ops), std::move(model),
      {.max_seqs = 4,
       .max_step_tokens = 40,
       .max_step_drafts = 16,
       .max_context = 80,
       .depth = c.depth},
      {.arena_bytes = 16 << 20, .num_device_blocks = 60, .num_host_blocks = 4}, std::move(draft));
  CHECK_MSG(executor.ok(), executor.status().ToString());
  return *std::move(executor);
}

struct Answer {
  std::vector<TokenId> tokens;
  std::vector<TokenLogprobs> logprobs;
  std::string error;
  friend bool operator==(const Answer&, const Answer&) = default;
};
void PrintTo(const Answer& answer, std::ostream* out) {
  *out << answer.tokens.size() << " tokens, error \"" << answer.error << "\"";
}

// Allows all texts of the letters a and b. Each a among the last 250 letters is another place where
// the last part may begin, so masks become harder from token to token.
const StructuredOutput kHardGrammar = {.kind = StructuredOutput::Kind::kRegex,
                                       .text = "(a|b)*a(a|b){250}"};

Arrival MakeArrival(RequestId id) {
  const auto i = static_cast<int32_t>(id);
  Arrival arrival;
  arrival.id = id;
  for (int32_t j = 0; j < 12; ++j) arrival.prompt.push_back(20 + i + j % 3);  // repeats
  SamplingParams& sampling = arrival.sampling;
  sampling.temperature = i % 3 == 0 ? 0.3f : 0.0f;
  sampling.seed = id;
  sampling.max_tokens = 32;
  if (i % 4 == 1) sampling.repetition_penalty = 1.02f, sampling.frequency_penalty = 0.02f;
  if (i == 5) sampling.repeat_last_n = 7;
  if (i % 4 == 2) sampling.logit_bias = {{21, 0.5f}, {40, -1.0f}};
  if (i == 2) sampling.bad_words_ids = {{3}, {21, 21}, {40, 21, 5}};
  if (i == 3)
    sampling.dynatemp_range = 0.2f, sampling.top_n_sigma = 3, sampling.xtc_probability = 0.2f;
  if (i % 2 == 1) sampling.logprobs = 3;
  return arrival;
}

// The clock stands still, so drafts cost nothing and the engine always drafts if it can.
std::map<RequestId, Answer> RunAll(const Case& c, int32_t most_drafts, EngineStats* stats,
                                   const testing::ToyConfig& config = {},
                                   ConstraintMaker* grammars = nullptr) {
  const std::unique_ptr<Executor> executor = MakeExecutor(c, config);
  ManualClock clock;
  EngineCoreOptions options;
  options.max_seqs = 4;
  options.max_step_tokens = 40;
  options.drafts.most = most_drafts;
  options.drafts.always = most_drafts > 0;
  options.drafts.from_model = c.drafts != Drafts::kText;
  auto core = EngineCore::Create(options, &clock, executor.get());
  CHECK_MSG(core.ok(), core.status().ToString());
  std::map<RequestId, Answer> answers;
  const RequestId last = grammars != nullptr ? 2 : 6;
  for (RequestId id = 1; id <= last; ++id) {
    Arrival arrival = MakeArrival(id);
    if (grammars != nullptr) {
      arrival.sampling.structured_output = kHardGrammar;
      arrival.sampling.logit_bias = {{static_cast<TokenId>(id), 100.0f}};  // repeats this token
      arrival.constraints = *grammars->Make(kHardGrammar, 1);
    }
    arrival.on_output = [&answers](OutputChunk chunk) {
      Answer& answer = answers[chunk.request];
      answer.tokens.insert(answer.tokens.end(), chunk.token_ids.begin(), chunk.token_ids.end());
      answer.logprobs.insert(answer.logprobs.end(), chunk.logprobs.begin(), chunk.logprobs.end());
      if (!chunk.error.ok()) answer.error = chunk.error.ToString();
    };
    const Status status = (*core)->Submit(std::move(arrival));
    EXPECT_TRUE(status.ok()) << status.ToString();
  }
  while ((*core)->HasWork()) (*core)->Step();
  *stats = (*core)->stats(clock.Now());
  return answers;
}

class Speculation : public ::testing::TestWithParam<Case> {};

TEST_P(Speculation, ChangesNoAnswer) {
  if (const auto ops = MakeOps(GetParam()); !ops.ok()) {
    GTEST_SKIP() << "no CUDA backend here: " << ops.status().ToString();
  }
  EngineStats plain, drafted;
  const auto expected = RunAll(GetParam(), 0, &plain);
  const auto actual = RunAll(GetParam(), 4, &drafted);
  ASSERT_EQ(expected.size(), 6u);
  for (const auto& [id, answer] : expected) {
    EXPECT_EQ(answer.tokens.size(), 32u);
    EXPECT_EQ(answer.error, "");
    EXPECT_EQ(actual.at(id), answer) << "request " << id;
  }
  EXPECT_EQ(plain.drafts, 0);
  if (GetParam().drafts == Drafts::kOfTheModel) {
    EXPECT_GT(drafted.accepted_drafts, 100);  // of 192 tokens
    EXPECT_EQ(drafted.drafts, drafted.accepted_drafts);
  } else {
    EXPECT_GT(drafted.accepted_drafts, GetParam().drafts == Drafts::kText ? 3 : 0);
    EXPECT_GT(drafted.drafts, drafted.accepted_drafts);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Backends, Speculation,
    ::testing::Values(Case{.depth = 1}, Case{.depth = 2}, Case{.depth = 4},
                      Case{.cuda = true, .depth = 1}, Case{.cuda = true, .depth = 2},
                      Case{.depth = 1, .drafts = Drafts::kOfTheModel},
                      Case{.depth = 2, .drafts = Drafts::kOfTheModel},
                      Case{.depth = 4, .drafts = Drafts::kOfTheModel},
                      Case{.depth = 2, .drafts = Drafts::kOfAnotherModel},
                      Case{.depth = 4, .drafts = Drafts::kOfAnotherModel},
                      Case{.cuda = true, .drafts = Drafts::kOfAnotherModel},
                      Case{.cuda = true, .depth = 2, .drafts = Drafts::kOfTheModel},
                      Case{.cuda = true, .depth = 4, .drafts = Drafts::kOfTheModel}),
    ::testing::PrintToStringParamName());

// Looks ahead for drafts must not carry an answer beyond the bound on its grammar's work.
TEST(SpeculationWithGrammar, EndsAnAnswerAtItsBoundAtTheSameToken) {
  constexpr int32_t kTokens = 416;
  std::mt19937 random(3);
  std::vector<std::string> texts(kTokens);
  for (std::string& text : texts) {
    for (size_t i = 9 + random() % 8; i > 0; --i) text += random() % 2 == 0 ? 'a' : 'b';
  }
  const auto tokens = MakeConstraintTokens(texts, [](int32_t) { return false; });
  for (const int depth : {1, 2}) {
    SCOPED_TRACE(depth);
    const auto run = [&](int32_t most_drafts, EngineStats* stats) {
      ConstraintMaker grammars(tokens);
      return RunAll({.depth = depth}, most_drafts, stats, {.vocab_size = kTokens}, &grammars);
    };
    EngineStats plain, drafted;
    const auto expected = run(0, &plain);
    EXPECT_EQ(run(4, &drafted), expected);
    ASSERT_EQ(expected.size(), 2u);
    for (const auto& [id, answer] : expected) {
      EXPECT_NE(answer.error.find("too ambiguous"), std::string::npos) << answer.error;
      EXPECT_GT(answer.tokens.size(), 3u);
      EXPECT_LT(answer.tokens.size(), 32u);
    }
    EXPECT_GT(drafted.accepted_drafts, 0);
  }
}

}  // namespace
}  // namespace tokamak
