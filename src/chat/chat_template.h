// A model's chat template: renders a conversation as the text that the model was trained on.
#pragma once

#include <ctime>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "chat/jinja/value.h"
#include "tokamak/status.h"

namespace tokamak {

namespace jinja {
struct Program;
}

// The variables of a template. The values may be used by one thread at a time.
struct ChatInput {
  jinja::Value messages = jinja::Value::List({});  // a list of dictionaries
  jinja::Value tools = jinja::Value::None();       // a list of JSON schemas, or None
  std::vector<std::pair<std::string, jinja::Value>> variables = {};  // further variables, by name
  bool add_generation_prompt = true;  // ends with the start of an assistant's answer
  std::optional<std::tm> now = {};    // for strftime_now; absent: local time
};

// Makes a message in the form that templates expect.
jinja::Value MakeMessage(std::string_view role, std::string_view content);

// Returns a message's reasoning, under whichever of its names it has; null if it has none.
const jinja::Value* FindReasoning(const jinja::Value& message);

// Renders as transformers does: Jinja with its settings and its variables `messages`, `tools`,
// `documents`, `add_generation_prompt`, `bos_token` and `eos_token`. A message's reasoning is
// available as `reasoning_content` and as `thinking`, whichever name it had. Immutable and
// thread-safe.
class ChatTemplate {
 public:
  // kUnimplemented if the source is empty: the model was not made for chat. kInvalidArgument, with
  // the line, if it is not a valid template. Empty tokens stay undefined.
  static Result<ChatTemplate> Parse(std::string_view source, std::string bos_token,
                                    std::string eos_token);

  // Special tokens are spelled out: tokenize with parse_special. kInvalidArgument if the template
  // refuses the input, has an error or exceeds jinja::Limits. For inputs of more than 42 KiB the
  // step limit grows in proportion, up to 30 times.
  Result<std::string> Render(const ChatInput& input) const;

 private:
  ChatTemplate() = default;

  std::shared_ptr<const jinja::Program> program_;
  std::string bos_token_, eos_token_;
};

}  // namespace tokamak
