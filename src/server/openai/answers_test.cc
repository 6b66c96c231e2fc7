// Tests the parts of responses beside their text (tool calls, reasoning, timings) and the small
// paths.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "server/testing/server_fixture.h"

namespace tokamak {
namespace {

using Json = nlohmann::json;

// The fake engine repeats the prompt. With a template that only writes the user's message, that
// message is the answer.
constexpr char kEcho[] = "{{ messages[0].content }}{# <tool_call> </think> #}";
constexpr char kChat[] = "/v1/chat/completions";
constexpr char kToolCall[] =
    "Hm.\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"n\": 1}}\n</tool_call>";

class AnswersTest : public ServerFixture {
 protected:
  // Returns a body that makes the engine answer with `text`, and that has the fields of `more`.
  static std::string Body(const std::string& text, const Json& more = Json::object()) {
    Json body = {{"messages", {{{"role", "user"}, {"content", text}}}},
                 {"max_tokens", text.size()},
                 {"tools", {{{"type", "function"}, {"function", {{"name", "f"}}}}}}};
    body.update(more);
    return body.dump();
  }

  struct Streamed {
    std::string reasoning, content;
    Json calls = Json::array();
    std::vector<int> pieces;  // of each call's arguments
  };
  // Joins a stream as clients do.
  static Streamed Join(const std::string& body) {
    Streamed all;
    std::istringstream events(body);
    for (std::string line; std::getline(events, line);) {
      if (!line.starts_with("data: {")) continue;
      const Json delta = Json::parse(line.substr(6))["choices"][0]["delta"];
      all.reasoning += delta.value("reasoning_content", "");
      all.content += delta.value("content", "");
      for (const Json& call : delta.value("tool_calls", Json::array())) {
        const size_t index = call["index"];
        const std::string arguments = call["function"]["arguments"];
        if (call.contains("id")) {
          EXPECT_EQ(index, all.calls.size()) << "calls begin in order";
          EXPECT_EQ(arguments, "");
          all.calls.push_back(call);
          all.pieces.push_back(0);
          continue;
        }
        EXPECT_EQ(index + 1, all.calls.size()) << "one call after the other";
        EXPECT_FALSE(call["function"].contains("name"));
        Json& so_far = all.calls.at(index)["function"]["arguments"];
        so_far = so_far.get<std::string>() + arguments;
        ++all.pieces[index];
      }
    }
    return all;
  }
};

TEST_F(AnswersTest, ReadsToolCalls) {
  engine_.SetChatTemplate(kEcho);
  Start();
  const auto response = Connect().Post(kChat, Body(kToolCall));
  ASSERT_EQ(response.status, 200) << response.body;
  const Json choice = Json::parse(response.body)["choices"][0];
  EXPECT_EQ(choice["message"]["content"], "Hm.");
  const Json& call = choice["message"]["tool_calls"].at(0);
  EXPECT_EQ(call["type"], "function");
  EXPECT_EQ(call["function"]["name"], "f");
  EXPECT_EQ(call["function"]["arguments"], "{\"n\": 1}");
  EXPECT_THAT(call["id"].get<std::string>(), testing::StartsWith("call_"));
  // The fake engine ends because of max_tokens, and the response says so.
  EXPECT_EQ(choice["finish_reason"], "length");
}

// The first part of a call has its name and no arguments; pieces of the arguments follow. Joined,
// they are the arguments of the whole answer.
TEST_F(AnswersTest, StreamsToolCallsInPiecesAndNoPieceOfTheirMarkers) {
  engine_.SetChatTemplate(kEcho);
  Start();
  const std::string second =
      "\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"s\": \"<b> "
      "</tool_call>\"}}\n</tool_call>";
  for (const bool parallel : {true, false}) {
    const Json more = {{"parallel_tool_calls", parallel}};
    const std::string text = kToolCall + second;
    const auto answer = Connect().Post(kChat, Body(text, more));
    const Json whole = Json::parse(answer.body)["choices"][0]["message"];
    ASSERT_EQ(whole["tool_calls"].size(), parallel ? 2u : 1u) << answer.body;
    Json streaming = more;
    streaming["stream"] = true;
    const Streamed got = Join(Connect().Post(kChat, Body(text, streaming)).body);
    EXPECT_EQ(got.content, whole["content"]);
    ASSERT_EQ(got.calls.size(), whole["tool_calls"].size());
    for (size_t i = 0; i < got.calls.size(); ++i) {
      EXPECT_EQ(got.calls[i]["function"], whole["tool_calls"][i]["function"]);
      EXPECT_EQ(got.calls[i]["type"], "function");
      EXPECT_THAT(got.calls[i]["id"].get<std::string>(), testing::StartsWith("call_"));
      EXPECT_GE(got.pieces[i], 5) << "one byte is a token";
    }
  }
}

// A text of the form that the request asks for may spell calls; only an answer that begins as one
// is a call.
TEST_F(AnswersTest, ReadsAStructuredAnswerAsTextOrAsCalls) {
  engine_.SetChatTemplate(kEcho);
  Start();
  const Json form = {{"regex", "[\\s\\S]*"}};
  const std::string call =
      "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"n\": 1}}\n</tool_call>";
  for (const auto& [text, content, calls] :
       std::vector<std::tuple<std::string, std::string, size_t>>{
           {call, "", 1},
           {call + "\n" + call, "", 2},
           {"<think>a</think>\n\n" + call, "", 1},
           {"{\"a\": \"" + call + "\"}", "{\"a\": \"" + call + "\"}", 0},
           {"A\n" + call, "A\n" + call, 0},
           {kToolCall, kToolCall, 0}}) {
    const Json message =
        Json::parse(Connect().Post(kChat, Body(text, form)).body)["choices"][0]["message"];
    EXPECT_EQ(message["content"].is_null() ? "" : message["content"], content);
    ASSERT_EQ(message.contains("tool_calls") ? message["tool_calls"].size() : 0, calls) << text;
    Json streaming = form;
    streaming["stream"] = true;
    const Streamed got = Join(Connect().Post(kChat, Body(text, streaming)).body);
    EXPECT_EQ(got.content, content);
    ASSERT_EQ(got.calls.size(), calls);
    for (size_t i = 0; i < calls; ++i) {
      EXPECT_EQ(got.calls[i]["function"], message["tool_calls"][i]["function"]);
    }
  }
}

TEST_F(AnswersTest, LeavesCallsInTheTextWithoutToolsOrAParser) {
  engine_.SetChatTemplate(kEcho);
  Start();
  for (const Json& more : {Json{{"tool_choice", "none"}}, Json{{"tools", nullptr}}}) {
    const auto response = Connect().Post(kChat, Body(kToolCall, more));
    const Json message = Json::parse(response.body)["choices"][0]["message"];
    EXPECT_EQ(message["content"], kToolCall);
    EXPECT_FALSE(message.contains("tool_calls"));
  }
}

TEST_F(AnswersTest, SeparatesReasoningFromContent) {
  engine_.SetChatTemplate(kEcho);
  Start();
  const auto response = Connect().Post(kChat, Body("<think>\nHm.\n</think>\n\nYes."));
  const Json message = Json::parse(response.body)["choices"][0]["message"];
  EXPECT_EQ(message["reasoning_content"], "Hm.");
  EXPECT_EQ(message["content"], "Yes.");
}

// gpt-oss: a template that names the channels of Harmony, and an answer that uses all of them.
TEST_F(AnswersTest, ReadsHarmonyWholeAndStreamed) {
  const std::string channel = "<|start|>assistant<|channel|>";
  const std::string source =
      "{{ messages[0].content }}{# " + channel + "analysis<|message|> <|channel|>commentary #}";
  engine_.SetChatTemplate(source);
  Start();
  const std::string text = "<|channel|>analysis<|message|>Hm. 1 < 2<|end|>" + channel +
                           "final<|message|>Yes.<|end|>" + channel +
                           "commentary to=functions.f <|constrain|>json<|message|>{\"n\": 1}";
  const Json whole = Json::parse(Connect().Post(kChat, Body(text)).body)["choices"][0]["message"];
  EXPECT_EQ(whole["reasoning_content"], "Hm. 1 < 2");
  EXPECT_EQ(whole["content"], "Yes.");
  ASSERT_EQ(whole["tool_calls"].size(), 1u);
  EXPECT_EQ(whole["tool_calls"][0]["function"]["name"], "f");
  EXPECT_EQ(whole["tool_calls"][0]["function"]["arguments"], "{\"n\": 1}");

  const Streamed got = Join(Connect().Post(kChat, Body(text, {{"stream", true}})).body);
  EXPECT_EQ(got.reasoning, whole["reasoning_content"]);
  EXPECT_EQ(got.content, whole["content"]);
  ASSERT_EQ(got.calls.size(), 1u);
  EXPECT_EQ(got.calls[0]["function"], whole["tool_calls"][0]["function"]);

  // Without tools the call stays content; reasoning is still split off.
  const Json plain = Json::parse(
      Connect().Post(kChat, Body(text, {{"tools", nullptr}})).body)["choices"][0]["message"];
  EXPECT_EQ(plain["reasoning_content"], "Hm. 1 < 2");
  EXPECT_EQ(plain["content"], "Yes." + text.substr(text.rfind("<|start|>")));
}

TEST_F(AnswersTest, HoldsHarmonyMessagesToSchemas) {
  engine_.SetChatTemplate(
      "{{ messages[0].content }}{# <|start|>assistant<|channel|>analysis<|message|> "
      "<|channel|>commentary #}");
  Start();
  const auto form = [](const Json& schema) {
    return Json{{"tools", nullptr},
                {"response_format",
                 {{"type", "json_schema"}, {"json_schema", {{"name", "n"}, {"schema", schema}}}}}};
  };
  const Json schema = {{"type", "integer"}};
  EXPECT_EQ(Connect().Post(kChat, Body("A", form(schema))).status, 200);
  const StructuredOutput json = *engine_.last_request().sampling.structured_output;
  EXPECT_EQ(json.text, schema.dump());
  ASSERT_TRUE(json.messages);
  EXPECT_EQ(json.messages->answer, "<|channel|>final<|message|>");
  EXPECT_EQ(json.messages->start, "<|start|>assistant");
  EXPECT_EQ(json.messages->free, std::vector<std::string>{"<|channel|>analysis<|message|>"});
  EXPECT_EQ(json.messages->end, "<|end|>");
  EXPECT_FALSE(json.reasoning);
  const auto refused = Connect().Post(kChat, Body("A", form({{"const", "refused"}})));
  EXPECT_THAT(refused.body, testing::HasSubstr("response_format.json_schema.schema.a: is refused"));
  EXPECT_EQ(Connect().Post(kChat, Body("A", {{"tools", nullptr}, {"regex", "a"}})).status, 200);
  EXPECT_EQ(engine_.last_request().sampling.structured_output->messages, json.messages);

  EXPECT_EQ(Connect().Post(kChat, Body("A", {{"tool_choice", "required"}})).status, 200);
  const StructuredOutput calls = *engine_.last_request().sampling.structured_output;
  EXPECT_TRUE(calls.must_call);
  EXPECT_EQ(calls.calls[0].begin,
            "<|channel|>commentary to=functions.f <|constrain|>json<|message|>");
  EXPECT_EQ(calls.messages, json.messages);

  // Strict tools that the model may call: all messages are held.
  Json tools = Json::parse(Body("A"))["tools"];
  tools[0]["function"]["strict"] = true;
  EXPECT_EQ(Connect().Post(kChat, Body("A", {{"tools", tools}})).status, 200);
  const StructuredOutput free = *engine_.last_request().sampling.structured_output;
  EXPECT_FALSE(free.must_call);
  EXPECT_EQ(free.calls[0].begin, calls.calls[0].begin);
  EXPECT_EQ(free.messages->free.back(), "<|channel|>commentary<|message|>");

  // With a form for the final message nothing else may be content.
  EXPECT_EQ(Connect().Post(kChat, Body("A", {{"regex", "a"}})).status, 200);
  const StructuredOutput both = *engine_.last_request().sampling.structured_output;
  EXPECT_EQ(both.text, "a");
  EXPECT_FALSE(both.must_call);
  EXPECT_EQ(both.calls[0].begin, calls.calls[0].begin);
  EXPECT_EQ(both.messages, json.messages);
}

TEST_F(AnswersTest, RefusesUnknownParsers) {
  ServerOptions options;
  options.port = 0;
  options.parsers.tool_calls = "pythonic";
  const auto server = Server::Create(engine_, std::move(options));
  ASSERT_FALSE(server.ok());
  EXPECT_THAT(server.status().message(), testing::HasSubstr("--tool-call-parser"));
}

// The answer repeats the prompt: "abcXYdabcXYd..."
TEST_F(AnswersTest, LogprobsEndWithTheTextBeforeAStopString) {
  Start();
  const auto tokens = [&](Json body) {
    body.update({{"prompt", "abcXYd"}, {"logprobs", 0}, {"echo", true}});
    const Json whole = Json::parse(Connect().Post("/v1/completions", body.dump()).body);
    const Json& logprobs = whole["choices"][0]["logprobs"];
    std::string joined, streamed, text;
    for (const Json& token : logprobs["tokens"]) joined += token.get<std::string>();
    EXPECT_EQ(joined, whole["choices"][0]["text"]);
    EXPECT_EQ(logprobs["text_offset"].size(), joined.size());
    body["stream"] = true;
    std::istringstream events(Connect().Post("/v1/completions", body.dump()).body);
    for (std::string line; std::getline(events, line);) {
      if (!line.starts_with("data: {")) continue;
      const Json choice = Json::parse(line.substr(6))["choices"][0];
      text += choice["text"];
      if (choice["logprobs"].is_null()) continue;
      for (const Json& token : choice["logprobs"]["tokens"]) streamed += token;
      EXPECT_EQ(streamed, text) << "tokens come with their text";
    }
    EXPECT_EQ(streamed, joined);
    return joined.substr(6);
  };
  EXPECT_EQ(tokens({{"max_tokens", 8}}), "abcXYdab");
  EXPECT_EQ(tokens({{"max_tokens", 8}, {"stop", "XYd"}}), "abc");
  EXPECT_EQ(tokens({{"max_tokens", 4}, {"stop", "XYd"}}), "abcX") << "what was held back";
  EXPECT_EQ(tokens({{"max_tokens", 8}, {"stop", {"bcXZ", "da"}}}), "abcXY");
  EXPECT_EQ(tokens({{"max_tokens", 8}, {"stop", "a"}}), "");
}

TEST_F(AnswersTest, GivesTimingsOnRequest) {
  Start();
  const char* paths[] = {"/v1/completions", kChat};
  for (const char* path : paths) {
    const bool chat = path == kChat;
    Json body = {{"max_tokens", 3}, {"timings", true}};
    if (chat) body["messages"] = {{{"role", "user"}, {"content", "a"}}};
    if (!chat) body["prompt"] = "abc";
    const Json whole = Json::parse(Connect().Post(path, body.dump()).body);
    for (const char* name : {"queued_ms", "prefill_ms", "decode_ms", "preemptions", "steps",
                             "draft_n", "draft_n_accepted", "draft_n_per_pos",
                             "draft_n_accepted_per_pos", "draft_saved_ms", "cached_tokens"}) {
      EXPECT_TRUE(whole["timings"].contains(name)) << whole;
    }
    body["stream"] = true;
    const std::string stream = Connect().Post(path, body.dump()).body;
    // Only the last event before [DONE] has them.
    const size_t timings = stream.find("\"timings\"");
    ASSERT_NE(timings, std::string::npos) << stream;
    EXPECT_EQ(stream.find("\"timings\"", timings + 1), std::string::npos);
    EXPECT_EQ(stream.find("\n\ndata: {", timings), std::string::npos);
    body.erase("timings");
    EXPECT_EQ(Connect().Post(path, body.dump()).body.find("timings"), std::string::npos);
  }
}

TEST_F(AnswersTest, Tokenizes) {
  Start();
  HttpClient client = Connect();
  auto response = client.Post("/tokenize", R"({"text": "ab", "return_pieces": true})");
  ASSERT_EQ(response.status, 200) << response.body;
  EXPECT_EQ(Json::parse(response.body),
            Json::parse(R"({"count": 2, "max_model_len": 4096, "tokens": [97, 98], "pieces": [
              {"id": 97, "text": "a", "bytes": [97]}, {"id": 98, "text": "b", "bytes": [98]}]})"));
  response = client.Post("/tokenize", R"({"messages": [{"role": "user", "content": "x"}]})");
  const Json tokens = Json::parse(response.body)["tokens"];
  EXPECT_EQ(engine_.Detokenize(tokens.get<std::vector<int32_t>>()),
            "<|im_start|>user\nx<|im_end|>\n<|im_start|>assistant\n");
  response = client.Post("/detokenize", R"({"tokens": [104, 105]})");
  EXPECT_EQ(Json::parse(response.body), Json({{"text", "hi"}}));
  response = client.Post("/detokenize", R"({"tokens": [104, 256]})");
  EXPECT_EQ(response.status, 400);
  EXPECT_EQ(Json::parse(response.body)["error"]["param"], "tokens[1]");
  EXPECT_EQ(client.Post("/tokenize", R"({"text": "a", "model": "b"})").status, 404);
  EXPECT_EQ(client.Get("/tokenize").status, 405);
}

TEST_F(AnswersTest, FindsModelsByName) {
  ServerOptions options;
  options.model_id = "org/a model";
  Start(std::move(options));
  for (const char* path : {"/v1/models/org/a%20model", "/v1/models/org%2Fa%20model"}) {
    const auto response = Connect().Get(path);
    ASSERT_EQ(response.status, 200) << path << response.body;
    EXPECT_EQ(Json::parse(response.body)["id"], "org/a model");
  }
  for (const char* path : {"/v1/models/", "/v1/models/org", "/v1/models/%", "/v1/models/%zz"}) {
    EXPECT_EQ(Connect().Get(path).status, 404) << path;
  }
  EXPECT_EQ(Connect().Get("/openapi.json").status, 200);
}

}  // namespace
}  // namespace tokamak
