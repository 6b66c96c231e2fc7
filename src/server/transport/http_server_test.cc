#include "server/transport/http_server.h"

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>

#include "server/testing/http_client.h"

namespace tokamak {
namespace {

Awaitable<> Throw(ResponseWriter& writer) {
  const std::string& path = writer.request().path;
  if (path == "/later" || path == "/stream") {
    const auto soon = ResponseWriter::Clock::now() + std::chrono::milliseconds(1);
    co_await writer.Wait(soon);
  }
  if (path == "/stream") {
    writer.StartStream({});
    writer.Write("a piece");
  }
  if (path != "/") throw std::runtime_error(path);
  writer.Respond({.body = "fine"});
}

TEST(HttpServer, AHandlerThatThrowsEndsItsConnectionAndNoOther) {
  HttpServer::Options options;
  options.port = 0;
  options.limits.max_connections = 2;
  options.error_response = [](const HttpRequest&, int status, const std::string& message) {
    return HttpResponse{.status = status, .body = message};
  };
  Result<std::unique_ptr<HttpServer>> server = HttpServer::Listen(std::move(options), Throw);
  ASSERT_TRUE(server.ok()) << server.status().ToString();
  std::thread thread([&] { (*server)->Run(); });
  HttpClient other((*server)->port());
  EXPECT_EQ(other.Get("/").body, "fine");
  for (const std::string path : {"/now", "/later", "/stream", "/now", "/later", "/stream"}) {
    // Closed connections no longer count, or the third one would be refused.
    HttpClient client((*server)->port());
    const HttpClient::Response response = client.Get(path);
    EXPECT_NE(response.status, 503) << path;
    EXPECT_NE(response.body, "fine") << path;
    while (client.SkipPast("\n")) {
    }
    EXPECT_EQ(other.Get("/").body, "fine") << path;
  }
  // Draining ends when all connections have ended.
  (*server)->Post([&] { (*server)->Drain(); });
  thread.join();
}

}  // namespace
}  // namespace tokamak
