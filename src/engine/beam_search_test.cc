// BeamSearch against transformers (tests/golden/make_beam_goldens.py), and by hand.
#include "engine/beam_search.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <iterator>
#include <numeric>
#include <set>
#include <sstream>
#include <string>
#include <vector>

namespace tokamak {
namespace {

using Candidates = std::vector<TokenLogprobs::Entry>;

// The model of the goldens.
constexpr size_t kPositions = 32;

struct Table {
  size_t vocab = 0;
  std::vector<float> logits;

  // The best candidates behind `last`, which is at `position`.
  Candidates Best(TokenId last, size_t position, int64_t count) const {
    const float* follows = logits.data() + static_cast<size_t>(last) * vocab;
    const float* places = logits.data() + (vocab + position % kPositions) * vocab;
    double total = 0;
    for (size_t t = 0; t < vocab; ++t) total += std::exp(double{follows[t] + places[t]});
    Candidates all;
    for (size_t t = 0; t < vocab; ++t) {
      const double logprob = double{follows[t] + places[t]} - std::log(total);
      all.push_back({static_cast<TokenId>(t), static_cast<float>(logprob)});
    }
    std::stable_sort(all.begin(), all.end(),
                     [](const auto& a, const auto& b) { return a.logprob > b.logprob; });
    all.resize(std::min(all.size(), static_cast<size_t>(count)));
    return all;
  }
};

std::vector<double> Numbers(const std::string& text) {
  std::istringstream in(text);
  return {std::istream_iterator<double>(in), {}};
}

struct Case {
  TokenId prompt = 0;
  BeamSearchParams params;
  int32_t max_tokens = 0;
  std::set<TokenId> ends;
};

Case ParseCase(const std::string& line) {
  Case out;
  std::string kind, early;
  std::istringstream in(line);
  in >> kind >> out.prompt >> out.params.width >> out.params.length_penalty >> early >>
      out.max_tokens;
  out.params.early_stopping = early == "True"    ? EarlyStopping::kYes
                              : early == "never" ? EarlyStopping::kNever
                                                 : EarlyStopping::kNo;
  for (const double id : Numbers(line.substr(line.find(':') + 1))) {
    out.ends.insert(static_cast<TokenId>(id));
  }
  return out;
}

BeamSearch Search(const Table& table, const Case& c) {
  BeamSearch search(c.params, c.max_tokens);
  const int64_t count = BeamSearch::NumCandidates(c.params.width, c.ends.size());
  for (size_t position = 0; !search.done(); ++position) {
    std::vector<Candidates> candidates;
    for (const BeamSearch::Beam& beam : search.beams()) {
      EXPECT_EQ(beam.tokens.size(), position);
      const TokenId last = beam.tokens.empty() ? c.prompt : beam.tokens.back();
      candidates.push_back(table.Best(last, position, count));
    }
    search.Advance(candidates, count, [&](int32_t, TokenId t) { return c.ends.contains(t); });
  }
  return search;
}

TEST(BeamSearch, FindsWhatTransformersFinds) {
  std::ifstream file(TOKAMAK_SOURCE_DIR "/tests/golden/beams.txt");
  ASSERT_TRUE(file.good());
  Table table;
  std::string line, result;
  int cases = 0;
  while (std::getline(file, line)) {
    if (line.starts_with("table")) {
      const std::vector<double> numbers = Numbers(line.substr(line.find(':') + 1));
      table.vocab = static_cast<size_t>(std::stoi(line.substr(5)));
      table.logits.clear();
      for (const double x : numbers) table.logits.push_back(static_cast<float>(x / 100000));
      ASSERT_EQ(numbers.size(), table.vocab * (table.vocab + kPositions));
      continue;
    }
    SCOPED_TRACE(line);
    const Case c = ParseCase(line);
    const BeamSearch search = Search(table, c);
    ASSERT_EQ(search.hypotheses().size(), static_cast<size_t>(c.params.width));
    for (const BeamSearch::Hypothesis& hypothesis : search.hypotheses()) {
      ASSERT_TRUE(std::getline(file, result));
      const std::vector<double> ids = Numbers(result.substr(result.find(':') + 1));
      EXPECT_EQ(std::vector<TokenId>(ids.begin(), ids.end()), hypothesis.tokens);
      EXPECT_NEAR(std::stod(result), hypothesis.score, 1e-5 + 1e-6 * std::abs(hypothesis.score));
    }
    ++cases;
  }
  EXPECT_GT(cases, 300);
}

// With as many beams as there are continuations, the search finds the best of all.
TEST(BeamSearch, FindsTheBestAnswerIfNothingIsCutOff) {
  constexpr int32_t kVocab = 3, kLength = 4;
  Table table{.vocab = kVocab, .logits = {}};
  for (int i = 0; i < kVocab * (kVocab + int{kPositions}); ++i) {
    table.logits.push_back(static_cast<float>(i * 37 % 19) / 7);
  }
  const auto score = [&](const std::vector<TokenId>& tokens) {
    float sum = 0;
    TokenId last = 0;
    for (size_t position = 0; position < tokens.size(); ++position) {
      for (const auto& [id, logprob] : table.Best(last, position, kVocab)) {
        if (id == tokens[position]) sum += logprob;
      }
      last = tokens[position];
    }
    return sum / static_cast<float>(tokens.size());
  };
  float best = -1e9;
  for (int code = 0; code < 81; ++code) {
    std::vector<TokenId> tokens;
    for (int i = 0, rest = code; i < kLength; ++i, rest /= kVocab) tokens.push_back(rest % kVocab);
    best = std::max(best, score(tokens));
  }
  const BeamSearch search =
      Search(table, {.prompt = 0, .params = {.width = 81}, .max_tokens = kLength, .ends = {}});
  EXPECT_NEAR(search.hypotheses()[0].score, best, 1e-5);
  EXPECT_NEAR(score(search.hypotheses()[0].tokens), best, 1e-5);
  EXPECT_EQ(search.hypotheses().size(), 81u);
}

// Masks may leave fewer continuations than the width, or none at all.
TEST(BeamSearch, GoesOnWithWhatThereIs) {
  const auto never = [](int32_t, TokenId) { return false; };
  BeamSearch search({.width = 3}, 8);
  search.Advance(std::vector<Candidates>{{{5, -1.0f}, {6, -2.0f}}}, 6, never);
  ASSERT_EQ(search.beams().size(), 2u);
  EXPECT_EQ(search.beams()[1].tokens, (std::vector<TokenId>{6}));
  search.Advance(std::vector<Candidates>{{}, {{7, -0.5f}}}, 6, never);
  ASSERT_EQ(search.beams().size(), 1u);
  EXPECT_EQ(search.beams()[0].tokens, (std::vector<TokenId>{6, 7}));
  EXPECT_EQ(search.beams()[0].parent, 1);
  EXPECT_FLOAT_EQ(search.beams()[0].score, -2.5f);
  search.Advance(std::vector<Candidates>{{}}, 6, never);
  EXPECT_TRUE(search.done());
  EXPECT_TRUE(search.hypotheses().empty());
}

TEST(BeamSearch, AnswersHaveTheLogprobsOfTheirTokensAndOfAlternatives) {
  const auto ends = [](int32_t, TokenId token) { return token == 9; };
  BeamSearch search({.width = 2}, 8, 1);
  search.Advance(std::vector<Candidates>{{{4, -1.0f}, {5, -2.0f}, {6, -3.0f}}}, 4, ends);
  search.Advance(std::vector<Candidates>{{{7, -5.0f}}, {{9, -0.5f}, {3, -1.0f}}}, 4, ends);
  ASSERT_EQ(search.beams().size(), 2u);
  const auto logprobs = [](const auto& answer) {
    std::vector<TokenLogprobs> all;
    for (const auto& entry : answer.logprobs) all.push_back(*entry);
    return all;
  };
  const TokenLogprobs first = {.token = {4, -1.0f}, .top = {{4, -1.0f}}};
  const TokenLogprobs second = {.token = {5, -2.0f}, .top = {{4, -1.0f}}};
  EXPECT_EQ(logprobs(search.beams()[0]),
            (std::vector<TokenLogprobs>{second, {.token = {3, -1.0f}, .top = {{9, -0.5f}}}}));
  EXPECT_EQ(logprobs(search.beams()[1]),
            (std::vector<TokenLogprobs>{first, {.token = {7, -5.0f}, .top = {{7, -5.0f}}}}));
  ASSERT_EQ(search.hypotheses().size(), 1u);
  EXPECT_EQ(logprobs(search.hypotheses()[0]),
            (std::vector<TokenLogprobs>{second, {.token = {9, -0.5f}, .top = {{9, -0.5f}}}}));
  BeamSearch without({.width = 2}, 8);
  without.Advance(std::vector<Candidates>{{{4, -1.0f}, {5, -2.0f}}}, 4, ends);
  EXPECT_TRUE(without.beams()[0].logprobs.empty());
}

TEST(BeamSearch, EqualScoresGoToTheBetterBeamAndTheLowerToken) {
  const auto never = [](int32_t, TokenId) { return false; };
  BeamSearch search({.width = 2}, 8);
  search.Advance(std::vector<Candidates>{{{4, -1.0f}, {9, -1.0f}}}, 4, never);
  EXPECT_EQ(search.beams()[0].tokens[0], 4);
  search.Advance(std::vector<Candidates>{{{3, -2.0f}, {8, -2.0f}}, {{1, -2.0f}, {2, -2.0f}}}, 4,
                 never);
  EXPECT_EQ(search.beams()[0].tokens, (std::vector<TokenId>{4, 3}));
  EXPECT_EQ(search.beams()[1].tokens, (std::vector<TokenId>{4, 8}));
}

}  // namespace
}  // namespace tokamak
