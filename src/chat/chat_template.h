// A model's chat template: from a conversation to the text that the model was trained on.
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

// The variables of a template. The values belong to one thread at a time.
struct ChatInput {
  jinja::Value messages = jinja::Value::List({});  // a list of dictionaries
  jinja::Value tools = jinja::Value::None();       // a list of JSON schemas, or None
  std::vector<std::pair<std::string, jinja::Value>> variables = {};  // more, by name
  bool add_generation_prompt = true;  // end where the assistant's answer begins
  std::optional<std::tm> now = {};    // for strftime_now; absent: the local time
};

// A message as a template sees it.
jinja::Value MakeMessage(std::string_view role, std::string_view content);

// A message's reasoning, by whichever of the names that it comes by; null when it has none.
const jinja::Value* FindReasoning(const jinja::Value& message);

// Jinja as transformers sets it up for chat templates, and with its variables: `messages`, `tools`,
// `documents`, `add_generation_prompt`, `bos_token`, `eos_token`. A message's reasoning is there as
// `reasoning_content` and as `thinking`, whichever name it came by. Immutable, and safe to use from
// any number of threads.
class ChatTemplate {
 public:
  // kUnimplemented when the source is empty: the model was not made for chat. kInvalidArgument with
  // the line where it is not a template. Empty tokens are not defined for it.
  static Result<ChatTemplate> Parse(std::string_view source, std::string bos_token,
                                    std::string eos_token);

  // Special tokens are spelled out: tokenize with parse_special. kInvalidArgument for what the
  // template refuses, errors in it, and renderings that go beyond jinja::Limits; of steps, inputs
  // of more than 64 KiB may take more in proportion, up to 20 times as many.
  Result<std::string> Render(const ChatInput& input) const;

 private:
  ChatTemplate() = default;

  std::shared_ptr<const jinja::Program> program_;
  std::string bos_token_, eos_token_;
};

}  // namespace tokamak
