// A fixture that runs an engine core on an executor without a model and on a manual clock.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/testing/manual_clock.h"
#include "base/thread_pool.h"
#include "engine/engine_core.h"

namespace tokamak {

// Draws token (sum of the slot's tokens) % vocab, proposes what it will draw, and keeps no cache:
// enough to see what the engine does with tokens. Verifies drafts. tests/sim checks the rest.
class SumExecutor final : public Executor {
 public:
  SumExecutor() {
    limits_.cache.groups = {{CacheGroupKind::kFull, 4, 0}};
    limits_.cache.num_device_blocks = 16;
    limits_.max_seqs = 4;
    limits_.max_step_tokens = 16;
    limits_.max_context = 48;
    limits_.vocab_size = 100;
  }

  const ExecutorLimits& limits() const override { return limits_; }
  Status Submit(StepInput step) override {
    if (on_submit) on_submit(step);
    if (fail_submits > 0 && fail_submits-- > 0) return submit_error;
    EXPECT_EQ(step.number, next_number_++);
    StepOutput output;
    output.number = step.number;
    for (const AdmitSequence& admit : step.admit) {
      tokens_[admit.slot] = admit.tokens;
      admitted.push_back(admit);
    }
    for (const StepRow& row : step.rows) {
      RowOutput out;
      out.slot = row.slot;
      std::vector<TokenId>& tokens = tokens_[row.slot];
      for (size_t draw = 0; row.sample && draw <= row.drafts.size(); ++draw) {
        if (draw > 0 && out.tokens.back() != row.drafts[draw - 1]) break;
        const TokenId token = Next(tokens);
        if (token == bad_token && draw > 0) break;
        tokens.push_back(token);
        if (token == bad_token) {
          out.health = bad_health;
          break;
        }
        out.tokens.push_back(token);
      }
      std::vector<TokenId> ahead = tokens;
      for (int32_t i = 0; i < row.num_proposals; ++i) {
        out.proposals.push_back(Next(ahead));
        ahead.push_back(out.proposals.back());
      }
      output.proposing_seconds += row.num_proposals * proposal_seconds;
      if (change_row) change_row(&out);
      output.rows.push_back(out);
    }
    steps.push_back(step);
    outputs_[step.number] = output;
    return Status();
  }
  Status Sample(uint64_t) override {
    masks.emplace_back();
    return Status();
  }
  Status SampleMasked(uint64_t, std::vector<TokenMask> given) override {
    masks.back() = std::move(given);
    return Status();
  }
  bool Done(uint64_t) override { return false; }
  Result<StepOutput> Wait(uint64_t number) override {
    if (on_wait) on_wait();
    return outputs_.at(number);
  }
  void Expect(double seconds) override { expected_seconds.push_back(seconds); }
  Status Reset() override {
    ++resets;
    next_number_ = 0;
    if (on_reset) on_reset();
    if (fail_resets > 0 && fail_resets-- > 0) return Unavailable("worker still lost");
    return Status();
  }

  ExecutorLimits limits_;
  int fail_submits = 0;
  Status submit_error = Unavailable("worker lost");
  int fail_resets = 0;
  int resets = 0;
  std::function<void()> on_reset;
  std::vector<double> expected_seconds;  // what it was told before each Wait
  double proposal_seconds = 0;           // what it says that one takes
  TokenId bad_token = -1;                // drawing it reports bad_health instead
  RowHealth bad_health = RowHealth::kNotFinite;
  std::function<void()> on_wait;
  std::function<void(RowOutput*)> change_row;
  std::function<void(const StepInput&)> on_submit;
  std::vector<StepInput> steps;
  std::vector<std::vector<TokenMask>> masks;  // by step; tokens are drawn without them
  std::vector<AdmitSequence> admitted;

 private:
  TokenId Next(const std::vector<TokenId>& tokens) const {
    return std::accumulate(tokens.begin(), tokens.end(), 0) % limits_.vocab_size;
  }

  uint64_t next_number_ = 0;
  std::map<SequenceSlotId, std::vector<TokenId>> tokens_;
  std::map<uint64_t, StepOutput> outputs_;
};

// The tokens with which SumExecutor continues a prompt.
inline std::vector<TokenId> Continue(std::vector<TokenId> prompt, int count) {
  std::vector<TokenId> out;
  for (int i = 0; i < count; ++i) {
    int sum = 0;
    for (const TokenId token : prompt) sum += token;
    prompt.push_back(sum % 100);
    out.push_back(prompt.back());
  }
  return out;
}

struct Collected {
  std::vector<TokenId> tokens;
  std::string text;
  std::optional<FinishReason> reason;
  Status error;
  Usage usage;
  uint64_t seed = 0;
  RequestTimings timings;
};

class EngineCoreTest : public ::testing::Test {
 protected:
  void Start(EngineCoreOptions options = {}) {
    options.max_seqs = 4;
    options.max_step_tokens = 16;
    auto made = EngineCore::Create(std::move(options), &clock_, &executor_, pool_.get());
    ASSERT_TRUE(made.ok()) << made.status().ToString();
    core_ = std::move(*made);
  }
  Arrival Make(RequestId id, std::vector<TokenId> prompt, int max_tokens) {
    Arrival arrival;
    arrival.id = id;
    arrival.prompt = std::move(prompt);
    arrival.sampling.max_tokens = max_tokens;
    arrival.on_output = [this, id](OutputChunk chunk) {
      Collected& c = results_[{id, chunk.choice}];
      EXPECT_FALSE(c.reason) << "a chunk after the last";
      c.tokens.insert(c.tokens.end(), chunk.token_ids.begin(), chunk.token_ids.end());
      c.text += chunk.text;
      c.reason = chunk.finish_reason;
      c.error = chunk.error;
      c.usage = chunk.usage;
      c.seed = chunk.seed;
      c.timings = chunk.timings;
    };
    return arrival;
  }
  void RunAll() {
    for (int i = 0; core_->HasWork(); ++i) {
      ASSERT_LT(i, 10000) << "no end";
      clock_.Advance(std::chrono::milliseconds(1));
      core_->Step();
    }
  }

  ManualClock clock_;
  SumExecutor executor_;
  std::unique_ptr<ThreadPool> pool_;  // none unless a test makes one before Start
  std::unique_ptr<EngineCore> core_;
  std::map<std::pair<RequestId, int32_t>, Collected> results_;
};

}  // namespace tokamak
