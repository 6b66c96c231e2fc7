// Random requests with every kind of sampling; prompts share prefixes.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "tokamak/engine.h"
#include "tokamak/request.h"

namespace tokamak::invariance {

// A request and its answer alone, one entry per choice.
struct Case {
  Request request;
  std::vector<OutputChunk> alone;
  // in mixed batches, cancelled after this many chunks; -1: never.
  int32_t cancel_after = -1;
};

// The material for requests.
struct Material {
  int32_t vocab_size = 0;
  int32_t max_prompt = 0;
  int32_t max_new = 0;
  int32_t repeat_percent = 0;                   // how often an answer repeats itself
  int32_t long_percent = 0;                     // how often a prompt has up to max_prompt tokens
  std::vector<std::vector<int32_t>> documents;  // each prompt begins with a part of one
};

// Makes the same requests for the same seed on every platform.
class RequestMaker {
 public:
  RequestMaker(uint64_t seed, Material material);

  // May continue one of `earlier`, like the next turn of a conversation.
  Request Next(const std::vector<Case>& earlier);

 private:
  int64_t Between(int64_t low, int64_t high);  // inclusive
  bool Chance(int percent) { return Between(0, 99) < percent; }
  float Real(float low, float high);
  int32_t Token() { return static_cast<int32_t>(Between(0, material_.vocab_size - 1)); }

  std::vector<int32_t> Prompt(const std::vector<Case>& earlier);
  void ChooseTokens(SamplingParams* params);  // which tokens are drawn
  void ChooseEnds(SamplingParams* params);    // how many, and what ends them
  StructuredOutput Form();
  void BoundThinking(SamplingParams* params);

  std::mt19937_64 random_;
  const Material material_;
};

// Documents of random ids.
Material TinyMaterial(uint64_t seed, int32_t vocab_size);
// Documents of English text, tokenized by `engine`.
Result<Material> TextMaterial(const Engine& engine);

std::string Describe(const Request& request);

}  // namespace tokamak::invariance
