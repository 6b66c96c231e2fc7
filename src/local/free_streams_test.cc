// Streams without structured output beside one with it, on a backend that works later, as a GPU
// does.
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/testing/manual_clock.h"
#include "engine/engine_core.h"
#include "executor/in_process.h"
#include "ops/cpu/cpu_ops.h"
#include "runner/testing/queued_ops.h"
#include "runner/testing/toy_model.h"

namespace tokamak {
namespace {

constexpr RequestId kFree = 1;
constexpr RequestId kConstrained = 2;
constexpr int kNumFree = 16;  // tokens
constexpr int kNumConstrained = 9;

// Allows even tokens, until there are kNumConstrained. Calls `on_allow` before it makes a mask.
class EvenTokens final : public TokenConstraint {
 public:
  explicit EvenTokens(std::function<void()> on_allow) : on_allow_(std::move(on_allow)) {}

  Status Allow(std::span<uint32_t> allowed) override {
    on_allow_();
    for (uint32_t& word : allowed) word = 0x55555555;
    return Status();
  }
  bool Accept(TokenId token) override { return token % 2 == 0 && ++count_ > 0; }
  bool complete() const override { return finished(); }
  bool finished() const override { return count_ == kNumConstrained; }
  std::unique_ptr<TokenConstraint> Clone() const override {
    return std::make_unique<EvenTokens>(*this);
  }

 private:
  const std::function<void()> on_allow_;
  int count_ = 0;
};

// An engine core on a toy model.
class Engine {
 public:
  Engine(int depth, uint64_t seed) {
    auto ops = testing::MakeQueuedOps(
        *MakeCpuOps({.threads = 1}), seed,
        {.on_draw = [this](auto rows) { num_drawn_ += static_cast<int>(rows.size()); }});
    ops_ = ops.get();
    auto model = testing::MakeToyModel(*ops);
    auto executor = MakeInProcessExecutor(
        std::move(ops), std::move(model),
        {.max_seqs = 3, .max_step_tokens = 32, .max_context = 64, .depth = depth},
        {.arena_bytes = 8 << 20, .num_device_blocks = 40, .num_host_blocks = 4});
    CHECK_MSG(executor.ok(), executor.status().ToString());
    executor_ = *std::move(executor);
    EngineCoreOptions options;
    options.max_seqs = 3;
    options.max_step_tokens = 32;
    auto core = EngineCore::Create(std::move(options), &clock_, executor_.get());
    CHECK_MSG(core.ok(), core.status().ToString());
    core_ = *std::move(core);
  }

  void Submit(RequestId id, float temperature) {
    Arrival arrival;
    arrival.id = id;
    arrival.prompt = {5, 9, 40, static_cast<TokenId>(id)};
    arrival.sampling = {.temperature = temperature, .seed = 7, .max_tokens = kNumFree};
    arrival.on_output = [this, id](const OutputChunk& chunk) {
      EXPECT_TRUE(chunk.error.ok()) << chunk.error.ToString();
      tokens_[id].insert(tokens_[id].end(), chunk.token_ids.begin(), chunk.token_ids.end());
    };
    if (id == kConstrained) {
      arrival.sampling.structured_output = StructuredOutput{};
      arrival.constraints.push_back(std::make_unique<EvenTokens>([this] {
        testing::FinishQueuedWork(*ops_);
        drawn_before_masks_.push_back(num_drawn_);
      }));
    }
    CHECK(core_->Submit(std::move(arrival)).ok());
  }
  std::map<RequestId, std::vector<TokenId>> Run() {
    while (core_->HasWork()) core_->Step();
    return tokens_;
  }
  // The rows that the device had drawn, or could draw at once, before each mask was made.
  const std::vector<int>& drawn_before_masks() const { return drawn_before_masks_; }

 private:
  ManualClock clock_;
  Ops* ops_ = nullptr;
  int num_drawn_ = 0;
  std::vector<int> drawn_before_masks_;
  std::map<RequestId, std::vector<TokenId>> tokens_;
  std::unique_ptr<Executor> executor_;
  std::unique_ptr<EngineCore> core_;
};

class FreeStreams : public ::testing::TestWithParam<std::pair<int, float>> {};

TEST_P(FreeStreams, DrawBeforeTheMasksOfTheirStepAreMade) {
  const auto [depth, temperature] = GetParam();
  std::map<RequestId, std::vector<TokenId>> alone;
  for (const RequestId id : {kFree, kConstrained}) {
    Engine engine(/*depth=*/1, /*seed=*/1);
    engine.Submit(id, temperature);
    alone[id] = engine.Run()[id];
  }
  ASSERT_EQ(alone[kFree].size(), size_t{kNumFree});
  ASSERT_EQ(alone[kConstrained].size(), size_t{kNumConstrained});
  for (uint64_t seed = 1; seed <= 5; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Engine engine(depth, seed);
    engine.Submit(kFree, temperature);
    engine.Submit(kConstrained, temperature);
    EXPECT_EQ(engine.Run(), alone);
    // Every step has a row of each. The free one's is drawn, the other waits for its mask.
    const std::vector<int>& drawn = engine.drawn_before_masks();
    ASSERT_EQ(drawn.size(), size_t{kNumConstrained});
    for (int step = 0; step < kNumConstrained; ++step) {
      EXPECT_EQ(drawn[static_cast<size_t>(step)], 2 * step + 1) << "step " << step;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Depths, FreeStreams,
                         ::testing::Values(std::pair(1, 0.8f), std::pair(2, 0.8f),
                                           std::pair(2, 0.0f), std::pair(4, 0.8f)));

}  // namespace
}  // namespace tokamak
