#include "models/testing/mutations.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <random>

#include "base/check.h"
#include "models/testing/backends.h"
#include "models/testing/harness.h"
#include "nn/testing/random_tensors.h"

namespace tokamak::testing {

std::vector<float> LastLogits(const std::string& config_json, const char* optional_tensor,
                              const LoadOptions& options) {
  const std::unique_ptr<Ops> ops = MakeBackend("reference");
  Checkpoint checkpoint = MakeRandomCheckpoint(config_json, 4);
  if (optional_tensor != nullptr) {
    static_cast<RandomTensors&>(*checkpoint.tensors).optional.insert(optional_tensor);
  }
  const Result<std::unique_ptr<Model>> model = LoadModel(checkpoint, *ops, options);
  CHECK_MSG(model.ok(), model.status().ToString());
  std::vector<int32_t> tokens(100);
  std::mt19937 random(8);
  for (int32_t& token : tokens) token = static_cast<int32_t>(random() % 50);
  Harness harness(**model, *ops, {.arena_bytes = 8 << 20});
  return harness.Run(tokens, 1).front();
}

void ExpectDifferent(const std::string& base_json, const std::string& mutant_json,
                     const std::string& what) {
  const std::vector<float> a = LastLogits(base_json), b = LastLogits(mutant_json);
  ASSERT_EQ(a.size(), b.size());
  double difference = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    difference = std::max(difference, double{std::abs(a[i] - b[i])});
  }
  EXPECT_GT(difference, 1e-4) << what << " has no effect";
}

void ExpectFieldsCount(const std::string& base_json,
                       const std::vector<std::pair<std::string, std::string>>& mutations) {
  for (const auto& [path, value] : mutations) {
    auto config = nlohmann::ordered_json::parse(base_json);
    const size_t dot = path.find('.');
    auto& field =
        dot == std::string::npos ? config[path] : config[path.substr(0, dot)][path.substr(dot + 1)];
    field = nlohmann::ordered_json::parse(value);
    ExpectDifferent(base_json, config.dump(), path);
  }
}

}  // namespace tokamak::testing
