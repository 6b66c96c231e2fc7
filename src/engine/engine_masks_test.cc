// How the engine core treats constrained sequences. tests/sim checks their tokens at every depth.
#include <gtest/gtest.h>

#include <latch>
#include <map>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "engine/constrained_drafts.h"
#include "engine/engine_core.h"
#include "engine/testing/engine_core_fixture.h"

namespace tokamak {
namespace {

// The executor's vocabulary.
const std::set<TokenId> kAny = [] {
  std::set<TokenId> ids;
  for (TokenId id = 0; id < 100; ++id) ids.insert(id);
  return ids;
}();

// Allows the tokens of allowed[i] after i tokens. Complete after the counts in `complete`; finished
// after allowed.size() tokens. `forced[i]` is forced there. No mask is needed where kAny is allowed
// and the answer is complete.
class ListConstraint final : public TokenConstraint {
 public:
  ListConstraint(std::vector<std::set<TokenId>> allowed, std::set<size_t> complete,
                 std::map<size_t, std::vector<TokenId>> forced = {})
      : allowed_(std::move(allowed)), complete_(std::move(complete)), forced_(std::move(forced)) {}

  Status Allow(std::span<uint32_t> allowed) override {
    for (const TokenId t : allowed_.at(count_)) {
      allowed[static_cast<size_t>(t / 32)] |= uint32_t{1} << t % 32;
    }
    return Status();
  }
  bool Accept(TokenId token) override {
    return allowed_.at(count_).contains(token) && ++count_ > 0;
  }
  bool complete() const override { return finished() || complete_.contains(count_); }
  bool finished() const override { return count_ == allowed_.size(); }
  std::unique_ptr<TokenConstraint> Clone() const override {
    return std::make_unique<ListConstraint>(*this);
  }
  int32_t num_free() const override {
    size_t end = count_;
    while (end < allowed_.size() && allowed_[end] == kAny && complete_.contains(end)) ++end;
    return static_cast<int32_t>(end - count_);
  }
  std::vector<TokenId> ForcedTokens(int32_t most) override {
    std::vector<TokenId> tokens = forced_[count_];
    if (tokens.size() > static_cast<size_t>(most)) tokens.resize(static_cast<size_t>(most));
    return tokens;
  }

 private:
  const std::vector<std::set<TokenId>> allowed_;
  const std::set<size_t> complete_;
  std::map<size_t, std::vector<TokenId>> forced_;
  size_t count_ = 0;
};

// Makes its mask once the constraints of all the others make theirs.
class WaitingConstraint final : public TokenConstraint {
 public:
  WaitingConstraint(std::unique_ptr<TokenConstraint> inner, std::latch* all)
      : inner_(std::move(inner)), all_(all) {}

  Status Allow(std::span<uint32_t> allowed) override {
    if (all_ != nullptr) std::exchange(all_, nullptr)->arrive_and_wait();
    return inner_->Allow(allowed);
  }
  bool Accept(TokenId token) override { return inner_->Accept(token); }
  bool complete() const override { return inner_->complete(); }
  bool finished() const override { return inner_->finished(); }
  std::unique_ptr<TokenConstraint> Clone() const override { return inner_->Clone(); }

 private:
  const std::unique_ptr<TokenConstraint> inner_;
  std::latch* all_;
};

std::set<TokenId> TokensOf(const TokenMask& mask) {
  std::set<TokenId> tokens;
  for (TokenId t = 0; t < static_cast<TokenId>(mask.allowed.size() * 32); ++t) {
    if ((mask.allowed[static_cast<size_t>(t / 32)] >> t % 32 & 1) != 0) tokens.insert(t);
  }
  return tokens;
}

class EngineMasksTest : public EngineCoreTest {
 protected:
  void StartWithDrafts() {
    executor_.limits_.max_step_drafts = 4;
    EngineCoreOptions options;
    options.drafts.most = 4;
    options.drafts.always = true;  // steps take no time here, so none is worth it
    Start(std::move(options));
  }
  // A request that must generate exactly Continue(prompt, count), if it is not complete before.
  Arrival MakeConstrained(RequestId id, const std::vector<TokenId>& prompt, int count,
                          std::set<size_t> complete = {}) {
    std::vector<std::set<TokenId>> allowed;
    for (const TokenId token : Continue(prompt, count)) allowed.push_back({token});
    return WithConstraint(Make(id, prompt, 20), std::move(allowed), std::move(complete));
  }
  static Arrival WithConstraint(Arrival arrival, std::vector<std::set<TokenId>> allowed,
                                std::set<size_t> complete = {}) {
    arrival.sampling.structured_output = StructuredOutput{};
    arrival.constraints.push_back(
        std::make_unique<ListConstraint>(std::move(allowed), std::move(complete)));
    return arrival;
  }
};

TEST_F(EngineMasksTest, AMaskIsMadeWhileItsStepRuns) {
  executor_.limits_.depth = 2;
  Start();
  ASSERT_TRUE(core_->Submit(Make(1, {1, 2, 3}, 12)).ok());
  ASSERT_TRUE(core_->Submit(MakeConstrained(2, {4, 5}, 6)).ok());
  // A step's output is asked for when the next step runs and its free row is drawn, but not the
  // other one.
  size_t num_waits = 0;
  executor_.on_wait = [&] {
    const size_t retiring = num_waits++;
    if (retiring > 5) return;
    EXPECT_EQ(executor_.steps.size(), retiring + 2);
    ASSERT_EQ(executor_.masks.size(), retiring + 2);
    EXPECT_TRUE(executor_.masks.back().empty());
  };
  RunAll();
  EXPECT_EQ(results_.at({1, 0}).tokens, Continue({1, 2, 3}, 12));
  EXPECT_EQ(results_.at({2, 0}).tokens, Continue({4, 5}, 6));
  // Each has a row in every step. The seventh of the constrained one was submitted before its end
  // was known; its token is dropped.
  ASSERT_EQ(executor_.steps.size(), 12u);
  for (size_t i = 0; i < 12; ++i) {
    const std::vector<StepRow>& rows = executor_.steps[i].rows;
    ASSERT_EQ(rows.size(), i < 7 ? 2u : 1u) << "step " << i;
    for (size_t row = 0; row < rows.size(); ++row) EXPECT_EQ(rows[row].masked, row == 1);
    EXPECT_EQ(executor_.masks[i].size(), i < 6 ? 1u : 0u) << "step " << i;
  }
}

TEST_F(EngineMasksTest, ThePoolMakesTheMasksOfAStepTogether) {
  pool_ = std::make_unique<ThreadPool>(2);
  Start();
  std::latch both(2);  // one thread alone would wait forever
  for (const RequestId id : {1, 2}) {
    Arrival arrival = MakeConstrained(id, {3, static_cast<TokenId>(id)}, 5);
    arrival.constraints[0] =
        std::make_unique<WaitingConstraint>(std::move(arrival.constraints[0]), &both);
    ASSERT_TRUE(core_->Submit(std::move(arrival)).ok());
  }
  RunAll();
  for (const RequestId id : {1, 2}) {
    EXPECT_EQ(results_.at({id, 0}).tokens, Continue({3, static_cast<TokenId>(id)}, 5));
  }
  for (const std::vector<TokenMask>& masks : executor_.masks) {
    ASSERT_EQ(masks.size(), 2u);
    EXPECT_NE(masks[0].slot, masks[1].slot);
    EXPECT_NE(TokensOf(masks[0]), TokensOf(masks[1]));
  }
}

TEST_F(EngineMasksTest, EndTokensAreAllowedExactlyWhereTheAnswerIsComplete) {
  Start();
  const std::vector<TokenId> answer = Continue({1, 2, 3}, 3);
  // End tokens are out even where the constraint allows them, and ignored ones everywhere.
  Arrival arrival = WithConstraint(Make(1, {1, 2, 3}, 20),
                                   {{answer[0], 90, 91}, {answer[1], 90, 91}, {answer[2]}}, {1});
  arrival.eos_ids = {90, 1000};  // some models name end tokens that they do not have
  arrival.sampling.stop_token_ids = {91};
  arrival.sampling.ignore_eos = true;
  ASSERT_TRUE(core_->Submit(std::move(arrival)).ok());
  RunAll();
  ASSERT_EQ(executor_.masks.size(), 3u);
  EXPECT_EQ(TokensOf(executor_.masks[0].at(0)), std::set<TokenId>({answer[0]}));
  EXPECT_EQ(TokensOf(executor_.masks[1].at(0)), std::set<TokenId>({answer[1], 91}));
  EXPECT_EQ(TokensOf(executor_.masks[2].at(0)), std::set<TokenId>({answer[2]}));
}

TEST_F(EngineMasksTest, AThinkingBudgetAloneForbidsNoIgnoredEndToken) {
  Start();
  const std::vector<TokenId> answer = Continue({1, 2, 3}, 2);
  Arrival arrival = WithConstraint(Make(1, {1, 2, 3}, 20), {{answer[0], 90}, {answer[1]}});
  arrival.sampling.structured_output.reset();
  arrival.sampling.thinking_token_budget = 1;
  arrival.eos_ids = {90};
  arrival.sampling.ignore_eos = true;
  ASSERT_TRUE(core_->Submit(std::move(arrival)).ok());
  RunAll();
  EXPECT_EQ(TokensOf(executor_.masks.at(0).at(0)), std::set<TokenId>({answer[0], 90}));
  Arrival without = Make(2, {1}, 5);
  without.sampling.thinking_token_budget = 1;
  EXPECT_EQ(core_->Check(without).message(), "thinking_token_budget: needs 1 constraints, got 0");
}

// The fourth token is forced. A row behind it knows that it is free once that token is known.
TEST_F(EngineMasksTest, DrawsThatAreSurelyFreeHaveNoMasks) {
  executor_.limits_.depth = 2;
  Start();
  const std::vector<TokenId> answer = Continue({1, 2, 3}, 7);
  Arrival arrival = WithConstraint(
      Make(1, {1, 2, 3}, 7), {kAny, kAny, kAny, {answer[3]}, kAny, kAny, kAny}, {0, 1, 2, 4, 5, 6});
  arrival.sampling.structured_output.reset();
  arrival.sampling.thinking_token_budget = 3;
  ASSERT_TRUE(core_->Submit(std::move(arrival)).ok());
  RunAll();
  EXPECT_EQ(results_.at({1, 0}).tokens, answer);
  ASSERT_EQ(executor_.steps.size(), 7u);
  for (size_t i = 0; i < 7; ++i) {
    const bool masked = i == 3 || i == 4;
    EXPECT_EQ(executor_.steps[i].rows.at(0).masked, masked) << i;
    EXPECT_EQ(executor_.masks[i].size(), masked ? 1u : 0u) << i;
  }
}

TEST_F(EngineMasksTest, ARowWithDraftsHasMasksIfOneOfItsDrawsNeedsOne) {
  StartWithDrafts();
  for (const int32_t last_free : {3, 4}) {
    const TokenId first = last_free;  // no prompt begins like another, so none is cached
    const std::vector<TokenId> answer = Continue({first, 2, 3}, 8);
    std::set<size_t> complete;
    for (int32_t i = 0; i <= last_free; ++i) complete.insert(i);
    Arrival arrival = Make(last_free, {first, 2, 3}, 8);
    arrival.sampling.thinking_token_budget = 1;
    arrival.constraints.push_back(std::make_unique<ListConstraint>(
        std::vector<std::set<TokenId>>(8, kAny), complete,
        std::map<size_t, std::vector<TokenId>>{{1, {answer[1], answer[2], answer[3]}}}));
    const size_t num_steps = executor_.steps.size();
    ASSERT_TRUE(core_->Submit(std::move(arrival)).ok());
    RunAll();
    EXPECT_EQ(results_.at({last_free, 0}).tokens, answer);
    const StepRow& row = executor_.steps.at(num_steps + 1).rows.at(0);
    EXPECT_EQ(row.drafts.size(), 3u);
    EXPECT_EQ(row.masked, last_free == 3);
  }
}

TEST_F(EngineMasksTest, AFinishedAnswerEndsWhateverMinTokensAndIgnoreEosSay) {
  Start();
  Arrival arrival = MakeConstrained(1, {1, 2, 3}, 4);
  arrival.eos_ids = {99};
  arrival.sampling.min_tokens = 10;
  arrival.sampling.ignore_eos = true;
  ASSERT_TRUE(core_->Submit(std::move(arrival)).ok());
  RunAll();
  EXPECT_EQ(results_.at({1, 0}).tokens, Continue({1, 2, 3}, 4));
  EXPECT_EQ(results_.at({1, 0}).reason, FinishReason::kStop);
}

TEST_F(EngineMasksTest, ATruncatedAnswerSaysLengthAndAFinishedOneDoesNot) {
  Start();
  Arrival truncated = MakeConstrained(1, {1, 2, 3}, 5);
  truncated.sampling.max_tokens = 4;
  Arrival finished = MakeConstrained(2, {1, 2, 3}, 4);
  finished.sampling.max_tokens = 4;
  ASSERT_TRUE(core_->Submit(std::move(truncated)).ok());
  ASSERT_TRUE(core_->Submit(std::move(finished)).ok());
  RunAll();
  EXPECT_EQ(results_.at({1, 0}).reason, FinishReason::kLength);
  EXPECT_EQ(results_.at({2, 0}).reason, FinishReason::kStop);
}

TEST_F(EngineMasksTest, ARequestWithoutATokenToDrawEndsAloneWithItsOwnError) {
  executor_.bad_token = Continue({5, 6}, 2)[1];
  executor_.bad_health = RowHealth::kNoCandidate;
  Start();
  ASSERT_TRUE(core_->Submit(WithConstraint(Make(1, {1, 2, 3}, 20), {{}})).ok());
  ASSERT_TRUE(core_->Submit(MakeConstrained(2, {5, 6}, 4)).ok());
  ASSERT_TRUE(core_->Submit(Make(3, {1, 2, 3}, 3)).ok());
  RunAll();
  for (const RequestId id : {1, 2}) {
    const Collected& ended = results_.at({id, 0});
    EXPECT_EQ(ended.reason, FinishReason::kError);
    EXPECT_EQ(ended.error.code(), StatusCode::kInvalidArgument);
    EXPECT_TRUE(ended.error.message().starts_with("structured_output: no token can follow"))
        << ended.error.message();
  }
  EXPECT_EQ(results_.at({2, 0}).tokens.size(), 1u);
  EXPECT_EQ(results_.at({3, 0}).tokens, Continue({1, 2, 3}, 3));
}

// The executor ignores masks.
TEST_F(EngineMasksTest, AnErrorSaysWhatForbidsATokenThatWasDrawn) {
  Start();
  const TokenId token = Continue({1, 2, 3}, 1)[0];
  Arrival form = WithConstraint(Make(1, {1, 2, 3}, 4), {{token + 1}});
  Arrival budget = WithConstraint(Make(2, {1, 2, 3}, 4), {{token + 1}});
  budget.sampling.structured_output.reset();
  budget.sampling.thinking_token_budget = 0;
  ASSERT_TRUE(core_->Submit(std::move(form)).ok());
  ASSERT_TRUE(core_->Submit(std::move(budget)).ok());
  RunAll();
  EXPECT_EQ(results_.at({1, 0}).error.message(),
            "token 6 was drawn at position 3, but structured_output does not allow it");
  EXPECT_EQ(results_.at({2, 0}).error.message(),
            "token 6 was drawn at position 3, but thinking_token_budget does not allow it");
}

TEST_F(EngineMasksTest, ARowWithDraftsHasAMaskForEachDraw) {
  StartWithDrafts();
  const std::vector<TokenId> answer = Continue({1, 2, 3}, 8);
  // The third forced token is not what the model draws; the last one would end the answer.
  const TokenId other = (answer[3] + 1) % 100;
  std::vector<std::set<TokenId>> allowed;
  for (const TokenId token : answer) allowed.push_back({token, 98});
  allowed[3].insert(other);
  Arrival arrival = Make(1, {1, 2, 3}, 20);
  arrival.sampling.structured_output = StructuredOutput{};
  arrival.sampling.stop_token_ids = {97};
  arrival.constraints.push_back(std::make_unique<ListConstraint>(
      allowed, std::set<size_t>{3},
      std::map<size_t, std::vector<TokenId>>{{1, {answer[1], answer[2], other, answer[4]}},
                                             {4, {answer[4], answer[5], answer[6], answer[7]}}}));
  ASSERT_TRUE(core_->Submit(std::move(arrival)).ok());
  RunAll();
  EXPECT_EQ(results_.at({1, 0}).tokens, answer);
  EXPECT_EQ(results_.at({1, 0}).reason, FinishReason::kStop);
  ASSERT_EQ(executor_.steps.size(), 3u);
  EXPECT_EQ(executor_.steps[1].rows[0].drafts,
            (std::vector<TokenId>{answer[1], answer[2], other, answer[4]}));
  EXPECT_EQ(executor_.steps[2].rows[0].drafts,
            (std::vector<TokenId>{answer[4], answer[5], answer[6]}));
  for (const size_t step : {1, 2}) {
    const std::vector<TokenMask>& masks = executor_.masks[step];
    const size_t before = step == 1 ? 1 : 4;
    ASSERT_EQ(masks.size(), executor_.steps[step].rows[0].drafts.size() + 1);
    for (size_t i = 0; i < masks.size(); ++i) {
      EXPECT_EQ(masks[i].draw, static_cast<int32_t>(i));
      std::set<TokenId> expected = allowed[before + i];
      if (before + i == 3) expected.insert(97);  // the answer is complete there
      EXPECT_EQ(TokensOf(masks[i]), expected) << step << " " << i;
    }
  }
}

// There may be no token to draw behind a draft, which only matters once the draft is drawn.
TEST_F(EngineMasksTest, AMaskBehindARefusedDraftEndsNothing) {
  StartWithDrafts();
  const std::vector<TokenId> answer = Continue({1, 2, 3}, 3);
  Arrival arrival = Make(1, {1, 2, 3}, 20);
  arrival.sampling.structured_output = StructuredOutput{};
  const std::vector<std::set<TokenId>> allowed = {{answer[0]}, {answer[1], 5}, {}, {7}};
  arrival.constraints.push_back(std::make_unique<ListConstraint>(
      allowed, std::set<size_t>{}, std::map<size_t, std::vector<TokenId>>{{1, {5}}}));
  ASSERT_TRUE(core_->Submit(std::move(arrival)).ok());
  RunAll();
  ASSERT_EQ(executor_.masks.size(), 3u);
  ASSERT_EQ(executor_.masks[1].size(), 2u);
  EXPECT_TRUE(TokensOf(executor_.masks[1][1]).empty());
  EXPECT_EQ(results_.at({1, 0}).tokens, (std::vector<TokenId>{answer[0], answer[1]}));
  EXPECT_TRUE(results_.at({1, 0}).error.message().starts_with(
      "structured_output: no token can follow the 2 generated ones"))
      << results_.at({1, 0}).error.message();
}

TEST(ConstrainedDrafts, EndBeforeWhatCannotBeOne) {
  RequestState request;
  request.sampling.stop_token_ids = {90, 91};
  request.eos_ids = {95};
  Sequence sequence;
  sequence.request = &request;
  sequence.content = {1, 2};
  const std::set<TokenId> any = {1, 2, 3, 90, 95};
  sequence.constraint = std::make_unique<ListConstraint>(
      std::vector<std::set<TokenId>>(5, any), std::set<size_t>{0, 1, 2, 3},
      std::map<size_t, std::vector<TokenId>>{{0, {1, 2, 3}}, {2, {3, 2}}});
  const auto with = [&](int32_t forced, const std::vector<TokenId>& more) {
    ConstrainedDrafts drafts(sequence);
    drafts.AddForced(forced);
    drafts.Add(more);
    return drafts.Take();
  };
  using Tokens = std::vector<TokenId>;
  EXPECT_EQ(with(0, {3, 2}), (Tokens{3, 2}));
  EXPECT_EQ(with(2, {1, 1}), (Tokens{1, 2, 1, 1}));  // one more ends the answer
  EXPECT_EQ(with(3, {1, 1}), (Tokens{1, 2, 3, 1}));
  EXPECT_EQ(with(0, {3, 4, 3}), (Tokens{3}));   // 4 is not allowed
  EXPECT_EQ(with(0, {3, 90, 3}), (Tokens{3}));  // the request's end token
  EXPECT_EQ(with(0, {95, 3}), Tokens{});        // the model's
  ConstrainedDrafts drafts(sequence);
  drafts.Add(Tokens{1, 4});
  drafts.Add(Tokens{1});
  EXPECT_EQ(drafts.size(), 1);
  EXPECT_EQ(drafts.Take(), Tokens{1});
  EXPECT_TRUE(sequence.constraint->Accept(1)) << "the sequence is where it was";
}

TEST_F(EngineMasksTest, RefusesAStructuredOutputWithoutConstraints) {
  Start();
  Arrival arrival = Make(1, {1, 2, 3}, 4);
  arrival.sampling.structured_output = StructuredOutput{};
  EXPECT_EQ(core_->Submit(std::move(arrival)).message(),
            "structured_output: needs 1 constraints, got 0");
}

}  // namespace
}  // namespace tokamak
