#include "models/testing/golden.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "models/testing/images.h"

namespace tokamak::testing {
namespace {

nlohmann::json ReadJson(const std::string& file) {
  std::ifstream stream(GoldenPath(file));
  CHECK_MSG(stream.good(), GoldenPath(file));
  return nlohmann::json::parse(stream);
}

// "gguf/x" is "hf/x" in GGUF format, "mmproj/x" with an mmproj file.
bool IsConverted(const std::string& model) {
  return model.starts_with("gguf/") || model.starts_with("mmproj/");
}
std::string Original(const std::string& model) { return "hf" + model.substr(model.find('/')); }

GoldenGreedy ToGreedy(const nlohmann::json& json, const std::string& name, const char* tokens) {
  return {name, json.at("prompt"), json.at(tokens), json.at("margins")};
}

GoldenImage ToImage(const nlohmann::json& json) {
  GoldenImage image;
  json.at("shape").get_to(image.shape);
  size_t count = 1;
  for (const int32_t n : image.shape) count *= static_cast<size_t>(n);
  image.values = PixelValues(count, json.at("seed"));
  json.at("grid").get_to(image.grid);
  json.at("size").get_to(image.size);
  json.at("num_rows").get_to(image.num_rows);
  json.at("kept_rows").get_to(image.kept_rows);
  json.at("kept_values").get_to(image.kept_values);
  return image;
}

}  // namespace

std::string GoldenPath(const std::string& file) {
  return std::string(TOKAMAK_SOURCE_DIR) + "/tests/golden/" + file;
}

std::string TinyModelPath(const std::string& model) {
  if (model.starts_with("mmproj/")) {
    return GoldenPath(model + model.substr(model.find('/')) + ".gguf");
  }
  if (IsConverted(model)) return GoldenPath(Original(model) + ".gguf");
  return GoldenPath(model.starts_with("hf") ? model : model + ".gguf");
}

TinyGolden ReadTinyGolden(const std::string& model) {
  const nlohmann::json json = ReadJson((IsConverted(model) ? Original(model) : model) + ".json");
  TinyGolden golden;
  json.at("tokens").get_to(golden.tokens);
  json.at("kept_ids").get_to(golden.kept_ids);
  json.at("kept_logits").get_to(golden.kept_logits);
  json.at("logsumexp").get_to(golden.logsumexp);
  golden.greedy = ToGreedy(json, model, "greedy");
  for (const nlohmann::json& item : json.value("images", nlohmann::json::array())) {
    golden.images.push_back(ToImage(item));
  }
  if (json.contains("positions")) json.at("positions").get_to(golden.positions);
  const nlohmann::json& bf16 = json.at("bf16");
  golden.bf16 = {bf16.at("divergence"), bf16.at("median"), bf16.at("worst_logprob")};
  golden.f32_error = json.value("f32_error", 0.0);
  return golden;
}

RealGolden ReadRealGolden() {
  const nlohmann::json json = ReadJson("smollm2.json");
  RealGolden golden;
  for (const nlohmann::json& item : json.at("greedy")) {
    golden.greedy.push_back(ToGreedy(item, item.at("name"), "tokens"));
  }
  for (const nlohmann::json& item : json.at("score")) {
    golden.scores.push_back({item.at("name"), item.at("tokens"), item.at("logprobs")});
  }
  return golden;
}

std::unique_ptr<Model> LoadOrDie(const std::string& path, Ops& ops, const LoadOptions& options) {
  Result<Checkpoint> checkpoint = OpenCheckpoint(path);
  CHECK_MSG(checkpoint.ok(), checkpoint.status().ToString());
  Result<std::unique_ptr<Model>> model = LoadModel(*checkpoint, ops, options);
  CHECK_MSG(model.ok(), model.status().ToString());
  return *std::move(model);
}

double LogSumExp(const Harness::Logits& logits) {
  const double highest = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (float logit : logits) sum += std::exp(logit - highest);
  return highest + std::log(sum);
}

double Logprob(const Harness::Logits& logits, int32_t token) {
  return logits[static_cast<size_t>(token)] - LogSumExp(logits);
}

Distance DistanceFrom(const TinyGolden& golden, const std::vector<Harness::Logits>& logits) {
  CHECK(logits.size() == golden.tokens.size());
  Distance distance;
  std::vector<double> differences;
  for (size_t t = 0; t < logits.size(); ++t) {
    std::map<int32_t, double> kept;  // an id may occur twice
    for (size_t i = 0; i < golden.kept_ids[t].size(); ++i) {
      const int32_t id = golden.kept_ids[t][i];
      kept[id] = golden.kept_logits[t][i];
      differences.push_back(std::abs(logits[t][static_cast<size_t>(id)] - kept[id]));
    }
    const double logsumexp = LogSumExp(logits[t]);
    double rest = 1, rest_here = 1;
    for (const auto& [id, logit] : kept) {
      const double logprob = logit - golden.logsumexp[t];
      const double here = logits[t][static_cast<size_t>(id)] - logsumexp;
      distance.divergence += std::exp(logprob) * (logprob - here);
      distance.worst_logprob = std::max(distance.worst_logprob, std::abs(logprob - here));
      rest -= std::exp(logprob);
      rest_here -= std::exp(here);
    }
    constexpr double kRounding = 1e-6;  // of the golden's numbers
    rest = std::max(rest, kRounding);
    distance.divergence += rest * std::log(rest / std::max(rest_here, kRounding));
  }
  distance.divergence /= static_cast<double>(logits.size());
  const auto middle = differences.begin() + static_cast<ptrdiff_t>(differences.size() / 2);
  std::nth_element(differences.begin(), middle, differences.end());
  distance.median = *middle;
  return distance;
}

int CheckGreedy(Harness& harness, const std::vector<GoldenGreedy>& goldens) {
  std::vector<Harness::Row> rows;
  std::vector<std::vector<int32_t>> generated(goldens.size());
  for (const GoldenGreedy& golden : goldens)
    rows.push_back({harness.AddSequence(), golden.prompt, 1});
  const size_t steps = goldens.front().tokens.size();
  for (size_t step = 0; step < steps; ++step) {
    const std::vector<Harness::Logits> logits = harness.Forward(rows);
    for (size_t i = 0; i < rows.size(); ++i) {
      generated[i].push_back(Argmax(logits[i]));
      rows[i].tokens = {generated[i].back()};
    }
  }
  int equal = 0;
  for (size_t i = 0; i < goldens.size(); ++i) {
    const std::vector<int32_t>& expected = goldens[i].tokens;
    CHECK(expected.size() == steps);
    const auto differs = std::mismatch(expected.begin(), expected.end(), generated[i].begin());
    const auto prefix = static_cast<size_t>(differs.first - expected.begin());
    equal += static_cast<int>(prefix);
    if (prefix == steps) continue;
    ADD_FAILURE() << goldens[i].name << ": token " << prefix << " is " << *differs.second
                  << ", the reference has " << *differs.first << ", by a margin of "
                  << goldens[i].margins[prefix];
  }
  return equal;
}

}  // namespace tokamak::testing
