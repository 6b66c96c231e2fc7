// Reads bytes as sampling parameters and raw logits. Parameters that Validate accepts must give a
// defined result for any logits: the same for equal rows, inside mask and vocabulary.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "base/check.h"
#include "ops/sampling/host_sampler.h"
#include "tokamak/sampling_params.h"

namespace tokamak {
namespace {

// Takes values off the front; returns zeros at the end.
class Bytes {
 public:
  Bytes(const uint8_t* data, size_t size) : data_(data), size_(size) {}

  template <typename T>
  T Take() {
    T value{};
    const size_t count = std::min(sizeof(T), size_);
    if (count > 0) std::memcpy(&value, data_, count);
    data_ += count;
    size_ -= count;
    return value;
  }
  bool Flag(int bit) { return (flags_ >> bit & 1) != 0; }
  void TakeFlags() { flags_ = Take<uint16_t>(); }
  bool empty() const { return size_ == 0; }

 private:
  const uint8_t* data_;
  size_t size_;
  uint16_t flags_ = 0;
};

SamplingParams TakeParams(Bytes& in, int32_t vocab_size) {
  SamplingParams params;
  in.TakeFlags();
  const auto more = in.Take<uint8_t>();
  if ((more & 1) != 0) params.dynatemp_range = in.Take<float>();
  if ((more & 2) != 0) params.dynatemp_exponent = in.Take<float>();
  if ((more & 4) != 0) params.top_n_sigma = in.Take<float>();
  if ((more & 8) != 0) params.xtc_probability = in.Take<float>();
  if ((more & 16) != 0) params.xtc_threshold = in.Take<float>();
  if ((more & 32) != 0) params.repeat_last_n = in.Take<int8_t>();
  if ((more & 64) != 0) {
    for (int i = in.Take<uint8_t>() % 8; i > 0; --i) {
      params.allowed_token_ids.push_back(in.Take<uint16_t>() % vocab_size);
    }
  }
  if ((more & 128) != 0) {
    for (int i = in.Take<uint8_t>() % 4; i > 0; --i) {
      std::vector<TokenId>& ids = params.bad_words_ids.emplace_back();
      for (int j = in.Take<uint8_t>() % 3; j >= 0; --j) {
        ids.push_back(in.Take<uint16_t>() % vocab_size);
      }
    }
  }
  if (in.Flag(0)) params.temperature = in.Take<float>();
  if (in.Flag(1)) params.top_k = in.Take<int32_t>();
  if (in.Flag(2)) params.top_p = in.Take<float>();
  if (in.Flag(3)) params.min_p = in.Take<float>();
  if (in.Flag(4)) params.typical_p = in.Take<float>();
  if (in.Flag(5)) params.repetition_penalty = in.Take<float>();
  if (in.Flag(6)) params.presence_penalty = in.Take<float>();
  if (in.Flag(7)) params.frequency_penalty = in.Take<float>();
  if (in.Flag(8)) params.min_tokens = in.Take<uint8_t>();
  if (in.Flag(9)) {
    for (int i = in.Take<uint8_t>() % 8; i > 0; --i) {
      const int32_t token = in.Take<uint16_t>() % (vocab_size + 1);
      params.logit_bias.emplace_back(token, in.Take<float>());
    }
  }
  if (in.Flag(10)) {
    for (int i = in.Take<uint8_t>() % 8; i > 0; --i) {
      params.stop_token_ids.push_back(in.Take<uint16_t>() % (vocab_size + 1));
    }
  }
  if (in.Flag(15)) {
    params.dry_multiplier = in.Take<float>();
    params.dry_base = in.Take<float>();
    params.dry_allowed_length = in.Take<int8_t>();
    params.dry_penalty_last_n = in.Take<int8_t>();
    for (int i = in.Take<uint8_t>() % 4; i > 0; --i) {
      params.dry_breaker_tokens.push_back(in.Take<uint16_t>() % vocab_size);
      std::vector<TokenId>& ids = params.dry_breaker_sequences.emplace_back();
      for (int j = in.Take<uint8_t>() % 3 + 1; j >= 0; --j) {
        ids.push_back(in.Take<uint16_t>() % vocab_size);
      }
    }
  }
  if (in.Flag(11)) params.logprobs = in.Take<int8_t>();
  if (in.Flag(12)) params.seed = in.Take<uint64_t>();
  return params;
}

class FakeStream final : public Stream {};

void CheckLogprobs(const TokenLogprobs& logprobs, const SamplingParams& params, TokenId token) {
  CHECK(logprobs.token.token_id == token && logprobs.token.logprob <= 1e-5f);
  CHECK(logprobs.top.size() <= static_cast<size_t>(params.logprobs.value()));
  for (size_t i = 0; i < logprobs.top.size(); ++i) {
    CHECK(std::isfinite(logprobs.top[i].logprob) || logprobs.top[i].logprob < 0);
    if (i > 0) CHECK(logprobs.top[i].logprob <= logprobs.top[i - 1].logprob);
  }
}

void Check(const SampleResult& result, const std::vector<float>& row, const SamplingParams& params,
           const TokenMask* mask) {
  const bool raw_ok = std::all_of(row.begin(), row.end(), [](float x) { return x < INFINITY; }) &&
                      std::any_of(row.begin(), row.end(), [](float x) { return x > -INFINITY; });
  CHECK(raw_ok == (result.health != RowHealth::kNotFinite));
  if (result.health != RowHealth::kOk) {
    CHECK(result.token == 0);
    return;
  }
  const auto t = static_cast<size_t>(result.token);
  CHECK(result.token >= 0 && t < row.size() && row[t] > -INFINITY);
  if (mask != nullptr) CHECK((mask->allowed[t / 32] >> (t % 32) & 1) != 0);
  const std::vector<TokenId>& allowed = params.allowed_token_ids;
  if (!allowed.empty()) CHECK(std::count(allowed.begin(), allowed.end(), result.token) > 0);
  for (const std::vector<TokenId>& ids : params.bad_words_ids) {
    CHECK(ids.size() > 1 || ids[0] != result.token);
  }
  if (params.logprobs) CheckLogprobs(result.logprobs, params, result.token);
}

}  // namespace
}  // namespace tokamak

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tokamak;
  Bytes in(data, size);
  const int32_t vocab_size = 1 + in.Take<uint16_t>() % 160;
  const SamplingParams params = TakeParams(in, vocab_size);
  if (!Validate(params, vocab_size, INT32_MAX).ok()) return 0;
  const bool masked = in.Flag(13);
  std::vector<TokenId> history(in.Take<uint8_t>() % 16 + 1);
  for (TokenId& token : history) token = in.Take<uint16_t>() % vocab_size;

  const auto width = static_cast<size_t>(vocab_size);
  std::vector<float> row(width);
  const bool raw = in.Flag(14);  // any floats, or multiples of 1/8
  for (float& x : row) x = raw ? in.Take<float>() : static_cast<float>(in.Take<int8_t>()) / 8;
  TokenMask mask{.slot = 0, .allowed = std::vector<uint32_t>((width + 31) / 32)};
  for (uint32_t& word : mask.allowed) word = in.Take<uint32_t>();
  std::vector<TokenMask> masks;
  if (masked) {
    masks.assign(2, mask);
    masks[1].slot = 1;
  }

  ThreadPool pool(1);
  FakeStream stream;
  const auto sampler =
      MakeHostSampler({.max_seqs = 2, .max_rows = 2, .vocab_size = vocab_size}, &pool);
  for (SequenceSlotId slot = 0; slot < 2; ++slot) {
    sampler->Admit(slot, params, 0, history, static_cast<int32_t>(history.size() / 2), stream);
  }
  for (int step = 0; step < 3; ++step) {
    std::vector<float> logits = row;
    logits.insert(logits.end(), row.begin(), row.end());
    const auto position = static_cast<int32_t>(history.size()) + step;
    const SampleRow rows[] = {{.slot = 0, .position = position}, {.slot = 1, .position = position}};
    SampleResult results[2];
    sampler->Sample(Tensor(logits.data(), DType::kF32, Shape{2, vocab_size}), rows, masks, results,
                    stream);
    CHECK(results[0].token == results[1].token && results[0].health == results[1].health);
    CHECK(results[0].logprobs == results[1].logprobs);
    Check(results[0], row, params, masked ? &mask : nullptr);
  }
  return 0;
}
