#include "chat/chatml.h"

#include <gtest/gtest.h>

namespace tokamak {
namespace {

// As it stands in SmolLM2-135M-Instruct's GGUF.
constexpr char kSmolLm2[] =
    "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}"
    "{{ '<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging "
    "Face<|im_end|>\n' }}{% endif %}{{'<|im_start|>' + message['role'] + '\n' + "
    "message['content'] + '<|im_end|>' + '\n'}}{% endfor %}{% if add_generation_prompt %}"
    "{{ '<|im_start|>assistant\n' }}{% endif %}";

constexpr char kPlain[] =
    "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\\n' + "
    "message['content'] + '<|im_end|>' + '\\n'}}{% endfor %}{% if add_generation_prompt %}"
    "{{ '<|im_start|>assistant\\n' }}{% endif %}";

// The expected texts are those that Jinja renders from the templates above.
TEST(ChatMl, AddsTheDefaultSystemMessageOnlyWhenThereIsNone) {
  const Result<ChatMl> chat = ChatMl::FromTemplate(kSmolLm2);
  ASSERT_TRUE(chat.ok()) << chat.status().ToString();
  EXPECT_EQ(chat->Render({{"user", "Hi"}}, true),
            "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging "
            "Face<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n");
  EXPECT_EQ(chat->Render({{"system", "Be brief."}, {"user", "Hi"}}, true),
            "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n"
            "<|im_start|>assistant\n");
}

TEST(ChatMl, RendersEveryTurnAndNoGenerationPromptUnlessAsked) {
  const Result<ChatMl> chat = ChatMl::FromTemplate(kPlain);
  ASSERT_TRUE(chat.ok()) << chat.status().ToString();
  EXPECT_FALSE(chat->default_system().has_value());
  EXPECT_EQ(chat->Render({{"user", "a"}, {"assistant", "b\n"}, {"user", ""}}, false),
            "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\nb\n<|im_end|>\n"
            "<|im_start|>user\n<|im_end|>\n");
  EXPECT_EQ(chat->Render({}, true), "<|im_start|>assistant\n");
}

TEST(ChatMl, RefusesWhatIsNotThisFormatToTheLetter) {
  std::string trimmed = kPlain;  // a template that trims contents gives other text
  const std::string content = "message['content']";
  trimmed.replace(trimmed.find(content), content.size(), content + " | trim");
  std::string escaped = kSmolLm2;  // a quote inside the literal: needs a real parser
  escaped.replace(escaped.find("SmolLM"), 6, "Smol\\'LM");
  const std::string text = kSmolLm2;
  for (const std::string& bad : {std::string(), trimmed, escaped, text.substr(0, text.size() / 2),
                                 text + "x", "x" + text, std::string("{{ bos_token }}") + kPlain}) {
    const Result<ChatMl> chat = ChatMl::FromTemplate(bad);
    ASSERT_FALSE(chat.ok()) << bad;
    EXPECT_EQ(chat.status().code(), StatusCode::kUnimplemented);
  }
}

}  // namespace
}  // namespace tokamak
