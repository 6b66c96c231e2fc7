#include "chat/chat_template.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/file.h"
#include "base/testing/refs.h"
#include "base/testing/sanitizers.h"
#include "chat/json.h"

namespace tokamak {
namespace {

using jinja::Value;

const std::string kGoldens = std::string(TOKAMAK_SOURCE_DIR) + "/tests/golden/chat/";

Value ReadJson(const std::string& path) {
  Result<std::string> text = ReadWholeFile(path, 1 << 22);
  EXPECT_TRUE(text.ok()) << text.status().ToString();
  Result<Value> value = ParseJson(*text);
  EXPECT_TRUE(value.ok()) << path << ": " << value.status().ToString();
  return *value;
}

const Value* Find(const Value& dict, std::string_view key) { return dict.dict().Find(key); }

// Equals zlib's crc32.
std::string Crc32(std::string_view text) {
  uint32_t crc = ~uint32_t{0};
  for (const char c : text) {
    crc ^= static_cast<unsigned char>(c);
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0xEDB88320u : 0);
  }
  char hex[9];
  std::snprintf(hex, sizeof hex, "%08x", ~crc);
  return hex;
}

// The time at which the goldens were rendered.
std::tm GoldenTime() {
  std::tm time = {};
  time.tm_year = 126;
  time.tm_mon = 2;
  time.tm_mday = 4;
  time.tm_hour = 5;
  time.tm_min = 6;
  time.tm_sec = 7;
  time.tm_wday = 3;
  time.tm_yday = 62;
  return time;
}

ChatInput MakeInput(const Value& golden, bool prompt) {
  ChatInput input;
  if (const Value* messages = Find(golden, "messages")) input.messages = *messages;
  if (const Value* tools = Find(golden, "tools")) input.tools = *tools;
  if (const Value* variables = Find(golden, "variables")) {
    for (const auto& [key, value] : variables->dict().entries) {
      input.variables.emplace_back(key.text(), value);
    }
  }
  input.add_generation_prompt = prompt;
  input.now = GoldenTime();
  return input;
}

Result<std::string> Render(std::string_view source, const ChatInput& input) {
  Result<ChatTemplate> chat = ChatTemplate::Parse(source, "<s>", "</s>");
  return chat.ok() ? chat->Render(input) : chat.status();
}

// `mark` is what tests/golden/make_chat_goldens.py writes for a rendering.
void ExpectMark(const std::string& mark, const Result<std::string>& got, const std::string& what) {
  if (mark[0] != '!') {
    ASSERT_TRUE(got.ok()) << what << ": " << got.status().ToString();
    EXPECT_EQ(Crc32(*got), mark) << what << " gave:\n" << *got;
    return;
  }
  ASSERT_FALSE(got.ok()) << what << " should fail, gave:\n" << *got;
  EXPECT_EQ(got.status().code(), StatusCode::kInvalidArgument);
  if (mark == "!") return;
  EXPECT_EQ("!" + Crc32(got.status().message()), mark) << what;
}

TEST(ChatTemplate, RendersAllTemplatesAsTransformersDoes) {
  const auto folder = testing::FindRef("llama.cpp/models/templates");
  SKIP_WITHOUT(folder);
  const Value cases = ReadJson(kGoldens + "cases.json");
  std::ifstream rendered(kGoldens + "rendered.txt");
  std::string line;
  int templates = 0, texts = 0;
  while (std::getline(rendered, line)) {
    std::istringstream fields(line);
    std::string name, mark;
    fields >> name;
    const Result<std::string> source = ReadWholeFile(*folder + "/" + name, 1 << 22);
    ASSERT_TRUE(source.ok()) << source.status().ToString();
    ++templates;
    for (const Value& golden : cases.items()) {
      for (const bool prompt : {true, false}) {
        ASSERT_TRUE(fields >> mark);
        texts += mark[0] != '!';
        ExpectMark(mark, Render(*source, MakeInput(golden, prompt)),
                   name + ", " + std::string(Find(golden, "name")->text()) +
                       (prompt ? ", with prompt" : ", without prompt"));
      }
    }
  }
  EXPECT_EQ(templates, 70);
  EXPECT_GT(texts, 3000);  // the rest are refusals
}

TEST(ChatTemplate, InterpretsTheLanguageAsJinjaDoes) {
  const Value goldens = ReadJson(kGoldens + "language.json");
  ChatInput input = MakeInput(goldens, false);
  int fail = 0;
  for (const Value& golden : Find(goldens, "templates")->items()) {
    const std::string source(Find(golden, "template")->text());
    const Result<std::string> got = Render(source, input);
    if (const Value* text = Find(golden, "text")) {
      ASSERT_TRUE(got.ok()) << source << ": " << got.status().ToString();
      EXPECT_EQ(*got, text->text()) << source;
    } else {
      EXPECT_FALSE(got.ok()) << source << " should fail, gave: " << *got;
      ++fail;
    }
  }
  EXPECT_GT(fail, 50);
}

TEST(ChatTemplate, ErrorsNameTheLine) {
  const auto message = [](std::string_view source) {
    const Result<std::string> got = Render(source, {});
    EXPECT_FALSE(got.ok());
    return std::string(got.status().message());
  };
  EXPECT_EQ(message("\n\n{{ nope.x }}"), "line 3 of the chat template: 'nope' is undefined");
  EXPECT_EQ(message("a\n{{ {}.a.b }}"),
            "line 2 of the chat template: 'dict object' has no attribute 'a'");
  EXPECT_EQ(message("{% macro m() %}\n{{ 1 + 'a' }}{% endmacro %}\n\n{{ m() }}"),
            "line 2 of the chat template: unsupported operand types for +: 'int' and 'str'");
  EXPECT_EQ(message("{% if 1 %}\n{% nonsense %}"),
            "the model's chat template: line 2: unknown or unsupported tag 'nonsense'");
  EXPECT_EQ(message("\n{{ 'a }}"), "the model's chat template: line 2: a string does not end");
  EXPECT_EQ(message("{% if 1 %}"),
            "the model's chat template: line 1: the template ends before 'endif'");
  EXPECT_EQ(message("{{ raise_exception('Roles must alternate') }}"), "Roles must alternate");
  EXPECT_EQ(message("{{ [].append(1) }}"),
            "line 1 of the chat template: access to attribute 'append' of 'list' object is unsafe");
}

// Templates that would run forever or take all memory, one per line.
std::vector<std::string> Bombs() {
  const std::string path = std::string(TOKAMAK_SOURCE_DIR) + "/tests/templates/bombs.txt";
  const Result<std::string> text = ReadWholeFile(path, 1 << 20);
  EXPECT_TRUE(text.ok()) << text.status().ToString();
  std::vector<std::string> bombs;
  if (!text.ok()) return bombs;
  std::istringstream lines(*text);
  for (std::string line; std::getline(lines, line);) bombs.push_back(line);
  return bombs;
}

TEST(ChatTemplate, StopsTemplatesThatExceedALimit) {
  const std::vector<std::string> bombs = Bombs();
  EXPECT_GE(bombs.size(), 50u);
  for (const std::string& bomb : bombs) {
    const auto start = std::chrono::steady_clock::now();
    const Result<std::string> got = Render(bomb, {});
    const double seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    ASSERT_FALSE(got.ok()) << bomb << " gave " << got->size() << " bytes";
    EXPECT_EQ(got.status().code(), StatusCode::kInvalidArgument) << bomb;
    RecordProperty("seconds", std::to_string(seconds));
    if (std::getenv("TOKAMAK_TEST_TIMES") != nullptr) {
      std::printf("%6.1f ms  %s\n          %s\n", seconds * 1e3, bomb.c_str(),
                  std::string(got.status().message()).c_str());
    }
  }
}

TEST(ChatTemplate, LongSearchesAreWithinTheLimits) {
  const Result<std::string> got =
      Render("{% set a = 'x' * 8000000 %}{{ a.find('x' * 4000000 + 'y') }}", {});
  ASSERT_TRUE(got.ok()) << got.status().ToString();
  EXPECT_EQ(*got, "-1");
}

TEST(ChatTemplate, DeeplyNestedSourcesAreRefused) {
  for (const auto& [open, close] :
       std::vector<std::pair<std::string, std::string>>{{"(", ")"},
                                                        {"[", "]"},
                                                        {"not ", ""},
                                                        {"-", ""},
                                                        {"{1:", "}"},
                                                        {"f(", ")"},
                                                        {"1 if 1 else ", ""},
                                                        {"1 + ", ""},
                                                        {"a.b.", "c"},
                                                        {"1 ~ (", ")"},
                                                        {"x|e(", ")"}}) {
    std::string nested;
    for (int i = 0; i < 100000; ++i) nested += open;
    nested += "1";
    for (int i = 0; i < 100000; ++i) nested += close;
    EXPECT_FALSE(Render("{{ " + nested + " }}", {}).ok()) << open;
  }
  std::string blocks;
  for (int i = 0; i < 100000; ++i) blocks += "{% if 1 %}{% for x in [1] %}";
  EXPECT_FALSE(Render(blocks, {}).ok());
}

TEST(ChatTemplate, LongConversationsFitTheLimits) {
  // A context of 128k tokens is about half a megabyte. Some templates take time quadratic in the
  // number of messages.
  const auto folder = testing::FindRef("llama.cpp/models/templates");
  SKIP_WITHOUT(folder);
  std::vector<Value> messages;
  for (int i = 0; i < 300; ++i) {
    messages.push_back(MakeMessage(i % 2 == 0 ? "user" : "assistant",
                                   std::string(1700, static_cast<char>('a' + i % 26))));
  }
  messages.pop_back();
  ChatInput input;
  input.messages = Value::List(messages);
  int rendered = 0;
  for (const auto& entry : std::filesystem::directory_iterator(*folder)) {
    if (entry.path().extension() != ".jinja") continue;
    const Result<std::string> source = ReadWholeFile(entry.path(), 1 << 22);
    const Result<std::string> got = Render(*source, input);
    rendered += got.ok() ? 1 : 0;
    if (!got.ok() && got.status().message().find("was stopped") != std::string_view::npos) {
      ADD_FAILURE() << entry.path() << ": " << got.status().ToString();
    }
  }
  EXPECT_GT(rendered, 60);
}

// Renders the maximum number of messages of a request, 300 bytes each, with every template.
TEST(ChatTemplate, StepsAreLimitedInProportionToTheConversation) {
  const auto folder = testing::FindRef("llama.cpp/models/templates");
  SKIP_WITHOUT(folder);
  std::vector<Value> messages;
  for (int i = 0; i < testing::Fewer(4095); ++i) {
    messages.push_back(MakeMessage(i % 2 == 0 ? "user" : "assistant", std::string(300, 'a')));
  }
  ChatInput input;
  input.messages = Value::List(messages);
  for (const auto& entry : std::filesystem::directory_iterator(*folder)) {
    if (entry.path().extension() != ".jinja") continue;
    const auto start = std::chrono::steady_clock::now();
    const Result<std::string> got = Render(*ReadWholeFile(entry.path(), 1 << 22), input);
    const double seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    if (seconds > 0.3) std::printf("%6.1f ms  %s\n", seconds * 1e3, entry.path().c_str());
    if (!got.ok() && got.status().message().find("was stopped") != std::string_view::npos) {
      ADD_FAILURE() << entry.path() << ": " << got.status().ToString();
    }
  }
  // A small request is stopped soon, however many messages it has.
  const std::string counts =
      "{% set n = namespace(i=0) %}{% for a in range(99999) %}{% for b in range(99999) %}"
      "{% set n.i = n.i + 1 %}{% endfor %}{% endfor %}";
  for (const size_t count : {size_t{1}, size_t{1000}, size_t{4096}}) {
    ChatInput bomb;
    bomb.messages = Value::List(std::vector<Value>(count, MakeMessage("user", "")));
    const auto start = std::chrono::steady_clock::now();
    EXPECT_FALSE(Render(counts, bomb).ok());
    const double seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    std::printf("%6.1f ms  a bomb with %zu messages\n", seconds * 1e3, count);
  }
}

TEST(ParseJson, KeepsOrderIntegersAndTheLastOfEqualKeys) {
  const Result<Value> value = ParseJson(R"({"b": 18446744073709551616, "a": [1.0, 1], "b": 2})");
  ASSERT_TRUE(value.ok());
  ASSERT_EQ(value->dict().entries.size(), 2u);
  EXPECT_EQ(value->dict().entries[0].first.text(), "b");
  EXPECT_EQ(value->dict().entries[0].second.integer(), 2);
  EXPECT_TRUE(Find(*value, "a")->items()[0].is(jinja::Type::kFloat));
  EXPECT_TRUE(ParseJson("18446744073709551616")->is(jinja::Type::kBigInt));
  for (const char* bad : {"", "{", "[1,]", "{\"a\" 1}", "\"\\ud800\"", "nul", "1 2", "\"\xff\""}) {
    EXPECT_FALSE(ParseJson(bad).ok()) << bad;
  }
  EXPECT_FALSE(ParseJson(std::string(1000, '[') + std::string(1000, ']')).ok());
}

}  // namespace
}  // namespace tokamak
