// ChatML: the chat format of SmolLM2 and of many models that followed OpenAI's first one.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tokamak/status.h"

namespace tokamak {

struct ChatMessage {
  std::string role;     // "system", "user", "assistant", "tool"
  std::string content;  // text

  friend bool operator==(const ChatMessage&, const ChatMessage&) = default;
};

// Renders conversations for models whose chat template is plain ChatML: each message as
// "<|im_start|>role\ncontent<|im_end|>\n", with an optional system message for conversations that
// start without one. Immutable.
class ChatMl {
 public:
  // Recognizes the Jinja source of a checkpoint. kUnimplemented for every template that is not this
  // format to the letter: a near miss would give the model text that it was not trained on.
  static Result<ChatMl> FromTemplate(std::string_view jinja);

  // The text of a conversation. With `add_generation_prompt` it ends where the assistant's answer
  // begins. Special tokens are spelled out: tokenize with parse_special.
  std::string Render(const std::vector<ChatMessage>& messages, bool add_generation_prompt) const;

  // The content of the system message used when the conversation brings none.
  const std::optional<std::string>& default_system() const { return default_system_; }

 private:
  explicit ChatMl(std::optional<std::string> default_system)
      : default_system_(std::move(default_system)) {}

  std::optional<std::string> default_system_;
};

}  // namespace tokamak
