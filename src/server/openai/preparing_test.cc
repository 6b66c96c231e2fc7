// Tests requests that are being parsed and tokenized and that the engine does not have yet.
#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "server/testing/server_fixture.h"

namespace tokamak {
namespace {

using Json = nlohmann::json;
using testing::HasSubstr;

constexpr char kPath[] = "/v1/completions";

class PreparingTest : public ServerFixture {
 protected:
  // Bodies of more than 200 bytes are large. Tokenizing a prompt of 200 bytes waits for
  // ReleaseTokenize.
  void StartAndHold(ServerOptions options = {}) {
    options.preparing.small_bytes = 200;
    Start(std::move(options));
    engine_.HoldTokenize(200);
  }
  static std::string Body(size_t prompt_bytes) {
    return fmt::format(R"({{"prompt": "{}", "max_tokens": 2}})", std::string(prompt_bytes, 'a'));
  }
  static std::string Large() { return Body(200); }
  static std::string Small() { return Body(2); }

  int Preparing() { return Json::parse(Connect().Get("/health").body)["preparing"]; }
  // Sends a large prompt, which keeps the thread of large jobs busy.
  void Occupy(HttpClient& client) {
    client.SendPost(kPath, Large());
    ASSERT_TRUE(Eventually([&] { return engine_.holding() == 1; }));
  }
  // Sends a large prompt that waits for the first.
  void Wait(HttpClient& client, int preparing) {
    client.SendPost(kPath, Large());
    ASSERT_TRUE(Eventually([&] { return Preparing() == preparing; }));
  }
};

TEST_F(PreparingTest, OthersGoOnWhileALargePromptIsTokenized) {
  engine_.SetTick(std::chrono::milliseconds(1));
  StartAndHold();
  HttpClient stream = Connect();
  stream.SendPost(kPath, R"({"prompt": "a", "max_tokens": 1000000, "stream": true})");
  ASSERT_TRUE(stream.SkipPast("data: "));
  HttpClient large = Connect();
  Occupy(large);
  // There are more events than before, so the engine made and sent some meanwhile.
  const int64_t before = engine_.steps();
  for (int64_t i = 0; i < before + 20; ++i) ASSERT_TRUE(stream.SkipPast("data: "));
  EXPECT_EQ(Connect().Get("/health").status, 200);
  EXPECT_EQ(Connect().Post(kPath, Small()).status, 200);
  ASSERT_EQ(engine_.holding(), 1);
  EXPECT_EQ(Preparing(), 1);
  engine_.ReleaseTokenize();
  const auto response = large.Receive();
  EXPECT_EQ(response.status, 200);
  EXPECT_EQ(Json::parse(response.body)["choices"][0]["text"], "aa");
  EXPECT_EQ(Preparing(), 0);
}

TEST_F(PreparingTest, AClientThatLeavesTakesItsWaitingRequestAlong) {
  StartAndHold();
  HttpClient first = Connect();
  Occupy(first);
  {
    HttpClient second = Connect();
    Wait(second, 2);
  }
  ASSERT_TRUE(Eventually([&] { return Preparing() == 1; }));
  engine_.ReleaseTokenize();
  EXPECT_EQ(first.Receive().status, 200);
  // Large jobs run in order, so the second one would have come first.
  EXPECT_EQ(Connect().Post(kPath, Large()).status, 200);
  EXPECT_EQ(engine_.tokenized(), 2);
  EXPECT_EQ(engine_.submitted(), 2);
}

TEST_F(PreparingTest, NothingComesOfARequestWhoseClientLeftMeanwhile) {
  StartAndHold();
  {
    HttpClient gone = Connect();
    Occupy(gone);
  }
  ASSERT_TRUE(Eventually([&] { return Preparing() == 0; }));
  ASSERT_EQ(engine_.holding(), 1);
  HttpClient next = Connect();
  Wait(next, 1);
  engine_.ReleaseTokenize();
  EXPECT_EQ(next.Receive().status, 200);  // prepared on the same thread after the first
  EXPECT_EQ(engine_.tokenized(), 2);
  EXPECT_EQ(engine_.submitted(), 1);
  EXPECT_EQ(engine_.cancelled(), 0);
}

TEST_F(PreparingTest, AFullQueueIsRefusedAndSmallRequestsPass) {
  ServerOptions options;
  options.preparing.max_large_waiting = 1000;
  StartAndHold(std::move(options));
  HttpClient first = Connect();
  Occupy(first);
  HttpClient second = Connect();
  Wait(second, 2);
  HttpClient third = Connect();
  const auto refused = third.Post(kPath, Large());
  EXPECT_EQ(refused.status, 429);
  EXPECT_THAT(refused.headers, HasSubstr("Retry-After: 1\r\n"));
  const Json error = Json::parse(refused.body)["error"];
  EXPECT_EQ(error["code"], "overloaded");
  EXPECT_THAT(error["message"].get<std::string>(), HasSubstr("queue"));
  EXPECT_EQ(third.Post(kPath, Small()).status, 200);  // on the same connection
  EXPECT_EQ(engine_.holding(), 1);
  engine_.ReleaseTokenize();
  EXPECT_EQ(first.Receive().status, 200);
  EXPECT_EQ(second.Receive().status, 200);
  EXPECT_EQ(third.Post(kPath, Large()).status, 200);
}

TEST_F(PreparingTest, ATextThatCannotFitIsRefusedBeforeItIsTokenized) {
  engine_.SetBytesPerToken(2);
  engine_.SetChatTemplate("{{ messages[0].content }}");
  Start();
  const auto post = [&](const std::string& path, const Json& body) {
    const auto response = Connect().Post(path, body.dump());
    const Json error = Json::parse(response.body).value("error", Json::object());
    return std::make_tuple(response.status, error.value("param", Json()),
                           error.value("code", Json()));
  };
  const auto refused = [](const char* param) {
    return std::make_tuple(400, Json(param), Json("context_length_exceeded"));
  };
  const std::string longest(size_t{2} * FakeEngine::kContext, 'a'), longer = longest + 'a';
  const int64_t before = engine_.tokenized();
  EXPECT_EQ(post("/v1/completions", {{"prompt", longer}}), refused("prompt"));
  EXPECT_EQ(post("/v1/completions", {{"prompt", {"a", longer}}}), refused("prompt[1]"));
  EXPECT_EQ(engine_.tokenized(), before + 1);  // "a"
  const Json message = {{"role", "user"}, {"content", longer}};
  EXPECT_EQ(post("/v1/chat/completions", {{"messages", Json::array({message})}}),
            refused("messages"));
  EXPECT_EQ(engine_.tokenized(), before + 1);
  // Only tokenizing tells whether it fits. Counting tokens does not depend on the context.
  EXPECT_EQ(std::get<0>(post("/v1/completions", {{"prompt", longest}, {"max_tokens", 1}})), 400);
  EXPECT_EQ(std::get<0>(post("/tokenize", {{"text", longer}})), 200);
  EXPECT_EQ(engine_.tokenized(), before + 3);
}

TEST_F(PreparingTest, ErrorsOfLargeBodiesAreThoseOfSmallOnes) {
  StartAndHold();
  engine_.ReleaseTokenize();
  for (const size_t spaces : {0, 1000}) {
    const auto post = [&](std::string body) {
      body.insert(body.size() - 1, spaces, ' ');
      const auto response = Connect().Post(kPath, body);
      return std::make_pair(response.status, Json::parse(response.body)["error"]["param"]);
    };
    EXPECT_EQ(post(R"({"prompt": "a", "top_p": "x"})"), std::make_pair(400, Json("top_p")));
    EXPECT_EQ(post(R"({"prompt": "a", "model": "b"})"), std::make_pair(404, Json("model")));
    EXPECT_EQ(post(R"({"prompt": ""})"), std::make_pair(400, Json("prompt")));
    EXPECT_EQ(post(R"([])"), std::make_pair(400, Json(nullptr)));
  }
}

TEST_F(PreparingTest, ShutdownSubmitsRequestsThatHaveArrived) {
  StartAndHold();
  HttpClient first = Connect(), second = Connect();
  Occupy(first);
  Wait(second, 2);
  server_->Shutdown();
  ASSERT_TRUE(Eventually([&] { return !Connect().connected(); }));
  engine_.ReleaseTokenize();
  EXPECT_EQ(first.Receive().status, 200);
  EXPECT_EQ(second.Receive().status, 200);
  thread_.join();
}

TEST_F(PreparingTest, ShutdownAnswersRequestsStillBeingPreparedWhenTimeIsUp) {
  StartAndHold({{.drain_seconds = 0.1}});
  HttpClient first = Connect(), second = Connect();
  Occupy(first);
  Wait(second, 2);
  server_->Shutdown();
  for (HttpClient* client : {&first, &second}) {
    const auto response = client->Receive();
    EXPECT_EQ(response.status, 503);
    EXPECT_EQ(Json::parse(response.body)["error"]["code"], "shutting_down");
  }
  EXPECT_EQ(engine_.holding(), 1);
  thread_.join();
  engine_.ReleaseTokenize();
  server_ = nullptr;
  EXPECT_EQ(engine_.tokenized(), 1);
  EXPECT_EQ(engine_.submitted(), 0);
}

TEST_F(PreparingTest, ASecondSignalDoesNotWaitForTokenizing) {
  StartAndHold({{.drain_seconds = 1000}});
  HttpClient client = Connect();
  Occupy(client);
  server_->Shutdown();
  server_->Shutdown();
  EXPECT_EQ(client.Receive().status, 503);
  EXPECT_EQ(engine_.holding(), 1);
  thread_.join();
  EXPECT_TRUE(server_->busy());
  engine_.ReleaseTokenize();
  EXPECT_TRUE(Eventually([&] { return !server_->busy(); }));
}

TEST_F(PreparingTest, HealthReportsAStuckThread) {
  ServerOptions options;
  options.preparing.stuck_seconds = 0;
  StartAndHold(std::move(options));
  EXPECT_EQ(Connect().Get("/health").status, 200);
  HttpClient client = Connect();
  Occupy(client);
  const auto stuck = Connect().Get("/health");
  EXPECT_EQ(stuck.status, 503);
  EXPECT_EQ(Json::parse(stuck.body)["status"], "stuck");
  EXPECT_THAT(std::string(Json::parse(stuck.body)["error"]), HasSubstr("a request has been read"));
  EXPECT_THAT(Connect().Get("/metrics").body, HasSubstr("tokamak_engine_healthy 0"));
  engine_.ReleaseTokenize();
  EXPECT_EQ(client.Receive().status, 200);
  EXPECT_TRUE(Eventually([&] { return Connect().Get("/health").status == 200; }));
}

TEST_F(PreparingTest, ShutdownForgetsRequestsWhoseClientsLeave) {
  StartAndHold({{.drain_seconds = 1000}});
  HttpClient first = Connect(), second = Connect();
  Occupy(first);
  Wait(second, 2);
  server_->Shutdown();
  first.Close();
  second.Close();
  thread_.join();  // although nothing was released
  EXPECT_EQ(engine_.holding(), 1);
}

}  // namespace
}  // namespace tokamak
