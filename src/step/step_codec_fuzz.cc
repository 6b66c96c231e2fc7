// Decodes arbitrary bytes: what is accepted must encode to the same bytes, and no allocation may be
// large for the input. Then makes values from the bytes: each must be equal after a round trip.
#include <algorithm>
#include <cmath>
#include <concepts>
#include <cstring>
#include <string_view>

#include "base/check.h"
#include "step/step_codec.h"
#include "step/testing/decoder_fuzz.h"

namespace tokamak {
namespace {

// Takes values off the front; zeros at the end.
class Source {
 public:
  explicit Source(std::string_view bytes) : bytes_(bytes) {}

  template <typename T>
  T Take() {
    T value{};
    const size_t size = std::min(sizeof(T), bytes_.size());
    std::memcpy(&value, bytes_.data(), size);
    bytes_.remove_prefix(size);
    return value;
  }
  void Fill(bool& value) { value = Take<uint8_t>() % 2 != 0; }
  void Fill(int32_t& value) { value = Take<int32_t>(); }
  void Fill(uint32_t& value) { value = Take<uint32_t>(); }
  void Fill(uint64_t& value) { value = Take<uint64_t>(); }
  template <std::floating_point T>
  void Fill(T& value) {
    value = Take<T>();
    if (std::isnan(value)) value = 0;  // differs from itself
  }
  void Fill(Tier& tier) { tier = Take<uint8_t>() % 2 == 0 ? Tier::kDevice : Tier::kHost; }
  void Fill(RowHealth& health) { health = static_cast<RowHealth>(Take<uint8_t>() % 3); }
  template <typename T>
  void Fill(std::optional<T>& value) {
    if (Take<uint8_t>() % 2 != 0) Fill(value.emplace());
  }
  template <typename T>
  void Fill(std::vector<T>& values) {
    values.resize(Take<uint8_t>() % 8);
    for (T& value : values) Fill(value);
  }
  template <typename... T>
  void FillAll(T&... values) {
    (Fill(values), ...);
  }

  void Fill(std::pair<int32_t, float>& v) { FillAll(v.first, v.second); }
  void Fill(CopyBlock& v) { FillAll(v.source_tier, v.source, v.destination_tier, v.destination); }
  void Fill(EncodeImage& v) {
    FillAll(v.id, v.shape, v.grid_height, v.grid_width, v.image_height, v.image_width, v.num_rows,
            v.values);
  }
  void Fill(ImageSpan& v) { FillAll(v.position, v.image, v.first_row, v.num_rows); }
  void Fill(AdmitSequence& v) {
    SamplingParams& s = v.sampling;
    FillAll(v.slot, v.tokens, v.num_prompt_tokens, v.num_computed, v.choice, v.long_rope, v.images,
            s.temperature, s.dynatemp_range, s.dynatemp_exponent, s.top_n_sigma, s.top_k, s.top_p,
            s.min_p, s.typical_p, s.xtc_probability, s.xtc_threshold, s.repetition_penalty,
            s.presence_penalty, s.frequency_penalty, s.repeat_last_n, s.dry_multiplier, s.dry_base,
            s.dry_allowed_length, s.dry_penalty_last_n, s.dry_breaker_tokens,
            s.dry_breaker_sequences, s.logit_bias, s.allowed_token_ids, s.bad_words_ids, s.seed,
            s.min_tokens, s.stop_token_ids, s.logprobs, s.prompt_logprobs);
  }
  void Fill(ForkSequence& v) { FillAll(v.slot, v.source, v.tokens); }
  void Fill(AppendBlocks& v) { FillAll(v.slot, v.group, v.blocks); }
  void Fill(StepRow& v) {
    FillAll(v.slot, v.num_tokens, v.sample, v.masked, v.drafts, v.num_proposals, v.num_candidates);
  }
  void Fill(StepInput& v) {
    FillAll(v.number, v.free, v.copies, v.forget, v.encode, v.admit, v.fork, v.append, v.rows);
  }
  void Fill(TokenMask& v) { FillAll(v.slot, v.draw, v.allowed); }
  void Fill(TokenLogprobs::Entry& v) {
    v.token_id = Take<uint16_t>();  // decoding checks it
    Fill(v.logprob);
  }
  void Fill(TokenLogprobs& v) { FillAll(v.token, v.top); }
  void Fill(RowOutput& v) {
    FillAll(v.slot, v.health, v.tokens, v.logprobs, v.prompt_logprobs, v.proposals, v.candidates);
  }
  void Fill(StepOutput& v) { FillAll(v.number, v.rows, v.expert_loads, v.proposing_seconds); }

 private:
  std::string_view bytes_;
};

template <typename T>
void Test(std::string_view bytes, Result<T> (*decode)(std::string_view, const ExecutorLimits&)) {
  const ExecutorLimits limits = FuzzLimits();  // every list of a Source fits
  const Result<T> decoded = DecodeWithinMemory(bytes.size(), [&] { return decode(bytes, limits); });
  if (decoded.ok()) CHECK(Encode(*decoded) == bytes);

  T value;
  Source(bytes).Fill(value);
  const Result<T> again = decode(Encode(value), limits);
  CHECK(again.ok() && *again == value);
  if constexpr (std::is_same_v<T, StepOutput>) {  // == ignores statistics
    CHECK(again->expert_loads == value.expert_loads);
    CHECK(again->proposing_seconds == value.proposing_seconds);
  }
}

}  // namespace
}  // namespace tokamak

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  tokamak::Test(bytes, &tokamak::DecodeStepInput);
  tokamak::Test(bytes, &tokamak::DecodeTokenMasks);
  tokamak::Test(bytes, &tokamak::DecodeStepOutput);
  return 0;
}
