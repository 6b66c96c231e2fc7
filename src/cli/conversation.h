// A conversation with a model: the messages so far and how they become a request.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "chat/chat_template.h"
#include "chat/prepare_messages.h"
#include "chat/tool_calls_format.h"
#include "tokamak/engine.h"

namespace tokamak::cli {

class Conversation {
 public:
  // Without a chat template that can be rendered, each message is text to complete; `note()` says
  // so then.
  Conversation(const ModelInfo& model, std::string system);

  bool chat() const { return template_.has_value(); }
  const std::string& note() const { return note_; }

  void SetSystem(std::string system);
  void AddUser(std::string text) { messages_.push_back({"user", std::move(text)}); }
  // The answer to the last request. Its reasoning is left out: no later request has it.
  void AddAnswer(std::string_view text);
  // Takes the last message away; false when there is none.
  bool DropLast();
  void Clear();
  size_t size() const { return messages_.size(); }

  // The request for the next answer. kInvalidArgument when the template refuses the messages.
  Result<Request> MakeRequest(const SamplingParams& sampling);

  // How the model marks its reasoning.
  const ReasoningFormat& reasoning() const { return *reasoning_; }

 private:
  struct Message {
    std::string role, content;
  };

  std::optional<ChatTemplate> template_;
  TemplateTraits traits_;
  const ReasoningFormat* reasoning_;
  bool in_reasoning_ = false;  // the last request's prompt has opened it
  std::string note_;
  std::string system_;
  std::vector<Message> messages_;
};

}  // namespace tokamak::cli
