// Fuzzes Validate(SamplingParams). Accepted parameters must be in the ranges that the header's
// comments state, checked independently; a refusal must name a field.
#include <cmath>
#include <cstdint>
#include <cstring>
#include <string_view>

#include "base/check.h"
#include "tokamak/sampling_params.h"

namespace tokamak {
namespace {

class Bytes {
 public:
  Bytes(const uint8_t* data, size_t size) : data_(data), size_(size) {}
  template <typename T>
  T Take() {
    T value{};
    const size_t n = size_ < sizeof(T) ? size_ : sizeof(T);
    std::memcpy(&value, data_, n);
    data_ += n;
    size_ -= n;
    return value;
  }
  // Often a valid value, sometimes a bound or a special value, sometimes arbitrary bits.
  float Float(float low, float high) {
    const float specials[] = {low, high, 0.0f, -0.0f, NAN, INFINITY, -INFINITY, 1e38f};
    const auto kind = Take<uint8_t>();
    if (kind < 160) return low + (high - low) * static_cast<float>(kind) / 160;
    if (kind < 220) return specials[kind % 8];
    return Take<float>();
  }
  int32_t Int(int32_t low, int32_t high) {
    const auto kind = Take<uint8_t>();
    if (kind < 180) return low + kind % (high - low + 1);
    if (kind < 200) return low - 1;
    if (kind < 220) return high + 1;
    return Take<int32_t>();
  }

 private:
  const uint8_t* data_;
  size_t size_;
};

SamplingParams Make(Bytes& in, int32_t vocab, int32_t max_logprobs) {
  SamplingParams p;
  p.temperature = in.Float(0, 2);
  p.dynatemp_range = in.Float(0, 2);
  p.dynatemp_exponent = in.Float(0, 2);
  p.top_n_sigma = in.Float(0, 3);
  p.top_k = in.Int(0, 100);
  p.top_p = in.Float(0, 1);
  p.min_p = in.Float(0, 1);
  p.typical_p = in.Float(0, 1);
  p.xtc_probability = in.Float(0, 1);
  p.xtc_threshold = in.Float(0, 1);
  p.repetition_penalty = in.Float(0, 2);
  p.presence_penalty = in.Float(-2, 2);
  p.frequency_penalty = in.Float(-2, 2);
  for (int i = in.Take<uint8_t>() % 4; i > 0; --i) {
    const int32_t token = in.Int(0, vocab - 1);
    p.logit_bias.emplace_back(token, in.Float(-100, 100));
  }
  p.repeat_last_n = in.Int(-1, 100);
  if (in.Take<uint8_t>() % 16 == 0) p.repeat_last_n = in.Int(65530, 65535);
  p.dry_multiplier = in.Float(0, 2);
  p.dry_base = in.Float(1, 4);
  p.dry_allowed_length = in.Int(0, 100);
  if (in.Take<uint8_t>() % 16 == 0) p.dry_allowed_length = in.Int(1020, 1024);
  p.dry_penalty_last_n = in.Int(-1, 100);
  for (int i = in.Take<uint8_t>() % 3; i > 0; --i) {
    p.dry_sequence_breakers.emplace_back(in.Take<uint8_t>() % 42, 'a');
    p.dry_breaker_tokens.push_back(in.Int(0, vocab - 1));
    std::vector<int32_t>& ids = p.dry_breaker_sequences.emplace_back();
    for (int j = in.Take<uint8_t>() % 23; j > 0; --j) ids.push_back(in.Int(0, vocab - 1));
  }
  for (int i = in.Take<uint8_t>() % 4; i > 0; --i) {
    p.allowed_token_ids.push_back(in.Int(0, vocab - 1));
  }
  for (int i = in.Take<uint8_t>() % 3; i > 0; --i) {
    p.bad_words.emplace_back(in.Take<uint8_t>() % 3, in.Take<uint8_t>() % 2 == 0 ? 'a' : ' ');
    std::vector<int32_t>& ids = p.bad_words_ids.emplace_back();
    for (int j = in.Take<uint8_t>() % 4; j > 0; --j) ids.push_back(in.Int(0, vocab - 1));
  }
  p.n = in.Int(1, 128);
  if (in.Take<uint8_t>() % 2) p.max_tokens = in.Int(0, 50);
  p.min_tokens = in.Int(0, 50);
  for (int i = in.Take<uint8_t>() % 3; i > 0; --i) p.stop.emplace_back(in.Take<uint8_t>() % 3, 'a');
  for (int i = in.Take<uint8_t>() % 3; i > 0; --i) p.stop_token_ids.push_back(in.Int(0, vocab - 1));
  if (in.Take<uint8_t>() % 4 == 0) p.thinking_token_budget = in.Int(0, 50);
  if (in.Take<uint8_t>() % 2) p.logprobs = in.Int(0, max_logprobs);
  if (in.Take<uint8_t>() % 2) p.prompt_logprobs = in.Int(0, max_logprobs);
  if (in.Take<uint8_t>() % 2) {
    p.beam_search = {.width = in.Int(1, 128),
                     .length_penalty = in.Float(-100, 100),
                     .early_stopping = static_cast<EarlyStopping>(in.Take<uint8_t>() % 3)};
  }
  return p;
}

bool InRange(const SamplingParams& p, int32_t vocab, int32_t max_logprobs) {
  const auto token = [&](int32_t t) { return 0 <= t && t < vocab; };
  bool ok = std::isfinite(p.temperature) && p.temperature >= 0 && p.top_k >= 0;
  for (const float x : {p.dynatemp_range, p.dynatemp_exponent, p.top_n_sigma}) {
    ok = ok && std::isfinite(x) && x >= 0;
  }
  for (const float x : {p.xtc_probability, p.xtc_threshold}) ok = ok && x >= 0 && x <= 1;
  ok = ok && p.top_p > 0 && p.top_p <= 1 && p.min_p >= 0 && p.min_p <= 1;
  ok = ok && p.typical_p > 0 && p.typical_p <= 1;
  ok = ok && std::isfinite(p.repetition_penalty) && p.repetition_penalty > 0;
  ok = ok && std::abs(p.presence_penalty) <= 2 && std::abs(p.frequency_penalty) <= 2;
  for (const auto& [t, bias] : p.logit_bias) ok = ok && token(t) && std::abs(bias) <= 100;
  ok = ok && p.repeat_last_n >= -1 && p.repeat_last_n <= 65535;
  ok = ok && std::isfinite(p.dry_multiplier) && p.dry_multiplier >= 0;
  ok = ok && std::isfinite(p.dry_base) && p.dry_base >= 1;
  ok = ok && p.dry_allowed_length >= 0 && p.dry_allowed_length <= 1024;
  ok = ok && p.dry_penalty_last_n >= -1 && p.dry_penalty_last_n <= 65535;
  for (const auto& text : p.dry_sequence_breakers) ok = ok && !text.empty() && text.size() <= 40;
  for (const int32_t t : p.dry_breaker_tokens) ok = ok && token(t);
  ok = ok && p.dry_breaker_tokens.size() <= static_cast<size_t>(vocab);
  for (const auto& ids : p.dry_breaker_sequences) {
    ok = ok && ids.size() >= 2 && ids.size() <= 21;
    for (const int32_t t : ids) ok = ok && token(t);
  }
  for (const int32_t t : p.allowed_token_ids) ok = ok && token(t);
  ok = ok && p.allowed_token_ids.size() <= static_cast<size_t>(vocab);
  for (const auto& word : p.bad_words) ok = ok && word.find('a') != std::string::npos;
  for (const auto& ids : p.bad_words_ids) {
    ok = ok && !ids.empty();
    for (const int32_t t : ids) ok = ok && token(t);
  }
  ok = ok && p.n >= 1 && p.n <= 128 && p.min_tokens >= 0;
  if (p.max_tokens) ok = ok && *p.max_tokens >= 0 && p.min_tokens <= *p.max_tokens;
  for (const auto& s : p.stop) ok = ok && !s.empty();
  for (const int32_t t : p.stop_token_ids) ok = ok && token(t);
  if (p.thinking_token_budget) ok = ok && *p.thinking_token_budget >= 0;
  for (const auto& count : {p.logprobs, p.prompt_logprobs}) {
    if (count) ok = ok && *count >= 0 && *count <= max_logprobs;
  }
  if (p.beam_search) {
    ok = ok && p.beam_search->width >= p.n && p.beam_search->width <= 128;
    ok = ok && std::abs(p.beam_search->length_penalty) <= 100;
    ok = ok && p.max_tokens != 0;
  }
  return ok;
}

bool NamesAField(std::string_view message) {
  constexpr std::string_view kFields[] = {"temperature",
                                          "dynatemp_range",
                                          "dynatemp_exponent",
                                          "top_n_sigma",
                                          "top_k",
                                          "top_p",
                                          "min_p",
                                          "typical_p",
                                          "xtc_probability",
                                          "xtc_threshold",
                                          "repetition_penalty",
                                          "presence_penalty",
                                          "frequency_penalty",
                                          "repeat_last_n",
                                          "dry_multiplier",
                                          "dry_base",
                                          "dry_allowed_length",
                                          "dry_penalty_last_n",
                                          "dry_sequence_breakers",
                                          "dry_breaker_tokens",
                                          "dry_breaker_sequences",
                                          "logit_bias",
                                          "allowed_token_ids",
                                          "bad_words",
                                          "bad_words_ids",
                                          "n",
                                          "max_tokens",
                                          "min_tokens",
                                          "stop",
                                          "stop_token_ids",
                                          "thinking_token_budget",
                                          "logprobs",
                                          "prompt_logprobs",
                                          "beam_search",
                                          "length_penalty"};
  const std::string_view name = message.substr(0, message.find_first_of(":[."));
  for (const std::string_view field : kFields) {
    if (name == field) return true;
  }
  return false;
}

}  // namespace
}  // namespace tokamak

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  tokamak::Bytes in(data, size);
  const int32_t vocab = 1 + in.Take<uint16_t>();
  const int32_t max_logprobs = in.Take<uint8_t>();
  const tokamak::SamplingParams params = tokamak::Make(in, vocab, max_logprobs);
  const tokamak::Status status = tokamak::Validate(params, vocab, max_logprobs);
  CHECK(status.ok() == tokamak::InRange(params, vocab, max_logprobs));
  CHECK(status.ok() || status.code() == tokamak::StatusCode::kInvalidArgument);
  CHECK(status.ok() || tokamak::NamesAField(status.message()));
  return 0;
}
