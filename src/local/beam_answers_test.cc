// Beam search of the whole engine against transformers (tests/golden/make_beam_goldens.py), alone
// and side by side.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <iterator>
#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "local/testing/load_engine.h"

namespace tokamak {
namespace {

struct Answer {
  float score = 0;
  std::vector<int32_t> tokens;
};
struct Case {
  Request request;
  std::vector<Answer> answers;
};
struct Model {
  std::string directory;
  std::vector<Case> cases;
};

std::vector<int32_t> Ids(const std::string& text) {
  std::istringstream in(text);
  return {std::istream_iterator<int32_t>(in), {}};
}

Case ParseCase(const std::string& line) {
  Case out;
  SamplingParams& sampling = out.request.sampling;
  BeamSearchParams& beams = sampling.beam_search.emplace();
  std::istringstream in(line);
  std::string kind, early, prompt, ends;
  in >> kind >> beams.width >> beams.length_penalty >> early >> sampling.max_tokens.emplace() >>
      sampling.min_tokens >> sampling.repetition_penalty;
  beams.early_stopping = early == "True"    ? EarlyStopping::kYes
                         : early == "never" ? EarlyStopping::kNever
                                            : EarlyStopping::kNo;
  std::getline(in, prompt, ':');  // what is left of the parameters
  std::getline(in, prompt, ':');
  std::getline(in, ends);
  out.request.token_ids = Ids(prompt);
  sampling.stop_token_ids = Ids(ends);
  sampling.ignore_eos = true;
  sampling.n = beams.width;
  sampling.logprobs = 3;
  return out;
}

std::vector<Model> ReadGoldens() {
  std::vector<Model> models;
  std::ifstream file(TOKAMAK_SOURCE_DIR "/tests/golden/beam_answers.txt");
  std::string line;
  while (std::getline(file, line)) {
    if (line.starts_with("model ")) {
      models.push_back({line.substr(6), {}});
    } else if (line.starts_with("case ")) {
      models.back().cases.push_back(ParseCase(line));
    } else {
      models.back().cases.back().answers.push_back(
          {std::stof(line), Ids(line.substr(line.find(':') + 1))});
    }
  }
  return models;
}

EngineOptions Options(const Model& model) {
  EngineOptions options = TinyOptions();
  options.model = TOKAMAK_SOURCE_DIR "/tests/golden/" + model.directory;
  options.precise = true;
  options.max_seqs = 24;
  options.max_batch_tokens = 48;
  options.block_size = 4;
  options.num_blocks = 600;
  return options;
}

// The score is made of the tokens' logprobs, and of the end token's, which is not in the answer.
void ExpectLogprobs(const Case& c, const OutputChunk& answer) {
  ASSERT_EQ(answer.logprobs.size(), answer.token_ids.size());
  double sum = 0;
  for (size_t i = 0; i < answer.logprobs.size(); ++i) {
    const auto& [token, top] = answer.logprobs[i];
    EXPECT_EQ(token.token_id, answer.token_ids[i]);
    ASSERT_EQ(top.size(), 3u);
    for (const TokenLogprobs::Entry& entry : top) {
      if (entry.token_id == token.token_id) {
        EXPECT_EQ(entry, token);
      }
    }
    EXPECT_GE(top[0].logprob, top[1].logprob);
    EXPECT_GE(top[1].logprob, top[2].logprob);
    EXPECT_GE(top[0].logprob, token.logprob);
    sum += token.logprob;
  }
  const bool stops = answer.finish_reason == FinishReason::kStop;
  const auto length = static_cast<double>(answer.token_ids.size() + (stops ? 1 : 0));
  const double total = double{*answer.beam_score} *
                       std::pow(length, double{c.request.sampling.beam_search->length_penalty});
  if (stops) {
    EXPECT_GT(sum, total);
  } else {
    EXPECT_NEAR(sum, total, 1e-4);
  }
}

void ExpectAnswers(const Case& c, const std::vector<OutputChunk>& got) {
  ASSERT_EQ(got.size(), c.answers.size());
  const auto is_end = [&](int32_t token) {
    const auto& ends = c.request.sampling.stop_token_ids;
    return std::find(ends.begin(), ends.end(), token) != ends.end();
  };
  for (size_t i = 0; i < got.size(); ++i) {
    std::vector<int32_t> tokens = c.answers[i].tokens;
    const bool stops = !tokens.empty() && is_end(tokens.back());
    if (stops) tokens.pop_back();
    EXPECT_EQ(got[i].token_ids, tokens) << "answer " << i;
    EXPECT_EQ(got[i].finish_reason, stops ? FinishReason::kStop : FinishReason::kLength);
    ASSERT_TRUE(got[i].beam_score) << got[i].error.ToString();
    const float score = c.answers[i].score;
    EXPECT_NEAR(*got[i].beam_score, score, 2e-5 + 1e-5 * std::abs(score));
    ExpectLogprobs(c, got[i]);
  }
}

TEST(BeamAnswers, AreThoseOfTransformers) {
  size_t cases = 0, ended = 0;
  for (const Model& model : ReadGoldens()) {
    SCOPED_TRACE(model.directory);
    const auto engine = Load(Options(model));
    ASSERT_NE(engine, nullptr);
    for (size_t i = 0; i < model.cases.size(); ++i, ++cases) {
      SCOPED_TRACE(i);
      const Case& c = model.cases[i];
      const auto got = engine->Generate(c.request);
      ASSERT_TRUE(got.ok()) << got.status().ToString();
      ExpectAnswers(c, *got);
      for (const OutputChunk& answer : *got) {
        ended += answer.finish_reason == FinishReason::kStop ? 1 : 0;
      }
    }
  }
  EXPECT_GT(cases, 60u);
  EXPECT_GT(ended, 100u);
}

// Several searches and other requests share steps, slots and too few blocks.
TEST(BeamAnswers, AreTheSameInCompany) {
  int64_t preemptions = 0;
  for (const Model& model : ReadGoldens()) {
    for (const int32_t steps : {1, 2, 4}) {
      SCOPED_TRACE(model.directory + " " + std::to_string(steps));
      EngineOptions options = Options(model);
      options.steps_in_flight = steps;
      options.num_blocks = 340;
      const auto engine = Load(options);
      ASSERT_NE(engine, nullptr);
      std::vector<OutputStream> streams, others;
      for (const Case& c : model.cases) {
        streams.push_back(engine->Stream(c.request).value());
        others.push_back(engine
                             ->Stream({.token_ids = c.request.token_ids,
                                       .sampling = {.seed = 7, .max_tokens = 30}})
                             .value());
      }
      for (size_t i = 0; i < streams.size(); ++i) {
        SCOPED_TRACE(i);
        ExpectAnswers(model.cases[i], streams[i].Collect());
      }
      for (OutputStream& other : others) EXPECT_TRUE(other.Collect()[0].error.ok());
      engine->Drain(1000);  // until the last step has retired
      preemptions += engine->stats().preemptions;
      EXPECT_EQ(engine->stats().used_blocks, 0);
    }
  }
  EXPECT_GT(preemptions, 0);
}

}  // namespace
}  // namespace tokamak
