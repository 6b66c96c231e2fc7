// Tests how the whole server treats malicious clients. The rules are tested beside their code
// (access_test.cc, request_limits_test.cc, transport/request_reader_test.cc).
#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>

#include "server/testing/server_fixture.h"

namespace tokamak {
namespace {

using testing::HasSubstr;
using testing::Not;

class SecurityTest : public ServerFixture {
 protected:
  void SetUp() override {
    keys_ = testing::TempDir() + "/security_keys";
    std::ofstream(keys_) << "key\n";
  }
  void TearDown() override {
    ServerFixture::TearDown();
    std::remove(keys_.c_str());
  }
  std::string keys_;
};

constexpr char kRight[] = "Authorization: Bearer key\r\n";

TEST_F(SecurityTest, AsksForTheKeyBeforeItReadsABody) {
  Start({{.api_key_file = keys_}});
  HttpClient client = Connect();
  client.Send(
      "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5000000\r\n"
      "Expect: 100-continue\r\n\r\n");
  const auto refused = client.Receive();
  EXPECT_EQ(refused.status, 401);
  EXPECT_THAT(refused.headers, HasSubstr("Connection: close\r\n"));
  EXPECT_TRUE(client.AtEnd());
  HttpClient chunks = Connect();  // whatever size its body announces
  chunks.Send(
      fmt::format("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n"
                  "Content-Length: {}\r\n\r\n",
                  UINT64_MAX));
  EXPECT_EQ(chunks.Receive().status, 401);
  HttpClient reused = Connect();  // without a body it need not close
  EXPECT_EQ(reused.Get("/v1/models").status, 401);
  EXPECT_EQ(reused.Get("/v1/models", kRight).status, 200);
}

TEST_F(SecurityTest, LimitsConnectionsPerClient) {
  ServerOptions options;
  options.max_connections_per_client = 2;
  Start(std::move(options));
  HttpClient a = Connect(), b = Connect();
  EXPECT_EQ(a.Get("/health").status, 200);
  EXPECT_EQ(b.Get("/health").status, 200);
  const auto refused = Connect().Receive();
  EXPECT_EQ(refused.status, 429);
  EXPECT_THAT(refused.headers, HasSubstr("Retry-After: "));
  a.Close();
  EXPECT_TRUE(Eventually([&] { return Connect().Get("/health").status == 200; }));
}

TEST_F(SecurityTest, LimitsBodiesThatArriveAtTheSameTime) {
  ServerOptions options;
  options.limits.max_arriving_bytes = 10000;
  Start(std::move(options));
  const std::string head =
      "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9000\r\n\r\n";
  HttpClient first = Connect();
  first.Send(head + std::string(8000, ' '));
  HttpClient::Response refused;
  ASSERT_TRUE(Eventually([&] {  // once the first one's bytes have arrived
    HttpClient second = Connect();
    second.Send(head + std::string(8000, ' '));
    refused = second.Receive();
    return refused.status == 503;
  }));
  first.Close();
}

TEST_F(SecurityTest, EveryAnswerTellsBrowsersToBeCareful) {
  Start();
  HttpClient client = Connect();
  for (const auto& response :
       {client.Get("/health"), client.Get("/nothing"), client.Post("/v1/completions", "nonsense"),
        client.Post("/v1/completions", R"({"prompt": "a", "max_tokens": 1, "stream": true})"),
        Connect().Get("/health", "Host: again\r\n")}) {
    EXPECT_THAT(response.headers, HasSubstr("X-Content-Type-Options: nosniff\r\n"));
    EXPECT_THAT(response.headers, HasSubstr("Cache-Control: no-store\r\n"));
    EXPECT_THAT(response.headers, HasSubstr("Referrer-Policy: no-referrer\r\n"));
    EXPECT_THAT(response.headers, Not(HasSubstr("Access-Control-")));
  }
}

TEST_F(SecurityTest, AFullQueueIsTooManyRequests) {
  ServerOptions options;
  options.preparing.max_small_waiting = 1;
  Start(std::move(options));
  engine_.HoldTokenize(1);
  const std::string body = R"({"prompt": "ab", "max_tokens": 1})";
  std::vector<std::unique_ptr<HttpClient>> clients;
  // Two run, one on each thread, and one may always wait.
  for (int i = 0; i < 3; ++i) {
    clients.push_back(std::make_unique<HttpClient>(server_->port()));
    clients.back()->SendPost("/v1/completions", body);
    ASSERT_TRUE(Eventually([&] { return engine_.holding() == std::min(i + 1, 2); }));
  }
  ASSERT_TRUE(Eventually(
      [&] { return Connect().Get("/health").body.find("\"preparing\":3") != std::string::npos; }));
  const auto refused = Connect().Post("/v1/completions", body);
  EXPECT_EQ(refused.status, 429) << refused.body;
  EXPECT_THAT(refused.headers, HasSubstr("Retry-After: "));
  EXPECT_THAT(refused.body, HasSubstr("rate_limit_error"));
  engine_.ReleaseTokenize();
  for (const auto& client : clients) EXPECT_EQ(client->Receive().status, 200);
}

TEST_F(SecurityTest, AddressesThatOthersCanReachNeedAKey) {
  for (const char* host : {"0.0.0.0", "::", "::ffff:0.0.0.0", "0"}) {
    const auto open = Server::Create(engine_, {{.host = host, .port = 0}});
    ASSERT_FALSE(open.ok()) << host;
    EXPECT_THAT(std::string(open.status().message()), HasSubstr("insecure=true")) << host;
  }
  for (const char* host : {"127.0.0.1", "127.0.0.2", "localhost", "::1", "::ffff:127.0.0.1"}) {
    const auto server = Server::Create(engine_, {{.host = host, .port = 0}});
    // The machine may have no IPv6, but the server must not ask for a key.
    if (!server.ok()) {
      EXPECT_THAT(std::string(server.status().message()), HasSubstr("cannot listen")) << host;
    }
  }
}

TEST_F(SecurityTest, TlsNeedsBothFilesAndGoodOnes) {
  EXPECT_FALSE(Server::Create(engine_, {{.port = 0, .tls_cert_file = keys_}}).ok());
  const auto bad =
      Server::Create(engine_, {{.port = 0, .tls_cert_file = keys_, .tls_key_file = keys_}});
  ASSERT_FALSE(bad.ok());
  EXPECT_THAT(std::string(bad.status().message()), HasSubstr("tls_key_file=" + keys_));
}

}  // namespace
}  // namespace tokamak
