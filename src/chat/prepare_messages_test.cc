#include "chat/prepare_messages.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/file.h"
#include "base/testing/refs.h"
#include "chat/json.h"

namespace tokamak {
namespace {

using jinja::Value;

TemplateTraits Probe(std::string_view source) {
  const Result<ChatTemplate> chat = ChatTemplate::Parse(source, "", "");
  EXPECT_TRUE(chat.ok()) << chat.status().ToString();
  return ProbeTemplate(*chat);
}

constexpr char kLoop[] =
    "{% for m in messages %}{{ m.role }}:{% if m.content %}{{ m.content }}"
    "{% endif %}{% for c in m.tool_calls or [] %}";
constexpr char kEnd[] = "{% endfor %};{% endfor %}";

TEST(PrepareMessages, GivesArgumentsAsTheTemplateWritesThem) {
  const std::string encodes = std::string(kLoop) + "{{ c.function.arguments|tojson }}" + kEnd;
  EXPECT_TRUE(Probe(encodes).arguments_as_object);
  const std::string prints = std::string(kLoop) + "{{ c.function.arguments }}" + kEnd;
  EXPECT_FALSE(Probe(prints).arguments_as_object);
  const std::string walks = std::string(kLoop) +
                            "{% for k, v in c.function.arguments.items() %}{{ k }}={{ v }}"
                            "{% endfor %}" +
                            kEnd;
  EXPECT_TRUE(Probe(walks).arguments_as_object);
}

TEST(PrepareMessages, KeepsNullContentOnlyWhereTemplatesAllowIt) {
  EXPECT_TRUE(Probe(std::string(kLoop) + "{{ c.function.arguments|tojson }}" + kEnd).null_content);
  // These print "None", fail, and show calls only beside null.
  EXPECT_FALSE(Probe("{% for m in messages %}{{ m.content }}{% for c in m.tool_calls or [] %}"
                     "{{ c.function.arguments|tojson }}{% endfor %}{% endfor %}")
                   .null_content);
  EXPECT_FALSE(Probe("{% for m in messages %}{{ m.content|trim + 'x' + m.content }}"
                     "{% for c in m.tool_calls or [] %}{{ c.function.arguments|tojson }}"
                     "{% endfor %}{% endfor %}")
                   .null_content);
  EXPECT_TRUE(Probe("{% for m in messages %}{% if m.content is none %}{% for c in m.tool_calls %}"
                    "{{ c.function.arguments|tojson }}{% endfor %}{% else %}{{ m.content }}"
                    "{% endif %}{% endfor %}")
                  .null_content);
}

TEST(PrepareMessages, GivesContentPartsToTemplatesThatNeedThem) {
  EXPECT_TRUE(Probe("{% for m in messages %}{% for p in m.content %}{{ p.text }}{% endfor %}"
                    "{% endfor %}")
                  .content_as_parts);
  EXPECT_FALSE(Probe("{% for m in messages %}{{ m.content }}{% endfor %}").content_as_parts);
}

TEST(PrepareMessages, RendersImagesAsTransformersDoes) {
  const Value goldens =
      *ParseJson(*ReadWholeFile(TOKAMAK_SOURCE_DIR "/tests/golden/chat/images.json", 1 << 20));
  const std::vector<Value>& conversations = goldens.dict().Find("conversations")->items();
  for (const Value& model : goldens.dict().Find("models")->items()) {
    const auto field = [&](std::string_view name) { return *model.dict().Find(name); };
    const Result<ChatTemplate> chat = ChatTemplate::Parse(field("template").text(), "<s>", "</s>");
    ASSERT_TRUE(chat.ok()) << chat.status().ToString();
    const TemplateTraits traits = ProbeTemplate(*chat, field("placeholder").text());
    EXPECT_TRUE(traits.image_parts) << field("model").text();
    for (size_t i = 0; i < conversations.size(); ++i) {
      ChatInput input;
      input.messages = PrepareMessages(conversations[i], traits);
      const Result<std::string> text = chat->Render(input);
      ASSERT_TRUE(text.ok()) << text.status().ToString();
      EXPECT_EQ(*text, field("texts").items()[i].text()) << field("model").text();
    }
  }
}

TEST(PrepareMessages, TemplatesThatTakeTextGetAPlaceholderPerImage) {
  const char* kSources[] = {
      "{% for m in messages %}{{ m.content }}{% endfor %}",
      "{% for m in messages %}{% for p in m.content %}{{ p.text }}{% endfor %}{% endfor %}",
  };
  for (const char* source : kSources) {
    const Result<ChatTemplate> chat = ChatTemplate::Parse(source, "", "");
    const TemplateTraits traits = ProbeTemplate(*chat, "<image>");
    EXPECT_FALSE(traits.image_parts);
    const auto render = [&](const char* parts) {
      ChatInput input;
      input.messages = PrepareMessages(
          *ParseJson(std::string(R"([{"role": "user", "content": )") + parts + "}]"), traits);
      return *chat->Render(input);
    };
    EXPECT_EQ(render(R"([{"type": "image_url"}, {"type": "text", "text": "a"}])"), "<image>\na");
    EXPECT_EQ(render(R"([{"type": "text", "text": "a"}, {"type": "image"}])"), "a\n<image>");
    EXPECT_EQ(render(R"([{"type": "image"}, {"type": "image"}, {"type": "text", "text": ""}])"),
              "<image>\n<image>");
    EXPECT_EQ(render(R"([{"type": "text", "text": "a"}, {"type": "image"},
                         {"type": "text", "text": "b"}, {"type": "text", "text": "c"}])"),
              "a\n<image>\nbc");
    EXPECT_EQ(render(R"([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}])"), "ab");
  }
}

TEST(PrepareMessages, KeepsArgumentsThatAreNotJsonObjects) {
  const Value messages = *ParseJson(R"([{"role": "assistant", "tool_calls": [
    {"function": {"name": "a", "arguments": "{\"x\": 1}"}}, {"function": {"arguments": "[1]"}},
    {"function": {"arguments": "no json"}}, {"function": {"arguments": ""}}, 5, {}]},
    {"role": "assistant", "content": null}, {"role": "user"}, "text"])");
  const Value prepared = PrepareMessages(messages, {.arguments_as_object = true});
  const Result<ChatTemplate> chat =
      ChatTemplate::Parse("{% for m in v %}{{ m }}\n{% endfor %}", "", "");
  ChatInput input;
  input.variables.emplace_back("v", prepared);
  EXPECT_EQ(*chat->Render(input),
            "{'role': 'assistant', 'tool_calls': [{'function': {'name': 'a', 'arguments': {'x': "
            "1}}}, {'function': {'arguments': '[1]'}}, {'function': {'arguments': 'no json'}}, "
            "{'function': {'arguments': {}}}, 5, {}], 'content': ''}\n"
            "{'role': 'assistant', 'content': ''}\n{'role': 'user'}\ntext\n");
}

// Every template that shows tool calls encodes these once and prints no "None".
TEST(PrepareMessages, WorksForAllTemplates) {
  const auto folder = testing::FindRef("llama.cpp/models/templates");
  SKIP_WITHOUT(folder);
  const Value messages = *ParseJson(R"([{"role": "user", "content": "Q"},
    {"role": "assistant", "content": null, "tool_calls": [{"id": "abcdefghi", "type": "function",
     "function": {"name": "tool_name", "arguments": "{\"key_one\": \"value \\\"one\\\"\"}"}}]},
    {"role": "tool", "tool_call_id": "abcdefghi", "name": "tool_name", "content": "R"}])");
  int shown = 0;
  for (const auto& entry : std::filesystem::directory_iterator(*folder)) {
    if (entry.path().extension() != ".jinja") continue;
    const Result<std::string> source = ReadWholeFile(entry.path(), 1 << 22);
    const Result<ChatTemplate> chat = ChatTemplate::Parse(*source, "<s>", "</s>");
    ASSERT_TRUE(chat.ok()) << entry.path() << chat.status().ToString();
    ChatInput input;
    input.messages = PrepareMessages(messages, ProbeTemplate(*chat));
    const Result<std::string> got = chat->Render(input);
    if (!got.ok() || got->find("key_one") == std::string::npos) continue;
    ++shown;
    EXPECT_EQ(got->find("\\\"key_one"), std::string::npos) << entry.path() << "\n" << *got;
    EXPECT_EQ(got->find("'key_one'"), std::string::npos) << entry.path() << "\n" << *got;
    EXPECT_EQ(got->find("None"), std::string::npos) << entry.path() << "\n" << *got;
  }
  EXPECT_GT(shown, 45);
}

}  // namespace
}  // namespace tokamak
