#include "server/openai/completion.h"

#include <gtest/gtest.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <chrono>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "server/testing/server_fixture.h"

namespace tokamak {
namespace {

// An engine that sends what the test says.
class ToldEngine final : public FakeEngine {
 public:
  Result<RequestId> Submit(Request, OutputCallback on_output) override {
    on_output_ = std::move(on_output);
    return 1;
  }
  void Pause(RequestId) override { ++pauses; }
  void Resume(RequestId) override { ++resumes; }
  void Cancel(RequestId) override { ++cancels; }

  void Send(OutputChunk chunk) const { on_output_(std::move(chunk)); }

  int pauses = 0;
  int resumes = 0;
  int cancels = 0;

 private:
  OutputCallback on_output_;
};

OutputChunk Chunk(size_t bytes) {
  OutputChunk chunk;
  chunk.text = std::string(bytes, 'a');
  return chunk;
}

// A stream is paused because its client does not read. A chunk that came before takes long to
// format, and meanwhile the client reads.
TEST(Completion, ResumesWhenTheClientReadsWhileALongTextIsMade) {
  ToldEngine engine;
  const RequestLimits limits;
  const Preparer preparer(engine, "m", limits);
  auto prepared =
      preparer.Prepare(/*chat=*/false, R"({"prompt": "a", "stream": true, "logprobs": 1})");
  ASSERT_TRUE(prepared.ok()) << prepared.status().ToString();
  boost::asio::io_context io;
  size_t unsent = 0;
  ResponseWriter writer(
      io, {}, {.max_unsent = SIZE_MAX / 2, .max_together = SIZE_MAX, .together = &unsent});
  TextMaker text_maker;
  {
    Completion completion(engine, writer, *std::move(prepared), {}, limits, preparer.token_sizes(),
                          text_maker);
    ASSERT_TRUE(completion.Submit().ok());
    boost::asio::co_spawn(io, completion.Respond(), boost::asio::detached);
    engine.Send(Chunk(20000));
    engine.Send(Chunk(20000));
    io.poll();
    EXPECT_EQ(engine.pauses, 1);

    engine.HoldTokenBytes('z');
    OutputChunk chunk = Chunk(kShortText);
    chunk.logprobs.push_back({.token = {'a', -0.5f}, .top = {{'z', -0.5f}}});
    engine.Send(std::move(chunk));
    while (engine.holding() == 0) io.poll();
    EXPECT_FALSE(writer.TakeUnsent().empty());
    writer.Sent();
    io.poll();
    engine.ReleaseTokenBytes();
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (engine.resumes == 0 && std::chrono::steady_clock::now() < end) {
      io.run_one_for(std::chrono::milliseconds(10));
    }
    EXPECT_EQ(engine.resumes, 1);
    EXPECT_GT(writer.TakeUnsent().size(), kShortText);

    writer.Gone();
    io.run();
    EXPECT_EQ(engine.cancels, 0);
  }
  EXPECT_EQ(engine.cancels, 1);
}

using CompletionTest = ServerFixture;

// A lost worker is no rate limit, although the engine is healthy and only the queue is full of it.
TEST_F(CompletionTest, TheErrorOfAStepIsTheServersAndSaysWhetherToTryAgain) {
  engine_.SetTick(std::chrono::milliseconds(1));
  Start();
  struct Case {
    Status error;
    int status;
    std::string code;
  };
  const std::vector<Case> cases = {{Unavailable("a worker has ended"), 503, "unavailable"},
                                   {Internal("the step has failed"), 500, "internal_error"}};
  for (const Case& expected : cases) {
    const int64_t before = engine_.submitted();
    HttpClient stream = Connect(), whole = Connect();
    const std::string body = R"({"prompt": "a", "max_tokens": 1000000, "stream": )";
    ASSERT_TRUE(stream.SendPost("/v1/completions", body + "true}"));
    ASSERT_TRUE(whole.SendPost("/v1/completions", body + "false}"));
    ASSERT_TRUE(stream.ReceiveUntil("data: {"));
    ASSERT_TRUE(Eventually([&] { return engine_.submitted() == before + 2; }));
    engine_.FailStep(expected.error);
    const HttpClient::Response answer = whole.Receive();
    EXPECT_EQ(answer.status, expected.status);
    EXPECT_EQ(answer.headers.find("Retry-After: 1\r\n") != std::string::npos,
              expected.status == 503);
    const std::string events = stream.Receive().body;
    const size_t at = events.find("data: {\"error\"");
    ASSERT_NE(at, std::string::npos) << events;
    for (const std::string& text :
         {answer.body, events.substr(at + 6, events.find("\n\n", at) - at - 6)}) {
      const nlohmann::json error = nlohmann::json::parse(text)["error"];
      EXPECT_EQ(error["type"], "server_error");
      EXPECT_EQ(error["code"], expected.code);
      EXPECT_EQ(error["message"], expected.error.message());
    }
    EXPECT_EQ(whole.Post("/v1/completions", R"({"prompt": "a"})").status, 200);
  }
}

// Destroys the coroutines while they wait; the engine goes on.
TEST_F(CompletionTest, AServerMayEndWhileAnswersAreUnderWay) {
  engine_.SetTick(std::chrono::microseconds(100));
  Start({{.drain_seconds = 1000}});
  HttpClient stream = Connect(), whole = Connect(), deaf = Connect();
  const std::string body = R"({"prompt": "a", "max_tokens": 1000000, "stream": )";
  ASSERT_TRUE(stream.SendPost("/v1/completions", body + "true}"));
  ASSERT_TRUE(whole.SendPost("/v1/completions", body + "false}"));
  ASSERT_TRUE(deaf.SendPost("/v1/completions", body + "true}"));
  ASSERT_TRUE(stream.SkipPast("data: "));
  ASSERT_TRUE(Eventually([&] { return engine_.submitted() == 3; }));
  engine_.SetTick(std::chrono::milliseconds(100));
  for (int i = 0; i < 3; ++i) server_->Shutdown();
  thread_.join();
  server_ = nullptr;
  EXPECT_TRUE(Eventually([&] { return engine_.stats().running == 0; }));
  EXPECT_EQ(engine_.cancelled(), 3);
  while (stream.SkipPast("data: ")) {
  }
  // Answered only if the engine cancels before the third call ends the server.
  EXPECT_EQ(whole.ReceiveUntil("HTTP/1.1 "), whole.ReceiveUntil("HTTP/1.1 503 "));
}

}  // namespace
}  // namespace tokamak
