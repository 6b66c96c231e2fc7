#include "tokamak/sampling_params.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

namespace tokamak {
namespace {

constexpr int32_t kVocab = 100;
constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr int32_t kMin = std::numeric_limits<int32_t>::min();
constexpr int32_t kMax = std::numeric_limits<int32_t>::max();

TEST(SamplingParams, AcceptsDefaultsAndTheEndsOfEveryRange) {
  EXPECT_TRUE(Validate({}, kVocab).ok());
  const SamplingParams low{.temperature = 0,
                           .top_p = std::numeric_limits<float>::denorm_min(),
                           .typical_p = std::numeric_limits<float>::denorm_min(),
                           .repetition_penalty = std::numeric_limits<float>::min(),
                           .presence_penalty = -2,
                           .frequency_penalty = -2,
                           .logit_bias = {{0, -100.0f}},
                           .seed = 0,
                           .max_tokens = 0,
                           .logprobs = 0,
                           .prompt_logprobs = 0};
  EXPECT_TRUE(Validate(low, kVocab).ok());
  const SamplingParams high{.temperature = 10000,
                            .top_k = kMax,
                            .min_p = 1,
                            .repetition_penalty = 10000,
                            .presence_penalty = 2,
                            .frequency_penalty = 2,
                            .logit_bias = {{kVocab - 1, 100.0f}},
                            .seed = UINT64_MAX,
                            .n = 128,
                            .max_tokens = kMax,
                            .min_tokens = kMax,
                            .stop = {std::string(16384, 'x')},
                            .stop_token_ids = {0, kVocab - 1},
                            .logprobs = 20,
                            .prompt_logprobs = 20};
  EXPECT_TRUE(Validate(high, kVocab).ok());
}

TEST(SamplingParams, NamesTheFieldThatIsOutOfRange) {
  struct Case {
    const char* field;
    std::function<void(SamplingParams&)> spoil;
  };
  std::vector<Case> cases = {
      {"top_k", [](auto& p) { p.top_k = -1; }},
      {"top_k", [](auto& p) { p.top_k = kMin; }},
      {"top_p", [](auto& p) { p.top_p = 0; }},
      {"top_p", [](auto& p) { p.top_p = 1.001f; }},
      {"min_p", [](auto& p) { p.min_p = 1.5f; }},
      {"typical_p", [](auto& p) { p.typical_p = 0; }},
      {"repetition_penalty", [](auto& p) { p.repetition_penalty = 0; }},
      {"presence_penalty", [](auto& p) { p.presence_penalty = 2.5f; }},
      {"frequency_penalty", [](auto& p) { p.frequency_penalty = -2.5f; }},
      {"logit_bias",
       [](auto& p) {
         p.logit_bias = {{kVocab, 0.0f}};
       }},
      {"logit_bias",
       [](auto& p) {
         p.logit_bias = {{-1, 0.0f}};
       }},
      {"logit_bias",
       [](auto& p) {
         p.logit_bias = {{0, std::nanf("")}};
       }},
      {"logit_bias", [](auto& p) { p.logit_bias.resize(1025); }},
      {"n", [](auto& p) { p.n = 0; }},
      {"n", [](auto& p) { p.n = 129; }},
      {"n", [](auto& p) { p.n = kMin; }},
      {"max_tokens", [](auto& p) { p.max_tokens = -1; }},
      {"min_tokens", [](auto& p) { p.min_tokens = -1; }},
      {"min_tokens", [](auto& p) { p.min_tokens = 5, p.max_tokens = 4; }},
      {"stop", [](auto& p) { p.stop = {""}; }},
      {"stop", [](auto& p) { p.stop.assign(65, "x"); }},
      {"stop", [](auto& p) { p.stop = {std::string(16385, 'x')}; }},
      {"stop_token_ids", [](auto& p) { p.stop_token_ids = {kVocab}; }},
      {"stop_token_ids", [](auto& p) { p.stop_token_ids.resize(1025); }},
      {"logprobs", [](auto& p) { p.logprobs = 21; }},
      {"prompt_logprobs", [](auto& p) { p.prompt_logprobs = -1; }},
  };
  for (const float bad : {std::nanf(""), kInf, -kInf, -1e30f}) {
    cases.push_back({"temperature", [bad](auto& p) { p.temperature = bad; }});
    cases.push_back({"top_p", [bad](auto& p) { p.top_p = bad; }});
    cases.push_back({"min_p", [bad](auto& p) { p.min_p = bad; }});
    cases.push_back({"typical_p", [bad](auto& p) { p.typical_p = bad; }});
    cases.push_back({"repetition_penalty", [bad](auto& p) { p.repetition_penalty = bad; }});
    cases.push_back({"presence_penalty", [bad](auto& p) { p.presence_penalty = bad; }});
    cases.push_back({"frequency_penalty", [bad](auto& p) { p.frequency_penalty = bad; }});
  }
  for (const Case& c : cases) {
    SamplingParams params;
    c.spoil(params);
    const Status status = Validate(params, kVocab);
    ASSERT_FALSE(status.ok()) << c.field;
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_TRUE(status.message().starts_with(std::string(c.field) + ": ")) << status.message();
  }
}

}  // namespace
}  // namespace tokamak
