// A server with a fake engine behind it on a free port, for tests over real sockets.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <memory>
#include <thread>
#include <utility>

#include "server/server.h"
#include "server/testing/fake_engine.h"
#include "server/testing/http_client.h"

namespace tokamak {

class ServerFixture : public testing::Test {
 protected:
  void Start(ServerOptions options = {}) {
    options.port = 0;
    Result<std::unique_ptr<Server>> server = Server::Create(engine_, std::move(options));
    ASSERT_TRUE(server.ok()) << server.status().ToString();
    server_ = *std::move(server);
    thread_ = std::thread([this] { run_status_ = server_->Run(); });
  }
  void TearDown() override {
    engine_.ReleaseTokenize();
    engine_.ReleaseTokenBytes();
    engine_.ReleaseImages();
    Shutdown();
  }
  void Shutdown() {
    if (!thread_.joinable()) return;
    server_->Shutdown();
    thread_.join();
  }
  HttpClient Connect() { return HttpClient(server_->port()); }
  // Waits until `condition` holds, for at most 20 s.
  static bool Eventually(const std::function<bool()>& condition) {
    for (int i = 0; i < 4000; ++i) {
      if (condition()) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return false;
  }

  FakeEngine engine_;
  std::unique_ptr<Server> server_;
  std::thread thread_;
  Status run_status_;  // valid after thread_ was joined
};

}  // namespace tokamak
