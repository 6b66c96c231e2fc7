#include "base/log.h"

#include <gtest/gtest.h>

#include <string>

#include "base/check.h"

namespace tokamak {
namespace {

TEST(Log, WritesMessagesOfItsLevelAndAboveToStderr) {
  SetLogLevel(LogLevel::kWarning);
  ::testing::internal::CaptureStderr();
  LogInfo("loaded {} tensors", 3);
  LogWarning("queue {}% full", 90);
  const std::string written = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(written.find("loaded"), std::string::npos);
  EXPECT_NE(written.find("queue 90% full\n"), std::string::npos) << written;
}

TEST(Log, LevelsAreOrdered) {
  SetLogLevel(LogLevel::kInfo);
  EXPECT_FALSE(LogEnabled(LogLevel::kDebug));
  EXPECT_TRUE(LogEnabled(LogLevel::kInfo));
  EXPECT_TRUE(LogEnabled(LogLevel::kError));
  SetLogLevel(LogLevel::kOff);
  EXPECT_FALSE(LogEnabled(LogLevel::kError));
  SetLogLevel(LogLevel::kWarning);
}

TEST(CheckDeathTest, NamesThePlaceTheConditionAndTheMessage) {
  const int blocks = 3;
  EXPECT_DEATH(CHECK_MSG(blocks == 4, "a block was lost"),
               "log_test.cc:[0-9]+: CHECK failed: blocks == 4: a block was lost");
  CHECK(blocks == 3);
}

}  // namespace
}  // namespace tokamak
