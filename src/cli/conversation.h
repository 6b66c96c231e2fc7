// A conversation with a model: the messages so far, and requests made of them.
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
  // If the model has no chat template that can be rendered, each message is text to complete, and
  // note() says so.
  Conversation(const ModelInfo& model, std::string system);

  bool chat() const { return template_.has_value(); }
  const std::string& note() const { return note_; }

  void SetSystem(std::string system);
  // The images come before the text.
  void AddUser(std::string text, std::vector<ImageData> images = {}) {
    messages_.push_back({"user", std::move(text), std::move(images)});
  }
  // Adds the answer to the last request without its reasoning, which later requests do not repeat.
  void AddAnswer(std::string_view text);
  // Removes the last message; false if there is none.
  bool DropLast();
  void Clear();
  size_t size() const { return messages_.size(); }

  // Makes the request for the next answer. kInvalidArgument if the template refuses the messages.
  Result<Request> MakeRequest(const SamplingParams& sampling);

  // How the model marks its reasoning.
  const ReasoningFormat& reasoning() const { return *reasoning_; }

 private:
  struct Message {
    std::string role, content;
    std::vector<ImageData> images = {};
  };
  static jinja::Value ForTemplate(const Message& message);

  std::optional<ChatTemplate> template_;
  TemplateTraits traits_;
  const ReasoningFormat* reasoning_;  // never null
  const bool reasons_;                // the template has a format of reasoning
  bool in_reasoning_ = false;         // the last request's prompt ends inside the reasoning
  std::string note_;
  std::string system_;
  std::vector<Message> messages_;
};

}  // namespace tokamak::cli
