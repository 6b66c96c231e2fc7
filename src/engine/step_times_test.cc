#include "engine/step_times.h"

#include <gtest/gtest.h>

namespace tokamak {
namespace {

constexpr double kToken = 0.1;  // seconds for a token of a prompt

TEST(StepTimes, KnowsNothingBeforeTheFirstStep) {
  StepTimes times;
  EXPECT_EQ(times.Predict(1, 0, kToken), 0);
  EXPECT_EQ(times.Predict(1, 4, kToken), 0);
}

TEST(StepTimes, PredictsWhatStepsOfThisSizeTook) {
  // Steps of up to 4 tokens take 3 seconds, longer ones 5.
  StepTimes times;
  for (int i = 0; i < 20; ++i) {
    times.Observe(1, 0, 3);
    times.Observe(1, 3, 3);
    times.Observe(1, 4, 5);
    times.Observe(8, 0, 5);
  }
  EXPECT_NEAR(times.Predict(1, 0, kToken), 3, 0.01);
  EXPECT_NEAR(times.Predict(1, 3, kToken), 3, 0.01);
  EXPECT_NEAR(times.Predict(1, 4, kToken), 5, 0.01);
  EXPECT_NEAR(times.Predict(8, 0, kToken), 5, 0.01);
}

TEST(StepTimes, GuessesStepsThatHaveNotBeenTried) {
  StepTimes times;
  times.Observe(2, 0, 3);
  EXPECT_NEAR(times.Predict(2, 5, kToken), 3.5, 1e-9);  // like tokens of prompts
  EXPECT_NEAR(times.Predict(4, 0, kToken), 3.2, 1e-9);
  EXPECT_NEAR(times.Predict(2, 5, 100), 3 + 5 * 1.5, 1e-9);  // but no more than other tokens
  times.Observe(2, 4, 5);
  EXPECT_NEAR(times.Predict(2, 2, kToken), 4, 0.1);  // between the neighbors
  EXPECT_NEAR(times.Predict(2, 6, kToken), 5.2, 0.1);
}

TEST(StepTimes, DraftsNeverMakeAStepShorter) {
  StepTimes times;
  for (int i = 0; i < 10; ++i) times.Observe(4, 0, 3);
  times.Observe(4, 2, 1);
  EXPECT_GE(times.Predict(4, 2, kToken), times.Predict(4, 0, kToken));
}

TEST(StepTimes, OneDisturbedStepHardlyCounts) {
  StepTimes times;
  for (int i = 0; i < 50; ++i) times.Observe(1, 0, 3);
  times.Observe(1, 0, 3000);
  EXPECT_LT(times.Predict(1, 0, kToken), 4);
}

TEST(StepTimes, KnowsHowFarPredictionsAreOff) {
  StepTimes times;
  for (int i = 0; i < 200; ++i) times.Observe(1, 0, 3);
  EXPECT_NEAR(times.noise(), 0, 1e-9);
  for (int i = 0; i < 400; ++i) times.Observe(1, 0, i % 2 == 0 ? 2.4 : 3.6);
  EXPECT_NEAR(times.noise(), 0.2, 0.05);
}

TEST(StepTimes, AsksForAStepWithoutDraftsNowAndThen) {
  StepTimes times;
  EXPECT_TRUE(times.NeedsPlainStep(1));
  times.Observe(1, 0, 3);
  times.Observe(32, 0, 9);
  EXPECT_FALSE(times.NeedsPlainStep(1));
  EXPECT_TRUE(times.NeedsPlainStep(2));
  EXPECT_FALSE(times.NeedsPlainStep(30));  // close enough
  EXPECT_TRUE(times.NeedsPlainStep(20));
  int steps = 0;
  while (!times.NeedsPlainStep(1) && steps < 10000) times.Observe(1, 4, 4), ++steps;
  EXPECT_GT(steps, 100);
  EXPECT_LT(steps, 1000);
}

TEST(StepTimes, AllStepsFollowTheClock) {
  // Once both kinds have been seen, the machine becomes twice as slow, and only steps with drafts
  // are measured.
  StepTimes times;
  for (int i = 0; i < 20; ++i) {
    times.Observe(1, 0, 3);
    times.Observe(1, 4, 4);
  }
  for (int i = 0; i < 100; ++i) times.Observe(1, 4, 8);
  EXPECT_NEAR(times.Predict(1, 4, kToken), 8, 0.1);
  EXPECT_GT(times.Predict(1, 0, kToken), 3.9);
}

TEST(StepTimes, ForgetsThatDraftsWereExpensive) {
  StepTimes times;
  for (int i = 0; i < 20; ++i) times.Observe(8, 0, 3);
  times.Observe(8, 4, 6);
  EXPECT_NEAR(times.Predict(8, 4, kToken), 6, 0.1);
  for (int i = 0; i < 10000; ++i) times.Observe(8, 0, 3);
  EXPECT_NEAR(times.Predict(8, 4, kToken), 3.4, 0.01);
}

}  // namespace
}  // namespace tokamak
