// Tests what /v1/embeddings reads and writes.
#include "server/openai/embedding_request.h"

#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>

#include "server/openai/request.h"
#include "server/openai/request_limits.h"
#include "server/openai/status_response.h"

namespace tokamak {
namespace {

using Json = nlohmann::json;

TEST(OpenAiEmbeddingRequest, ReadsEveryFormOfInput) {
  const auto texts = [](const std::string& input) {
    const auto request = ParseEmbeddingRequest(R"({"input": )" + input + "}");
    EXPECT_TRUE(request.ok()) << request.status().ToString();
    return request->engine_request.inputs;
  };
  EXPECT_EQ(texts(R"("a")")[0].text, "a");
  EXPECT_EQ(texts(R"("")")[0].text, "");
  EXPECT_EQ(texts(R"(["a", ""])")[1].text, "");
  EXPECT_EQ(texts("[1, 2]")[0].token_ids, (std::vector<int32_t>{1, 2}));
  EXPECT_EQ(texts("[[1, 2], [3]]")[1].token_ids, (std::vector<int32_t>{3}));
  EXPECT_EQ(texts(R"([[1], "a"])")[1].text, "a");
}

TEST(OpenAiEmbeddingRequest, ReadsItsOptions) {
  const auto request = ParseEmbeddingRequest(
      R"({"input": "a", "model": "m", "encoding_format": "base64", "dimensions": 7,
          "truncate_prompt_tokens": -1, "prompt_name": "query", "add_special_tokens": false,
          "timings": true, "user": "me", "mood": 1})");
  ASSERT_TRUE(request.ok()) << request.status().ToString();
  EXPECT_EQ(request->model, "m");
  EXPECT_TRUE(request->base64);
  EXPECT_TRUE(request->timings);
  EXPECT_EQ(request->engine_request.dimensions, 7);
  EXPECT_EQ(request->engine_request.truncate_prompt_tokens, -1);
  EXPECT_EQ(request->engine_request.prompt_name, "query");
  EXPECT_FALSE(request->engine_request.add_special_tokens);
  EXPECT_EQ(request->unknown_fields, std::vector<std::string>{"mood"});
}

TEST(OpenAiEmbeddingRequest, NamesThePath) {
  std::string many = R"({"input": [)";
  for (size_t i = 0; i <= kMaxEmbeddingInputs; ++i) many += i == 0 ? "\"a\"" : ",\"a\"";
  many += "]}";
  const std::map<std::string, std::string> cases = {
      {"{}", "input"},
      {R"({"input": null})", "input"},
      {R"({"input": 5})", "input"},
      {R"({"input": {"a": 1}})", "input"},
      {R"({"input": []})", "input"},
      {R"({"input": [[]]})", "input[0]"},
      {R"({"input": ["a", 5]})", "input[1]"},
      {R"({"input": [5, "a"]})", "input[1]"},
      {R"({"input": [[5, 1.5]]})", "input[0][1]"},
      {R"({"input": [4294967296]})", "input[0]"},
      {many, "input"},
      {R"({"input": "a", "model": 1})", "model"},
      {R"({"input": "a", "encoding_format": "hex"})", "encoding_format"},
      {R"({"input": "a", "encoding_format": 1})", "encoding_format"},
      {R"({"input": "a", "dimensions": 0})", "dimensions"},
      {R"({"input": "a", "dimensions": "8"})", "dimensions"},
      {R"({"input": "a", "truncate_prompt_tokens": true})", "truncate_prompt_tokens"},
      {R"({"input": "a", "prompt_name": 1})", "prompt_name"},
  };
  for (const auto& [body, path] : cases) {
    const auto request = ParseEmbeddingRequest(body);
    ASSERT_FALSE(request.ok()) << body;
    EXPECT_EQ(request.status().code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(LeadingPath(request.status().message()), path) << request.status().ToString();
  }
}

TEST(OpenAiEmbeddingRequest, AnswersHaveOpenAisForm) {
  EmbeddingOutput output;
  output.vectors = {{1.0f, -0.25f}, {0.1f, 3e-9f}};
  output.usage.prompt_tokens = 12;
  const Json json = Json::parse(FormatEmbeddings({"a \"model\"", "fp_1", false, true}, output));
  EXPECT_EQ(json["object"], "list");
  EXPECT_EQ(json["model"], "a \"model\"");
  EXPECT_EQ(json["usage"], Json({{"prompt_tokens", 12}, {"total_tokens", 12}}));
  EXPECT_EQ(json["data"][0]["object"], "embedding");
  EXPECT_EQ(json["data"][1]["index"], 1);
  EXPECT_EQ(json["data"][0]["embedding"], Json({1.0, -0.25}));
  EXPECT_EQ(json["data"][1]["embedding"][0].get<float>(), 0.1f);
  EXPECT_EQ(json["data"][1]["embedding"][1].get<float>(), 3e-9f);
  EXPECT_TRUE(json["timings"].contains("prefill_ms"));
}

// The alphabet is that of RFC 4648. The bytes of 1.0f are 00 00 80 3f, those of -0.25f 00 00 80 be.
TEST(OpenAiEmbeddingRequest, Base64IsOfLittleEndianFloats) {
  EmbeddingOutput output;
  output.vectors = {{1.0f}, {1.0f, -0.25f}, {1.0f, -0.25f, 1.0f}};
  const Json json = Json::parse(FormatEmbeddings({"m", "fp", true, false}, output));
  EXPECT_EQ(json["data"][0]["embedding"], "AACAPw==");
  EXPECT_EQ(json["data"][1]["embedding"], "AACAPwAAgL4=");
  EXPECT_EQ(json["data"][2]["embedding"], "AACAPwAAgL4AAIA/");
  EXPECT_FALSE(json.contains("timings"));
}

}  // namespace
}  // namespace tokamak
