#include "rpc/message_stream.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <future>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "base/error.h"
#include "rpc/testing/next_message.h"

namespace tokamak {
namespace {

using std::chrono::seconds;
using testing::HasSubstr;

class MessageStreamTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_NE(::mkdtemp(folder_.data()), nullptr);
    auto server = MessageServer::Listen({address()}, &inbox_);
    if (server.status().code() == StatusCode::kUnimplemented) GTEST_SKIP() << "no gRPC";
    ASSERT_TRUE(server.ok()) << server.status().ToString();
    server_ = *std::move(server);
  }
  void TearDown() override {
    server_.reset();
    ::unlink((folder_ + "/socket").c_str());
    ::rmdir(folder_.c_str());
  }
  std::string address() const { return "unix:" + folder_ + "/socket"; }
  std::unique_ptr<MessageClient> Connect(Inbox* inbox) {
    auto client = MessageClient::Connect({address()}, seconds(10), inbox);
    EXPECT_TRUE(client.ok()) << client.status().ToString();
    return client.ok() ? *std::move(client) : nullptr;
  }

  std::string folder_ = "/tmp/rpc-test-XXXXXX";
  Inbox inbox_;
  std::unique_ptr<MessageServer> server_;
};

TEST_F(MessageStreamTest, CarriesMessagesOfAnySizeBothWaysInOrder) {
  Inbox of_client;
  const auto client = Connect(&of_client);
  ASSERT_NE(client, nullptr);
  std::vector<std::string> messages = {"", std::string(1, '\0'), "text",
                                       std::string(20 << 20, 'x')};
  for (int i = 0; i < 200; ++i) messages.push_back(std::to_string(i));
  for (const std::string& message : messages) client->Send(message);
  for (const std::string& message : messages) {
    const Incoming incoming = Next(inbox_);
    EXPECT_EQ(incoming.stream, 0);
    ASSERT_TRUE(incoming.message.ok());
    EXPECT_TRUE(*incoming.message == message);
  }
  for (const std::string& message : messages) server_->Send(0, message);
  for (const std::string& message : messages) EXPECT_TRUE(*Next(of_client).message == message);
}

TEST_F(MessageStreamTest, KeepsStreamsApart) {
  Inbox first_inbox, second_inbox;
  const auto first = Connect(&first_inbox);
  first->Send("a");
  EXPECT_EQ(Next(inbox_).stream, 0);
  auto second = Connect(&second_inbox);
  second->Send("b");
  EXPECT_EQ(Next(inbox_).stream, 1);
  server_->Send(1, "for b");
  server_->Send(0, "for a");
  EXPECT_EQ(*Next(first_inbox).message, "for a");
  EXPECT_EQ(*Next(second_inbox).message, "for b");
  second.reset();
  const Incoming end = Next(inbox_);
  EXPECT_EQ(end.stream, 1);
  EXPECT_EQ(end.message.status().code(), StatusCode::kUnavailable);
  server_->Send(1, "dropped");
  server_->Send(7, "dropped too");
  server_->Send(0, "still there");
  EXPECT_EQ(*Next(first_inbox).message, "still there");
}

TEST_F(MessageStreamTest, LastMessagesArriveBeforeTheEnd) {
  Inbox of_client;
  auto client = Connect(&of_client);
  client->Send(std::string(5 << 20, 'x'));
  client->Send("last words");
  client->Finish();
  client.reset();
  EXPECT_EQ(Next(inbox_).message->size(), size_t{5} << 20);
  EXPECT_EQ(*Next(inbox_).message, "last words");
  EXPECT_FALSE(Next(inbox_).message.ok());
}

TEST_F(MessageStreamTest, TheEndOfAServerEndsItsStreams) {
  std::atomic<int> ends{0};
  Inbox of_client([&ends](const Incoming&) { ++ends; });
  const auto client = Connect(&of_client);
  client->Send("hello");
  EXPECT_EQ(*Next(inbox_).message, "hello");
  server_.reset();
  EXPECT_EQ(Next(of_client).message.status().code(), StatusCode::kUnavailable);
  EXPECT_EQ(ends, 1);
  client->Send("nobody reads this");
  client->Finish();
}

TEST_F(MessageStreamTest, RefusesNewStreamsWithAMessage) {
  Inbox first_inbox, second_inbox;
  const auto first = Connect(&first_inbox);
  first->Send("a");
  EXPECT_EQ(*Next(inbox_).message, "a");
  server_->RefuseNew(std::string(1 << 20, 'x'));
  for (int i = 0; i < 20; ++i) {
    const auto second = Connect(&second_inbox);
    second->Send("b");
    EXPECT_EQ(Next(second_inbox).message->size(), size_t{1} << 20);
    EXPECT_EQ(Next(second_inbox).message.status().code(), StatusCode::kUnavailable);
  }
  first->Send("c");
  EXPECT_EQ(*Next(inbox_).message, "c");  // and nothing of the others
}

TEST_F(MessageStreamTest, NamesAnAddressThatCannotBeUsed) {
  const auto server = MessageServer::Listen({"unix:/no/such/folder/socket"}, &inbox_);
  EXPECT_EQ(server.status().message(), "unix:/no/such/folder/socket: cannot listen there");
  const auto client = MessageClient::Connect({"unix:/no/such/folder/socket"},
                                             std::chrono::milliseconds(50), &inbox_);
  EXPECT_THAT(client.status().message(),
              HasSubstr("unix:/no/such/folder/socket: no driver answers there"));
}

TEST(Inbox, TellsOfAnEndThatCanBeTaken) {
  std::future<std::optional<Incoming>> taken;
  Inbox inbox([&](const Incoming&) {
    taken = std::async(std::launch::async, [&] { return inbox.Take({}); });
    std::this_thread::sleep_for(std::chrono::milliseconds(50));  // so that Take is first if it can
  });
  EXPECT_TRUE(inbox.Push({0, Unavailable("the end")}));
  EXPECT_TRUE(taken.get().has_value());
}

TEST(Inbox, RefusesASenderThatNeverStops) {
  Inbox inbox;
  int taken = 0;
  while (taken < 100000 && inbox.Push({0, std::string("x")})) ++taken;
  EXPECT_LT(taken, 100000);
  EXPECT_TRUE(inbox.Push({0, Unavailable("ends are always taken")}));
}

}  // namespace
}  // namespace tokamak
