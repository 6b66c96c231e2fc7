// Tests clients that read slowly, or not at all.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "server/testing/server_fixture.h"

namespace tokamak {
namespace {

using SlowClientsTest = ServerFixture;

constexpr char kStream[] = R"({"prompt": "a", "max_tokens": 4000, "stream": true})";

TEST_F(SlowClientsTest, BoundsTheUnreadOutputOfAllClients) {
  ServerOptions options;
  options.limits.max_unsent_together_bytes = 1 << 20;  // each leaves about 800 KB unread
  engine_.IgnorePauses();
  Start(std::move(options));
  std::vector<std::unique_ptr<HttpClient>> deaf;
  for (int i = 0; i < 4; ++i) {
    deaf.push_back(std::make_unique<HttpClient>(server_->port()));
    ASSERT_TRUE(deaf.back()->SendPost("/v1/completions", kStream));
  }
  EXPECT_TRUE(Eventually([&] { return engine_.stats().running == 0; }));
  // A client that reads still gets a small response.
  EXPECT_EQ(Connect().Post("/v1/completions", R"({"prompt": "a", "max_tokens": 5})").status, 200);
  int whole = 0;
  for (const auto& client : deaf) whole += client->SkipPast("[DONE]");
  EXPECT_EQ(whole, 1);
  EXPECT_TRUE(Connect().Post("/v1/completions", kStream).body.ends_with("[DONE]\n\n"))
      << "there is room again";
}

TEST_F(SlowClientsTest, AStreamThatNobodyReadsWaitsAndGoesOnWhenItIsRead) {
  engine_.SetTick(std::chrono::microseconds(200));  // so that the pause usually comes midway
  engine_.HoldLastToken(true);                      // the server may notice late
  Start();
  const std::string choices = R"({"prompt": "abc", "max_tokens": 4000, "stream": true, "n": 2})";
  HttpClient deaf = Connect();
  ASSERT_TRUE(deaf.SendPost("/v1/completions", choices));
  // At first the request may go on after a pause, because the system buffers more of its output. In
  // the end it stays paused, without a step, while another request runs from start to end.
  EXPECT_TRUE(Eventually([&] {
    engine_.HoldLastToken(true);
    if (engine_.stats().paused != 1) return false;
    const int64_t steps = engine_.steps();
    engine_.HoldLastToken(false);
    return Connect().Post("/v1/completions", R"({"prompt": "a", "max_tokens": 5})").status == 200 &&
           engine_.steps() == steps + 5 && engine_.stats().paused == 1;
  }));
  // Nothing is lost: every chunk arrives, as for a client that reads at once.
  const auto pieces = [](const std::string& body) {
    size_t count = 0;
    for (size_t at = 0; (at = body.find("data: ", at)) != std::string::npos; ++at) ++count;
    return count;
  };
  const std::string late = deaf.Receive().body;
  EXPECT_TRUE(late.ends_with("[DONE]\n\n"));
  EXPECT_EQ(pieces(late), pieces(Connect().Post("/v1/completions", choices).body));
  EXPECT_EQ(engine_.stats().paused, 0);
  EXPECT_EQ(engine_.cancelled(), 0);
  // A client that leaves while it is paused is cancelled.
  engine_.HoldLastToken(true);
  HttpClient gone = Connect();
  ASSERT_TRUE(gone.SendPost("/v1/completions", kStream));
  ASSERT_TRUE(Eventually([&] { return engine_.stats().paused == 1; }));
  gone.Close();
  EXPECT_TRUE(Eventually([&] { return engine_.cancelled() == 1; }));
}

TEST_F(SlowClientsTest, ServesASteadySlowReader) {
  using Clock = std::chrono::steady_clock;
  ServerOptions options;
  options.limits.write_seconds = 1;
  Start(std::move(options));
  for (int attempt = 0; attempt < 5; ++attempt) {
    HttpClient client = Connect();
    ASSERT_TRUE(client.SendPost("/v1/completions", kStream));
    // 4000 events in about two seconds.
    bool whole = true;
    Clock::duration longest{};
    for (int i = 0; i < 40 && whole; ++i) {
      const Clock::time_point start = Clock::now();
      for (int event = 0; event < 99 && whole; ++event) whole = client.SkipPast("\n\n");
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      longest = std::max(longest, Clock::now() - start);
    }
    if (whole && client.SkipPast("[DONE]")) return;
    // If the machine made the client pause, the server was right to pause.
    ASSERT_GT(longest, std::chrono::milliseconds(500)) << "a steady client was dropped";
  }
  GTEST_SKIP() << "this machine lets nobody be steady";
}

TEST_F(SlowClientsTest, RequestsThatWereSentAheadAreAnsweredInOrder) {
  Start();
  HttpClient client = Connect();
  std::string requests;
  for (int i = 0; i < 50; ++i) {
    requests += fmt::format("GET /v1/models/{} HTTP/1.1\r\nHost: localhost\r\n\r\n",
                            i % 7 == 0 ? "fake" : "other");
  }
  ASSERT_TRUE(client.Send(requests));
  for (int i = 0; i < 50; ++i) EXPECT_EQ(client.Receive().status, i % 7 == 0 ? 200 : 404) << i;
  EXPECT_EQ(client.Get("/health").status, 200);
  // A client leaves while its requests wait for their turns.
  HttpClient gone = Connect();
  ASSERT_TRUE(gone.Send(requests));
  ASSERT_EQ(gone.Receive().status, 200);
  gone.Close();
  EXPECT_EQ(client.Get("/health").status, 200);
}

}  // namespace
}  // namespace tokamak
