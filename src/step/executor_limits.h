// ExecutorLimits: what an executor can take. Both sides keep to it, and the codec refuses more.
#pragma once

#include <cstddef>
#include <cstdint>

#include "step/cache_spec.h"

namespace tokamak {

// The limits within which the engine must stay.
struct ExecutorLimits {
  CacheSpec cache;
  int32_t max_seqs = 0;  // sequences with state at the same time
  int32_t max_step_tokens = 0;
  int32_t max_step_drafts = 0;  // of all rows of a step
  int32_t max_context = 0;      // positions of one sequence
  int32_t vocab_size = 0;
  int depth = 1;  // steps in flight at once
  // Stages of a pipeline, each of which may compute another step. A row whose token a step in
  // flight draws waits for the last stage, unless as many steps lie between.
  int32_t stages = 1;
  bool has_candidates = false;  // rows may ask for them (StepRow::num_candidates)
  // Rows of images that the encoder cache holds, and that the images of one step may have together.
  // 0: the model does not see.
  int32_t max_encoder_rows = 0;
  int32_t max_step_image_rows = 0;
  // If above 0, the positions of an image see each other, later ones too. So no row of a step ends
  // inside an image, a span shows all rows of its image, and these are at most so many.
  int32_t whole_image_rows = 0;
  int32_t num_moe_layers = 0;  // rows of StepOutput::expert_loads
  int32_t max_experts = 0;     // its columns

  friend bool operator==(const ExecutorLimits&, const ExecutorLimits&) = default;
};

inline constexpr size_t kMaxImageDims = 8;  // EncodeImage::shape
// The most entries of SamplingParams::logit_bias and stop_token_ids in a request.
inline constexpr size_t kMaxBiases = 4096;
inline constexpr size_t kMaxStopTokens = 1024;
inline constexpr size_t kMaxBadWordSequences = 2048;  // SamplingParams::bad_words_ids
// The most sequence breakers of DRY that have several tokens, and the tokens of one.
inline constexpr size_t kMaxDrySequences = 1 << 15;
inline constexpr size_t kMaxDrySequenceTokens = 21;
inline constexpr int32_t kMaxDryAllowedLength = 1024;
inline constexpr int32_t kMaxRepeatLastN = 65535;  // CountedTokens of the CUDA sampler has 16 bits

}  // namespace tokamak
