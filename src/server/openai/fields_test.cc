// Tests that the code, the OpenAPI document and docs/api.md have the same fields.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "base/file.h"
#include "server/openai/embedding_request.h"
#include "server/openai/json_fields.h"
#include "server/openai/openapi.h"
#include "server/openai/other_fields.h"
#include "server/openai/request.h"
#include "server/openai/status_response.h"
#include "server/openai/tokenize_request.h"

namespace tokamak {
namespace {

using Json = nlohmann::json;
using Names = std::set<std::string>;

Names ToSet(const std::vector<std::string>& names) { return Names(names.begin(), names.end()); }

std::map<std::string, Names> KnownByRequest() {
  return {{"chat", ToSet(KnownFields(true))},
          {"completions", ToSet(KnownFields(false))},
          {"embeddings", ToSet(KnownEmbeddingFields())},
          {"tokenize", ToSet(KnownTokenizeFields())},
          {"detokenize", ToSet(KnownDetokenizeFields())}};
}

// Adds the fields of the table of other fields.
std::map<std::string, Names> DescribedByRequest() {
  const std::map<std::string, RequestKind> kinds = {{"chat", kChatRequest},
                                                    {"completions", kCompletionRequest},
                                                    {"embeddings", kEmbeddingRequest},
                                                    {"tokenize", kTokenizeRequest},
                                                    {"detokenize", kDetokenizeRequest}};
  std::map<std::string, Names> names = KnownByRequest();
  for (const OtherField& row : OtherFieldTable()) {
    for (const auto& [request, kind] : kinds) {
      if ((row.requests & kind) != 0) names[request].emplace(row.name);
    }
  }
  return names;
}

TEST(Fields, OpenApiNamesThoseThatAreRead) {
  const Json document = Json::parse(OpenApiDocument());
  EXPECT_EQ(document["openapi"], "3.1.0");
  const std::map<std::string, std::string> schemas = {{"chat", "ChatRequest"},
                                                      {"completions", "CompletionRequest"},
                                                      {"embeddings", "EmbeddingRequest"},
                                                      {"tokenize", "TokenizeRequest"},
                                                      {"detokenize", "DetokenizeRequest"}};
  for (const auto& [request, known] : KnownByRequest()) {
    Names named;
    for (const auto& [name, schema] :
         document["components"]["schemas"][schemas.at(request)]["properties"].items()) {
      named.insert(name);
    }
    EXPECT_EQ(named, known) << request;
  }
}

// Reads rows such as "| `a`, `b` | chat, tokenize | what it means |".
TEST(Fields, DocsDescribeThoseThatAreRead) {
  const auto text = ReadWholeFile(std::string(TOKAMAK_SOURCE_DIR) + "/docs/api.md", 1 << 20);
  ASSERT_TRUE(text.ok()) << text.status().ToString();
  const std::map<std::string, Names> known = DescribedByRequest();
  std::map<std::string, Names> described;
  std::istringstream lines(*text);
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("| `") || line.starts_with("| `GET ")) continue;  // rows of paths
    const size_t first = line.find('|', 1), second = line.find('|', first + 1);
    if (second == std::string::npos) continue;
    const std::string requests = line.substr(first + 1, second - first - 1);
    for (const auto& [request, names] : known) {
      std::istringstream words(requests);
      bool in = false;
      for (std::string word; words >> word;) in = in || word == request || word == request + ",";
      if (!in) continue;
      for (size_t at = line.find('`'); at < first;) {
        const size_t end = line.find('`', at + 1);
        const std::string name = line.substr(at + 1, end - at - 1);
        described[request].insert(name);
        at = line.find('`', end + 1);
      }
    }
  }
  for (const auto& [request, names] : known) EXPECT_EQ(described[request], names) << request;
}

TEST(Fields, UnknownOnesAreNamedAndIgnored) {
  const auto request = ParseChatRequest(
      R"({"messages": [{"role": "user", "content": "a", "mood": 1}], "frobnicate": {"n": -1},
          "user": "me", "Temperature": 9, "max_tokens": null})");
  ASSERT_TRUE(request.ok()) << request.status().ToString();
  EXPECT_THAT(request->unknown_fields, testing::UnorderedElementsAre("Temperature", "frobnicate"));
  EXPECT_EQ(request->sampling.temperature, 1.0f);
}

TEST(Fields, NamesThePathInTokenizeRequests) {
  const std::map<std::string, std::string> cases = {
      {R"({})", "text"},
      {R"({"text": 5})", "text"},
      {R"({"text": "a", "prompt": "b"})", "prompt"},
      {R"({"text": "a", "messages": []})", "messages"},
      {R"({"messages": [{"role": "user"}]})", "messages[0].content"},
      {R"({"messages": []})", "messages"},
      {R"({"text": "a", "return_pieces": 1})", "return_pieces"},
      {R"({"text": "a", "reasoning_effort": {}})", "reasoning_effort"},
      {R"({"text": "a", "tools": []})", "tools"},
  };
  for (const auto& [body, path] : cases) {
    const auto request = ParseTokenizeRequest(body);
    ASSERT_FALSE(request.ok()) << body;
    EXPECT_EQ(LeadingPath(request.status().message()), path) << body;
  }
  EXPECT_EQ(LeadingPath(ParseDetokenizeRequest("{}").status().message()), "tokens");
  EXPECT_EQ(LeadingPath(ParseDetokenizeRequest(R"({"tokens": [1, "a"]})").status().message()),
            "tokens[1]");
  EXPECT_TRUE(ParseTokenizeRequest(R"({"text": "a"})")->add_special_tokens);
  EXPECT_FALSE(ParseTokenizeRequest(R"({"messages": [{"role": "user", "content": "a"}]})")
                   ->add_special_tokens);
}

}  // namespace
}  // namespace tokamak
