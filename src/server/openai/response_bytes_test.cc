// Compares the upper bounds for the size of responses with their size.
#include "server/openai/response_bytes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <limits>
#include <nlohmann/json.hpp>
#include <random>

#include "base/testing/sanitizers.h"
#include "server/json_text.h"
#include "server/openai/completion.h"
#include "server/openai/embedding_request.h"
#include "server/openai/status_response.h"
#include "server/openai/tokenize_request.h"
#include "server/testing/fake_engine.h"

namespace tokamak {
namespace {

using Json = nlohmann::json;
using ::testing::HasSubstr;

std::string RandomBytes(std::mt19937_64& random, size_t most) {
  constexpr std::string_view kKinds[] = {"\"",
                                         "\\",
                                         "\n",
                                         "a",
                                         "\x01",
                                         "\x7F",
                                         "\xC3\xA9",
                                         "\xFF",
                                         "\xE2\x82",
                                         "\xF0\x9F\x98\x80",
                                         std::string_view("\0", 1)};
  std::string text;
  for (size_t n = random() % (most + 1); n > 0; --n) text += kKinds[random() % std::size(kKinds)];
  return text;
}

TEST(ResponseBytes, TextTakesAsMuchAsItsJson) {
  std::mt19937_64 random(1);
  for (int i = 0; i < 20000; ++i) {
    const std::string text = RandomBytes(random, 12);
    ASSERT_GE(JsonTextBytes(text) + 2, DumpJson(text).size()) << Json(text).dump(-1, ' ', true);
  }
  const std::string valid = "a \"b\"\\\n\t\x02 \xC3\xA9 \xE6\x97\xA5 \xF0\x9F\x98\x80";
  EXPECT_LE(JsonTextBytes(valid), DumpJson(valid).size() + 10);  // \n is shorter than \u000a
  EXPECT_EQ(JsonTextBytes("plain \xE6\x97\xA5"), DumpJson("plain \xE6\x97\xA5").size() - 2);
}

TEST(ResponseBytes, IdsTakeTheirDigits) {
  const std::vector<int32_t> ids = {0, 9, 10, 99, 100, 128255, INT32_MAX, -1, INT32_MIN};
  EXPECT_EQ(JsonIdBytes(ids), Json(ids).dump().size() - 1);  // one comma more, no brackets
}

// A vocabulary of odd tokens. For each form, adds up the bounds of all entries and compares with
// the text.
TEST(ResponseBytes, LogprobsStayWithinTheirBound) {
  std::mt19937_64 random(2);
  std::vector<std::string> vocab;
  for (int i = 0; i < 256; ++i) vocab.emplace_back(1, static_cast<char>(i));
  for (int i = 0; i < 200; ++i) vocab.push_back(RandomBytes(random, 40));
  vocab.emplace_back(128, ' ');
  const auto bytes_of = [&](int32_t id) { return vocab[static_cast<size_t>(id)]; };
  const TokenSizes sizes(static_cast<int32_t>(vocab.size()), bytes_of);
  const auto entry = [&] {
    constexpr float kValues[] = {-0.123456789f,
                                 0.0f,
                                 std::numeric_limits<float>::lowest(),
                                 -std::numeric_limits<float>::denorm_min(),
                                 -1.17549435e-38f,
                                 -std::numeric_limits<float>::infinity()};
    return TokenLogprobs::Entry{static_cast<int32_t>(random() % vocab.size()),
                                kValues[random() % std::size(kValues)]};
  };
  for (const size_t top : {0, 1, 20}) {
    std::vector<LogprobEntry> entries;
    size_t chat = 0, completion = 0, prompt = 0;
    for (int i = 0; i < 2000; ++i) {
      LogprobEntry one;
      one.token.token = entry();
      for (size_t j = 0; j < top; ++j) one.token.top.push_back(entry());
      one.text_offset = INT32_MAX;
      one.has_logprob = random() % 10 != 0;
      chat += sizes.Logprobs(one.token, LogprobForm::kChat);
      completion += sizes.Logprobs(one.token, LogprobForm::kCompletion);
      prompt += sizes.Logprobs(one.token, LogprobForm::kPrompt);
      entries.push_back(std::move(one));
    }
    constexpr size_t kAround = 80;
    EXPECT_GE(chat + kAround, ChatLogprobsJson(entries, bytes_of).size()) << top;
    EXPECT_GE(completion + kAround, CompletionLogprobsJson(entries, bytes_of).size()) << top;
    EXPECT_GE(prompt + kAround, PromptLogprobsJson(entries, bytes_of).size()) << top;
    EXPECT_LE(chat, 3 * ChatLogprobsJson(entries, bytes_of).size()) << top;
  }
}

TEST(ResponseBytes, PiecesAndVectorsStayWithinTheirBound) {
  std::mt19937_64 random(3);
  std::vector<std::string> vocab;
  for (int i = 0; i < 500; ++i) vocab.push_back(RandomBytes(random, 30));
  const TokenSizes sizes(500, [&](int32_t id) { return vocab[static_cast<size_t>(id)]; });
  std::vector<int32_t> ids;
  size_t bytes = 0;
  for (int32_t id = 0; id < 500; ++id) {
    ids.push_back(id);
    bytes += sizes.Piece(id);
  }
  EXPECT_GE(bytes + JsonIdBytes(ids) + 100, FormatTokens({.tokens = ids}, 1 << 20, vocab).size());
  for (const size_t dimensions : {1, 2, 3, 400}) {
    EmbeddingOutput output;
    for (int i = 0; i < 100; ++i) output.vectors.emplace_back(dimensions, -1.17549435e-38f);
    for (const bool base64 : {false, true}) {
      EXPECT_GE(100 * EmbeddingBytes(dimensions, base64) + 300,
                FormatEmbeddings({"m", "fp", base64, true}, output).size());
    }
  }
}

class AnswerLimitTest : public ::testing::Test {
 protected:
  AnswerLimitTest() { engine_.SetChatTemplate("{{ messages[0].content }}"); }

  HttpResponse Answer(const Json& body, int64_t limit) {
    const bool chat = body.contains("messages");
    const RequestLimits limits = {.max_answer_bytes = limit};
    const Preparer preparer(engine_, "m", limits);
    auto prepared = preparer.Prepare(chat, body.dump());
    if (!prepared.ok()) return ErrorResponse(prepared.status());
    boost::asio::io_context io;
    size_t unsent = 0;
    ResponseWriter writer(
        io, {}, {.max_unsent = SIZE_MAX / 2, .max_together = SIZE_MAX, .together = &unsent});
    TextMaker text_maker;
    Completion completion(
        engine_, writer, *std::move(prepared),
        ResponseHead{.chat = chat, .id = "id-1", .model = "m", .system_fingerprint = "fp"}, limits,
        preparer.token_sizes(), text_maker);
    if (const Status status = completion.Submit(); !status.ok()) return ErrorResponse(status);
    boost::asio::co_spawn(io, completion.Respond(), boost::asio::detached);
    while (!writer.finished()) io.run_one();
    const std::string sent = writer.TakeUnsent();
    return {.status = writer.status(), .body = sent.substr(sent.find("\r\n\r\n") + 4)};
  }

  // A limit of one byte less than the response refuses it, so the estimate is never too small. A
  // limit of a few times its length lets it through, so the estimate is not far too large either.
  void Check(const Json& body) {
    const HttpResponse answer = Answer(body, kMaxAnswerBytes);
    ASSERT_EQ(answer.status, 200) << answer.body;
    const auto bytes = static_cast<int64_t>(answer.body.size());
    const HttpResponse refused = Answer(body, bytes - 1);
    EXPECT_EQ(refused.status, 400) << body;
    const std::string message = Json::parse(refused.body)["error"].value("message", "");
    EXPECT_THAT(message, HasSubstr(std::to_string(bytes - 1)));
    EXPECT_THAT(message, HasSubstr("--max-answer-bytes"));
    EXPECT_EQ(Answer(body, 8 * bytes + 4096).status, 200) << body;
  }

  FakeEngine engine_;
};

TEST_F(AnswerLimitTest, IsNeverBelowWhatACompletionTakes) {
  std::mt19937_64 random(4);
  for (int i = 0; i < testing::Fewer(150); ++i) {
    const auto pick = [&](std::initializer_list<Json> values) {
      return *(values.begin() + random() % values.size());
    };
    Json prompts = Json::array();
    for (size_t p = 1 + random() % 3; p > 0; --p) {
      Json ids = Json::array();
      for (size_t n = 1 + random() % 400; n > 0; --n) ids.push_back(random() % 256);
      prompts.push_back(std::move(ids));
    }
    Check({{"prompt", prompts},
           {"n", pick({1, 2, 7})},
           {"max_tokens", pick({1, 5, 300})},
           {"echo", pick({true, false})},
           {"logprobs", pick({nullptr, 0, 2})},
           {"prompt_logprobs", pick({nullptr, 0, 2})},
           {"return_token_ids", pick({true, false})},
           {"timings", pick({true, false})}});
  }
}

TEST_F(AnswerLimitTest, IsNeverBelowWhatAnAnswerToAConversationTakes) {
  std::mt19937_64 random(5);
  for (int i = 0; i < testing::Fewer(100); ++i) {
    const auto pick = [&](std::initializer_list<Json> values) {
      return *(values.begin() + random() % values.size());
    };
    std::string text = "a";
    for (size_t n = random() % 400; n > 0; --n) {
      text += pick({"\"", "\\", "\n", "b", "\xC3\xA9"}).get<std::string>();
    }
    Json body = {{"messages", Json::array({{{"role", "user"}, {"content", text}}})},
                 {"n", pick({1, 2, 7})},
                 {"max_tokens", pick({1, 5, 300})},
                 {"prompt_logprobs", pick({nullptr, 0, 2})},
                 {"return_token_ids", pick({true, false})}};
    if (random() % 2 == 0) {
      body["logprobs"] = true;
      body["top_logprobs"] = pick({0, 2});
    }
    Check(body);
  }
}

// Echoes the prompt in each of 128 choices without generating, so no step of the engine limits it.
TEST_F(AnswerLimitTest, EchoesAreRefusedBeforeTheyRun) {
  Json body = {
      {"prompt", Json(std::vector<int>(4000, 'a'))}, {"echo", true}, {"n", 128}, {"max_tokens", 1}};
  for (const bool stream : {false, true}) {
    body["stream"] = stream;
    const HttpResponse refused = Answer(body, 500'000);
    EXPECT_EQ(refused.status, 400);
    const Json error = Json::parse(refused.body)["error"];
    EXPECT_EQ(error["param"], "echo");
    EXPECT_THAT(error["message"].get<std::string>(), HasSubstr("500000"));
  }
  EXPECT_EQ(engine_.submitted(), 0);
}

}  // namespace
}  // namespace tokamak
