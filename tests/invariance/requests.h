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
  int32_t num_prompt_tokens() const { return alone.front().usage.prompt_tokens; }
  // in mixed batches, cancelled after this many chunks; -1: never.
  int32_t cancel_after = -1;
};

// The content of a prompt.
struct Content {
  std::vector<int32_t> token_ids;
  std::vector<ImageData> images;  // in the order of their placeholders
};

// The material for requests.
struct Material {
  int32_t vocab_size = 0;
  int32_t max_prompt = 0;  // tokens; an image is one
  int32_t max_new = 0;
  int32_t repeat_percent = 0;      // how often an answer repeats itself
  int32_t long_percent = 0;        // how often a prompt has up to max_prompt tokens
  std::vector<Content> documents;  // each prompt begins with a part of one
  int32_t placeholder = -1;        // for an image; -1: the model takes none
  std::vector<ImageData> pictures;
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
  int32_t Token();  // never the placeholder
  const ImageData& Picture();

  Content Prompt(const std::vector<Case>& earlier);
  void ChooseTokens(SamplingParams* params);  // which tokens are drawn
  void ChooseEnds(SamplingParams* params);    // how many, and what ends them
  StructuredOutput Form();
  void BoundThinking(SamplingParams* params);

  std::mt19937_64 random_;
  const Material material_;
};

// Documents of random ids, and of pictures if the model takes images.
Result<Material> TinyMaterial(uint64_t seed, const ModelInfo& model);
// Documents of English text, tokenized by `engine`.
Result<Material> TextMaterial(const Engine& engine);

std::string Describe(const Request& request);

}  // namespace tokamak::invariance
