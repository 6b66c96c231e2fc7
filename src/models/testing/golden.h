// The goldens under tests/golden and their models. For tests.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "models/image_encoder.h"
#include "models/registry.h"
#include "models/testing/harness.h"

namespace tokamak::testing {

// The reference's greedy tokens, and the margin of each token's logit over the second best.
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

struct Distance {
  // Mean over positions of KL(golden || logits), with all ids that are not kept as one event.
  double divergence = 0;
  double median = 0;         // of |difference| over the kept logits
  double worst_logprob = 0;  // the largest |difference| of their logprobs
};

// An image of a golden, and some of the rows that it becomes.
struct GoldenImage {
  std::vector<int32_t> shape;
  std::vector<float> values;
  std::vector<int32_t> grid, size;  // heights and widths, as in ImageView
  size_t num_rows = 0;
  std::vector<size_t> kept_rows;
  std::vector<std::vector<double>> kept_values;

  ImageView View() const { return {shape, values, grid[0], grid[1], size[0], size[1]}; }
};

// tests/golden/<model>.json, made by make_tiny_llama.py or make_vision_goldens.py.
struct TinyGolden {
  std::vector<int32_t> tokens;
  std::vector<GoldenImage> images;  // whose placeholders are in `tokens`, and first in prompts
  std::vector<std::vector<int32_t>> positions;  // with mRoPE: of the tokens, in each dimension
  // For each token: some ids, their logits, and log Σ exp of all logits.
  std::vector<std::vector<int32_t>> kept_ids;
  std::vector<std::vector<double>> kept_logits;
  std::vector<double> logsumexp;
  GoldenGreedy greedy;
  Distance bf16;  // the distance of the reference's own run in bfloat16
  // The largest difference of a logprob to the reference's run in float64; 0 if it was not
  // measured.
  double f32_error = 0;
};

// tests/golden/smollm2.json, made by make_smollm2.py.
struct RealGolden {
  std::vector<GoldenGreedy> greedy;
  std::vector<GoldenScore> scores;
};

std::string GoldenPath(const std::string& file);
// Path of a tiny model: "hf..." is a directory, "gguf/x" and "mmproj/x" are "hf/x" converted,
// others are GGUF files.
std::string TinyModelPath(const std::string& model);
TinyGolden ReadTinyGolden(const std::string& model);
RealGolden ReadRealGolden();
Distance DistanceFrom(const TinyGolden& golden, const std::vector<Harness::Logits>& logits);

// Opens and loads a model; CHECKs that there is no error.
std::unique_ptr<Model> LoadOrDie(const std::string& path, Ops& ops,
                                 const LoadOptions& options = {});

// log Σ exp(logit), and log p(token) under `logits`, summed in double.
double LogSumExp(const Harness::Logits& logits);
double Logprob(const Harness::Logits& logits, int32_t token);

// Generates greedily for all prompts in one batch and compares each token; messages have the
// reference's margin. Returns the number of equal tokens.
int CheckGreedy(Harness& harness, const std::vector<GoldenGreedy>& goldens);

}  // namespace tokamak::testing
