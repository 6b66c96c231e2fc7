// The simulation's "language model", whose next token is a pure function of seed, choice and all
// tokens before it, and the answer that a request must get.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/text_decoder.h"
#include "engine/token_constraint.h"
#include "step/step_output.h"
#include "tokamak/request.h"

namespace tokamak::sim {

inline uint64_t Mix(uint64_t a, uint64_t b) {
  uint64_t x = (a ^ (b + 0x9e3779b97f4a7c15)) * 0xbf58476d1ce4e5b9;
  x ^= x >> 29;
  x *= 0x94d049bb133111eb;
  return x ^ (x >> 32);
}

// Splitmix64. The source of all randomness in a schedule.
class Rng {
 public:
  explicit Rng(uint64_t seed) : state_(seed) {}
  uint64_t Next() { return Mix(state_++, 0x5eed); }
  // Returns a number in [low, high].
  int32_t In(int32_t low, int32_t high) {
    return low + static_cast<int32_t>(Next() % (static_cast<uint64_t>(high - low) + 1));
  }
  bool Chance(int32_t percent) { return In(0, 99) < percent; }
  double Unit() { return static_cast<double>(Next() >> 11) * 0x1p-53; }

 private:
  uint64_t state_;
};

// An image of the workload: a pure function of its id.
EncodeImage ImageOf(ImageId id);

// Requests with different salts must not share cache entries. The executor does not see salts, so
// the workload encodes them in the seeds.
inline constexpr uint64_t kNumSalts = 3;
inline uint64_t SaltOf(uint64_t seed) { return seed % kNumSalts; }

struct TokenModel {
  int32_t vocab = 64;
  uint64_t unhealthy_every = 0;  // about one position in this many has no token to draw; 0: none
  int32_t usual = 0;             // most draws are among so many tokens, so texts repeat; 0: all

  // The hash of a prefix; the last position's cache entry depends on nothing else.
  static uint64_t Root(uint64_t seed) { return Mix(0x600d, SaltOf(seed)); }
  static uint64_t Extend(uint64_t prefix, TokenId token) {
    return Mix(prefix, static_cast<uint64_t>(token));
  }
  static uint64_t ExtendByRow(uint64_t prefix, ImageId image, int32_t row) {
    return Mix(prefix, Mix(image, static_cast<uint64_t>(row) ^ 0x1336));
  }
  // The hash of each of the sequence's prefixes from the first token on.
  static std::vector<uint64_t> Prefixes(uint64_t seed, std::span<const TokenId> tokens,
                                        std::span<const ImageSpan> images);
  // Draws a token that is `allowed`, or nothing if there is none.
  std::optional<TokenId> Draw(uint64_t prefix, uint64_t seed, int32_t choice,
                              const std::function<bool(TokenId)>& allowed) const;
  RowHealth Health(uint64_t prefix, uint64_t seed) const {
    const uint64_t key = Mix(prefix, seed ^ 0xbad);
    if (unhealthy_every == 0 || key % unhealthy_every != 0) return RowHealth::kOk;
    return (key / unhealthy_every) % 2 == 0 ? RowHealth::kNotFinite : RowHealth::kNoCandidate;
  }
  static float Logprob(uint64_t prefix, TokenId token) {
    return -static_cast<float>(Mix(prefix, static_cast<uint64_t>(token)) % 1000) / 100;
  }
};

// The tokens that a structured output allows: a pure function of its seed and of the tokens
// generated so far, whose hash is `state`. In most states many tokens are allowed; in small
// vocabularies there are states without any.
struct TokenRules {
  uint64_t seed = 0;

  uint64_t Start() const { return Mix(0x6a33a5, seed); }
  static bool Complete(uint64_t state) { return Mix(state, 0xe4d) % 4 == 0; }
  static bool Finished(uint64_t state) { return Mix(state, 0xe4d) % 16 == 0; }
  static bool Allows(uint64_t state, TokenId token) {
    return !Finished(state) && Mix(state, static_cast<uint64_t>(token)) % 8 < 3;
  }
  static uint64_t Next(uint64_t state, TokenId token) {
    return Mix(state, static_cast<uint64_t>(token) ^ 0x707a);
  }
};

// The only token that may come behind as many as a request's thinking_token_budget.
inline TokenId BudgetMark(const SamplingParams& sampling) {
  return static_cast<TokenId>(*sampling.seed % 4);  // every vocabulary has as many
}

// Returns constraints for each choice of a request: for a structured output, whose text is the seed
// of such rules, or for a thinking_token_budget.
std::vector<std::unique_ptr<TokenConstraint>> MakeConstraints(const SamplingParams& sampling);

// The letter to which a token decodes.
inline char Letter(TokenId token) { return static_cast<char>('a' + token % 26); }

// Decodes to letters; holds back a possible start of the two-letter stop string, if there is one.
class LetterDecoder final : public TextDecoder {
 public:
  explicit LetterDecoder(std::string stop) : stop_(std::move(stop)) {}
  bool Append(TokenId token, bool may_stop, OutputChunk* chunk) override;
  void Flush(OutputChunk* chunk) override;
  std::unique_ptr<TextDecoder> Clone() const override {
    return std::make_unique<LetterDecoder>(*this);
  }
  int32_t tokens_held() const override { return static_cast<int32_t>(held_.size()); }

 private:
  const std::string stop_;
  std::string held_;
};

// A request of the workload, with everything that decides its answer.
struct RequestSpec {
  RequestId id = 0;
  std::vector<TokenId> prompt;
  std::vector<ImageSpan> images;
  SamplingParams sampling;  // the seed is always set
  std::vector<TokenId> eos_ids;
  int32_t priority = 0;
  int32_t client = 0;
  std::string salt;
  std::string stop;  // empty, or two letters; also in sampling.stop
  bool decodes = false;
  // The length limit of its sequences; the engine's if there is no max_tokens.
  int32_t max_length = INT32_MAX;
};

// The output that a choice must have, whatever runs beside it.
struct Expectation {
  std::vector<TokenId> tokens;
  std::vector<float> logprobs;
  std::string text;
  FinishReason reason = FinishReason::kLength;
  RowHealth health = RowHealth::kOk;  // other values end it with kError
  std::optional<float> beam_score = {};
};

Expectation Expect(const TokenModel& model, const RequestSpec& spec, int32_t choice,
                   int32_t max_context);
// The same for all choices of a request with beam search, from all continuations of each beam.
std::vector<Expectation> ExpectBeams(const TokenModel& model, const RequestSpec& spec,
                                     int32_t max_context);
// Logprobs of the prompt tokens from the second on.
std::vector<float> ExpectPromptLogprobs(const RequestSpec& spec);

}  // namespace tokamak::sim
