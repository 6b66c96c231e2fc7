// A conversation with a model: the messages so far and how they become a request.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "chat/chatml.h"
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
  void AddAssistant(std::string text) { messages_.push_back({"assistant", std::move(text)}); }
  // Takes the last message away; false when there is none.
  bool DropLast();
  void Clear();
  size_t size() const { return messages_.size(); }

  // The request for the next answer.
  Request MakeRequest(const SamplingParams& sampling) const;

 private:
  std::optional<ChatMl> template_;
  std::string note_;
  std::string system_;
  std::vector<ChatMessage> messages_;
};

}  // namespace tokamak::cli
