// The fields of steps, listed once for reading and writing (base/codec.h). Each function names all
// members of its struct, so a member that is missing here does not compile. For step_codec.cc and
// for records of runs; others use step_codec.h.
#pragma once

#include "base/codec.h"
#include "step/executor_limits.h"
#include "step/step_input.h"
#include "step/step_output.h"

namespace tokamak::codec {

// The greatest lengths of lists in steps, and the ends of indices.
struct StepBounds {
  uint64_t seqs = kNoLimit;
  uint64_t copies = kNoLimit;
  uint64_t forgotten = kNoLimit;  // images
  uint64_t encoded = kNoLimit;    // images
  uint64_t appends = kNoLimit;
  uint64_t context = kNoLimit;
  uint64_t step_tokens = kNoLimit;
  uint64_t drafts = kNoLimit;
  uint64_t draws = kNoLimit;  // of a row
  uint64_t masks = kNoLimit;
  uint64_t mask_words = kNoLimit;
  uint64_t vocab = kNoLimit;
  uint64_t dry_sequences = kNoLimit;
  uint64_t bad_words = kNoLimit;
  uint64_t biases = kNoLimit;
  uint64_t stop_tokens = kNoLimit;
  uint64_t logprobs = kNoLimit;
  uint64_t expert_loads = kNoLimit;

  static StepBounds Of(const ExecutorLimits& limits);
};

class StepDecoder : public Decoder {
 public:
  StepDecoder(std::string_view bytes, const ExecutorLimits& limits)
      : Decoder(bytes), bounds(StepBounds::Of(limits)) {}
  const StepBounds bounds;
};

// A Decoder without limits reads what its own process wrote.
template <typename A>
const StepBounds& BoundsOf(const A& a) {
  if constexpr (requires { a.bounds; }) {
    return a.bounds;
  } else {
    static constexpr StepBounds kNone;
    return kNone;
  }
}

void Field(auto& a, CacheGroup& v) {
  Field(a, v.kind, CacheGroupKind::kWindow);
  Fields(a, v.block_size, v.window);
}

void Field(auto& a, CopyBlock& v) {
  auto& [source_tier, source, destination_tier, destination] = v;
  Field(a, "source_tier", source_tier, Tier::kHost);
  Field(a, "source", source);
  Field(a, "destination_tier", destination_tier, Tier::kHost);
  Field(a, "destination", destination);
}

// The parameters that decide what is drawn. The others stay with the engine.
void DrawFields(auto& a, SamplingParams& v) {
  auto& [temperature, dynatemp_range, dynatemp_exponent, top_n_sigma, top_k, top_p, min_p,
         typical_p, xtc_probability, xtc_threshold, repetition_penalty, presence_penalty,
         frequency_penalty, repeat_last_n, dry_multiplier, dry_base, dry_allowed_length,
         dry_penalty_last_n, dry_sequence_breakers, dry_breaker_tokens, dry_breaker_sequences,
         logit_bias, allowed_token_ids, bad_words, bad_words_ids, seed, n, max_tokens, min_tokens,
         stop, include_stop_str_in_output, stop_token_ids, ignore_eos, skip_special_tokens,
         shown_special_tokens, logprobs, prompt_logprobs, structured_output, beam_search,
         thinking_token_budget, thinking] = v;
  Field(a, "temperature", temperature);
  Field(a, "dynatemp_range", dynatemp_range);
  Field(a, "dynatemp_exponent", dynatemp_exponent);
  Field(a, "top_n_sigma", top_n_sigma);
  Field(a, "top_k", top_k);
  Field(a, "top_p", top_p);
  Field(a, "min_p", min_p);
  Field(a, "typical_p", typical_p);
  Field(a, "xtc_probability", xtc_probability);
  Field(a, "xtc_threshold", xtc_threshold);
  Field(a, "repetition_penalty", repetition_penalty);
  Field(a, "presence_penalty", presence_penalty);
  Field(a, "frequency_penalty", frequency_penalty);
  Field(a, "repeat_last_n", repeat_last_n);
  Field(a, "dry_multiplier", dry_multiplier);
  Field(a, "dry_base", dry_base);
  Field(a, "dry_allowed_length", dry_allowed_length);
  Field(a, "dry_penalty_last_n", dry_penalty_last_n);
  Field(a, "dry_breaker_tokens", dry_breaker_tokens, BoundsOf(a).vocab);
  Field(a, "dry_breaker_sequences", dry_breaker_sequences, BoundsOf(a).dry_sequences);
  Field(a, "logit_bias", logit_bias, BoundsOf(a).biases);
  Field(a, "allowed_token_ids", allowed_token_ids, BoundsOf(a).vocab);
  Field(a, "bad_words_ids", bad_words_ids, BoundsOf(a).bad_words);
  Field(a, "seed", seed);
  Field(a, "min_tokens", min_tokens);
  Field(a, "stop_token_ids", stop_token_ids, BoundsOf(a).stop_tokens);
  Field(a, "logprobs", logprobs);
  Field(a, "prompt_logprobs", prompt_logprobs);
}

void Field(auto& a, EncodeImage& v) {
  auto& [id, shape, grid_height, grid_width, image_height, image_width, num_rows, values] = v;
  Field(a, "id", id);
  Field(a, "shape", shape, kMaxImageDims);
  Field(a, "grid_height", grid_height);
  Field(a, "grid_width", grid_width);
  Field(a, "image_height", image_height);
  Field(a, "image_width", image_width);
  Field(a, "num_rows", num_rows);
  Field(a, "values", values);
}

void Field(auto& a, ImageSpan& v) {
  auto& [position, image, first_row, num_rows, grid_width] = v;
  Field(a, "position", position);
  Field(a, "image", image);
  Field(a, "first_row", first_row);
  Field(a, "num_rows", num_rows);
  Field(a, "grid_width", grid_width);
}

void Field(auto& a, AdmitSequence& v) {
  auto& [slot, tokens, num_prompt_tokens, num_computed, sampling, choice, long_rope, images] = v;
  Field(a, "slot", slot);
  Field(a, "tokens", tokens, BoundsOf(a).context);
  Field(a, "num_prompt_tokens", num_prompt_tokens);
  Field(a, "num_computed", num_computed);
  DrawFields(a, sampling);
  Field(a, "choice", choice);
  Field(a, "long_rope", long_rope);
  Field(a, "images", images, BoundsOf(a).context);
}

void Field(auto& a, ForkSequence& v) {
  auto& [slot, source, tokens] = v;
  Field(a, "slot", slot);
  Field(a, "source", source);
  Field(a, "tokens", tokens, BoundsOf(a).context);
}

void Field(auto& a, AppendBlocks& v) {
  auto& [slot, group, blocks] = v;
  Field(a, "slot", slot);
  Field(a, "group", group);
  Field(a, "blocks", blocks, BoundsOf(a).context);
}

void Field(auto& a, StepRow& v) {
  auto& [slot, num_tokens, sample, masked, drafts, num_proposals, num_candidates] = v;
  Field(a, "slot", slot);
  Field(a, "num_tokens", num_tokens);
  Field(a, "sample", sample);
  Field(a, "masked", masked);
  Field(a, "drafts", drafts, BoundsOf(a).drafts);
  Field(a, "num_proposals", num_proposals);
  Field(a, "num_candidates", num_candidates);
}

void Field(auto& a, StepInput& v) {
  auto& [number, free, copies, forget, encode, admit, fork, append, rows] = v;
  Field(a, "number", number);
  Field(a, "free", free, BoundsOf(a).seqs);
  Field(a, "copies", copies, BoundsOf(a).copies);
  Field(a, "forget", forget, BoundsOf(a).forgotten);
  Field(a, "encode", encode, BoundsOf(a).encoded);
  Field(a, "admit", admit, BoundsOf(a).seqs);
  Field(a, "fork", fork, BoundsOf(a).seqs);
  Field(a, "append", append, BoundsOf(a).appends);
  Field(a, "rows", rows, BoundsOf(a).seqs);
}

void Field(auto& a, TokenMask& v) {
  auto& [slot, draw, allowed] = v;
  Field(a, "slot", slot);
  Field(a, "draw", draw);
  Field(a, "allowed", allowed, BoundsOf(a).mask_words);
}

// All that is sent for one SampleMasked.
template <typename A>
void Field(A& a, std::vector<TokenMask>& masks) {
  Field(a, "masks", masks, BoundsOf(a).masks);
}

void Field(auto& a, TokenLogprobs::Entry& v) {
  auto& [token_id, logprob] = v;
  Field(a, "token_id", token_id, Below{BoundsOf(a).vocab});
  Field(a, "logprob", logprob);
}

void Field(auto& a, TokenLogprobs& v) {
  auto& [token, top] = v;
  Field(a, "token", token);
  Field(a, "top", top, BoundsOf(a).logprobs);
}

void Field(auto& a, RowOutput& v) {
  auto& [slot, health, tokens, logprobs, prompt_logprobs, proposals, candidates] = v;
  Field(a, "slot", slot);
  Field(a, "health", health, RowHealth::kNoCandidate);
  Field(a, "tokens", tokens, BoundsOf(a).draws);
  Field(a, "logprobs", logprobs, BoundsOf(a).draws);
  Field(a, "prompt_logprobs", prompt_logprobs, BoundsOf(a).step_tokens);
  Field(a, "proposals", proposals, BoundsOf(a).drafts);
  Field(a, "candidates", candidates, BoundsOf(a).vocab);
}

void Field(auto& a, StepOutput& v) {
  auto& [number, rows, expert_loads, proposing_seconds] = v;
  Field(a, "number", number);
  Field(a, "rows", rows, BoundsOf(a).seqs);
  Field(a, "expert_loads", expert_loads, BoundsOf(a).expert_loads);
  Field(a, "proposing_seconds", proposing_seconds);
}

}  // namespace tokamak::codec
