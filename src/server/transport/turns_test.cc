#include "server/transport/turns.h"

#include <gtest/gtest.h>

#include <vector>

namespace tokamak {
namespace {

class TurnsTest : public testing::Test {
 protected:
  std::shared_ptr<Turns::Timer> Join(int name) {
    auto turn = std::make_shared<Turns::Timer>(io_, Turns::Timer::time_point::max());
    turns_.Join(turn);
    turn->async_wait([this, name](const boost::system::error_code&) { had_.push_back(name); });
    return turn;
  }
  static std::vector<int> UpTo(int end) {
    std::vector<int> names;
    for (int i = 0; i < end; ++i) names.push_back(i);
    return names;
  }

  boost::asio::io_context io_{1};
  Turns turns_{io_};
  std::vector<int> had_;
};

TEST_F(TurnsTest, ComeInOrderAFewAtATime) {
  constexpr int kMany = 3 * Turns::kAtOnce;
  std::vector<std::shared_ptr<Turns::Timer>> turns;
  for (int i = 0; i < kMany; ++i) turns.push_back(Join(i));
  // The first one did not wait, and the others take three rounds. Each round follows a pause, and
  // nobody waits after the last one.
  EXPECT_EQ(io_.run(), size_t{kMany + 4});
  EXPECT_EQ(had_, UpTo(kMany));
  io_.restart();
  const auto again = Join(kMany);
  EXPECT_EQ(io_.run(), 2u);
  EXPECT_EQ(had_, UpTo(kMany + 1));
}

TEST_F(TurnsTest, ADestroyedTimerGivesUpItsTurn) {
  const auto first = Join(0);
  for (int i = 0; i < 3 * Turns::kAtOnce; ++i) {
    turns_.Join(std::make_shared<Turns::Timer>(io_, Turns::Timer::time_point::max()));
  }
  const auto last = Join(1);
  EXPECT_EQ(io_.run(), 4u) << "two turns and a pause after each";
  EXPECT_EQ(had_, UpTo(2));
}

}  // namespace
}  // namespace tokamak
