// Goldens under tests/golden, and the models they are of. For tests.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "models/registry.h"
#include "models/testing/harness.h"

namespace tokamak::testing {

// Greedy tokens of the reference, and by how much each one's logit beats the second best.
struct GoldenGreedy {
  std::string name;
  std::vector<int32_t> prompt;
  std::vector<int32_t> tokens;
  std::vector<double> margins;
};

// log p(tokens[i + 1] | tokens[0 … i]).
struct GoldenScore {
  std::string name;
  std::vector<int32_t> tokens;
  std::vector<double> logprobs;
};

// How far logits are from those of a golden.
struct Distance {
  // The mean over positions of KL(golden || logits), where ids that are not kept are one event.
  double divergence = 0;
  double median = 0;         // of |difference| of the logits that are kept
  double worst_logprob = 0;  // the largest |difference| of their logprobs
};

// tests/golden/<model>.json of make_tiny_llama.py.
struct TinyGolden {
  std::vector<int32_t> tokens;
  // For each token: some ids, their logits, and log Σ exp of all.
  std::vector<std::vector<int32_t>> kept_ids;
  std::vector<std::vector<double>> kept_logits;
  std::vector<double> logsumexp;
  GoldenGreedy greedy;
  Distance bf16;  // of the reference's own run in bfloat16
};

// tests/golden/smollm2.json of make_smollm2.py.
struct RealGolden {
  std::vector<GoldenGreedy> greedy;
  std::vector<GoldenScore> scores;
};

std::string GoldenPath(const std::string& file);
// Of a tiny model: "hf..." is a directory, "gguf/x" is "hf/x" converted, the others are GGUF files.
std::string TinyModelPath(const std::string& model);
TinyGolden ReadTinyGolden(const std::string& model);
RealGolden ReadRealGolden();
Distance DistanceFrom(const TinyGolden& golden, const std::vector<Harness::Logits>& logits);

// Opens and loads; errors are CHECKs.
std::unique_ptr<Model> LoadOrDie(const std::string& path, Ops& ops,
                                 const LoadOptions& options = {});

// log p(token) under `logits`, and log Σ exp(logit), added up in double.
double LogSumExp(const Harness::Logits& logits);
double Logprob(const Harness::Logits& logits, int32_t token);

// Generates greedily for all prompts in one batch and compares each token; where one differs, the
// message has the reference's margin. The number of tokens that are equal.
int CheckGreedy(Harness& harness, const std::vector<GoldenGreedy>& goldens);

}  // namespace tokamak::testing
