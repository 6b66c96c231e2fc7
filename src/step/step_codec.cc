#include "step/step_codec.h"

#include "base/error.h"
#include "step/step_fields.h"

namespace tokamak {
namespace codec {

StepBounds StepBounds::Of(const ExecutorLimits& limits) {
  const auto seqs = static_cast<uint64_t>(limits.max_seqs);
  const auto drafts = static_cast<uint64_t>(limits.max_step_drafts);
  const auto vocab = static_cast<uint64_t>(limits.vocab_size);
  // A step moves each device block to the host and overwrites it at most once. To a request's stop
  // tokens it adds the model's own, each once. An image has at least one row.
  return {.seqs = seqs,
          .copies = 2 * static_cast<uint64_t>(limits.cache.num_device_blocks),
          .forgotten = static_cast<uint64_t>(limits.max_encoder_rows),
          .encoded = static_cast<uint64_t>(limits.max_step_image_rows),
          .appends = seqs * limits.cache.groups.size(),
          .context = static_cast<uint64_t>(limits.max_context),
          .step_tokens = static_cast<uint64_t>(limits.max_step_tokens),
          .drafts = drafts,
          .draws = drafts + 1,
          .masks = seqs + drafts,
          .mask_words = (vocab + 31) / 32,
          .vocab = vocab,
          .dry_sequences = kMaxDrySequences,
          .bad_words = kMaxBadWordSequences,
          .biases = kMaxBiases,
          .stop_tokens = kMaxStopTokens + vocab,
          .logprobs = vocab,
          .expert_loads = static_cast<uint64_t>(limits.num_moe_layers) *
                          static_cast<uint64_t>(limits.max_experts)};
}

namespace {

template <typename T>
std::string EncodeStep(T& value) {
  std::string bytes;
  Encoder encoder(&bytes);
  encoder.Unsigned(kStepVersion);
  Field(encoder, value);
  return bytes;
}

template <typename T>
Result<T> DecodeStep(const char* what, std::string_view bytes, const ExecutorLimits& limits) {
  StepDecoder decoder(bytes, limits);
  uint64_t version = 0;
  Field(decoder, "version", version);
  if (decoder.ok() && version != kStepVersion) {
    return Unimplemented("{}: has version {}, but this build reads only version {}", what, version,
                         kStepVersion);
  }
  T value;
  Field(decoder, value);
  if (Status status = decoder.Finish(); !status.ok()) return status.WithContext(what);
  return value;
}

}  // namespace
}  // namespace codec

// An Encoder changes no field. The lists of fields take them as mutable, because they also read.
std::string Encode(const StepInput& step) {
  return codec::EncodeStep(const_cast<StepInput&>(step));
}
std::string Encode(const StepOutput& output) {
  return codec::EncodeStep(const_cast<StepOutput&>(output));
}
std::string Encode(const std::vector<TokenMask>& masks) {
  return codec::EncodeStep(const_cast<std::vector<TokenMask>&>(masks));
}

Result<StepInput> DecodeStepInput(std::string_view bytes, const ExecutorLimits& limits) {
  return codec::DecodeStep<StepInput>("step input", bytes, limits);
}
Result<StepOutput> DecodeStepOutput(std::string_view bytes, const ExecutorLimits& limits) {
  return codec::DecodeStep<StepOutput>("step output", bytes, limits);
}
Result<std::vector<TokenMask>> DecodeTokenMasks(std::string_view bytes,
                                                const ExecutorLimits& limits) {
  return codec::DecodeStep<std::vector<TokenMask>>("token masks", bytes, limits);
}

}  // namespace tokamak
