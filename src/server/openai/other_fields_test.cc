// Tests every row of the table of other fields, with values that are off and values that are on, in
// every kind of request that it applies to.
#include "server/openai/other_fields.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <variant>

#include "server/openai/embedding_request.h"
#include "server/openai/openapi.h"
#include "server/openai/request.h"
#include "server/openai/status_response.h"
#include "server/openai/tokenize_request.h"
#include "server/testing/server_fixture.h"

namespace tokamak {
namespace {

using Json = nlohmann::json;

constexpr RequestKind kRequests[] = {kChatRequest, kCompletionRequest, kEmbeddingRequest,
                                     kTokenizeRequest, kDetokenizeRequest};

Json Body(RequestKind request) {
  switch (request) {
    case kChatRequest:
    case kTokenizeRequest:
      return Json::parse(R"({"messages": [{"role": "user", "content": "a"}]})");
    case kCompletionRequest:
      return {{"prompt", "a"}};
    case kEmbeddingRequest:
      return {{"input", "a"}};
    case kDetokenizeRequest:
      return {{"tokens", {1}}};
  }
  return {};
}

struct Parsed {
  Status status;
  std::vector<std::string> unknown;
  std::string asks;         // what the request asks for with fields that have another name
  std::string prompt = {};  // empty if it has none
};

std::string Describe(const CompletionRequest& request) {
  const SamplingParams& s = request.sampling;
  Json asks = {s.repetition_penalty,
               s.typical_p,
               s.n,
               s.min_tokens,
               s.stop,
               request.cache_salt,
               request.echo,
               request.return_token_ids,
               request.timings,
               s.max_tokens.value_or(-1)};
  asks.push_back(s.seed.value_or(0));
  asks.push_back(s.logprobs.value_or(-1));
  asks.push_back(s.thinking_token_budget.value_or(-1));
  if (s.structured_output) {
    asks.push_back(static_cast<int>(s.structured_output->kind));
    asks.push_back(s.structured_output->text);
  }
  return asks.dump();
}

// Describes the input of the model.
std::string DescribePrompt(const ChatInput& conversation) {
  const auto shown = ChatTemplate::Parse(
      "{{ [messages, tools, add_generation_prompt, reasoning_effort|default(''),"
      " mood|default('')]|tojson }}",
      "", "");
  return shown->Render(conversation).value();
}
std::string DescribePrompt(const CompletionRequest& request) {
  return request.chat ? DescribePrompt(request.conversation)
                      : std::get<std::string>(request.prompts.at(0));
}

Parsed Parse(RequestKind kind, const Json& body) {
  const std::string text = body.dump();
  if (kind == kEmbeddingRequest) {
    const auto request = ParseEmbeddingRequest(text);
    if (!request.ok()) return {request.status(), {}, ""};
    const EmbeddingRequest& engine_request = request->engine_request;
    return {
        Status(), request->unknown_fields,
        Json{engine_request.dimensions.value_or(0), engine_request.inputs.at(0).text.value_or("")}
            .dump()};
  }
  if (kind == kTokenizeRequest) {
    const auto request = ParseTokenizeRequest(text);
    if (!request.ok()) return {request.status(), {}, ""};
    return {Status(), request->unknown_fields,
            Json{request->text.value_or(""), request->add_special_tokens, request->return_pieces}
                .dump(),
            request->text ? "" : DescribePrompt(request->conversation)};
  }
  if (kind == kDetokenizeRequest) {
    const auto request = ParseDetokenizeRequest(text);
    if (!request.ok()) return {request.status(), {}, ""};
    return {Status(), request->unknown_fields, Json(request->tokens).dump()};
  }
  const auto request = kind == kChatRequest ? ParseChatRequest(text) : ParseCompletionRequest(text);
  if (!request.ok()) return {request.status(), {}, ""};
  return {Status(), request->unknown_fields, Describe(*request), DescribePrompt(*request)};
}

// Returns `body` with `value` at the place that the row names, and the path of that place in
// errors.
std::pair<Json, std::string> With(Json body, std::string_view name, const Json& value) {
  if (name == "tools[].function.strict") {
    body["tools"] = Json::parse(R"([{"function": {"name": "f"}}, {"function": {"name": "g"}}])");
    body["tools"][1]["function"]["strict"] = value;
    return {body, "tools[1].function.strict"};
  }
  if (name.starts_with("messages[].")) {
    const std::string field(name.substr(11));
    body["messages"][0][field] = value;
    return {body, "messages[0]." + field};
  }
  if (name == "stream_options.continuous_usage_stats") {
    body["stream"] = true;
    body["stream_options"] = {{"continuous_usage_stats", value}};
    return {body, std::string(name)};
  }
  EXPECT_EQ(name.find_first_of(".["), std::string_view::npos) << "add " << name << " to the test";
  body[std::string(name)] = value;
  return {body, std::string(name)};
}

void ForEachRow(const std::function<void(const OtherField&, RequestKind)>& check) {
  for (const OtherField& row : OtherFieldTable()) {
    for (const RequestKind request : kRequests) {
      if ((row.requests & request) != 0) check(row, request);
    }
  }
}

std::vector<Json> OffValues(const OtherField& row) {
  std::vector<Json> values = {nullptr};
  if (row.rule == FieldRule::kRefused || row.rule == FieldRule::kIgnored ||
      row.rule == FieldRule::kWithin) {
    for (const char* text : {"false", "0", "0.0", "-0.0", "\"\"", "[]", "{}"}) {
      values.push_back(Json::parse(text));
    }
  }
  for (const Json& value : Json::parse(row.values == nullptr ? "[]" : row.values)) {
    values.push_back(value);
  }
  return values;
}

std::vector<Json> OnValues(const OtherField& row) {
  std::vector<Json> values;
  for (const char* text : {"true", "7", "-3.5", "\"x\"", "[0]", "[null]", R"({"a": 0})",
                           R"({"type": "json_object"})", R"(["text", "audio"])"}) {
    values.push_back(Json::parse(text));
  }
  if (row.rule == FieldRule::kOnly) {
    for (const char* text : {"false", "0", "\"\"", "[]", "{}"}) values.push_back(Json::parse(text));
  }
  const std::vector<Json> off = OffValues(row);
  std::erase_if(values, [&](const Json& value) {
    return std::find(off.begin(), off.end(), value) != off.end();
  });
  return values;
}

// Expects that this value of the row's field changes nothing that the request asks for.
void ExpectNoEffect(const OtherField& row, RequestKind request, const Json& value,
                    const std::vector<std::string>& unknown = {}) {
  const auto [body, path] = With(Body(request), row.name, value);
  const Parsed parsed = Parse(request, body);
  EXPECT_TRUE(parsed.status.ok()) << body << ": " << parsed.status.ToString();
  EXPECT_EQ(parsed.unknown, unknown) << body;
  EXPECT_EQ(parsed.asks, Parse(request, Body(request)).asks) << body;
}

TEST(OtherFields, ValuesThatAreOffChangeNothingAndAreNotUnknown) {
  ForEachRow([](const OtherField& row, RequestKind request) {
    for (const Json& value : OffValues(row)) ExpectNoEffect(row, request, value);
  });
}

TEST(OtherFields, ValuesThatAreOnAreRefusedByTheirPath) {
  ForEachRow([](const OtherField& row, RequestKind request) {
    if (row.rule != FieldRule::kRefused && row.rule != FieldRule::kOnly) return;
    for (const Json& value : OnValues(row)) {
      const auto [body, path] = With(Body(request), row.name, value);
      const Parsed parsed = Parse(request, body);
      EXPECT_EQ(parsed.status.code(), StatusCode::kInvalidArgument) << body;
      EXPECT_EQ(LeadingPath(parsed.status.message()), path) << body << parsed.status.ToString();
    }
  });
}

TEST(OtherFields, FieldsWithoutEffectTakeAnyValue) {
  ForEachRow([](const OtherField& row, RequestKind request) {
    if (row.rule != FieldRule::kNoEffect) return;
    for (const Json& value : OnValues(row)) ExpectNoEffect(row, request, value);
  });
}

TEST(OtherFields, IgnoredOnesAreNamedOnce) {
  ForEachRow([](const OtherField& row, RequestKind request) {
    if (row.rule != FieldRule::kIgnored) return;
    for (const Json& value : OnValues(row)) {
      ExpectNoEffect(row, request, value, {std::string(row.name)});
    }
  });
}

// Returns a value that the field may have and that differs from its default.
Json SampleOf(std::string_view name) {
  if (name == "repetition_penalty") return 1.25;
  if (name == "typical_p") return 0.5;
  if (name == "stop" || name == "cache_salt" || name == "text" || name == "input" ||
      name == "guided_regex" || name == "guided_grammar") {
    return "xyz";
  }
  if (name == "return_token_ids" || name == "timings" || name == "echo" ||
      name == "return_pieces") {
    return true;
  }
  if (name == "add_special_tokens") return false;
  return 5;
}

TEST(OtherFields, RenamedFieldsAskForTheSame) {
  ForEachRow([](const OtherField& row, RequestKind request) {
    if (row.rule != FieldRule::kRenamed && row.rule != FieldRule::kUnlimited) return;
    const std::string name(row.name), ours(row.text);
    Json body = Body(request);
    if (request == kTokenizeRequest) body = {{"text", "a"}};
    body.erase(ours);
    Json theirs = body;
    body[ours] = SampleOf(ours);
    theirs[name] = SampleOf(ours);
    if (request == kTokenizeRequest && ours != "text") theirs["text"] = body["text"];
    const Parsed parsed = Parse(request, theirs);
    ASSERT_TRUE(parsed.status.ok()) << theirs << parsed.status.ToString();
    EXPECT_TRUE(parsed.unknown.empty()) << theirs;
    EXPECT_EQ(parsed.asks, Parse(request, body).asks) << theirs;
    EXPECT_NE(parsed.asks, Parse(request, Body(request)).asks) << theirs;
    // The same value under both names is accepted; two values are not.
    theirs[ours] = SampleOf(ours);
    EXPECT_TRUE(Parse(request, theirs).status.ok()) << theirs;
    theirs[ours] = Json::array({9});
    EXPECT_EQ(LeadingPath(Parse(request, theirs).status.message()), name) << theirs;
    // Errors use the name that the client wrote.
    theirs.erase(ours);
    theirs[name] = Json{{"no", "type"}};
    EXPECT_EQ(LeadingPath(Parse(request, theirs).status.message()), name) << theirs;
  });
}

TEST(OtherFields, MinusOneMeansTheRestOfTheContext) {
  ForEachRow([](const OtherField& row, RequestKind request) {
    if (row.rule != FieldRule::kUnlimited) return;
    Json body = Body(request);
    body[std::string(row.name)] = -1;
    const std::string text = body.dump();
    const auto parsed =
        request == kChatRequest ? ParseChatRequest(text) : ParseCompletionRequest(text);
    ASSERT_TRUE(parsed.ok()) << parsed.status().ToString();
    EXPECT_FALSE(parsed->sampling.max_tokens) << body;
    body["max_tokens"] = 5;
    EXPECT_EQ(LeadingPath(Parse(request, body).status.message()), row.name);
    body.erase("max_tokens");
    body["max_completion_tokens"] = 5;
    EXPECT_EQ(Parse(request, body).status.code(), StatusCode::kInvalidArgument) << body;
  });
}

// Returns a request with all sorts of fields that requests of this kind have.
Json WholeBody(RequestKind request) {
  Json body = Body(request);
  if (request == kEmbeddingRequest) {
    body.update({{"input", "xyz"}, {"dimensions", 5}});
    return body;
  }
  if (request == kDetokenizeRequest) return body;
  if (request == kTokenizeRequest) {
    body.update({{"add_special_tokens", true}, {"return_pieces", true}});
  } else {
    body.update({{"max_tokens", 7}, {"repetition_penalty", 1.25}, {"seed", 3}, {"stop", {"x"}}});
  }
  if (request == kCompletionRequest) {
    body["echo"] = true;
    return body;
  }
  body.update(Json::parse(R"({
      "messages": [{"role": "developer", "content": [{"type": "text", "text": "b"}]},
                   {"role": "user", "content": "c"}],
      "tools": [{"type": "function", "function": {"name": "f", "a": 2}}], "tool_choice": "auto",
      "chat_template_kwargs": {"mood": "glad"}, "reasoning_effort": "low",
      "add_generation_prompt": false})"));
  return body;
}

void ExpectSame(RequestKind request, const Json& body, const Json& wanted) {
  const Parsed parsed = Parse(request, body), same = Parse(request, wanted);
  ASSERT_TRUE(parsed.status.ok()) << body << parsed.status.ToString();
  EXPECT_EQ(parsed.asks, same.asks) << body;
  EXPECT_EQ(parsed.prompt, same.prompt) << body;
  EXPECT_TRUE(parsed.unknown.empty()) << body;
}

TEST(OtherFields, FieldsOfObjectsCountAsFieldsOfTheBody) {
  ForEachRow([](const OtherField& row, RequestKind request) {
    if (row.rule != FieldRule::kWithin) return;
    const std::string name(row.name);
    const Json whole = WholeBody(request);
    ExpectSame(request, {{name, whole}}, whole);
    Json nulls = {{name, whole}};
    for (const auto& [field, value] : whole.items()) {
      // One field inside and the others outside; the same field in both places; null outside.
      Json moved = whole;
      moved.erase(field);
      moved[name] = {{field, value}};
      ExpectSame(request, moved, whole);
      moved[field] = value;
      ExpectSame(request, moved, whole);
      moved[field] = nullptr;
      ExpectSame(request, moved, whole);
      nulls[field] = nullptr;
      // Errors use the path that the client wrote.
      Json wrong = whole;
      wrong.erase(field);
      wrong[name] = {{field, {{"messages", 1}}}};
      const Status status = Parse(request, wrong).status;
      EXPECT_TRUE(LeadingPath(status.message()).starts_with(name + "." + field))
          << wrong << status.ToString();
    }
    ExpectSame(request, nulls, whole);
    // An object within one that comes before it in the table.
    if (name == "options") ExpectSame(request, {{"extra_body", {{name, whole}}}}, whole);
  });
}

TEST(OtherFields, EveryRequestTakesAnExtraBody) {
  for (const RequestKind request : kRequests) {
    const Json whole = WholeBody(request);
    ExpectSame(request, {{"extra_body", whole}}, whole);
  }
}

TEST(OtherFields, ObjectsOfFieldsMayHoldOtherNames) {
  ForEachRow([](const OtherField& row, RequestKind request) {
    if (row.rule != FieldRule::kWithin) return;
    const std::string name(row.name);
    const auto with = [&](Json inner) {
      Json body = Body(request);
      body[name] = std::move(inner);
      return body;
    };
    EXPECT_THAT(Parse(request, with({{"mood", 1}})).unknown, testing::ElementsAre(name + ".mood"));
    EXPECT_EQ(LeadingPath(Parse(request, with({5})).status.message()), name);
    std::map<std::string, Json> wrong = {{"output_dimension", "x"}, {"truncate", true}};
    if (request == kEmbeddingRequest) {
      ExpectSame(request, with({{"output_dimension", 5}}), {{"input", "a"}, {"dimensions", 5}});
    } else if (request == kTokenizeRequest) {
      ExpectSame(request, {{name, {{"content", "a"}, {"with_pieces", true}}}},
                 {{"text", "a"}, {"return_pieces", true}});
      wrong = {{"with_pieces", "x"}, {"return_token_strs", true}, {"parse_special", false}};
    } else if (request == kDetokenizeRequest) {
      wrong = {{"skip_special_tokens", true}};
    } else {
      Json plain = Body(request);
      plain.update({{"max_tokens", 7}, {"repetition_penalty", 1.25}, {"seed", 3}});
      ExpectSame(
          request,
          with({{"num_predict", 7}, {"repeat_penalty", 1.25}, {"seed", 3}, {"num_ctx", 4096}}),
          plain);
      wrong = {{"num_predict", "x"}, {"mirostat", 2}, {"guided_json", 5}, {"regex", 5}};
      Json twice = with({{"seed", 3}});
      twice["seed"] = 4;
      EXPECT_EQ(LeadingPath(Parse(request, twice).status.message()), name + ".seed");
    }
    for (const auto& [field, value] : wrong) {
      const Status status = Parse(request, with({{field, value}})).status;
      EXPECT_EQ(LeadingPath(status.message()), name + "." + field) << status.ToString();
    }
  });
}

TEST(OtherFields, HaveNoFieldThatARequestReadsItself) {
  const std::map<RequestKind, std::vector<std::string>> known = {
      {kChatRequest, KnownFields(true)},
      {kCompletionRequest, KnownFields(false)},
      {kEmbeddingRequest, KnownEmbeddingFields()},
      {kTokenizeRequest, KnownTokenizeFields()},
      {kDetokenizeRequest, KnownDetokenizeFields()}};
  std::set<std::pair<RequestKind, std::string>> rows;
  ForEachRow([&](const OtherField& row, RequestKind request) {
    EXPECT_THAT(known.at(request), testing::Not(testing::Contains(row.name)));
    EXPECT_TRUE(rows.emplace(request, row.name).second) << row.name << " has two rows";
    if (row.rule == FieldRule::kRenamed || row.rule == FieldRule::kUnlimited) {
      EXPECT_THAT(known.at(request), testing::Contains(row.text)) << row.name;
    }
  });
}

// Clients of vLLM, SGLang and llama.cpp send these, and must get 200.
TEST(OtherFields, NoConstraintIsIgnored) {
  const Json constraints = Json::parse(R"({
      "structural_tag": {"type": "object"}, "grammar_lazy": true, "format": "json",
      "num_beams": 2,
      "modalities": ["text", "audio"], "function_call": {"name": "f"},
      "truncate_prompt_tokens": 5})");
  for (const auto& [name, value] : constraints.items()) {
    for (const RequestKind request : {kChatRequest, kCompletionRequest}) {
      Json body = Body(request);
      body[name] = value;
      EXPECT_EQ(LeadingPath(Parse(request, body).status.message()), name);
    }
  }
  const Json of_chat = Json::parse(R"({"chat_template": "x", "documents": [{"text": "a"}],
      "continue_final_message": true})");
  for (const auto& [name, value] : of_chat.items()) {
    Json body = Body(kChatRequest);
    body[name] = value;
    EXPECT_EQ(LeadingPath(Parse(kChatRequest, body).status.message()), name);
  }
}

// Returns the schema that the OpenAPI document must have for the row's field.
Json SchemaOf(const OtherField& row, const std::string& schema) {
  switch (row.rule) {
    case FieldRule::kRefused:
    case FieldRule::kOnly: {
      Json values = Json::array({nullptr});
      if (row.rule == FieldRule::kRefused)
        values = {nullptr, false, 0, "", Json::array(), Json::object()};
      for (const Json& value : Json::parse(row.values == nullptr ? "[]" : row.values)) {
        values.push_back(value);
      }
      return {{"enum", values}};
    }
    case FieldRule::kRenamed:
      return {{"$ref", "#/components/schemas/" + schema + "/properties/" + std::string(row.text)}};
    case FieldRule::kUnlimited:
      return {{"type", {"integer", "null"}}, {"minimum", -1}, {"maximum", 2147483647}};
    case FieldRule::kWithin:
      return {
          {"anyOf", {{{"type", "object"}}, {{"enum", {nullptr, false, 0, "", Json::array()}}}}}};
    case FieldRule::kIgnored:
    case FieldRule::kNoEffect:
      return Json::object();
  }
  return {};
}

TEST(OtherFields, OpenApiHasThem) {
  const Json document = Json::parse(OpenApiDocument());
  const std::map<RequestKind, std::string> schemas = {{kChatRequest, "ChatRequest"},
                                                      {kCompletionRequest, "CompletionRequest"},
                                                      {kEmbeddingRequest, "EmbeddingRequest"},
                                                      {kTokenizeRequest, "TokenizeRequest"},
                                                      {kDetokenizeRequest, "DetokenizeRequest"}};
  for (const auto& [request, schema] : schemas) {
    std::map<std::string, std::pair<std::string, Json>> patterns;  // [text of the schema]
    for (const OtherField& row : OtherFieldTable()) {
      if ((row.requests & request) == 0 || row.name.find('.') != std::string_view::npos) continue;
      const Json wanted = SchemaOf(row, schema);
      auto& [names, same] = patterns[wanted.dump()];
      names += (names.empty() ? "" : "|") + std::string(row.name);
      same = wanted;
    }
    Json wanted = Json::object();
    for (const auto& [text, entry] : patterns) wanted["^(" + entry.first + ")$"] = entry.second;
    EXPECT_EQ(document["components"]["schemas"][schema].value("patternProperties", Json::object()),
              wanted)
        << schema;
  }
}

class IgnoredFieldsTest : public ServerFixture {};

TEST_F(IgnoredFieldsTest, AreLoggedOnceAndNotWithoutEnd) {
  Start();
  testing::internal::CaptureStderr();
  for (int i = 0; i < 2; ++i) {
    Connect().Post("/tokenize", R"({"text": "a", "mood": 1, "a\nb": 2})");
  }
  for (int i = 0; i < 500; ++i) {
    const Json body = {{"text", "a"}, {"field" + std::to_string(i), 1}};
    Connect().Post("/tokenize", body.dump());
  }
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_EQ(log.find("mood"), log.rfind("mood"));
  EXPECT_NE(log.find("a?b, mood"), std::string::npos) << log;
  EXPECT_EQ(std::count(log.begin(), log.end(), '\n'), 255);
}

std::string HeaderOf(const HttpClient::Response& response) {
  const std::string name = std::string(kIgnoredFieldsHeader) + ": ";
  const size_t at = response.headers.find(name);
  if (at == std::string::npos) return "";
  const size_t begin = at + name.size();
  return response.headers.substr(begin, response.headers.find("\r\n", begin) - begin);
}

TEST_F(IgnoredFieldsTest, AreNamedInAHeaderOfEveryAnswer) {
  Start();
  Json body = {{"prompt", "a"}, {"max_tokens", 2}};
  EXPECT_EQ(HeaderOf(Connect().Post("/v1/completions", body.dump())), "");
  body.update(
      {{"mood", 1}, {"options", {{"colour", 2}, {"num_ctx", 3}}}, {"guided_json", nullptr}});
  EXPECT_EQ(HeaderOf(Connect().Post("/v1/completions", body.dump())), "options.colour, mood");
  body["stream"] = true;
  EXPECT_EQ(HeaderOf(Connect().Post("/v1/completions", body.dump())), "options.colour, mood");
  EXPECT_EQ(HeaderOf(Connect().Post("/tokenize", R"({"text": "a", "mood": 1})")), "mood");
  EXPECT_EQ(HeaderOf(Connect().Post("/detokenize", R"({"tokens": [97], "mood": 1})")), "mood");
  const Json tools = {{"messages", {{{"role", "user"}, {"content", "a"}}}},
                      {"tools", {{{"function", {{"name", "f"}, {"strict", true}}}}}},
                      {"mood", 1}};
  EXPECT_EQ(HeaderOf(Connect().Post("/tokenize", tools.dump())), "tools[].function.strict, mood");
}

TEST_F(IgnoredFieldsTest, PutNothingIntoTheHeadersButNames) {
  Start();
  const std::vector<std::string> hostile = {"a\r\nSet-Cookie: b=c",
                                            "a\nX: y",
                                            std::string("a\0b", 3),
                                            "\xC3\xA9\xF0\x9F\x98\x80",
                                            "a, b",
                                            "\"q\"",
                                            "a;b=c",
                                            "",
                                            std::string(100000, 'z'),
                                            "\r\n\r\n<script>"};
  for (const std::string& name : hostile) {
    const Json body = {{"prompt", "a"}, {"max_tokens", 1}, {name, 1}};
    const auto response = Connect().Post("/v1/completions", body.dump());
    ASSERT_EQ(response.status, 200) << name.substr(0, 100);
    const std::string value = HeaderOf(response);
    EXPECT_EQ(value.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                      "0123456789_.-?"),
              std::string::npos)
        << value;
    EXPECT_LE(value.size(), 64u);
    EXPECT_EQ(response.headers.find("\nSet-Cookie"), std::string::npos);
    EXPECT_EQ(response.headers.find("\nX:"), std::string::npos);
    EXPECT_EQ(Json::parse(response.body)["object"], "text_completion");
  }
  Json many = {{"prompt", "a"}, {"max_tokens", 1}};
  for (int i = 0; i < 1000; ++i) many["field" + std::to_string(i) + std::string(100, 'x')] = i;
  const std::string value = HeaderOf(Connect().Post("/v1/completions", many.dump()));
  EXPECT_LE(value.size(), 512u);
  EXPECT_TRUE(value.ends_with("-more")) << value;
}

}  // namespace
}  // namespace tokamak
