#include "ops/profile/profiled_ops.h"

#include <gtest/gtest.h>

#include <cstring>
#include <thread>

#include "base/check.h"
#include "ops/reference/reference_ops.h"

namespace tokamak {
namespace {

const Profile::Op* Find(const Profile& profile, const std::string& name) {
  for (const Profile::Op& op : profile.ops) {
    if (op.name == name) return &op;
  }
  return nullptr;
}

// Two steps of an upload and two operations each, some milliseconds apart.
TEST(ProfiledOps, CountsOpsStepsAndGaps) {
  const auto ops = MakeProfiledOps(MakeReferenceOps());
  const auto stream = ops->MakeStream();
  const auto event = ops->MakeEvent();
  float source[] = {1, 2, 3, 4};
  int32_t rows[] = {1};
  float out[2] = {};
  const GatherRows gather = {.source = Tensor(source, DType::kF32, {2, 2}),
                             .rows = Tensor(rows, DType::kI32, {1}),
                             .out = Tensor(out, DType::kF32, {1, 2})};
  ops->Run(gather, *stream);  // the first operation tells which stream computes
  ASSERT_TRUE(ops->Synchronize(*stream).ok());
  (void)ops->Take();
  for (int step = 0; step < 2; ++step) {
    float copy[4];
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    ops->CopyToDevice(copy, source, sizeof(copy), *stream);
    EXPECT_EQ(std::memcmp(copy, source, sizeof(copy)), 0);
    ops->Run(gather, *stream);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    ops->Run(gather, *stream);
    ASSERT_TRUE(ops->Await(*event).ok());
  }
  EXPECT_EQ(out[0], 3);
  const Profile profile = ops->Take();
  EXPECT_EQ(profile.steps, 2);
  ASSERT_NE(Find(profile, "upload"), nullptr);
  EXPECT_EQ(Find(profile, "upload")->calls, 2);
  ASSERT_NE(Find(profile, "gather_rows"), nullptr);
  EXPECT_EQ(Find(profile, "gather_rows")->calls, 4);
  EXPECT_GE(profile.between_steps_seconds, 4e-3);
  EXPECT_GE(profile.longest_gap_seconds, 2e-3);
  EXPECT_LE(profile.longest_gap_seconds, profile.between_steps_seconds);
  EXPECT_GE(profile.inside_steps_seconds, 2e-3);
  double sum = 0;
  for (const Profile::Op& op : profile.ops) sum += op.seconds;
  EXPECT_DOUBLE_EQ(sum, profile.busy_seconds);
  EXPECT_EQ(ops->Take().steps, 0);
}

TEST(ProfiledOps, EventsOfAStepLieInIt) {
  const auto ops = MakeProfiledOps(MakeReferenceOps(), /*keep_events=*/true);
  const auto stream = ops->MakeStream();
  const auto event = ops->MakeEvent();
  float source[] = {1, 2};
  int32_t rows[] = {1};
  float out[1] = {};
  const GatherRows gather = {.source = Tensor(source, DType::kF32, {2, 1}),
                             .rows = Tensor(rows, DType::kI32, {1}),
                             .out = Tensor(out, DType::kF32, {1, 1})};
  ops->Run(gather, *stream);
  ASSERT_TRUE(ops->Synchronize(*stream).ok());
  (void)ops->Take();
  for (int step = 0; step < 2; ++step) {
    float copy[2];
    ops->CopyToDevice(copy, source, sizeof(copy), *stream);
    ops->Run(gather, *stream);
    ASSERT_TRUE(ops->Await(*event).ok());
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  const Profile profile = ops->Take();
  std::vector<std::string> names;
  for (const Profile::Event& e : profile.events) names.emplace_back(e.name);
  EXPECT_EQ(names, (std::vector<std::string>{"upload", "gather_rows", "step", "upload",
                                             "gather_rows", "step"}));
  for (const size_t step : {size_t{2}, size_t{5}}) {
    const Profile::Event& whole = profile.events[step];
    EXPECT_EQ(whole.begin_seconds, profile.events[step - 2].begin_seconds);
    EXPECT_EQ(whole.end_seconds, profile.events[step - 1].end_seconds);
    EXPECT_LE(profile.events[step - 2].end_seconds, profile.events[step - 1].begin_seconds);
  }
  EXPECT_GE(profile.events[5].begin_seconds, profile.events[2].end_seconds + 2e-3);
  EXPECT_EQ(profile.dropped_events, 0);
  EXPECT_TRUE(ops->Take().events.empty());
}

// What another stream is given is no step.
TEST(ProfiledOps, CopiesElsewhereAreNotSteps) {
  const auto ops = MakeProfiledOps(MakeReferenceOps());
  const auto stream = ops->MakeStream();
  const auto other = ops->MakeStream();
  int32_t from = 5, to = 0;
  ops->CopyToDevice(&to, &from, sizeof(from), *other);
  ASSERT_TRUE(ops->Synchronize(*other).ok());
  EXPECT_EQ(to, 5);
  EXPECT_EQ(ops->Take().steps, 0);
  EXPECT_TRUE(ops->Take().ops.empty());
}

}  // namespace
}  // namespace tokamak
