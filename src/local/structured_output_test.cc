// Tests structured outputs on a tiny model with random weights, which keeps to nothing by itself.
#include "local/structured_output.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <regex>
#include <set>
#include <string>

#include "base/mutex.h"
#include "local/replay_file.h"
#include "local/testing/load_engine.h"
#include "tokamak/engine.h"
#include "tokenizer/testing/tiny_vocabs.h"

namespace tokamak {
namespace {

using Kind = StructuredOutput::Kind;
using ::testing::HasSubstr;

constexpr char kPattern[] = "[a-z]{3,8}(-[0-9]{2}){1,3}";

Request Make(StructuredOutput output, uint64_t seed = 1) {
  Request request;
  request.token_ids = {5, 6, 7, 8, 9, 10, 11};
  request.sampling.seed = seed;
  request.sampling.max_tokens = 100;
  request.sampling.structured_output = std::move(output);
  return request;
}
Request MakeRegex(uint64_t seed = 1) {
  return Make({.kind = Kind::kRegex, .text = kPattern}, seed);
}

OutputChunk Generate(Engine& engine, Request request) {
  const auto answer = engine.Generate(std::move(request));
  EXPECT_TRUE(answer.ok()) << answer.status().ToString();
  return answer.ok() ? answer->front() : OutputChunk();
}

TEST(StructuredOutput, AnswersMatchTheRegularExpression) {
  const auto engine = Load();
  std::set<std::string> texts;
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    Request request = MakeRegex(seed);
    // Neither may keep a finished answer from ending.
    request.sampling.ignore_eos = true;
    request.sampling.min_tokens = 50;
    const OutputChunk answer = Generate(*engine, std::move(request));
    EXPECT_TRUE(std::regex_match(answer.text, std::regex(kPattern))) << answer.text;
    EXPECT_EQ(answer.finish_reason, FinishReason::kStop) << answer.error.ToString();
    texts.insert(answer.text);
  }
  EXPECT_GT(texts.size(), 10u);
}

TEST(StructuredOutput, AnswersAreOneOfTheChoices) {
  const auto engine = Load();
  const StructuredOutput output{.kind = Kind::kChoice, .choices = {"yes", "yesterday", "no"}};
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    const OutputChunk answer = Generate(*engine, Make(output, seed));
    EXPECT_THAT(output.choices, ::testing::Contains(answer.text));
    EXPECT_EQ(answer.finish_reason, FinishReason::kStop);
  }
}

TEST(StructuredOutput, TagsKeepToTheirSchemasAndTextBetweenThemIsFree) {
  const auto engine = Load();
  StructuredOutput output{.kind = Kind::kTags};
  output.tags = {{.begin = "e(", .schema = R"({"type": "integer"})", .end = ")"},
                 {.begin = "e[", .schema = R"({"enum": [true, "x"]})", .end = "]"}};
  output.triggers = {"e"};
  const std::string tag = R"((e\(-?[0-9]+(\.0)?\)|e\[(true|"x")\]))";
  int tags = 0;
  for (const bool ends : {false, true}) {
    output.ends_after_tag = ends;
    for (uint64_t seed = 1; seed <= 20; ++seed) {
      const OutputChunk answer = Generate(*engine, Make(output, seed));
      tags += answer.text.find('e') != std::string::npos;
      if (answer.finish_reason == FinishReason::kLength) continue;  // may end within a tag
      const std::regex form(ends ? "[^e]*" + tag + "?" : "[^e]*(" + tag + "[^e]*)*");
      EXPECT_TRUE(std::regex_match(answer.text, form)) << answer.text;
    }
  }
  EXPECT_GT(tags, 5);
  output.tags[1].schema = R"({"properties": {"a": {"type": "thing"}}})";
  EXPECT_THAT(engine->PrepareStructuredOutput(output).message(),
              ::testing::StartsWith("structured_output.tags[1].content.properties.a.type: "));
  output.tags = {{.begin = "<|end|>e", .schema = "{}", .end = ""}};
  output.triggers = {"<|end|>"};
  EXPECT_THAT(engine->PrepareStructuredOutput(output).message(), HasSubstr("a special token"));
}

TEST(StructuredOutput, ATruncatedAnswerSaysLength) {
  Request request = Make({.kind = Kind::kRegex, .text = "[a-z]{50}"});
  request.sampling.max_tokens = 4;
  const OutputChunk answer = Generate(*Load(), std::move(request));
  EXPECT_EQ(answer.finish_reason, FinishReason::kLength);
  EXPECT_TRUE(std::regex_match(answer.text, std::regex("[a-z]+"))) << answer.text;
}

// After each line the answer is complete, and within the next one it is not.
TEST(StructuredOutput, StopStringsThatCannotOccurChangeNothing) {
  const auto engine = Load();
  for (const auto& [pattern, stop] : std::vector<std::pair<std::string, std::string>>{
           {"(- [a-z]{1,3}\\n){1,4}", "\n\n"}, {"\\{\"a\": [0-9]{1,3}\\}", "}"}}) {
    for (uint64_t seed = 1; seed <= 10; ++seed) {
      Request request = Make({.kind = Kind::kRegex, .text = pattern}, seed);
      request.sampling.stop = {stop};
      const OutputChunk answer = Generate(*engine, std::move(request));
      EXPECT_TRUE(std::regex_match(answer.text, std::regex(pattern))) << answer.text;
      EXPECT_EQ(answer.finish_reason, FinishReason::kStop) << answer.error.ToString();
    }
  }
}

TEST(StructuredOutput, AnswersDoNotDependOnOtherRequestsOrOverlap) {
  Request request = MakeRegex(42);
  request.sampling.n = 3;
  request.sampling.max_tokens = 40;
  request.sampling.logprobs = 2;
  EngineOptions options = TinyOptions();
  options.block_size = 4;
  const auto alone = Load(options)->Generate(request).value();
  options.max_batch_tokens = 5;
  options.num_blocks = 14;  // forces preemption
  for (const int32_t depth : {1, 2, 4}) {
    options.steps_in_flight = depth;
    const auto engine = Load(options);
    Mutex mutex;
    CondVar ended;
    int open = 0;
    for (uint64_t i = 0; i < 12; ++i) {
      Request other = MakeRegex(100 + i);
      if (i % 2 == 0) other.sampling.structured_output.reset();
      other.sampling.max_tokens = 20;
      {
        MutexLock lock(mutex);
        ++open;
      }
      const auto id = engine->Submit(other, [&](const OutputChunk& chunk) {
        if (!chunk.finish_reason) return;
        MutexLock lock(mutex);
        if (--open == 0) ended.NotifyAll();
      });
      ASSERT_TRUE(id.ok()) << id.status().ToString();
    }
    const auto together = engine->Generate(request).value();
    MutexLock lock(mutex);
    while (open > 0) ended.Wait(mutex);
    EXPECT_GT(engine->stats().preemptions, 0);
    for (size_t i = 0; i < alone.size(); ++i) {
      EXPECT_EQ(together[i].text, alone[i].text);
      EXPECT_EQ(together[i].token_ids, alone[i].token_ids);
      EXPECT_EQ(together[i].logprobs, alone[i].logprobs);
    }
  }
}

TEST(StructuredOutput, WhatIsWrongIsRefusedBeforeItRuns) {
  const auto engine = Load();
  for (const StructuredOutput& output :
       {StructuredOutput{.kind = Kind::kRegex, .text = "(a"},
        StructuredOutput{.kind = Kind::kChoice, .choices = {}},
        StructuredOutput{.kind = Kind::kJsonSchema, .text = R"({"type": "no type"})"},
        StructuredOutput{.kind = Kind::kGrammar, .text = "root ::= ("}}) {
    const Status status = engine->PrepareStructuredOutput(output);
    EXPECT_TRUE(status.message().starts_with("structured_output")) << status.ToString();
    const auto id = engine->Submit(Make(output), [](const OutputChunk&) { FAIL(); });
    EXPECT_EQ(id.status().message(), status.message());
  }
}

TEST(StructuredOutput, ARecordRepeatsTheRun) {
  EngineOptions options = TinyOptions();
  options.record_path = ::testing::TempDir() + "structured" + std::to_string(::getpid());
  {
    const auto engine = Load(options);
    for (uint64_t seed = 1; seed <= 3; ++seed) (void)Generate(*engine, MakeRegex(seed));
    Request thinking = MakeRegex();
    thinking.sampling.structured_output.reset();
    thinking.sampling.thinking_token_budget = 3;
    thinking.sampling.thinking = {.open = "<think>", .close = "</think>", .begun = true};
    EXPECT_NE(Generate(*engine, std::move(thinking)).text.find("</think>"), std::string::npos);
    engine->Drain(1000);
  }
  for (const bool schedule_only : {true, false}) {
    const auto report =
        ReplayFile({.path = options.record_path, .model = "", .schedule_only = schedule_only});
    ASSERT_TRUE(report.ok()) << report.status().ToString();
    EXPECT_EQ(report->counts.requests, 4);
    EXPECT_GT(report->counts.tokens, 10);
  }
  std::remove(options.record_path.c_str());
}

TEST(ConstraintMaker, ItsTablesAreMadeWhenAModelIsLoaded) {
  const auto engine = Load();
  const ModelInfo& model = engine->model();
  // Each token has a string.
  EXPECT_GT(model.mask_table_bytes, static_cast<int64_t>(sizeof(std::string)) * 256);
  EXPECT_GT(model.mask_table_seconds, 0);
  EXPECT_LT(model.mask_table_seconds, model.load_seconds);
}

TEST(ConstraintMaker, KeepsTheLatestWithinItsLimits) {
  ConstraintMaker maker(
      MakeConstraintTokens(testing::MakeTokenizer(testing::TinyBytePairs()).value()),
      {.grammars = 5, .bytes = size_t{1} << 20});
  const auto prepare = [&](const std::string& text) {
    const Status status = maker.Prepare({.kind = Kind::kRegex, .text = text});
    EXPECT_TRUE(status.ok()) << status.ToString();
    return maker.num_grammars();
  };
  EXPECT_EQ(prepare("a"), 1u);
  EXPECT_EQ(prepare("a"), 1u);
  EXPECT_EQ(prepare("b"), 2u);
  for (const char* text : {"c", "d", "e", "f"}) (void)prepare(text);
  EXPECT_EQ(prepare("g"), 5u);
  EXPECT_EQ(prepare("h"), 5u);
  // However small the limits are, what was just prepared need not be compiled again.
  ConstraintMaker small(
      MakeConstraintTokens(testing::MakeTokenizer(testing::TinyBytePairs()).value()),
      {.grammars = 1, .bytes = 10});
  for (const char* text : {"a", "b", "c", "d", "e", "f"}) {
    EXPECT_TRUE(small.Prepare({.kind = Kind::kRegex, .text = text}).ok());
  }
  EXPECT_EQ(small.num_grammars(), ConstraintMaker::kAlwaysKept);
}

TEST(ConstraintMaker, PreparesEverythingThatMakeNeeds) {
  for (const bool reasons : {false, true}) {
    const auto tokenizer = testing::MakeTokenizer(testing::TinyBytePairs()).value();
    ConstraintMaker maker(MakeConstraintTokens(tokenizer));
    StructuredOutput output{.kind = Kind::kRegex, .text = "a+"};
    if (reasons) output.reasoning = {.open = "<think>", .close = "</think>"};
    EXPECT_FALSE(maker.prepared(output));
    EXPECT_TRUE(maker.Prepare(output).ok());
    EXPECT_TRUE(maker.prepared(output));
  }
}

TEST(ConstraintMaker, RefusesModelsWithoutATokenizer) {
  ConstraintMaker maker(nullptr);
  EXPECT_EQ(maker.Prepare({.kind = Kind::kJsonObject}).code(), StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(maker.Make({}, 1).status().message()), HasSubstr("no tokenizer"));
}

}  // namespace
}  // namespace tokamak
