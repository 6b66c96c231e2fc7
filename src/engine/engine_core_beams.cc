// The part of EngineCore that runs beam searches.
#include <algorithm>
#include <utility>

#include "base/error.h"
#include "engine/answer.h"
#include "engine/engine_core.h"

namespace tokamak {

Status EngineCore::CheckBeams(const Arrival& arrival, int32_t positions) const {
  const int32_t width = arrival.sampling.beam_search->width;
  if (!limits_.has_candidates) {
    return Unimplemented("use_beam_search: the engine's backend has no beam search");
  }
  if (width > options_.max_seqs) {
    return ResourceExhausted(
        "use_beam_search: {} beams need as many sequences, but at most {} run at the same time",
        width, options_.max_seqs);
  }
  const int32_t kept = scheduler_.options().min_prefill();
  if (width > options_.max_step_tokens - kept) {
    return ResourceExhausted(
        "use_beam_search: {} beams need as many tokens in a step, but there are {} for them", width,
        options_.max_step_tokens - kept);
  }
  const int64_t needed = int64_t{blocks_.BlocksFor(positions, 1)} * width;
  if (needed > blocks_.num_blocks()) {
    return ResourceExhausted(
        "use_beam_search: {} beams of up to {} tokens may need {} KV blocks, but there are {}; ask "
        "for fewer tokens or beams, or give the KV cache more memory",
        width, positions, needed, blocks_.num_blocks());
  }
  return Status();
}

void EngineCore::AddBeams(Arrival* arrival, size_t num_ends, Sequence* sequence) const {
  const BeamSearchParams& params = *arrival->sampling.beam_search;
  const std::optional<int32_t> num_logprobs = arrival->sampling.logprobs;
  sequence->beams = std::make_unique<BeamGroup>(
      params, sequence->num_prompt, sequence->max_length - sequence->num_prompt, num_logprobs);
  BeamGroup& group = *sequence->beams;
  const int64_t wanted = std::max<int64_t>(BeamSearch::NumCandidates(params.width, num_ends),
                                           num_logprobs.value_or(0));
  group.num_candidates = static_cast<int32_t>(std::min<int64_t>(wanted, limits_.vocab_size));
  group.answers.resize(static_cast<size_t>(arrival->sampling.n));
  for (size_t i = 0; i < group.answers.size(); ++i) {
    if (!arrival->decoders.empty()) group.answers[i].decoder = std::move(arrival->decoders[i]);
    if (!arrival->constraints.empty()) {
      group.answers[i].constraint = std::move(arrival->constraints[i]);
    }
  }
  const BeamGroup::Answer& first = group.answers[0];
  if (first.constraint) group.beams[0].constraint = first.constraint->Clone();
  if (first.decoder && !arrival->sampling.stop.empty()) {
    group.beams[0].decoder = first.decoder->Clone();
  }
}

void EngineCore::RetireBeamRow(const ScheduledRow& row, const RowOutput& output) {
  Sequence* sequence = row.sequence;
  BeamGroup& group = *sequence->beams;
  if (row.last_beam && row.num_candidates > 0) scheduler_.SettleBeams(sequence);
  if (sequence->state == SequenceState::kFinished) return;
  if (output.health == RowHealth::kNotFinite) {
    return EndRequest(sequence->request, FinishReason::kError,
                      HealthError(output.health, row.start + row.num_tokens - 1));
  }
  CollectPromptLogprobs(sequence, row, output);
  if (row.num_candidates > 0) group.candidates.push_back(output.candidates);
  if (!row.last_beam) return;
  sequence->num_done += row.num_tokens;
  CommitBlocks(sequence);
  if (row.num_candidates > 0) ChooseBeams(sequence);
}

void EngineCore::ChooseBeams(Sequence* sequence) {
  BeamGroup& group = *sequence->beams;
  RequestState& request = *sequence->request;
  NoteToken(&request);
  std::vector<BeamGroup::Beam> chosen;
  bool allowed = true;
  const auto ends = [&](int32_t parent, TokenId token) {
    const BeamGroup::Beam& from = group.beams[static_cast<size_t>(parent)];
    BeamGroup::Beam beam;
    if (from.constraint) beam.constraint = from.constraint->Clone();
    if (from.decoder) beam.decoder = from.decoder->Clone();
    OutputChunk text;
    const TokenEffect effect =
        TakeToken(request.sampling, sequence->num_generated(), /*last=*/false, token,
                  beam.decoder.get(), beam.constraint.get(), &text);
    allowed = allowed && effect.allowed;
    if (effect.end) return true;
    chosen.push_back(std::move(beam));
    return false;
  };
  const auto candidates = std::exchange(group.candidates, {});
  group.search.Advance(
      candidates, BeamSearch::NumCandidates(group.width(), request.sampling.stop_token_ids.size()),
      ends);
  if (!allowed) {
    return EndRequest(&request, FinishReason::kError,
                      Internal("a beam has a token at position {} that {} does not allow",
                               sequence->known(), NameOfConstraint(request)));
  }
  if (group.search.done()) return FinishBeams(sequence);
  for (const int32_t place : group.Succeed(std::move(chosen), sequence->num_done)) {
    blocks_.Release(&sequence->blocks_at(place));
  }
  const std::vector<TokenId>& best = group.search.beams()[0].tokens;
  sequence->content.resize(static_cast<size_t>(sequence->num_prompt));
  sequence->content.insert(sequence->content.end(), best.begin(), best.end());
}

void EngineCore::FinishBeams(Sequence* sequence) {
  const BeamGroup& group = *sequence->beams;
  RequestState& request = *sequence->request;
  if (group.search.hypotheses().empty()) {
    const Status error = group.answers[0].constraint
                             ? NoTokenFits(*sequence)
                             : HealthError(RowHealth::kNoCandidate, sequence->known() - 1);
    return EndRequest(&request, FinishReason::kError, error);
  }
  std::vector<OutputChunk> chunks;
  for (size_t choice = 0; choice < group.answers.size(); ++choice) {
    chunks.push_back(MakeAnswer(*sequence, choice));
    const auto tokens = static_cast<int32_t>(chunks.back().token_ids.size());
    request.usage.completion_tokens += tokens;
    counters_.generated_tokens += tokens;
  }
  chunks[0].prompt_logprobs = std::exchange(sequence->prompt_logprobs, {});
  Finish(sequence, std::move(chunks));
}

OutputChunk EngineCore::MakeAnswer(const Sequence& sequence, size_t choice) const {
  const BeamGroup& group = *sequence.beams;
  OutputChunk chunk;
  // Masks may leave fewer answers than the request wants.
  if (choice >= group.search.hypotheses().size()) {
    chunk.finish_reason = FinishReason::kStop;
    return chunk;
  }
  const BeamSearch::Hypothesis& hypothesis = group.search.hypotheses()[choice];
  chunk.beam_score = hypothesis.score;
  const BeamGroup::Answer& answer = group.answers[choice];
  const size_t count = hypothesis.tokens.size();
  for (size_t i = 0; i < count; ++i) {
    const TokenEffect effect =
        TakeToken(sequence.request->sampling, static_cast<int32_t>(i), /*last=*/i + 1 == count,
                  hypothesis.tokens[i], answer.decoder.get(), answer.constraint.get(), &chunk);
    chunk.finish_reason = effect.end;
    if (!hypothesis.logprobs.empty() && !effect.end_token) {
      chunk.logprobs.push_back(*hypothesis.logprobs[i]);
    }
  }
  return chunk;
}

}  // namespace tokamak
