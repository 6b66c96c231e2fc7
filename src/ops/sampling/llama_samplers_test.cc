// Our samplers against llama.cpp's (tests/golden/make_llama_sampler_goldens.py).
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <functional>
#include <iterator>
#include <sstream>
#include <string>
#include <vector>

#include "ops/sampling/filters.h"
#include "ops/sampling/logits_row.h"
#include "ops/sampling/slot_sampling.h"

namespace tokamak::sampling {
namespace {

std::vector<double> Numbers(const std::string& text) {
  std::istringstream in(text);
  return {std::istream_iterator<double>(in), {}};
}

// Calls check(parameters, logits, result) with each case of one kind.
void ForEachCase(const std::string& kind,
                 const std::function<void(const std::vector<double>&, std::vector<float>,
                                          const std::vector<double>&)>& check) {
  std::ifstream file(TOKAMAK_SOURCE_DIR "/tests/golden/llama_samplers.txt");
  std::string line, result;
  int cases = 0;
  while (std::getline(file, line) && std::getline(file, result)) {
    const size_t space = line.find(' '), colon = line.find(':');
    if (line.substr(0, space) != kind) continue;
    SCOPED_TRACE(line.substr(0, 80));
    std::vector<float> logits;
    for (const double thousandths : Numbers(line.substr(colon + 1))) {
      logits.push_back(static_cast<float>(thousandths / 1000));
    }
    check(Numbers(line.substr(space, colon - space)), logits, Numbers(result));
    ++cases;
  }
  EXPECT_EQ(cases, 60) << kind;
}

TEST(LlamaSamplers, TopNSigmaKeepsTheSameTokens) {
  ForEachCase("top_n_sigma", [](const auto& parameters, std::vector<float> row, const auto& ids) {
    KeepSigmas(row, Scan(row).max, static_cast<float>(parameters[0]));
    std::vector<double> left;
    for (size_t t = 0; t < row.size(); ++t) {
      if (std::isfinite(row[t])) left.push_back(static_cast<double>(t));
    }
    EXPECT_EQ(left, ids);
  });
}

TEST(LlamaSamplers, XtcKeepsTheSameTokens) {
  ForEachCase("xtc", [](const auto& parameters, const std::vector<float>& row, const auto& ids) {
    SamplingParams spec;
    spec.xtc_probability = 1;
    spec.xtc_threshold = static_cast<float>(parameters[0]);
    std::vector<float> tempered(row.size());
    Temper(row, Scan(row).max, 1, tempered);
    Filter filter;
    std::vector<double> left;
    for (const Candidate& c : filter.Apply(tempered, spec, {})) left.push_back(c.id);
    EXPECT_EQ(left, ids);
  });
}

TEST(LlamaSamplers, DynamicTemperatureIsTheSame) {
  ForEachCase("dynatemp",
              [](const auto& parameters, const std::vector<float>& row, const auto& temperature) {
                SamplingParams spec;
                spec.temperature = static_cast<float>(parameters[0]);
                spec.dynatemp_range = static_cast<float>(parameters[1]);
                spec.dynatemp_exponent = static_cast<float>(parameters[2]);
                EXPECT_NEAR(DynamicTemperatureOf(row, Scan(row).max, spec), temperature[0],
                            1e-5 + 1e-4 * temperature[0]);
              });
}

TEST(LlamaSamplers, PenaltiesSeeTheSameWindow) {
  ForEachCase("penalties", [](const auto& parameters, std::vector<float> row, const auto& logits) {
    SamplingParams spec;
    spec.repeat_last_n = static_cast<int32_t>(parameters[0]);
    spec.repetition_penalty = static_cast<float>(parameters[1]);
    spec.frequency_penalty = static_cast<float>(parameters[2]);
    spec.presence_penalty = static_cast<float>(parameters[3]);
    const std::vector<TokenId> history(parameters.begin() + 4, parameters.end());
    // llama.cpp counts the prompt as if it were output. A part of it is drawn later.
    const size_t at_first = history.size() / 2;
    SlotSampling slot;
    slot.Reset(spec, 0, std::span(history).first(at_first), 0);
    for (const TokenId token : std::span(history).subspan(at_first)) slot.Append(token);
    slot.Edit(static_cast<int32_t>(history.size()), row, nullptr);
    for (size_t t = 0; t < row.size(); ++t) EXPECT_NEAR(row[t], logits[t], 1e-4) << t;
  });
}

}  // namespace
}  // namespace tokamak::sampling
