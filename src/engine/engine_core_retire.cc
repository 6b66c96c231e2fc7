// The half of EngineCore that turns step outputs into tokens, chunks and ends.
#include <algorithm>
#include <cmath>
#include <functional>
#include <set>
#include <utility>

#include "base/check.h"
#include "base/error.h"
#include "base/log.h"
#include "engine/answer.h"
#include "engine/engine_core.h"
#include "engine/step_failure.h"

namespace tokamak {
Status EngineCore::HealthError(RowHealth health, int32_t position) {
  switch (health) {
    case RowHealth::kOk:
      return Status();
    case RowHealth::kNotFinite:
      return Internal("the model's output is not finite at position {}", position);
    case RowHealth::kNoCandidate:
      return InvalidArgument(
          "min_tokens: no token can follow position {}: all tokens that do not end the answer have "
          "probability 0 there; relax min_tokens, stop_token_ids, allowed_token_ids or bad_words",
          position);
  }
  return Internal("the executor reports health {} at position {}", static_cast<int>(health),
                  position);
}

void EngineCore::RetireDone() {
  while (!in_flight_.empty() && executor_->Done(in_flight_.front().number)) RetireOldest();
}

void EngineCore::RetireOldest() {
  if (in_flight_.empty()) return;
  const StepCost& cost = in_flight_.front().cost;
  executor_->Expect(costs_.Knows(cost) ? costs_.Predict(cost) : 0);
  Result<StepOutput> output = executor_->Wait(in_flight_.front().number);
  Status status = output.status();
  if (status.ok()) status = CheckOutput(in_flight_.front(), *output);
  if (!status.ok()) {
    FailSteps(status);
    return;
  }
  StepInFlight step = std::move(in_flight_.front());
  in_flight_.pop_front();
  now_ = clock_->Now();
  NoteTime(step, *output, ToSeconds(now_ - std::max(step.submitted, last_retired_)));
  last_retired_ = last_progress_ = now_;
  num_failures_ = 0;
  ++counters_.steps;
  bool decode = !step.rows.empty();
  for (const ScheduledRow& row : step.rows) {
    counters_.step_tokens += row.num_tokens;
    decode = decode && row.num_tokens == 1 && row.start >= row.sequence->num_prompt;
    counters_.prefill_tokens += std::clamp(row.sequence->num_prompt - row.start, 0, row.num_tokens);
    for (const CacheGroup& group : limits_.cache.groups) {
      const bool window = group.kind == CacheGroupKind::kWindow;
      const int64_t before = window ? std::min(row.start, group.window - 1) : row.start;
      counters_.kv_bytes_read +=
          (before + row.num_tokens) * limits_.cache.block_bytes / group.block_size;
    }
  }
  counters_.decode_steps += decode ? 1 : 0;
  CountExperts(output->expert_loads, decode);
  Retire(std::move(step), *output);
}

void EngineCore::NoteTime(const StepInFlight& step, const StepOutput& output, double seconds) {
  // The executor measures this on its own clock, which need not agree with the engine's.
  const double proposing_seconds = std::min(output.proposing_seconds, seconds);
  costs_.Observe(step.cost, seconds, proposing_seconds);
  if (step.cost.image_rows > 0) return;
  const auto num_decodes = static_cast<int32_t>(step.rows.size());
  int32_t num_drafts = 0;
  int32_t num_tokens = 0;
  for (size_t i = 0; i < step.rows.size(); ++i) {
    const ScheduledRow& row = step.rows[i];
    const auto drafts = static_cast<int32_t>(row.drafts.size());
    // Computes part of a prompt.
    if ((!row.sample && row.num_candidates == 0) || row.num_tokens != drafts + 1) return;
    num_drafts += drafts;
    num_tokens += std::max(1, static_cast<int32_t>(output.rows[i].tokens.size()));
  }
  // With several sequences, drafts also change who shares later steps, which this would not see.
  if ((num_drafts > 0 || step.cost.proposals > 0) && num_decodes == 1) {
    const double without = step_times_.Predict(num_decodes, 0, costs_.token_seconds());
    const double saved = without * num_tokens - seconds;
    counters_.saved_seconds += saved;
    step.rows[0].sequence->request->saved_seconds += saved;
  }
  step_times_.Observe(num_decodes, num_drafts, seconds - proposing_seconds);
}

void EngineCore::CountExperts(const std::vector<int32_t>& loads, bool decode) {
  if (limits_.num_moe_layers == 0 || loads.empty()) return;
  const size_t experts = loads.size() / static_cast<size_t>(limits_.num_moe_layers);
  counters_.expert_positions.resize(static_cast<size_t>(limits_.num_moe_layers));
  counters_.decode_experts.resize(static_cast<size_t>(limits_.num_moe_layers));
  const int32_t* load = loads.data();
  for (size_t i = 0; i < counters_.expert_positions.size(); ++i, load += experts) {
    std::vector<int64_t>& layer = counters_.expert_positions[i];
    layer.resize(experts);
    for (size_t e = 0; e < experts; ++e) layer[e] += load[e];
    if (!decode) continue;
    counters_.decode_experts[i] +=
        std::count_if(load, load + experts, [](int32_t n) { return n > 0; });
  }
}

Status EngineCore::CheckOutput(const StepInFlight& step, const StepOutput& output) const {
  if (output.number != step.number || output.rows.size() != step.rows.size()) {
    return Internal("executor: step {} with {} rows was returned as step {} with {} rows",
                    step.number, step.rows.size(), output.number, output.rows.size());
  }
  if (!(output.proposing_seconds >= 0) || std::isinf(output.proposing_seconds)) {
    return Internal("executor: step {} says that its proposals took {} seconds", step.number,
                    output.proposing_seconds);
  }
  for (size_t i = 0; i < step.rows.size(); ++i) {
    const RowOutput& row = output.rows[i];
    if (row.slot != step.rows[i].slot) {
      return Internal("executor: step {} row {} is for slot {}, expected {}", step.number, i,
                      row.slot, step.rows[i].slot);
    }
    const size_t num_tokens = row.tokens.size();
    if ((row.health != RowHealth::kOk && num_tokens > 0) ||
        (!row.logprobs.empty() && row.logprobs.size() != num_tokens)) {
      return Internal("executor: step {} row {} has {} tokens and {} logprobs with health {}",
                      step.number, i, num_tokens, row.logprobs.size(),
                      static_cast<int>(row.health));
    }
    if (row.health != RowHealth::kOk) continue;
    const std::vector<TokenId>& drafts = step.rows[i].drafts;
    if (step.rows[i].sample ? num_tokens < 1 || num_tokens > drafts.size() + 1 : num_tokens > 0) {
      return Internal(
          "executor: step {} row {} has {} tokens, although sample is {} with {} drafts",
          step.number, i, num_tokens, step.rows[i].sample, drafts.size());
    }
    if (row.proposals.size() > static_cast<size_t>(step.rows[i].num_proposals)) {
      return Internal("executor: step {} row {} has {} proposals, expected at most {}", step.number,
                      i, row.proposals.size(), step.rows[i].num_proposals);
    }
    if (!std::equal(row.tokens.begin(), row.tokens.end() - (num_tokens > 0), drafts.begin())) {
      return Internal("executor: step {} row {} has tokens behind one that is not the draft",
                      step.number, i);
    }
    if (row.candidates.size() > static_cast<size_t>(step.rows[i].num_candidates)) {
      return Internal("executor: step {} row {} has {} candidates, expected at most {}",
                      step.number, i, row.candidates.size(), step.rows[i].num_candidates);
    }
    for (const TokenLogprobs::Entry& entry : row.candidates) {
      if (entry.token_id >= 0 && entry.token_id < limits_.vocab_size &&
          std::isfinite(entry.logprob)) {
        continue;
      }
      return Internal("executor: step {} row {} has candidate {} with logprob {}", step.number, i,
                      entry.token_id, entry.logprob);
    }
    for (const std::vector<TokenId>& tokens : {std::cref(row.tokens), std::cref(row.proposals)}) {
      for (const TokenId token : tokens) {
        if (token >= 0 && token < limits_.vocab_size) continue;
        return Internal("executor: step {} row {} has token {}, but the vocabulary has {}",
                        step.number, i, token, limits_.vocab_size);
      }
    }
  }
  return Status();
}

void EngineCore::Retire(StepInFlight step, const StepOutput& output) {
  for (size_t i = 0; i < step.rows.size(); ++i) RetireRow(step.rows[i], output.rows[i]);
  blocks_.Unpin(step.pins);
}

void EngineCore::RetireRow(const ScheduledRow& row, const RowOutput& output) {
  Sequence* sequence = row.sequence;
  RequestState* request = sequence->request;
  --sequence->rows_in_flight;
  if (row.sample) --sequence->pending_tokens;
  if (!row.drafts.empty() || row.num_proposals > 0) {
    scheduler_.SettleDrafts(row, std::max(1, static_cast<int32_t>(output.tokens.size())));
    CountDrafts(request, row.drafts.size());
  }
  if (sequence->beams) {
    RetireBeamRow(row, output);
  } else if (sequence->state != SequenceState::kFinished) {
    const int32_t num_computed = row.num_tokens - static_cast<int32_t>(row.drafts.size());
    Status status = HealthError(output.health, row.start + num_computed - 1);
    if (row.masked && output.health == RowHealth::kNoCandidate) {
      status = NoTokenFits(*sequence);
    }
    if (!status.ok()) {
      EndRequest(request, FinishReason::kError, status);
    } else {
      sequence->num_done += num_computed;
      CommitBlocks(sequence);
      CollectPromptLogprobs(sequence, row, output);
      if (sequence->choice == 0 && sequence->num_done >= sequence->num_prompt) {
        for (const auto& choice : request->choices) choice->gated = false;
      }
      for (size_t i = 0; i < output.tokens.size(); ++i) {
        if (i > 0) {  // the token before was a draft, so its position has been computed
          ++sequence->num_done;
          ++counters_.accepted_drafts;
          ++counters_.accepted_drafts_at[i - 1];
          ++request->num_accepted;
          ++request->accepted_drafts_at[i - 1];
          CommitBlocks(sequence);
        }
        AddToken(sequence, output.tokens[i],
                 output.logprobs.empty() ? nullptr : &output.logprobs[i]);
        if (sequence->state == SequenceState::kFinished) break;
      }
      if (sequence->slot >= 0) sequence->proposals = output.proposals;
      const bool ends = sequence->prompt_only() && sequence->num_done == sequence->num_prompt;
      if (output.tokens.empty() && ends) {
        Finish(sequence, FinishReason::kLength, Status(), MakeChunk(sequence));
      }
    }
  }
  scheduler_.RowsRetired(sequence);
  EraseIfEnded(request);
}

void EngineCore::CountDrafts(RequestState* request, size_t num_drafts) {
  request->num_drafts += static_cast<int32_t>(num_drafts);
  counters_.drafts += static_cast<int64_t>(num_drafts);
  const auto count = [num_drafts](auto& drafts_at, auto& accepted_drafts_at) {
    if (drafts_at.size() < num_drafts) {
      drafts_at.resize(num_drafts);
      accepted_drafts_at.resize(num_drafts);
    }
    for (size_t i = 0; i < num_drafts; ++i) ++drafts_at[i];
  };
  count(counters_.drafts_at, counters_.accepted_drafts_at);
  count(request->drafts_at, request->accepted_drafts_at);
}

void EngineCore::CommitBlocks(Sequence* sequence) {
  if (!sequence->beams) {
    blocks_.Commit(sequence->content, sequence->num_done, &sequence->blocks);
    blocks_.DropOutOfWindow(sequence->num_done, &sequence->blocks);
    return;
  }
  // Only what all beams share: the rest is computed anew after a preemption, and equal blocks in
  // the cache would take its room.
  const BeamGroup& group = *sequence->beams;
  const int32_t shared = sequence->num_prompt + group.num_common;
  blocks_.Commit(sequence->content, std::min(sequence->num_done, shared),
                 &sequence->blocks_at(group.beams[0].place));
  for (const BeamGroup::Beam& beam : group.beams) {
    if (beam.place < 0) continue;
    blocks_.DropOutOfWindow(sequence->num_done, &sequence->blocks_at(beam.place));
  }
}

void EngineCore::CollectPromptLogprobs(Sequence* sequence, const ScheduledRow& row,
                                       const RowOutput& output) {
  if (!sequence->prompt_logprobs_missing()) return;
  // Entry i belongs to prompt token start + i + 1. After a preemption the first ones may be known.
  for (size_t i = 0; i < output.prompt_logprobs.size(); ++i) {
    const int32_t token = row.start + static_cast<int32_t>(i) + 1;
    if (token != sequence->num_prompt_logprobs + 1 || token >= sequence->num_prompt) continue;
    sequence->prompt_logprobs.push_back(output.prompt_logprobs[i]);
    ++sequence->num_prompt_logprobs;
  }
}

void EngineCore::NoteToken(RequestState* request) {
  if (request->first_token) return;
  request->first_token = now_;
  counters_.time_to_first_token.Observe(ToSeconds(now_ - request->arrived));
}

void EngineCore::AddToken(Sequence* sequence, TokenId token, const TokenLogprobs* logprobs) {
  RequestState& request = *sequence->request;
  NoteToken(&request);
  OutputChunk chunk;
  const TokenEffect effect =
      TakeToken(request.sampling, sequence->num_generated(),
                /*last=*/sequence->known() + 1 == sequence->max_length, token,
                sequence->decoder.get(), sequence->constraint.get(), &chunk);
  if (!effect.allowed) {
    const Status error = Internal("token {} was drawn at position {}, but {} does not allow it",
                                  token, sequence->known(), NameOfConstraint(request));
    return EndRequest(&request, FinishReason::kError, error);
  }
  chunk.prompt_logprobs = std::exchange(sequence->prompt_logprobs, {});
  if (!effect.end_token) {
    sequence->content.push_back(token);
    ++request.usage.completion_tokens;
    ++counters_.generated_tokens;
    if (sequence->last_token) {
      counters_.inter_token.Observe(ToSeconds(now_ - *sequence->last_token));
    }
    sequence->last_token = now_;
    if (logprobs != nullptr) chunk.logprobs.push_back(*logprobs);
  }
  if (effect.end) {
    Finish(sequence, *effect.end, Status(), std::move(chunk));
  } else {
    Emit(sequence, std::move(chunk));
  }
}

OutputChunk EngineCore::MakeChunk(Sequence* sequence) const {
  OutputChunk chunk;
  chunk.prompt_logprobs = std::exchange(sequence->prompt_logprobs, {});
  return chunk;
}

void EngineCore::Emit(Sequence* sequence, OutputChunk chunk) {
  const RequestState& request = *sequence->request;
  if (!request.on_output) return;
  chunk.request = request.id;
  chunk.choice += sequence->choice;
  chunk.seed = *request.sampling.seed;
  if (sequence->decoder) chunk.tokens_held = sequence->decoder->tokens_held();
  chunk.usage = request.usage;
  chunk.timings = TimingsOf(request);
  if (chunk.finish_reason) {
    chunk.timings.drafts_at = request.drafts_at;
    chunk.timings.accepted_drafts_at = request.accepted_drafts_at;
  }
  outputs_.emplace_back(request.on_output, std::move(chunk));
}

void EngineCore::DeliverOutputs() {
  for (auto& [on_output, chunk] : outputs_) (*on_output)(std::move(chunk));
  outputs_.clear();
}

RequestTimings EngineCore::TimingsOf(const RequestState& request) const {
  RequestTimings timings;
  timings.preemptions = request.num_preemptions;
  timings.steps = request.num_steps;
  timings.drafts = request.num_drafts;
  timings.accepted_drafts = request.num_accepted;
  timings.saved_seconds = request.saved_seconds;
  const TimePoint start = request.scheduled ? request.first_scheduled : now_;
  const TimePoint first_token = request.first_token.value_or(now_);
  timings.queued_seconds = ToSeconds(start - request.arrived);
  timings.prefill_seconds = ToSeconds(first_token - start);
  timings.decode_seconds = ToSeconds(now_ - first_token);
  return timings;
}

void EngineCore::Finish(Sequence* sequence, FinishReason reason, Status error, OutputChunk chunk) {
  chunk.finish_reason = reason;
  chunk.error = std::move(error);
  std::vector<OutputChunk> chunks(sequence->beams ? sequence->beams->answers.size() : 1);
  for (OutputChunk& last : chunks) {
    last.finish_reason = reason;
    last.error = chunk.error;
  }
  chunks[0] = std::move(chunk);
  Finish(sequence, std::move(chunks));
}

void EngineCore::Finish(Sequence* sequence, std::vector<OutputChunk> chunks) {
  CHECK(sequence->state != SequenceState::kFinished);
  RequestState& request = *sequence->request;
  for (const OutputChunk& chunk : chunks) {
    request.end = std::max(request.end, chunk.finish_reason.value_or(FinishReason::kStop));
  }
  scheduler_.Finish(sequence);
  for (size_t i = 0; i < chunks.size(); ++i) {
    chunks[i].choice = static_cast<int32_t>(i);
    Emit(sequence, std::move(chunks[i]));
  }
  if (--request.num_unfinished > 0) return;
  if (request.paused) --num_paused_;
  request.paused = false;
  if (!request.scheduled) {
    request.scheduled = true;
    queued_.Give(request.client);
    request.first_scheduled = now_;
  }
  if (options_.on_request_done) options_.on_request_done(request);
  NoteEnded(request);
}

void EngineCore::NoteEnded(const RequestState& request) {
  ++counters_.ended_requests[static_cast<size_t>(request.end)];
  counters_.end_to_end.Observe(ToSeconds(now_ - request.arrived));
  if (request.first_token) {
    const RequestTimings timings = TimingsOf(request);
    counters_.prefill_time.Observe(timings.prefill_seconds);
    counters_.decode_time.Observe(timings.decode_seconds);
  }
  if (ended_.size() == EngineSnapshot::kMaxRequests) ended_.pop_front();
  ended_.push_back(Describe(request));
  ended_.back().request.end = request.end;
  ended_.back().ended = now_;
}

void EngineCore::EndRequest(RequestState* request, FinishReason reason, const Status& error) {
  for (const auto& sequence : request->choices) {
    if (sequence->state == SequenceState::kFinished) continue;
    Finish(sequence.get(), reason, error, MakeChunk(sequence.get()));
  }
}

void EngineCore::EraseIfEnded(RequestState* request) {
  if (request->num_unfinished == 0 && request->num_holding == 0) requests_.erase(request->id);
}

// Failures.

void EngineCore::FailSteps(const Status& error) {
  DropSteps(error);
  if (++num_failures_ >= options_.max_failures) EndAll(error);
}

void EngineCore::LoseExecutor(const Status& error) {
  if (!needs_reset_) DropSteps(error);
}

void EngineCore::DropSteps(const Status& error) {
  LogError("executor: {}", error.ToString());
  last_error_ = error;
  std::set<RequestId> failed;  // ordered, so that a replay fails them in the same order
  for (const StepInFlight& step : in_flight_) {
    for (const ScheduledRow& row : step.rows) failed.insert(row.sequence->request->id);
  }
  in_flight_.clear();
  scheduler_.Reset();
  blocks_.Reset();
  encoder_.Reset();
  needs_reset_ = true;
  for (const RequestId id : failed) {
    RequestState* request = requests_.at(id).get();
    EndRequest(request, FinishReason::kError, StepFailure(error));
    EraseIfEnded(request);
  }
  std::vector<RequestState*> ended;
  for (const auto& [id, request] : requests_) ended.push_back(request.get());
  for (RequestState* request : ended) EraseIfEnded(request);
}

void EngineCore::EndAll(const Status& error) {
  std::vector<RequestState*> all;
  for (const auto& [id, request] : requests_) all.push_back(request.get());
  for (RequestState* request : all) {
    EndRequest(request, FinishReason::kError, StepFailure(error));
    EraseIfEnded(request);
  }
}

}  // namespace tokamak
