#include "cli/conversation.h"

#include <memory>

#include "base/error.h"
#include "chat/harmony.h"
#include "chat/json.h"
#include "chat/tool_calls.h"

namespace tokamak::cli {

Conversation::Conversation(const ModelInfo& model, std::string system)
    : reasoning_(DetectReasoningFormat(model.chat_template)),
      reasons_(reasoning_ != nullptr),
      system_(std::move(system)) {
  // The default is harmless: marks count only at the start of an answer.
  if (reasoning_ == nullptr) reasoning_ = &ReasoningFormats().front();
  Result<ChatTemplate> chat =
      ChatTemplate::Parse(model.chat_template, model.bos_token, model.eos_token);
  if (chat.ok()) {
    traits_ = ProbeTemplate(*chat, model.images ? model.images->placeholder : "");
    template_ = *std::move(chat);
  } else {
    note_ = std::string(chat.status().message());
  }
}

void Conversation::SetSystem(std::string system) {
  system_ = std::move(system);
  messages_.clear();
}

bool Conversation::DropLast() {
  if (messages_.empty()) return false;
  messages_.pop_back();
  return true;
}

void Conversation::AddAnswer(std::string_view text) {
  auto format = std::make_shared<AnswerFormat>();
  format->reasoning = reasoning_;
  format->in_reasoning = in_reasoning_;
  AnswerParser parser(std::move(format));
  std::string content = parser.Append(text).content;
  content += parser.Finish().content;
  messages_.push_back({.role = "assistant", .content = std::move(content)});
}

void Conversation::Clear() { messages_.clear(); }

jinja::Value Conversation::ForTemplate(const Message& message) {
  if (message.images.empty()) return MakeMessage(message.role, message.content);
  JsonValue json;
  json.Set("role", message.role);
  json.Set("content", JsonValue::Array());
  JsonValue& parts = *json.Find("content");
  for (size_t i = 0; i < message.images.size(); ++i) {
    parts.Append(JsonValue::Object{{"type", "image"}});
  }
  parts.Append(JsonValue::Object{{"type", "text"}, {"text", message.content}});
  return ToTemplateValue(json);
}

Result<Request> Conversation::MakeRequest(const SamplingParams& sampling) {
  Request request;
  request.sampling = sampling;
  request.parse_special_tokens = true;
  for (const Message& message : messages_) {
    request.images.insert(request.images.end(), message.images.begin(), message.images.end());
  }
  if (!template_) {
    request.prompt = messages_.empty() ? std::string() : messages_.back().content;
    return request;
  }
  std::vector<jinja::Value> messages;
  if (!system_.empty()) messages.push_back(MakeMessage("system", system_));
  for (const Message& message : messages_) {
    messages.push_back(ForTemplate(message));
  }
  ChatInput input;
  input.messages = PrepareMessages(jinja::Value::List(std::move(messages)), traits_);
  ASSIGN_OR_RETURN(request.prompt, template_->Render(input));
  in_reasoning_ = OpensReasoning(*request.prompt, reasoning_);
  if (std::optional<StructuredOutput>& output = request.sampling.structured_output;
      output && reasons_) {
    if (reasoning_->harmony) {
      output->messages = HarmonyMessages(*request.prompt, /*commentary=*/false);
    } else {
      output->reasoning = FreeReasoning(*request.prompt, reasoning_);
    }
  }
  if (reasons_) BoundThinking(*reasoning_, in_reasoning_, request.sampling);
  request.add_special_tokens = false;  // the template spells them
  return request;
}

}  // namespace tokamak::cli
