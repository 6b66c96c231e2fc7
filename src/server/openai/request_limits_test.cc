#include "server/openai/request_limits.h"
#include "server/openai/status_response.h"

#include <gtest/gtest.h>

#include <string>

namespace tokamak {
namespace {

std::string Refusal(const RequestLimits& limits, CompletionRequest request) {
  const Status status = ApplyLimits(limits, request);
  EXPECT_TRUE(status.ok() || status.code() == StatusCode::kInvalidArgument);
  return LeadingPath(status.message());
}

CompletionRequest TwoPrompts() {
  CompletionRequest request;
  request.prompts = {"a", "b"};
  return request;
}

TEST(RequestLimits, CountChoicesOfAllPrompts) {
  const RequestLimits limits = {.max_choices = 4};
  CompletionRequest request = TwoPrompts();
  request.sampling.n = 2;
  EXPECT_EQ(Refusal(limits, request), "");
  request.sampling.n = 3;
  EXPECT_EQ(Refusal(limits, request), "n");
  request.sampling.n = INT32_MAX;
  EXPECT_EQ(Refusal(limits, request), "n");
  request.sampling.n = -1;  // refused elsewhere, because it is not too many
  EXPECT_EQ(Refusal(limits, request), "");
  CompletionRequest chat;
  chat.chat = true;
  chat.sampling.n = 5;
  EXPECT_EQ(Refusal(limits, chat), "n");
}

TEST(RequestLimits, CapOutputTokens) {
  const RequestLimits limits = {.max_output_tokens = 10};
  CompletionRequest request = TwoPrompts();
  ASSERT_TRUE(ApplyLimits(limits, request).ok());
  EXPECT_EQ(request.sampling.max_tokens, 10);
  request.sampling.max_tokens = 16;  // a default
  ASSERT_TRUE(ApplyLimits(limits, request).ok());
  EXPECT_EQ(request.sampling.max_tokens, 10);
  request.sampling.max_tokens = 11;
  request.max_tokens_given = true;
  EXPECT_EQ(Refusal(limits, request), "max_tokens");
  EXPECT_EQ(Refusal({}, request), "");
  request = TwoPrompts();
  ASSERT_TRUE(ApplyLimits({}, request).ok());
  EXPECT_FALSE(request.sampling.max_tokens);
}

TEST(RequestLimits, BoundLists) {
  CompletionRequest request = TwoPrompts();
  request.sampling.stop.assign(kMaxStops, std::string(kMaxStopBytes, 'a'));
  request.sampling.logit_bias.assign(kMaxLogitBias, {0, 0.0F});
  request.cache_salt.assign(kMaxCacheSaltBytes, 'a');
  EXPECT_EQ(Refusal({}, request), "");
  CompletionRequest worse = request;
  worse.sampling.stop.emplace_back("a");
  EXPECT_EQ(Refusal({}, worse), "stop");
  worse = request;
  worse.sampling.stop[5] += 'a';
  EXPECT_EQ(Refusal({}, worse), "stop[5]");
  worse = request;
  worse.sampling.logit_bias.emplace_back(0, 0.0F);
  EXPECT_EQ(Refusal({}, worse), "logit_bias");
  worse = request;
  worse.cache_salt += 'a';
  EXPECT_EQ(Refusal({}, worse), "cache_salt");
}

TEST(CheckJsonShape, CountsLevelsAndValuesOutsideOfStrings) {
  const auto nested = [](int depth) {
    return std::string(static_cast<size_t>(depth), '[') +
           std::string(static_cast<size_t>(depth), ']');
  };
  EXPECT_TRUE(CheckJsonShape(nested(kMaxJsonDepth)).ok());
  EXPECT_FALSE(CheckJsonShape(nested(kMaxJsonDepth + 1)).ok());
  EXPECT_TRUE(CheckJsonShape("[\"" + nested(100) + "\\\"" + nested(100) + "\"]").ok());
  EXPECT_FALSE(CheckJsonShape("[\"\\\\\"," + nested(100) + "]").ok());
  EXPECT_TRUE(CheckJsonShape("\"\\").ok());
  std::string flat = "[1";
  for (size_t i = 3; i < kMaxJsonValues; ++i) flat += ",1";
  EXPECT_TRUE(CheckJsonShape(flat + "]").ok());
  EXPECT_FALSE(CheckJsonShape(flat + ",1,1]").ok());
  std::string objects = "[";
  for (size_t i = 0; i < kMaxJsonValues / 2; ++i) objects += "{},";
  EXPECT_FALSE(CheckJsonShape(objects + "{}]").ok());
}

}  // namespace
}  // namespace tokamak
