// Tests responses that take long to format: other threads do that, and no other request waits.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "server/testing/server_fixture.h"
#include "server/text_maker.h"

namespace tokamak {
namespace {

using Json = nlohmann::json;

constexpr char kPath[] = "/v1/completions";
// The logprobs of so many tokens are longer than kShortText.
constexpr int kLong = 3000;

class LongAnswersTest : public ServerFixture {
 protected:
  // The prompt, which the answer repeats, is y, a, b, ..., x, y, a, ... The second alternative of
  // each letter is the letter after it. So z is never a token, but it is an alternative of y:
  // formatting logprobs of y waits for ReleaseTokenBytes.
  void StartAndHold(ServerOptions options = {}) {
    Start(std::move(options));
    engine_.HoldTokenBytes('z');
  }
  static std::string Letter(int i) {
    return std::string(1, static_cast<char>('a' + (i + 24) % 25));
  }
  static Json Prompt(int tokens) {
    Json ids = Json::array();
    for (int i = 0; i < tokens; ++i) ids.push_back(Letter(i)[0]);
    return ids;
  }
  bool IsHeld() {
    return Eventually([&] { return engine_.holding() >= 1; });
  }
  static void CheckLogprobs(const Json& logprobs, int tokens) {
    ASSERT_EQ(logprobs["tokens"].size(), static_cast<size_t>(tokens));
    for (int i = 0; i < tokens; ++i) {
      ASSERT_EQ(logprobs["tokens"][i], Letter(i));
      ASSERT_EQ(logprobs["token_logprobs"][i], -0.5);
      ASSERT_EQ(logprobs["top_logprobs"][i].size(), 2u);
      ASSERT_EQ(logprobs["text_offset"][i], i);
    }
  }
  // Returns the JSON of a stream's events, without [DONE].
  static std::vector<Json> Events(const std::string& body) {
    std::vector<Json> events;
    size_t at = 0;
    for (size_t end; (end = body.find("\n\n", at)) != std::string::npos; at = end + 2) {
      const std::string data = body.substr(at + 6, end - at - 6);
      if (data != "[DONE]") events.push_back(Json::parse(data));
    }
    EXPECT_TRUE(body.ends_with("data: [DONE]\n\n"));
    return events;
  }
};

TEST_F(LongAnswersTest, OthersGoOnWhileOneIsMade) {
  StartAndHold();
  HttpClient client = Connect();
  client.SendPost(kPath,
                  Json{{"prompt", Prompt(25)}, {"max_tokens", kLong}, {"logprobs", 2}}.dump());
  ASSERT_TRUE(IsHeld());
  const auto other = Connect().Post(kPath, R"({"prompt": "a", "max_tokens": 3, "logprobs": 1})");
  EXPECT_EQ(Json::parse(other.body)["choices"][0]["text"], "aaa");
  ASSERT_GE(engine_.holding(), 1);
  engine_.ReleaseTokenBytes();
  const auto response = client.Receive();
  ASSERT_GT(response.body.size(), kShortText);
  const Json answer = Json::parse(response.body);
  EXPECT_EQ(answer["usage"]["completion_tokens"], kLong);
  EXPECT_EQ(answer["choices"][0]["finish_reason"], "length");
  CheckLogprobs(answer["choices"][0]["logprobs"], kLong);
}

TEST_F(LongAnswersTest, PiecesOfAStreamWaitForALongOne) {
  Start();
  for (const bool usage : {false, true}) {
    engine_.HoldTokenBytes('z');
    HttpClient client = Connect();
    const int64_t before = engine_.steps();
    client.SendPost(kPath, Json{{"prompt", Prompt(kLong)},
                                {"max_tokens", 30},
                                {"n", 2},
                                {"logprobs", 2},
                                {"prompt_logprobs", 0},
                                {"timings", true},
                                {"stream", true},
                                {"stream_options", {{"include_usage", usage}}}}
                               .dump());
    ASSERT_TRUE(Eventually([&] { return engine_.steps() == before + 30; }));
    ASSERT_TRUE(IsHeld());
    engine_.ReleaseTokenBytes();
    const std::vector<Json> events = Events(client.Receive().body);
    ASSERT_GE(events.size(), 3u);
    const Json& first = events[0]["choices"][0];
    EXPECT_EQ(first["index"], 0);
    EXPECT_EQ(first["text"], "y");
    ASSERT_EQ(first["prompt_logprobs"].size(), static_cast<size_t>(kLong));
    EXPECT_EQ(first["prompt_logprobs"][0], nullptr);
    EXPECT_EQ(first["prompt_logprobs"][kLong - 1]["token"], Letter(kLong - 1));
    Json logprobs[2];
    std::string texts[2];
    for (const Json& event : events) {
      const bool last = &event == &events.back();
      EXPECT_EQ(event.contains("timings"), last);
      if (last && usage) {
        EXPECT_EQ(event["usage"]["completion_tokens"], 60);
      }
      for (const Json& choice : event["choices"]) {
        const int index = choice["index"];
        texts[index] += choice["text"];
        for (const auto& [name, list] : choice["logprobs"].items()) {
          for (const Json& value : list) logprobs[index][name].push_back(value);
        }
        EXPECT_EQ(choice["finish_reason"] == "length", texts[index].size() == 30u) << choice;
      }
    }
    for (int i = 0; i < 2; ++i) {
      EXPECT_EQ(texts[i], "yabcdefghijklmnopqrstuvwxyabcd");
      CheckLogprobs(logprobs[i], 30);
    }
  }
}

TEST_F(LongAnswersTest, ShutdownWaitsForThem) {
  StartAndHold({{.drain_seconds = 1000}});
  HttpClient client = Connect();
  client.SendPost(kPath,
                  Json{{"prompt", Prompt(25)}, {"max_tokens", kLong}, {"logprobs", 2}}.dump());
  ASSERT_TRUE(IsHeld());
  server_->Shutdown();
  server_->Shutdown();  // cancels running requests; there are none
  // Longer than the server gives clients to read last responses.
  std::this_thread::sleep_for(std::chrono::milliseconds(2500));
  engine_.ReleaseTokenBytes();
  EXPECT_EQ(client.Receive().status, 200);
  thread_.join();
}

TEST_F(LongAnswersTest, AThirdSignalWaitsForNothing) {
  StartAndHold({{.drain_seconds = 1000}});
  HttpClient client = Connect();
  client.SendPost(kPath,
                  Json{{"prompt", Prompt(25)}, {"max_tokens", kLong}, {"logprobs", 2}}.dump());
  ASSERT_TRUE(IsHeld());
  for (int i = 0; i < 3; ++i) server_->Shutdown();
  thread_.join();
  EXPECT_TRUE(server_->busy());
  engine_.ReleaseTokenBytes();
}

TEST_F(LongAnswersTest, AnErrorComesAfterThePiecesBeforeIt) {
  engine_.SetTick(std::chrono::milliseconds(1));
  StartAndHold();
  HttpClient client = Connect();
  client.SendPost(kPath, Json{{"prompt", Prompt(kLong)},
                              {"max_tokens", 1000000},
                              {"logprobs", 2},
                              {"prompt_logprobs", 0},
                              {"stream", true}}
                             .dump());
  ASSERT_TRUE(IsHeld());
  ASSERT_TRUE(Eventually([&] { return engine_.steps() > 10; }));
  engine_.Break(Status(StatusCode::kInternal, "lost"));
  ASSERT_TRUE(Eventually([&] { return engine_.steps() > 10; }));
  engine_.ReleaseTokenBytes();
  const std::vector<Json> events = Events(client.Receive().body);
  ASSERT_EQ(events.size(), 3u);
  EXPECT_EQ(events[0]["choices"][0]["prompt_logprobs"].size(), static_cast<size_t>(kLong));
  EXPECT_GE(events[1]["choices"][0]["text"].get<std::string>().size(), 9u);
  EXPECT_EQ(events[2]["error"]["message"], "lost");
}

TEST_F(LongAnswersTest, OnePieceMayBeLongerThanWhatClientsMayLeave) {
  ServerOptions options;
  options.limits.max_unsent_bytes = 50000;
  Start(std::move(options));
  const auto response = Connect().Post(
      kPath,
      Json{{"prompt", Prompt(kLong)}, {"max_tokens", 1}, {"prompt_logprobs", 0}, {"stream", true}}
          .dump());
  EXPECT_EQ(response.status, 200);
  EXPECT_GT(response.body.size(), 50000u);
  EXPECT_EQ(Events(response.body).size(), 1u);
}

TEST_F(LongAnswersTest, AClientMayLeaveMeanwhile) {
  StartAndHold();
  for (const bool stream : {false, true}) {
    HttpClient client = Connect();
    const int64_t before = engine_.steps();
    client.SendPost(kPath, Json{{"prompt", Prompt(kLong)},
                                {"max_tokens", kLong},
                                {"logprobs", 2},
                                {"prompt_logprobs", 0},
                                {"stream", stream}}
                               .dump());
    ASSERT_TRUE(Eventually([&] { return engine_.steps() == before + kLong; }));
  }
  ASSERT_TRUE(IsHeld());
  engine_.ReleaseTokenBytes();
  EXPECT_EQ(Connect().Post(kPath, R"({"prompt": "a"})").status, 200);
}

TEST_F(LongAnswersTest, RefusesToKeepMoreThanTheLimit) {
  ServerOptions options;
  options.requests.max_answer_bytes = 8000;
  Start(std::move(options));
  Json body = {{"prompt", "ab"}, {"max_tokens", 30}, {"logprobs", 2}};
  EXPECT_EQ(Connect().Post(kPath, body.dump()).status, 200);
  body["max_tokens"] = 300;
  const auto refused = Connect().Post(kPath, body.dump());
  EXPECT_EQ(refused.status, 400);
  EXPECT_EQ(Json::parse(refused.body)["error"]["param"], "logprobs");
  body["stream"] = true;
  EXPECT_EQ(Events(Connect().Post(kPath, body.dump()).body).size(), 300u);
  // The message names the field that asked for it.
  const Json scored = {{"prompt", Prompt(400)}, {"max_tokens", 1}, {"prompt_logprobs", 0}};
  const auto prompt = Connect().Post(kPath, scored.dump());
  EXPECT_EQ(prompt.status, 400);
  EXPECT_EQ(Json::parse(prompt.body)["error"]["param"], "prompt_logprobs");
  // With alternatives the answer is refused before it runs.
  Json alternatives = scored;
  alternatives["prompt_logprobs"] = 20;
  const int64_t steps = engine_.steps();
  const auto early = Connect().Post(kPath, alternatives.dump());
  EXPECT_EQ(early.status, 400);
  EXPECT_EQ(Json::parse(early.body)["error"]["param"], "prompt_logprobs");
  EXPECT_EQ(engine_.steps(), steps);
  const Json search = {{"prompt", "ab"}, {"max_tokens", 30},        {"logprobs", 2},
                       {"n", 4},         {"use_beam_search", true}, {"stream", true}};
  const auto beams = Connect().Post(kPath, search.dump());
  EXPECT_EQ(beams.status, 400);
  EXPECT_EQ(Json::parse(beams.body)["error"]["param"], "logprobs");
  EXPECT_EQ(engine_.steps(), steps);
  const Json letters = {{"tokens", Json(std::vector<int>(9000, 'a'))}};
  const auto text = Connect().Post("/detokenize", letters.dump());
  EXPECT_EQ(Json::parse(text.body)["error"]["param"], "tokens");
  const Json pieces = {{"text", std::string(500, 'a')}, {"return_pieces", true}};
  const auto list = Connect().Post("/tokenize", pieces.dump());
  EXPECT_EQ(Json::parse(list.body)["error"]["param"], "return_pieces");
}

}  // namespace
}  // namespace tokamak
