// Tests that each option of an embedded server has its effect.
#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "server/testing/fake_engine.h"
#include "server/testing/http_client.h"
#include "server/transport/http_caller.h"
#include "tokamak/server.h"

namespace tokamak {
namespace {

using testing::HasSubstr;

class EmbeddedTest : public testing::Test {
 protected:
  EmbeddedTest() {
    std::string name = testing::TempDir() + "embedded_XXXXXX";
    folder_ = ::mkdtemp(name.data());
    options_.port = 0;
  }
  ~EmbeddedTest() override {
    server_ = nullptr;
    std::filesystem::remove_all(folder_);
  }

  Status Start() {
    server_ = nullptr;
    Result<std::unique_ptr<EmbeddedServer>> server = EmbeddedServer::Start(engine_, options_);
    if (!server.ok()) return server.status();
    server_ = *std::move(server);
    return Status();
  }
  HttpClient Connect() const { return HttpClient(server_->port()); }
  std::string WriteFile(const std::string& name, const std::string& text) const {
    const std::string path = folder_ + "/" + name;
    std::ofstream(path) << text;
    std::filesystem::permissions(
        path, std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
    return path;
  }

  std::string folder_;
  FakeEngine engine_;
  EmbeddedServerOptions options_;
  std::unique_ptr<EmbeddedServer> server_;
};

TEST_F(EmbeddedTest, ServesTheApiAndThePage) {
  ASSERT_TRUE(Start().ok());
  EXPECT_EQ(Connect().Get("/v1/models").status, 200);
  EXPECT_EQ(Connect().Get("/").status, 200);
  options_.page = false;
  options_.model_id = "mine";
  ASSERT_TRUE(Start().ok());
  EXPECT_EQ(Connect().Get("/").status, 404);
  EXPECT_THAT(Connect().Get("/v1/models").body, HasSubstr("\"mine\""));
}

TEST_F(EmbeddedTest, LimitsRequests) {
  options_.max_body_bytes = 100;
  options_.max_choices = 2;
  options_.max_output_tokens = 3;
  options_.max_connections_per_client = 1;
  ASSERT_TRUE(Start().ok());
  {
    HttpClient client = Connect();
    EXPECT_EQ(client.Post("/v1/completions", R"({"prompt": "a"})").status, 200);
    EXPECT_EQ(engine_.last_request().sampling.max_tokens, 3);
    EXPECT_EQ(client.Post("/v1/completions", R"({"prompt": "a", "max_tokens": 4})").status, 400);
    EXPECT_EQ(client.Post("/v1/completions", R"({"prompt": "a", "n": 3})").status, 400);
    EXPECT_EQ(Connect().Get("/health").status, 429);  // a second connection
    EXPECT_EQ(client.Post("/v1/completions", std::string(101, ' ')).status, 413);
  }
  const auto refuses = [this](const std::string& field, auto limit, int value) {
    EmbeddedServerOptions options = options_;
    options.*limit = value;
    const Status status = EmbeddedServer::Start(engine_, options).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr(field + ": must "));
  };
  refuses("max_connections", &EmbeddedServerOptions::max_connections, 0);
  refuses("max_connections_per_client", &EmbeddedServerOptions::max_connections_per_client, -1);
  refuses("max_body_bytes", &EmbeddedServerOptions::max_body_bytes, 0);
  refuses("max_choices", &EmbeddedServerOptions::max_choices, 0);
  refuses("max_output_tokens", &EmbeddedServerOptions::max_output_tokens, -1);
}

TEST_F(EmbeddedTest, ChecksHostsKeysAndOrigins) {
  options_.cors_origins = {"https://app.example.org"};
  options_.allowed_hosts = {"chat.example.org"};
  options_.api_key_file = WriteFile("keys", "first-key-0123456789\n");
  ASSERT_TRUE(Start().ok());
  const auto get = [this](const std::string& headers) {
    HttpClient client = Connect();
    client.Send("GET /v1/models HTTP/1.1\r\n" + headers + "\r\n");
    return client.Receive();
  };
  const std::string first = "Authorization: Bearer first-key-0123456789\r\n";
  const std::string second = "Authorization: Bearer second-key-0123456789\r\n";
  EXPECT_EQ(get("Host: chat.example.org\r\n" + first).status, 200);
  EXPECT_EQ(get("Host: chat.example.org\r\n").status, 401);
  EXPECT_EQ(get("Host: other.example.org\r\n" + first).status, 403);
  const auto page = get("Host: localhost\r\nOrigin: https://app.example.org\r\n" + first);
  EXPECT_EQ(page.status, 200);
  EXPECT_THAT(page.headers, HasSubstr("Access-Control-Allow-Origin: https://app.example.org"));
  EXPECT_EQ(get("Host: localhost\r\nOrigin: https://elsewhere.org\r\n" + first).status, 403);
  WriteFile("keys", "second-key-0123456789\n");
  EXPECT_EQ(get("Host: localhost\r\n" + second).status, 401);
  server_->Reload();
  EXPECT_EQ(get("Host: localhost\r\n" + second).status, 200);
  EXPECT_EQ(get("Host: localhost\r\n" + first).status, 401);
}

TEST_F(EmbeddedTest, WritesAnAccessLog) {
  options_.access_log = folder_ + "/access.log";
  ASSERT_TRUE(Start().ok());
  EXPECT_EQ(Connect().Get("/health").status, 200);
  server_ = nullptr;  // writes the waiting lines
  std::ifstream file(options_.access_log);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  EXPECT_THAT(text, HasSubstr("\"path\":\"/health\",\"status\":200"));
}

class StatusReceiver final : public HttpReceiver {
 public:
  Status OnHead(const ReceivedHead& head) override {
    http_status = head.status;
    return Status();
  }
  Status OnBody(std::string_view) override { return Status(); }
  void OnEnd(const Status& status) override { end = status; }

  int http_status = 0;
  Status end;
};

TEST_F(EmbeddedTest, SpeaksTls) {
  const std::string cert = folder_ + "/cert.pem", key = folder_ + "/key.pem";
  const std::string command = fmt::format(
      "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj "
      "/CN=test -addext subjectAltName=IP:127.0.0.1 -keyout {} -out {} >{}/log 2>&1",
      key, cert, folder_);
  if (std::system(command.c_str()) != 0) GTEST_SKIP() << "there is no openssl";
  options_.tls_cert_file = cert;
  EXPECT_EQ(Start().code(), StatusCode::kInvalidArgument);  // without a key
  options_.tls_key_file = key;
  ASSERT_TRUE(Start().ok());
  const Result<Url> url = ParseUrl(fmt::format("https://127.0.0.1:{}", server_->port()));
  ASSERT_TRUE(url.ok());
  const auto ask = [&url](const HttpCaller::Options& options) {
    const auto receiver = std::make_shared<StatusReceiver>();
    const Result<std::unique_ptr<HttpCaller>> caller = HttpCaller::Create(*url, options);
    EXPECT_TRUE(caller.ok()) << caller.status().ToString();
    (*caller)->Send({.target = "/health", .body = ""}, receiver);
    (*caller)->Run();
    return receiver;
  };
  EXPECT_EQ(ask({.ca_file = cert})->http_status, 200);
  EXPECT_EQ(ask({.insecure = true})->http_status, 200);
  const auto distrusting = ask({});
  EXPECT_EQ(distrusting->http_status, 0);
  EXPECT_THAT(distrusting->end.message(), HasSubstr("not trusted"));
  EXPECT_EQ(HttpCaller::Create(*url, {.ca_file = key}).status().code(),
            StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace tokamak
