#include "server/server.h"

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "server/access/api_keys.h"
#include "server/testing/server_fixture.h"

namespace tokamak {
namespace {

using Json = nlohmann::json;
using testing::HasSubstr;

using ServerTest = ServerFixture;

// Returns the JSON of a stream's events, without [DONE].
std::vector<Json> Events(const std::string& body) {
  std::vector<Json> events;
  EXPECT_TRUE(body.ends_with("data: [DONE]\n\n")) << body;
  for (size_t at = 0; at < body.size();) {
    const size_t end = body.find("\n\n", at);
    const std::string line = body.substr(at, end - at);
    EXPECT_TRUE(line.starts_with("data: ")) << line;
    if (line != "data: [DONE]") events.push_back(Json::parse(line.substr(6)));
    at = end + 2;
  }
  return events;
}

TEST_F(ServerTest, CompletesAPrompt) {
  Start();
  const auto response = Connect().Post("/v1/completions", R"({"prompt": "abc", "max_tokens": 5})");
  ASSERT_EQ(response.status, 200) << response.body;
  const Json json = Json::parse(response.body);
  EXPECT_EQ(json["object"], "text_completion");
  EXPECT_EQ(json["model"], "fake");
  EXPECT_EQ(json["system_fingerprint"], "fp_fake");
  EXPECT_EQ(json["seed"], *engine_.last_request().sampling.seed);
  EXPECT_EQ(json["choices"][0]["text"], "abcab");
  EXPECT_EQ(json["choices"][0]["finish_reason"], "length");
  EXPECT_EQ(json["choices"][0]["logprobs"], nullptr);
  EXPECT_EQ(json["usage"]["prompt_tokens"], 3);
  EXPECT_EQ(json["usage"]["completion_tokens"], 5);
  EXPECT_EQ(json["usage"]["total_tokens"], 8);
  EXPECT_EQ(json["usage"]["prompt_tokens_details"]["cached_tokens"], 0);
}

TEST_F(ServerTest, CompletesManyPromptsTimesManyChoicesInOrder) {
  Start();
  const auto response =
      Connect().Post("/v1/completions", R"({"prompt": ["ab", [67, 68]], "n": 2, "max_tokens": 3})");
  const Json json = Json::parse(response.body);
  ASSERT_EQ(json["choices"].size(), 4u);
  const std::vector<std::string> texts = {"aba", "aba", "CDC", "CDC"};
  for (size_t i = 0; i < texts.size(); ++i) {
    EXPECT_EQ(json["choices"][i]["index"], i);
    EXPECT_EQ(json["choices"][i]["text"], texts[i]);
  }
  EXPECT_EQ(json["usage"]["completion_tokens"], 12);
}

TEST_F(ServerTest, EchoesThePromptWithItsLogprobs) {
  Start();
  const auto response = Connect().Post(
      "/v1/completions",
      R"({"prompt": "abc", "max_tokens": 2, "echo": true, "logprobs": 1, "return_token_ids": true})");
  const Json choice = Json::parse(response.body)["choices"][0];
  EXPECT_EQ(choice["text"], "abcab");
  EXPECT_EQ(choice["token_ids"], Json({97, 98, 99, 97, 98}));
  const Json& logprobs = choice["logprobs"];
  EXPECT_EQ(logprobs["tokens"], Json({"a", "b", "c", "a", "b"}));
  EXPECT_EQ(logprobs["token_logprobs"], Json({nullptr, -1.0, -1.0, -0.5, -0.5}));
  EXPECT_EQ(logprobs["text_offset"], Json({0, 1, 2, 3, 4}));
  EXPECT_EQ(logprobs["top_logprobs"][3], Json({{"a", -0.5}}));
}

TEST_F(ServerTest, StreamsAConversation) {
  Start();
  const auto response = Connect().Post(
      "/v1/chat/completions",
      R"({"messages": [{"role": "user", "content": "x"}], "max_tokens": 3, "stream": true,
          "stream_options": {"include_usage": true}, "logprobs": true, "top_logprobs": 2})");
  ASSERT_EQ(response.status, 200) << response.body;
  EXPECT_THAT(response.headers, HasSubstr("text/event-stream"));
  const std::vector<Json> events = Events(response.body);
  ASSERT_EQ(events.size(), 4u) << response.body;
  EXPECT_EQ(events[0]["object"], "chat.completion.chunk");
  EXPECT_EQ(events[0]["choices"][0]["delta"], Json({{"role", "assistant"}, {"content", "<"}}));
  EXPECT_EQ(events[0]["usage"], nullptr);
  EXPECT_EQ(events[1]["choices"][0]["delta"], Json({{"content", "|"}}));
  const Json& content = events[1]["choices"][0]["logprobs"]["content"][0];
  EXPECT_EQ(content["token"], "|");
  EXPECT_EQ(content["bytes"], Json({124}));
  EXPECT_EQ(content["top_logprobs"][1]["token"], "}");
  EXPECT_EQ(events[2]["choices"][0]["finish_reason"], "length");
  EXPECT_EQ(events[3]["choices"], Json::array());
  EXPECT_EQ(events[3]["usage"]["completion_tokens"], 3);
  EXPECT_EQ(events[3]["id"], events[0]["id"]);
  // The engine got the conversation as the template renders it.
  const std::vector<int32_t> ids = engine_.last_request().token_ids;
  EXPECT_EQ(engine_.Detokenize(ids), "<|im_start|>user\nx<|im_end|>\n<|im_start|>assistant\n");
}

TEST_F(ServerTest, ShowsToolsAndTheirCallsToTheTemplate) {
  engine_.SetChatTemplate(
      "{{ tools|tojson }}{% for m in messages %}|{{ m.role }}:{{ m.content }}"
      "{% for c in m.tool_calls or [] %}{{ c.function.name }}{{ c.function.arguments|tojson }}"
      "{% endfor %}{% endfor %}|{{ effort }}");
  Start();
  const auto response = Connect().Post("/v1/chat/completions", R"({
      "tools": [{"type": "function", "function": {"name": "f", "b": 1, "a": 2}}],
      "chat_template_kwargs": {"effort": "high"}, "max_tokens": 1,
      "messages": [{"role": "user", "content": "x"},
                   {"role": "assistant", "content": null, "tool_calls": [{"id": "1",
                    "type": "function", "function": {"name": "f", "arguments": "{\"k\":[1]}"}}]},
                   {"role": "tool", "tool_call_id": "1", "content": "y"}]})");
  ASSERT_EQ(response.status, 200) << response.body;
  EXPECT_EQ(engine_.Detokenize(engine_.last_request().token_ids),
            "[{\"type\": \"function\", \"function\": {\"name\": \"f\", \"b\": 1, \"a\": 2}}]"
            "|user:x|assistant:f{\"k\": [1]}|tool:y|high");
}

TEST_F(ServerTest, TakesAConversationWithinAnObjectOfFields) {
  engine_.SetChatTemplate("{{ messages|tojson }}{{ tools|tojson }}{{ effort }}");
  Start();
  constexpr char kMessages[] = R"("messages": [{"role": "user", "content": "x"}])";
  constexpr char kTools[] = R"("tools": [{"function": {"name": "f", "b": 1, "a": 2}}])";
  constexpr char kMore[] = R"("chat_template_kwargs": {"effort": "high"})";
  const auto prompt_of = [&](const std::string& body) {
    const auto response = Connect().Post("/v1/chat/completions", body);
    EXPECT_EQ(response.status, 200) << body << response.body;
    return engine_.Detokenize(engine_.last_request().token_ids);
  };
  const std::string wanted =
      prompt_of(fmt::format(R"({{"max_tokens": 1, {}, {}, {}}})", kMessages, kTools, kMore));
  EXPECT_THAT(wanted, HasSubstr(R"("b": 1, "a": 2)"));
  for (const char* name : {"extra_body", "options", "parameters", "sampling_params"}) {
    EXPECT_EQ(prompt_of(fmt::format(R"({{"{}": {{"max_tokens": 1, {}, {}, {}}}}})", name, kMessages,
                                    kTools, kMore)),
              wanted);
    EXPECT_EQ(prompt_of(fmt::format(R"({{"max_tokens": 1, {}, "{}": {{{}, {}}}}})", kMessages, name,
                                    kTools, kMore)),
              wanted);
    EXPECT_EQ(
        prompt_of(fmt::format(R"({{"messages": null, "{}": {{"max_tokens": 1, {}}}, {}, {}}})",
                              name, kMessages, kTools, kMore)),
        wanted);
  }
}

TEST_F(ServerTest, ARequestThatTheTemplateRefusesIsABadRequest) {
  engine_.SetChatTemplate(
      "{% if messages[0].content == 'bomb' %}{% for a in range(99999) %}{% for b in range(99999) %}"
      "{% endfor %}{% endfor %}{% elif messages[0].role != 'user' %}"
      "{{ raise_exception('The user begins.') }}{% endif %}{{ messages[0].content }}");
  Start();
  HttpClient client = Connect();
  const auto error = [&](const std::string& role, const std::string& content) {
    const auto response = client.Post("/v1/chat/completions", R"({"messages": [{"role": ")" + role +
                                                                  R"(", "content": ")" + content +
                                                                  R"("}], "max_tokens": 1})");
    EXPECT_EQ(response.status, content == "fine" ? 200 : 400) << response.body;
    return Json::parse(response.body)["error"];
  };
  EXPECT_EQ(error("system", "a")["message"], "messages: The user begins.");
  EXPECT_EQ(error("system", "a")["param"], "messages");
  EXPECT_EQ(error("system", "a")["type"], "invalid_request_error");
  EXPECT_THAT(std::string(error("user", "bomb")["message"]), HasSubstr("too many steps"));
  error("user", "fine");
}

TEST_F(ServerTest, AModelWhoseTemplateIsBrokenStillCompletes) {
  engine_.SetChatTemplate("{% if %}");
  Start();
  const auto chat =
      Connect().Post("/v1/chat/completions", R"({"messages": [{"role": "user", "content": "x"}]})");
  EXPECT_EQ(chat.status, 400);
  EXPECT_THAT(chat.body, HasSubstr("line 1"));
  EXPECT_EQ(Connect().Post("/v1/completions", R"({"prompt": "a", "max_tokens": 1})").status, 200);
}

TEST_F(ServerTest, AnswersErrorsInOpenAisShape) {
  Start();
  HttpClient client = Connect();
  const auto error = [&](const HttpClient::Response& response, int status, const Json& param,
                         const Json& code) {
    EXPECT_EQ(response.status, status) << response.body;
    const Json json = Json::parse(response.body)["error"];
    EXPECT_TRUE(json["message"].is_string());
    EXPECT_TRUE(json["type"].is_string());
    EXPECT_EQ(json["param"], param) << response.body;
    EXPECT_EQ(json["code"], code) << response.body;
  };
  const std::string completions = "/v1/completions";
  error(client.Post(completions, R"({"prompt": "a", "top_p": "x"})"), 400, "top_p", nullptr);
  error(client.Post(completions, R"({"prompt": "a", "top_p": 7})"), 400, "top_p", nullptr);
  error(client.Post(completions, "nonsense"), 400, nullptr, nullptr);
  error(client.Post(completions, R"({"prompt": [5, 256]})"), 400, "prompt[1]", nullptr);
  error(client.Post(completions, R"({"prompt": [[5, 256]]})"), 400, "prompt[0][1]", nullptr);
  error(client.Post("/detokenize", R"({"tokens": [5, 256]})"), 400, "tokens[1]", nullptr);
  error(client.Post(completions, R"({"prompt": "a", "logit_bias": {"256": 1}})"), 400,
        "logit_bias.256", nullptr);
  error(client.Post(completions, R"({"prompt": ""})"), 400, "prompt", nullptr);
  error(client.Post(completions, R"({"prompt": "a", "model": "other"})"), 404, "model",
        "model_not_found");
  error(client.Post(completions, "{\"prompt\": \"" + std::string(5000, 'a') + "\"}"), 400, "prompt",
        "context_length_exceeded");
  error(client.Get("/v1/completions"), 405, nullptr, nullptr);
  error(client.Get("/nothing"), 404, nullptr, nullptr);
  const std::string messages =
      R"({"messages": [{"role": "user", "content": ")" + std::string(5000, 'a') + "\"}]}";
  error(client.Post("/v1/chat/completions", messages), 400, "messages", "context_length_exceeded");
}

TEST_F(ServerTest, TakesOnlyBodiesOfJsonWithoutAnEncoding) {
  Start();
  HttpClient client = Connect();
  const std::string body = R"({"prompt": "a", "max_tokens": 1})";
  const auto post = [&](const std::string& headers) {
    client.Send(
        fmt::format("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n{}"
                    "Content-Length: {}\r\n\r\n{}",
                    headers, body.size(), body));
    return client.Receive();
  };
  const std::string json = "Content-Type: application/json\r\n";
  for (const std::string headers :
       {json.c_str(), "content-type:Application/JSON\r\n",
        "Content-Type: application/json; charset=utf-8\r\n",
        "Content-Type: application/json ;charset=UTF-8\r\n",
        "Content-Type: application/json\r\nContent-Encoding: Identity\r\n"}) {
    EXPECT_EQ(post(headers).status, 200) << headers;
  }
  // These include all types that a form or script of a foreign page can send without permission.
  for (const std::string type :
       {"", "Content-Type:\r\n", "Content-Type: text/plain\r\n",
        "Content-Type: text/plain; application/json\r\n", "Content-Type: application/jsonx\r\n",
        "Content-Type: application/json+x\r\n", "Content-Type: application/json, text/plain\r\n",
        "Content-Type: application/x-www-form-urlencoded\r\n"}) {
    const auto refused = post(type);
    EXPECT_EQ(refused.status, 415) << type;
    EXPECT_THAT(refused.body, HasSubstr("application/json")) << type;
  }
  for (const std::string coding : {"gzip", "br", "gzip, identity", "identity, gzip", "x"}) {
    const auto refused = post(json + "Content-Encoding: " + coding + "\r\n");
    EXPECT_EQ(refused.status, 415) << coding;
    EXPECT_THAT(refused.body, HasSubstr("Content-Encoding")) << coding;
  }
}

TEST_F(ServerTest, ListsItsModelAndItsHealth) {
  Start({{.model_id = "my-model"}});
  HttpClient client = Connect();
  const Json models = Json::parse(client.Get("/v1/models").body);
  EXPECT_EQ(models["data"][0]["id"], "my-model");
  EXPECT_EQ(models["data"][0]["max_model_len"], FakeEngine::kContext);
  auto health = client.Get("/health");
  EXPECT_EQ(health.status, 200);
  EXPECT_EQ(Json::parse(health.body)["status"], "ok");
  engine_.SetSecondsSinceProgress(1000);
  health = client.Get("/health");
  EXPECT_EQ(health.status, 503);
  EXPECT_EQ(Json::parse(health.body)["status"], "stuck");
  engine_.SetRestarting("a worker has died");
  health = client.Get("/health");
  EXPECT_EQ(health.status, 503);
  EXPECT_EQ(Json::parse(health.body)["status"], "restarting");
  EXPECT_EQ(Json::parse(health.body)["error"], "a worker has died");
}

TEST_F(ServerTest, AFailedEngineEndsEveryRequestAndThenTheServer) {
  engine_.SetTick(std::chrono::milliseconds(1));
  Start();
  HttpClient stream = Connect(), whole = Connect();
  const std::string body = R"({"prompt": "abc", "max_tokens": 1000000, "stream": )";
  stream.SendPost("/v1/completions", body + "true}");
  whole.SendPost("/v1/completions", body + "false}");
  ASSERT_TRUE(Eventually([&] { return engine_.submitted() == 2 && engine_.steps() > 2; }));
  engine_.Break(Status(StatusCode::kInternal, "the device is gone"));

  const HttpClient::Response answer = whole.Receive();
  EXPECT_EQ(answer.status, 500);
  EXPECT_EQ(Json::parse(answer.body)["error"]["message"], "the device is gone");
  const std::string events = stream.Receive().body;
  EXPECT_THAT(events, HasSubstr(R"("message":"the device is gone")"));
  EXPECT_THAT(events, testing::EndsWith("data: [DONE]\n\n"));

  const HttpClient::Response health = whole.Get("/health");
  EXPECT_EQ(health.status, 503);
  EXPECT_EQ(Json::parse(health.body)["status"], "failed");
  EXPECT_EQ(Json::parse(health.body)["error"], "the device is gone");
  EXPECT_EQ(whole.Post("/v1/completions", R"({"prompt": "a"})").status, 503);

  thread_.join();  // Run returns by itself
  EXPECT_EQ(run_status_.message(), "the device is gone");
}

TEST_F(ServerTest, AnEngineThatFailsIdleEndsTheServerToo) {
  Start();
  engine_.Break(Status(StatusCode::kInternal, "the device is gone"));
  thread_.join();
  EXPECT_EQ(run_status_.message(), "the device is gone");
}

TEST_F(ServerTest, ReturnsOkAfterAShutdown) {
  Start();
  Shutdown();
  EXPECT_TRUE(run_status_.ok());
}

TEST_F(ServerTest, CancelsWhenTheClientGoesAway) {
  engine_.SetTick(std::chrono::milliseconds(1));
  Start();
  for (const char* stream : {"true", "false"}) {
    const int64_t before = engine_.cancelled();
    HttpClient client = Connect();
    const std::string body =
        fmt::format(R"({{"prompt": "a", "n": 2, "max_tokens": 1000000, "stream": {}}})", stream);
    client.SendPost("/v1/completions", body);
    ASSERT_TRUE(Eventually([&] { return engine_.stats().running == 1; }));
    client.Close();
    EXPECT_TRUE(Eventually([&] { return engine_.cancelled() == before + 1; })) << stream;
    EXPECT_TRUE(Eventually([&] { return engine_.stats().running == 0; }));
  }
}

// To the server this looks as if the client had closed.
TEST_F(ServerTest, CancelsWhenTheClientEndsItsSendingHalf) {
  engine_.SetTick(std::chrono::milliseconds(1));
  Start();
  HttpClient client = Connect();
  client.SendPost("/v1/completions", R"({"prompt": "a", "max_tokens": 1000000})");
  ASSERT_TRUE(Eventually([&] { return engine_.stats().running == 1; }));
  client.FinishSending();
  EXPECT_TRUE(Eventually([&] { return engine_.cancelled() == 1; }));
  EXPECT_TRUE(client.AtEnd());
  HttpClient known = Connect();  // requests that need not wait are answered
  known.Send("GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n");
  known.FinishSending();
  EXPECT_EQ(known.Receive().status, 200);
}

TEST_F(ServerTest, DropsAStreamWhoseClientDoesNotRead) {
  ServerOptions options;
  options.limits.max_unsent_bytes = 1 << 16;
  Start(std::move(options));
  HttpClient client = Connect();
  const std::string body = R"({"prompt": "a", "max_tokens": 100000000, "stream": true})";
  client.SendPost("/v1/completions", body);
  EXPECT_TRUE(Eventually([&] { return engine_.cancelled() == 1; }));
  EXPECT_FALSE(client.SkipPast("[DONE]")) << "the connection has ended";
}

TEST_F(ServerTest, RefusesWhatIsTooLargeTooManyOrMalformed) {
  ServerOptions options;
  options.max_body_bytes = 1000;
  options.limits.max_header_bytes = 1000;
  options.max_connections = 3;
  Start(std::move(options));
  {
    HttpClient client = Connect();
    const auto large = client.Post("/v1/completions", std::string(5000, ' '));
    EXPECT_EQ(large.status, 413);
    EXPECT_TRUE(Json::parse(large.body).contains("error"));
    EXPECT_TRUE(client.AtEnd());
  }
  EXPECT_EQ(Connect().Get("/health", "X: " + std::string(5000, 'x') + "\r\n").status, 431);
  {
    HttpClient client = Connect();
    client.Send("NONSENSE\r\n\r\n");
    EXPECT_EQ(client.Receive().status, 400);
  }
  ASSERT_TRUE(Eventually([&] {  // the connections above are closed
    return Connect().Get("/health").status == 200;
  }));
  HttpClient a = Connect(), b = Connect(), c = Connect();
  for (HttpClient* client : {&a, &b, &c}) EXPECT_EQ(client->Get("/health").status, 200);
  EXPECT_EQ(Connect().Receive().status, 503);
  EXPECT_EQ(a.Get("/health").status, 200);
}

TEST_F(ServerTest, TellsClientsThatAreTooSlow) {
  ServerOptions options;
  options.limits.header_seconds = options.limits.body_seconds = 0.1;
  Start(std::move(options));
  const std::string post =
      "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n";
  for (const auto& [beginning, what] : std::vector<std::pair<std::string, std::string>>{
           {"G", "headers"},
           {"GET /health HTTP/1.1\r\nHost", "headers"},
           {post, "headers"},
           {post + "\r\n", "body"},
           {post + "\r\n{", "body"},
           {"POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n4\r\n{\"a",
            "body"}}) {
    for (const bool reused : {false, true}) {
      HttpClient client = Connect();
      if (reused) {
        EXPECT_EQ(client.Get("/health").status, 200);
      }
      client.Send(beginning);
      const auto response = client.Receive();
      EXPECT_EQ(response.status, 408) << beginning;
      EXPECT_THAT(response.headers, HasSubstr("Connection: close\r\n"));
      const Json error = Json::parse(response.body)["error"];
      EXPECT_THAT(error["message"].get<std::string>(), HasSubstr(what));
      EXPECT_EQ(error["type"], "invalid_request_error");
      EXPECT_TRUE(client.AtEnd()) << beginning;
    }
  }
}

TEST_F(ServerTest, ClosesIdleConnectionsWithoutAWord) {
  ServerOptions options;
  options.limits.idle_seconds = 0.1;
  Start(std::move(options));
  HttpClient fresh = Connect();
  HttpClient used = Connect();
  EXPECT_EQ(used.Get("/health").status, 200);
  EXPECT_TRUE(fresh.AtEnd());
  EXPECT_TRUE(used.AtEnd());
}

TEST_F(ServerTest, AResponseMayTakeLongerThanItsRequest) {
  ServerOptions options;
  options.limits.header_seconds = options.limits.body_seconds = options.limits.idle_seconds = 0.1;
  Start(std::move(options));
  engine_.HoldTokenize(1);
  HttpClient client = Connect();
  client.SendPost("/v1/completions", R"({"prompt": "ab", "max_tokens": 2})");
  ASSERT_TRUE(Eventually([&] { return engine_.holding() == 1; }));
  ASSERT_TRUE(Connect().AtEnd());  // as long as an idle connection may last
  engine_.ReleaseTokenize();
  EXPECT_EQ(client.Receive().status, 200);

  engine_.HoldTokenize(1);
  client.SendPost("/v1/completions", R"({"prompt": "ab", "max_tokens": 2})");
  ASSERT_TRUE(Eventually([&] { return engine_.holding() == 1; }));
  ASSERT_TRUE(Connect().AtEnd());
  client.Close();  // the server still notices
  EXPECT_TRUE(
      Eventually([&] { return Json::parse(Connect().Get("/health").body)["preparing"] == 0; }));
}

TEST_F(ServerTest, ServesPipelinedRequestsAndHttp10) {
  Start();
  HttpClient client = Connect();
  client.Send(
      "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\nGET /v1/models HTTP/1.1\r\nHost: "
      "localhost\r\n\r\n");
  EXPECT_THAT(client.Receive().body, HasSubstr("seconds_since_progress"));
  EXPECT_THAT(client.Receive().body, HasSubstr("\"list\""));
  HttpClient old = Connect();
  const std::string body = R"({"prompt": "ab", "max_tokens": 2, "stream": true})";
  old.Send(
      fmt::format("POST /v1/completions HTTP/1.0\r\nContent-Type: application/json\r\n"
                  "Content-Length: {}\r\n\r\n{}",
                  body.size(), body));
  EXPECT_TRUE(old.ReceiveUntil("data: [DONE]\n\n"));
}

TEST_F(ServerTest, AsksForAKeyWhenItHasOne) {
  const std::string path = testing::TempDir() + "/keys";
  std::ofstream(path) << "# two keys\nfirst\n\n  second \r\n";
  Start({{.api_key_file = path}});
  HttpClient client = Connect();
  EXPECT_EQ(client.Get("/v1/models").status, 401);
  EXPECT_EQ(client.Get("/v1/models", "Authorization: Bearer firs\r\n").status, 401);
  EXPECT_EQ(client.Get("/v1/models", "Authorization: Bearer # two keys\r\n").status, 401);
  EXPECT_EQ(client.Get("/v1/models", "Authorization: first\r\n").status, 401);
  EXPECT_EQ(client.Get("/v1/models", "Authorization: Bearer first\r\n").status, 200);
  EXPECT_EQ(client.Get("/v1/models", "Authorization: Bearer second\r\n").status, 200);
  EXPECT_EQ(client.Get("/health").status, 200);
  std::remove(path.c_str());
}

TEST_F(ServerTest, BoundsPrioritiesByKeyAndNamesTheClientToTheEngine) {
  const std::string path = testing::TempDir() + "/priority_keys";
  std::ofstream(path) << "plain\nurgent priority=5\n";
  Start({{.api_key_file = path}});
  const auto complete = [&](const char* key, int64_t priority) {
    return Connect().Post(
        "/v1/completions",
        fmt::format(R"({{"prompt": "a", "max_tokens": 1, "priority": {}}})", priority),
        fmt::format("Authorization: Bearer {}\r\n", key));
  };
  const HttpClient::Response refused = complete("plain", 1);
  EXPECT_EQ(refused.status, 400);
  const Json error = Json::parse(refused.body)["error"];
  EXPECT_EQ(error["param"], "priority");
  EXPECT_THAT(error["message"].get<std::string>(), HasSubstr("at most 0, got 1"));
  EXPECT_EQ(complete("plain", 2147483647).status, 400);
  EXPECT_EQ(complete("urgent", 6).status, 400);
  EXPECT_EQ(engine_.submitted(), 0);
  EXPECT_EQ(complete("plain", 0).status, 200);
  const std::string plain = engine_.last_request().client;
  EXPECT_EQ(complete("plain", -2147483648).status, 200);
  EXPECT_EQ(engine_.last_request().client, plain);
  EXPECT_EQ(complete("urgent", 5).status, 200);
  EXPECT_EQ(engine_.last_request().priority, 5);
  EXPECT_NE(engine_.last_request().client, plain);
  std::remove(path.c_str());
}

TEST_F(ServerTest, OpensToOtherMachinesOnlyWithAKeyOrWhenTold) {
  const auto open = Server::Create(engine_, {{.host = "0.0.0.0", .port = 0}});
  ASSERT_FALSE(open.ok());
  EXPECT_THAT(std::string(open.status().message()), HasSubstr("insecure=true"));
  EXPECT_TRUE(Server::Create(engine_, {{.host = "0.0.0.0", .port = 0, .insecure = true}}).ok());
  EXPECT_TRUE(Server::Create(engine_, {{.host = "localhost", .port = 0}}).ok());
  EXPECT_FALSE(Server::Create(engine_, {{.host = "no.such.host.invalid", .port = 0}}).ok());
  const auto none = Server::Create(engine_, {{.host = "", .port = 0}});
  ASSERT_FALSE(none.ok());
  EXPECT_THAT(std::string(none.status().message()), HasSubstr("host: is empty"));
}

TEST_F(ServerTest, ShutdownFinishesRunningRequestsAndRefusesNewOnes) {
  engine_.SetTick(std::chrono::milliseconds(2));
  Start();
  HttpClient idle = Connect();
  EXPECT_EQ(idle.Get("/health").status, 200);
  HttpClient::Response response;
  std::thread request([&] {
    response = Connect().Post("/v1/completions", R"({"prompt": "a", "max_tokens": 100})");
  });
  ASSERT_TRUE(Eventually([&] { return engine_.stats().running == 1; }));
  Shutdown();
  request.join();
  EXPECT_EQ(response.status, 200) << response.body;
  EXPECT_EQ(Json::parse(response.body)["choices"][0]["text"], std::string(100, 'a'));
  EXPECT_TRUE(idle.AtEnd());
  EXPECT_FALSE(HttpClient(server_->port()).connected());
}

// "overloaded" would ask clients to try again.
TEST_F(ServerTest, SaysThatItIsShuttingDown) {
  engine_.SetTick(std::chrono::milliseconds(1));
  Start({{.drain_seconds = 1000}});
  HttpClient whole = Connect(), stream = Connect();
  whole.SendPost("/v1/completions", R"({"prompt": "a", "max_tokens": 1000000})");
  stream.SendPost("/v1/completions", R"({"prompt": "a", "max_tokens": 1000000, "stream": true})");
  ASSERT_TRUE(stream.ReceiveUntil("data: {"));
  ASSERT_TRUE(Eventually([&] { return engine_.submitted() == 2; }));
  server_->Shutdown();
  server_->Shutdown();
  const auto answer = whole.Receive();
  EXPECT_EQ(answer.status, 503);
  EXPECT_EQ(Json::parse(answer.body)["error"]["code"], "shutting_down") << answer.body;
  const std::string events = stream.Receive().body;
  const size_t at = events.find("data: {\"error\"");
  ASSERT_NE(at, std::string::npos) << events;
  const std::string event = events.substr(at + 6, events.find("\n\n", at) - at - 6);
  EXPECT_EQ(Json::parse(event)["error"]["code"], "shutting_down");
  EXPECT_TRUE(events.ends_with("data: [DONE]\n\n"));
}

TEST_F(ServerTest, RefusesADrainTimeOutOfItsRange) {
  for (const double seconds : {-1.0, -1e-9, 1e7, HUGE_VAL, std::nan("")}) {
    const auto server = Server::Create(engine_, {{.port = 0, .drain_seconds = seconds}});
    ASSERT_FALSE(server.ok()) << seconds;
    EXPECT_THAT(std::string(server.status().message()), HasSubstr("drain_seconds")) << seconds;
  }
  EXPECT_TRUE(Server::Create(engine_, {{.port = 0, .drain_seconds = 0}}).ok());
}

TEST_F(ServerTest, ShutdownCancelsRequestsThatTakeTooLong) {
  engine_.SetTick(std::chrono::milliseconds(1));
  Start({{.drain_seconds = 0.1}});
  HttpClient::Response response;
  std::thread request([&] {
    response = Connect().Post("/v1/completions", R"({"prompt": "a", "max_tokens": 100000000})");
  });
  ASSERT_TRUE(Eventually([&] { return engine_.stats().running == 1; }));
  Shutdown();
  request.join();
  EXPECT_EQ(response.status, 503) << response.body;
}

}  // namespace
}  // namespace tokamak
