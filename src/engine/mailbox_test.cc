#include "engine/mailbox.h"

#include <gtest/gtest.h>

#include <ctime>
#include <memory>
#include <thread>

namespace tokamak {
namespace {

TEST(Mailbox, KeepsEachSendersOrderAndLosesNothing) {
  constexpr int kSenders = 4;
  constexpr int kMessages = 20000;
  Mailbox<std::pair<int, int>> mailbox;
  std::vector<std::thread> senders;
  for (int s = 0; s < kSenders; ++s) {
    senders.emplace_back([&mailbox, s] {
      for (int i = 0; i < kMessages; ++i) mailbox.Push({s, i});
    });
  }
  std::vector<int> next(kSenders, 0);
  int received = 0;
  while (received < kSenders * kMessages) {
    mailbox.WaitForWork();  // if a wake-up is lost, this hangs and the test times out
    for (const auto& [sender, number] : mailbox.Take()) {
      ASSERT_EQ(number, next[sender]++);
      ++received;
    }
  }
  for (std::thread& sender : senders) sender.join();
  EXPECT_TRUE(mailbox.Take().empty());
}

TEST(Mailbox, WakesAReceiverThatSleepsBetweenMessages) {
  Mailbox<int> ping;
  Mailbox<int> pong;
  std::thread echo([&] {
    for (int i = 0; i < 2000; ++i) {
      ping.WaitForWork();
      for (const int message : ping.Take()) pong.Push(message + 1);
    }
  });
  for (int i = 0; i < 2000; ++i) {
    ping.Push(i);
    pong.WaitForWork();
    EXPECT_EQ(pong.Take(), std::vector<int>{i + 1});
  }
  echo.join();
}

TEST(Mailbox, AWaitingReceiverUsesNoCpuTime) {
  Mailbox<int> mailbox;
  double cpu_seconds = 1;
  std::thread receiver([&] {
    mailbox.WaitForWork();
    timespec used{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
    cpu_seconds = static_cast<double>(used.tv_sec) + static_cast<double>(used.tv_nsec) * 1e-9;
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  mailbox.Push(1);
  receiver.join();
  EXPECT_LT(cpu_seconds, 0.05);
}

TEST(Mailbox, FreesMessagesThatWereNotReceived) {
  const auto witness = std::make_shared<int>(1);
  {
    Mailbox<std::shared_ptr<int>> mailbox;
    for (int i = 0; i < 3; ++i) mailbox.Push(witness);
    EXPECT_EQ(witness.use_count(), 4);
  }
  EXPECT_EQ(witness.use_count(), 1);
}

TEST(Mailbox, CarriesArrivals) {
  EngineMailbox mailbox;
  Arrival arrival;
  arrival.id = 7;
  mailbox.Push(std::move(arrival));
  mailbox.Push(CancelMessage{7});
  std::vector<EngineMessage> messages = mailbox.Take();
  ASSERT_EQ(messages.size(), 2u);
  EXPECT_EQ(std::get<Arrival>(messages[0]).id, 7u);
  EXPECT_EQ(std::get<CancelMessage>(messages[1]).request, 7u);
}

}  // namespace
}  // namespace tokamak
