#include "server/openai/request_limits.h"
#include "server/errors.h"

#include <gtest/gtest.h>

#include <string>

namespace tokamak {
namespace {

std::string Refusal(const RequestLimits& limits, CompletionCall call) {
  const Status status = ApplyLimits(limits, call);
  EXPECT_TRUE(status.ok() || status.code() == StatusCode::kInvalidArgument);
  return LeadingPath(status.message());
}

CompletionCall Call() {
  CompletionCall call;
  call.prompts = {"a", "b"};
  return call;
}

TEST(RequestLimits, CountChoicesOfAllPrompts) {
  const RequestLimits limits = {.max_choices = 4};
  CompletionCall call = Call();
  call.sampling.n = 2;
  EXPECT_EQ(Refusal(limits, call), "");
  call.sampling.n = 3;
  EXPECT_EQ(Refusal(limits, call), "n");
  call.sampling.n = INT32_MAX;
  EXPECT_EQ(Refusal(limits, call), "n");
  call.sampling.n = -1;  // wrong, but not too many: that is said elsewhere
  EXPECT_EQ(Refusal(limits, call), "");
  CompletionCall chat;
  chat.chat = true;
  chat.sampling.n = 5;
  EXPECT_EQ(Refusal(limits, chat), "n");
}

TEST(RequestLimits, CapOutputTokens) {
  const RequestLimits limits = {.max_output_tokens = 10};
  CompletionCall call = Call();
  ASSERT_TRUE(ApplyLimits(limits, call).ok());
  EXPECT_EQ(call.sampling.max_tokens, 10);
  call.sampling.max_tokens = 16;  // a default: nobody asked for it
  ASSERT_TRUE(ApplyLimits(limits, call).ok());
  EXPECT_EQ(call.sampling.max_tokens, 10);
  call.sampling.max_tokens = 11;
  call.max_tokens_given = true;
  EXPECT_EQ(Refusal(limits, call), "max_tokens");
  EXPECT_EQ(Refusal({}, call), "");
  call = Call();
  ASSERT_TRUE(ApplyLimits({}, call).ok());
  EXPECT_FALSE(call.sampling.max_tokens);
}

TEST(RequestLimits, BoundLists) {
  CompletionCall call = Call();
  call.sampling.stop.assign(kMaxStops, std::string(kMaxStopBytes, 'a'));
  call.sampling.logit_bias.assign(kMaxLogitBias, {0, 0.0F});
  call.cache_salt.assign(kMaxCacheSaltBytes, 'a');
  EXPECT_EQ(Refusal({}, call), "");
  CompletionCall worse = call;
  worse.sampling.stop.emplace_back("a");
  EXPECT_EQ(Refusal({}, worse), "stop");
  worse = call;
  worse.sampling.stop[5] += 'a';
  EXPECT_EQ(Refusal({}, worse), "stop[5]");
  worse = call;
  worse.sampling.logit_bias.emplace_back(0, 0.0F);
  EXPECT_EQ(Refusal({}, worse), "logit_bias");
  worse = call;
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
