#include "ops/profile/profiled_ops.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/check.h"
#include "ops/reference/reference_ops.h"

namespace tokamak {
namespace {

const Profile::Op* Find(const Profile::Steps& steps, const std::string& name) {
  for (const Profile::Op& op : steps.ops) {
    if (op.name == name) return &op;
  }
  return nullptr;
}

// Five steps of an upload, a plan and two operations each, some milliseconds apart.
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
  const auto plan = ops->MakeAttentionPlan({.num_heads = 1,
                                            .num_kv_heads = 1,
                                            .head_dim = 8,
                                            .block_size = 4,
                                            .kv_dtype = DType::kF32,
                                            .max_seqs = 2,
                                            .max_tokens = 8,
                                            .max_blocks_per_seq = 2});
  ASSERT_TRUE(plan.ok());
  ops->Run(gather, *stream);  // the first operation determines which stream computes
  ASSERT_TRUE(ops->Synchronize(*stream).ok());
  (void)ops->Take();
  // Two sequences, and one that is padding.
  const std::vector<int32_t> seq_lens = {5, 6, 0};
  const std::vector<std::vector<int32_t>> batches = {
      {0, 1, 2, 3}, {0, 1, 2, 3}, {0, 2, 3, 4}, {0, 3, 5, 6}, {0, 1, 2, 3}};
  for (const std::vector<int32_t>& query_start_loc : batches) {
    float copy[4];
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    ops->CopyToDevice(copy, source, sizeof(copy), *stream);
    EXPECT_EQ(std::memcmp(copy, source, sizeof(copy)), 0);
    AttentionBatch batch;
    batch.query_start_loc = query_start_loc;
    batch.seq_lens = seq_lens;
    (*plan)->Fill(batch, *stream);
    ops->Run(gather, *stream);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    ops->Run(gather, *stream);
    ops->Record(*event, *stream);
    ASSERT_TRUE(ops->Await(*event).ok());
  }
  EXPECT_EQ(out[0], 3);
  const Profile profile = ops->Take();
  ASSERT_EQ(profile.steps.size(), 3u);
  const std::vector<std::pair<std::string, int64_t>> kinds = {
      {"decode", 3}, {"prefill", 1}, {"mixed", 1}};
  for (size_t i = 0; i < kinds.size(); ++i) {
    const Profile::Steps& steps = profile.steps[i];
    const auto& [kind, count] = kinds[i];
    SCOPED_TRACE(kind);
    EXPECT_EQ(steps.kind, kind);
    EXPECT_EQ(steps.count, count);
    ASSERT_NE(Find(steps, "upload"), nullptr);
    EXPECT_EQ(Find(steps, "upload")->calls, count);
    EXPECT_EQ(Find(steps, "plan")->calls, count);
    ASSERT_NE(Find(steps, "gather_rows"), nullptr);
    EXPECT_EQ(Find(steps, "gather_rows")->calls, 2 * count);
    EXPECT_GE(steps.between_steps_seconds, 2e-3 * static_cast<double>(count));
    EXPECT_GE(steps.longest_gap_seconds, 2e-3);
    EXPECT_LE(steps.longest_gap_seconds, steps.between_steps_seconds);
    EXPECT_GE(steps.inside_steps_seconds, 1e-3 * static_cast<double>(count));
    double sum = 0;
    for (const Profile::Op& op : steps.ops) sum += op.seconds;
    EXPECT_DOUBLE_EQ(sum, steps.busy_seconds);
    EXPECT_GE(steps.host_seconds, 2e-3);
    EXPECT_LE(steps.host_waiting_seconds, steps.host_seconds);
  }
  EXPECT_TRUE(ops->Take().steps.empty());
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
    ops->Record(*event, *stream);
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

// Work on another stream is no step.
TEST(ProfiledOps, CopiesOnOtherStreamsAreNotSteps) {
  const auto ops = MakeProfiledOps(MakeReferenceOps());
  const auto stream = ops->MakeStream();
  const auto other = ops->MakeStream();
  int32_t from = 5, to = 0;
  ops->CopyToDevice(&to, &from, sizeof(from), *other);
  ASSERT_TRUE(ops->Synchronize(*other).ok());
  EXPECT_EQ(to, 5);
  EXPECT_TRUE(ops->Take().steps.empty());
}

}  // namespace
}  // namespace tokamak
