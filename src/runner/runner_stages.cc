// The part of Runner that exchanges values with the other stages of a pipeline.
#include <algorithm>
#include <span>

#include "base/check.h"
#include "base/error.h"
#include "runner/runner.h"

namespace tokamak {
namespace {

Tensor DrawsOf(const StepInFlight& in_flight) {
  CHECK(in_flight.num_draws * sizeof(TokenId) <= in_flight.sent_draws.size());
  return Tensor(in_flight.sent_draws.data(), DType::kI32,
                Shape{static_cast<int64_t>(in_flight.num_draws)});
}

}  // namespace

Tensor Runner::ExpertOffsetsUpTo(int32_t end_moe_layer) const {
  const Tensor all = ExpertOffsets(expert_offsets_);
  return all.empty() ? all : all.Rows(0, end_moe_layer);
}

void Runner::ReceiveHidden(nn::Pass& pass) {
  const int32_t before = stage().index - 1;
  pass.hidden =
      pass.arena.Allocate(DType::kF32, {pass.num_tokens(), int64_t{model_.spec().hidden_size}});
  ops_.Run(Receive{.out = pass.hidden, .stage = before}, *stream_);
  const Tensor offsets = ExpertOffsetsUpTo(stage().first_moe_layer);
  if (!offsets.empty()) ops_.Run(Receive{.out = offsets, .stage = before}, *stream_);
}

void Runner::SendHidden(Tensor hidden) {
  const int32_t next = stage().index + 1;
  ops_.Run(Send{.x = hidden, .stage = next}, *stream_);
  const Tensor offsets = ExpertOffsetsUpTo(stage().end_moe_layer);
  if (!offsets.empty()) ops_.Run(Send{.x = offsets, .stage = next}, *stream_);
}

Status Runner::SendDraws() {
  const StepInFlight& in_flight = InFlight(next_draws_++);
  if (in_flight.num_draws == 0) return Status();
  if (Status status = ops_.Await(*in_flight.done); !status.ok()) {
    return Fail(status.WithContext(fmt::format("step {}", in_flight.number)));
  }
  const Tensor draws = DrawsOf(in_flight);
  auto* const tokens = static_cast<TokenId*>(draws.data);
  std::fill_n(tokens, in_flight.num_draws, kNotDrawn);
  const StepOutput output = MakeOutput(in_flight);
  for (size_t i = 0; i < output.rows.size(); ++i) {
    const std::vector<TokenId>& drawn = output.rows[i].tokens;
    std::copy(drawn.begin(), drawn.end(), tokens + std::max(0, in_flight.rows[i].sampled));
  }
  for (int32_t other = 0; other < stage().index; ++other) {
    ops_.Run(Send{.x = draws, .stage = other}, *stream_);
  }
  return Status();
}

// The other stages wait for them. On an asynchronous device they are done later.
Status Runner::SendReadyDraws() {
  while (next_draws_ < num_sampled_ && ops_.Reached(*InFlight(next_draws_).done)) {
    RETURN_IF_ERROR(SendDraws());
  }
  return Status();
}

bool Runner::DeviceFailed(const StepInFlight& in_flight) {
  return ops_.Reached(*in_flight.done) && !ops_.Await(*in_flight.done).ok();
}

Status Runner::ReceiveDraws() {
  StepInFlight& in_flight = InFlight(next_draws_++);
  if (in_flight.num_draws == 0) return Status();
  const Tensor draws = DrawsOf(in_flight);
  // Without this stage's part of the step there will be no draws; after an error they are no
  // tokens.
  Status status = ops_.Await(*in_flight.done);
  if (status.ok()) {
    ops_.Run(Receive{.out = draws, .stage = stage().count - 1}, *stream_);
    status = ops_.Await(*in_flight.done);
  }
  if (!status.ok()) return Fail(status.WithContext(fmt::format("step {}", in_flight.number)));
  const std::span tokens(static_cast<const TokenId*>(draws.data), in_flight.num_draws);
  for (size_t i = 0; i < tokens.size(); ++i) in_flight.sampled_results[i] = {.token = tokens[i]};
  for (const StepInFlight::Row& row : in_flight.rows) {
    if (row.sampled < 0) continue;
    const std::span drawn =
        tokens.subspan(static_cast<size_t>(row.sampled), static_cast<size_t>(row.num_draws));
    const auto end = std::find(drawn.begin(), drawn.end(), kNotDrawn);
    slots_.AddDrawn(row.slot, drawn.first(static_cast<size_t>(end - drawn.begin())));
  }
  return Status();
}

Status Runner::ReceiveDrawsFor(const StepInput& step) {
  if (!stage().first() || stage().last()) return Status();
  const auto lacks_tokens = [this](const StepRow& row) {
    const SequenceSlot& slot = slots_[row.slot];
    return slot.num_computed - std::ssize(row.drafts) > std::ssize(slot.tokens);
  };
  while (next_draws_ < next_submit_ &&
         std::any_of(step.rows.begin(), step.rows.end(), lacks_tokens)) {
    RETURN_IF_ERROR(ReceiveDraws());
  }
  return Status();
}

}  // namespace tokamak
