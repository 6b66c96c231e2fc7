#include "server/transport/mailbox.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

namespace tokamak {
namespace {

using testing::ElementsAre;

TEST(Mailbox, GivesEverythingInOrderToTheThreadOfTheContext) {
  boost::asio::io_context io;
  auto work = boost::asio::make_work_guard(io);
  constexpr int kValues = 10000;
  std::vector<int> taken;
  std::optional<Mailbox<int>> mailbox;
  mailbox.emplace(io, [&] {
    for (const int value : mailbox->Take()) taken.push_back(value);
    if (taken.size() == kValues) work.reset();
  });
  std::thread other([sender = mailbox->sender()] {
    for (int i = 0; i < kValues; ++i) sender.Put(i);
  });
  io.run();
  other.join();
  for (int i = 0; i < kValues; ++i) ASSERT_EQ(taken[static_cast<size_t>(i)], i);
}

TEST(Mailbox, TellsOnceOfValuesThatCameTogether) {
  boost::asio::io_context io;
  int told = 0;
  Mailbox<int> mailbox(io, [&] { ++told; });
  for (int i = 0; i < 3; ++i) mailbox.sender().Put(i);
  EXPECT_EQ(told, 0);  // never within Put, which runs on other threads
  io.run();
  EXPECT_EQ(told, 1);
  EXPECT_THAT(mailbox.Take(), ElementsAre(0, 1, 2));
  mailbox.sender().Put(3);
  io.restart();
  io.run();
  EXPECT_EQ(told, 2);
  EXPECT_THAT(mailbox.Take(), ElementsAre(3));
}

TEST(Mailbox, DropsValuesThatComeAfterItsEnd) {
  auto io = std::make_unique<boost::asio::io_context>();
  int told = 0;
  std::optional<Mailbox<std::shared_ptr<int>>> mailbox;
  mailbox.emplace(*io, [&] { ++told; });
  const auto sender = mailbox->sender();
  const auto value = std::make_shared<int>(1);
  sender.Put(value);  // on its way when the mailbox closes
  mailbox->Close();
  EXPECT_EQ(value.use_count(), 1);
  sender.Put(value);
  io->run();
  mailbox.reset();
  io.reset();
  sender.Put(value);
  EXPECT_EQ(value.use_count(), 1);
  EXPECT_EQ(told, 0);
}

class TakeOneTest : public testing::Test {
 protected:
  void Start() {
    boost::asio::co_spawn(io_, Take(), boost::asio::detached);
    io_.poll();
    EXPECT_FALSE(ended_);
  }
  Awaitable<> Take() {
    taken_ = co_await mailbox_.TakeOne(writer_);
    ended_ = true;
  }

  boost::asio::io_context io_;
  size_t unsent_ = 0;
  ResponseWriter writer_{io_, {}, {.together = &unsent_}};
  Mailbox<int> mailbox_{writer_};
  std::optional<int> taken_;
  bool ended_ = false;
};

TEST_F(TakeOneTest, KeepsWaitingAfterOtherNotifications) {
  Start();
  writer_.Notify();
  io_.poll();
  EXPECT_FALSE(ended_);
  mailbox_.sender().Put(5);
  io_.run();
  EXPECT_EQ(taken_, 5);
}

TEST_F(TakeOneTest, EndsWhenTheClientLeaves) {
  Start();
  writer_.Gone();
  io_.run();
  EXPECT_TRUE(ended_);
  EXPECT_EQ(taken_, std::nullopt);
}

}  // namespace
}  // namespace tokamak
