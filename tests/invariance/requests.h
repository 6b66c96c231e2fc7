// Random requests: every kind of sampling, prompts that share beginnings.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "tokamak/engine.h"
#include "tokamak/request.h"

namespace tokamak::invariance {

// A request and what it got alone, one entry per choice.
struct Case {
  Request request;
  std::vector<OutputChunk> alone;
  // In company it is cancelled after so many chunks; -1: it runs to its end.
  int32_t cancel_after = -1;
};

// What requests are made from.
struct Material {
  int32_t vocab_size = 0;
  int32_t max_prompt = 0;
  int32_t max_new = 0;
  int32_t long_percent = 0;                     // prompts of up to max_prompt tokens
  std::vector<std::vector<int32_t>> documents;  // prompts begin with a part of one of them
};

// The same requests for the same seed, on every platform.
class RequestMaker {
 public:
  RequestMaker(uint64_t seed, Material material);

  // May go on where one of `earlier` ended, as the next turn of a conversation does.
  Request Next(const std::vector<Case>& earlier);

 private:
  int64_t Between(int64_t low, int64_t high);  // both included
  bool Chance(int percent) { return Between(0, 99) < percent; }
  float Real(float low, float high);
  int32_t Token() { return static_cast<int32_t>(Between(0, material_.vocab_size - 1)); }

  std::vector<int32_t> Prompt(const std::vector<Case>& earlier);
  void ChooseTokens(SamplingParams* params);  // what is drawn
  void ChooseEnds(SamplingParams* params);    // how many, until when

  std::mt19937_64 random_;
  const Material material_;
};

// Random ids as documents.
Material TinyMaterial(uint64_t seed, int32_t vocab_size);
// Of English text, in the tokens of `engine`.
Result<Material> TextMaterial(const Engine& engine);

// The request in one line.
std::string Describe(const Request& request);

}  // namespace tokamak::invariance
