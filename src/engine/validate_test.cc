#include <gtest/gtest.h>

#include <functional>
#include <limits>

#include "tokamak/sampling_params.h"

namespace tokamak {
namespace {

constexpr int32_t kVocab = 1000;
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

// The error message after `change` is applied to the defaults; empty if accepted.
std::string Refusal(const std::function<void(SamplingParams&)>& change) {
  SamplingParams params;
  change(params);
  const Status status = Validate(params, kVocab);
  EXPECT_TRUE(status.ok() || status.code() == StatusCode::kInvalidArgument);
  return std::string(status.message());
}

TEST(Validate, AcceptsDefaultsAndEveryBound) {
  EXPECT_EQ(Refusal([](auto&) {}), "");
  EXPECT_EQ(Refusal([](auto& p) {
              p.temperature = 0;
              p.top_p = p.typical_p = std::numeric_limits<float>::denorm_min();
              p.min_p = p.xtc_probability = p.xtc_threshold = 1;
              p.dynatemp_range = p.dynatemp_exponent = p.top_n_sigma =
                  std::numeric_limits<float>::max();
              p.repetition_penalty = std::numeric_limits<float>::max();
              p.presence_penalty = -2;
              p.frequency_penalty = 2;
              p.repeat_last_n = 65535;
              p.bad_words = {" a", "\n"};
              p.bad_words_ids = {{0}, {kVocab - 1, 3}};
              p.allowed_token_ids = {0, kVocab - 1, 0};
              p.logit_bias = {{0, -100.0f}, {kVocab - 1, 100.0f}};
              p.top_k = std::numeric_limits<int32_t>::max();
              p.n = 128;
              p.max_tokens = 5;
              p.min_tokens = 5;
              p.thinking_token_budget = 0;
              p.logprobs = 0;
              p.prompt_logprobs = 20;
              p.stop = {"x"};
              p.stop_token_ids = {0, kVocab - 1};
            }),
            "");
}

TEST(Validate, NamesTheFieldFirst) {
  using P = SamplingParams&;
  for (const float bad : {kNan, kInf, -1.0f}) {
    EXPECT_TRUE(Refusal([&](P p) { p.temperature = bad; }).starts_with("temperature: "));
    EXPECT_TRUE(Refusal([&](P p) { p.dynatemp_range = bad; }).starts_with("dynatemp_range: "));
    EXPECT_TRUE(
        Refusal([&](P p) { p.dynatemp_exponent = bad; }).starts_with("dynatemp_exponent: "));
    EXPECT_TRUE(Refusal([&](P p) { p.top_n_sigma = bad; }).starts_with("top_n_sigma: "));
    EXPECT_TRUE(Refusal([&](P p) { p.xtc_probability = bad; }).starts_with("xtc_probability: "));
    EXPECT_TRUE(Refusal([&](P p) { p.xtc_threshold = bad; }).starts_with("xtc_threshold: "));
    EXPECT_TRUE(Refusal([&](P p) { p.top_p = bad; }).starts_with("top_p: "));
    EXPECT_TRUE(Refusal([&](P p) { p.min_p = bad; }).starts_with("min_p: "));
    EXPECT_TRUE(Refusal([&](P p) { p.typical_p = bad; }).starts_with("typical_p: "));
    EXPECT_TRUE(
        Refusal([&](P p) { p.repetition_penalty = bad; }).starts_with("repetition_penalty: "));
  }
  for (const float bad : {kNan, kInf, -2.5f, 2.5f}) {
    EXPECT_TRUE(Refusal([&](P p) { p.presence_penalty = bad; }).starts_with("presence_penalty: "));
    EXPECT_TRUE(
        Refusal([&](P p) { p.frequency_penalty = bad; }).starts_with("frequency_penalty: "));
  }
  for (const float bad : {kNan, kInf, -kInf, 100.5f}) {
    EXPECT_TRUE(Refusal([&](P p) {
                  p.logit_bias = {{1, 0.0f}, {2, bad}};
                }).starts_with("logit_bias.2: "));
  }
  EXPECT_TRUE(Refusal([](P p) { p.top_p = 0; }).starts_with("top_p: must be in (0, 1], got 0"));
  EXPECT_TRUE(Refusal([](P p) { p.top_k = -1; }).starts_with("top_k: "));
  EXPECT_TRUE(Refusal([](P p) { p.repeat_last_n = -2; }).starts_with("repeat_last_n: "));
  EXPECT_TRUE(Refusal([](P p) { p.repeat_last_n = 65536; }).starts_with("repeat_last_n: "));
  EXPECT_TRUE(Refusal([](P p) {
                p.allowed_token_ids = {1, kVocab};
              }).starts_with("allowed_token_ids[1]: "));
  EXPECT_TRUE(Refusal([](P p) { p.dry_multiplier = -0.1f; }).starts_with("dry_multiplier: "));
  EXPECT_TRUE(Refusal([](P p) { p.dry_base = 0.99f; }).starts_with("dry_base: "));
  EXPECT_TRUE(
      Refusal([](P p) { p.dry_allowed_length = 1025; }).starts_with("dry_allowed_length: "));
  EXPECT_TRUE(Refusal([](P p) { p.dry_penalty_last_n = -2; }).starts_with("dry_penalty_last_n: "));
  EXPECT_TRUE(Refusal([](P p) {
                p.dry_sequence_breakers = {"a", ""};
              }).starts_with("dry_sequence_breakers[1]: "));
  EXPECT_TRUE(Refusal([](P p) {
                p.dry_sequence_breakers.assign(65, "a");
              }).starts_with("dry_sequence_breakers: "));
  EXPECT_TRUE(
      Refusal([](P p) { p.dry_breaker_tokens = {kVocab}; }).starts_with("dry_breaker_tokens[0]: "));
  EXPECT_TRUE(Refusal([](P p) {
                p.dry_breaker_sequences = {{1, 2}, {3}};
              }).starts_with("dry_breaker_sequences[1]: "));
  EXPECT_TRUE(Refusal([](P p) { p.bad_words = {"a", " "}; }).starts_with("bad_words[1]: "));
  EXPECT_TRUE(Refusal([](P p) { p.bad_words.assign(1025, "a"); }).starts_with("bad_words: "));
  EXPECT_TRUE(Refusal([](P p) { p.bad_words_ids = {{1}, {}}; }).starts_with("bad_words_ids[1]: "));
  EXPECT_TRUE(Refusal([](P p) {
                p.bad_words_ids = {{1}, {2, -1}};
              }).starts_with("bad_words_ids[1][1]: "));
  EXPECT_TRUE(Refusal([](P p) { p.n = 0; }).starts_with("n: "));
  EXPECT_TRUE(Refusal([](P p) { p.n = 129; }).starts_with("n: "));
  EXPECT_TRUE(Refusal([](P p) { p.max_tokens = -1; }).starts_with("max_tokens: "));
  EXPECT_TRUE(Refusal([](P p) { p.min_tokens = -1; }).starts_with("min_tokens: "));
  EXPECT_TRUE(Refusal([](P p) {
                p.max_tokens = 3;
                p.min_tokens = 4;
              }).starts_with("min_tokens: 4 is more than max_tokens, 3"));
  EXPECT_TRUE(
      Refusal([](P p) { p.thinking_token_budget = -1; }).starts_with("thinking_token_budget: "));
  EXPECT_TRUE(Refusal([](P p) { p.logprobs = 21; }).starts_with("logprobs: "));
  EXPECT_TRUE(Refusal([](P p) { p.logprobs = -1; }).starts_with("logprobs: "));
  EXPECT_TRUE(Refusal([](P p) { p.prompt_logprobs = 21; }).starts_with("prompt_logprobs: "));
  EXPECT_TRUE(Validate({.logprobs = 21, .prompt_logprobs = 30}, kVocab, 30).ok());
  EXPECT_EQ(Validate({.prompt_logprobs = 31}, kVocab, 30).message(),
            "prompt_logprobs: must be in [0, 30], got 31");
  EXPECT_TRUE(Refusal([](P p) { p.stop = {"a", ""}; }).starts_with("stop[1]: "));
  EXPECT_TRUE(Refusal([](P p) { p.stop.assign(65, "a"); }).starts_with("stop: "));
  EXPECT_TRUE(Refusal([](P p) { p.stop = {std::string(5000, 'a')}; }).starts_with("stop[0]: "));
  EXPECT_TRUE(Refusal([](P p) { p.stop_token_ids = {kVocab}; }).starts_with("stop_token_ids[0]: "));
  EXPECT_TRUE(Refusal([](P p) { p.logit_bias = {{-1, 0.0f}}; }).starts_with("logit_bias.-1: "));
  EXPECT_TRUE(Refusal([](P p) { p.logit_bias.resize(5000); }).starts_with("logit_bias: "));
}

TEST(Validate, BeamSearch) {
  using P = SamplingParams&;
  const auto refusal = [](
                           BeamSearchParams beams,
                           const std::function<void(P)>& change = [](P) {}) {
    return Refusal([&](P p) {
      p.beam_search = beams;
      change(p);
    });
  };
  EXPECT_EQ(refusal({.width = 1}), "");
  EXPECT_EQ(refusal({.width = 128, .length_penalty = -100}, [](P p) { p.n = 128; }), "");
  EXPECT_TRUE(refusal({.width = 0}).starts_with("beam_search.width: "));
  EXPECT_TRUE(refusal({.width = 129}).starts_with("beam_search.width: "));
  EXPECT_EQ(refusal({.width = 3}, [](P p) { p.n = 4; }),
            "beam_search.width: must be in [4, 128], got 3");
  for (const float bad : {kNan, kInf, 100.5f}) {
    EXPECT_TRUE(refusal({.length_penalty = bad}).starts_with("length_penalty: "));
  }
  EXPECT_EQ(refusal({}, [](P p) { p.max_tokens = 0; }),
            "max_tokens: must be at least 1 with beam search, got 0");
}

TEST(SamplingDefaults, OverrideWhatIsGiven) {
  SamplingDefaults defaults = {.temperature = 0.5f, .top_k = 7};
  defaults.Override({.top_n_sigma = 1.5f,
                     .top_k = 8,
                     .repeat_last_n = 64,
                     .dry_sequence_breakers = std::vector<std::string>{"\n", "a"}});
  EXPECT_EQ(defaults.ToString(),
            "temperature 0.5, top_n_sigma 1.5, top_k 8, repeat_last_n 64, "
            "dry_sequence_breakers [\"\\n\", \"a\"]");
  SamplingParams params;
  defaults.ApplyTo(params);
  SamplingParams expected;
  expected.temperature = 0.5f;
  expected.top_n_sigma = 1.5f;
  expected.top_k = 8;
  expected.repeat_last_n = 64;
  expected.dry_sequence_breakers = {"\n", "a"};
  EXPECT_EQ(params, expected);
}

TEST(SamplingDefaults, ApplyOnlyToUnsetFields) {
  SamplingParams params;
  params.presence_penalty = 0.5f;
  SamplingDefaults().ApplyTo(params);
  EXPECT_EQ(SamplingDefaults().ToString(), "");
  EXPECT_EQ(params.typical_p, SamplingParams().typical_p);
  const SamplingDefaults defaults = {.temperature = 0.5f,
                                     .top_k = 7,
                                     .top_p = 0.75f,
                                     .min_p = 0.125f,
                                     .typical_p = 0.25f,
                                     .repetition_penalty = 1.5f,
                                     .max_tokens = 100};
  defaults.ApplyTo(params);
  EXPECT_EQ(params.temperature, 0.5f);
  EXPECT_EQ(params.top_k, 7);
  EXPECT_EQ(params.top_p, 0.75f);
  EXPECT_EQ(params.min_p, 0.125f);
  EXPECT_EQ(params.typical_p, 0.25f);
  EXPECT_EQ(params.repetition_penalty, 1.5f);
  EXPECT_EQ(params.max_tokens, 100);
  EXPECT_EQ(params.presence_penalty, 0.5f);
  EXPECT_EQ(defaults.ToString(),
            "temperature 0.5, top_k 7, top_p 0.75, min_p 0.125, typical_p 0.25, "
            "repetition_penalty 1.5, max_tokens 100");
}

}  // namespace
}  // namespace tokamak
