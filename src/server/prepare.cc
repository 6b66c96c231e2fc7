#include "server/prepare.h"

#include <random>
#include <utility>

#include "base/error.h"
#include "base/log.h"

namespace tokamak {
namespace {

Result<ChatTemplate> ParseChatTemplate(const ModelInfo& model) {
  Result<ChatTemplate> chat =
      ChatTemplate::Parse(model.chat_template, model.bos_token, model.eos_token);
  if (!chat.ok() && !model.chat_template.empty()) {
    LogWarning("chat will be refused: {}", chat.status().message());
  }
  return chat;
}

// Exact as a JSON number.
uint64_t RandomSeed() {
  std::random_device device;
  return ((uint64_t{device()} << 32) | device()) >> 11;
}

}  // namespace

Preparer::Preparer(const Engine& engine, std::string model_id)
    : engine_(engine),
      model_id_(std::move(model_id)),
      chat_(ParseChatTemplate(engine.model())),
      traits_(chat_.ok() ? ProbeTemplate(*chat_) : TemplateTraits()) {}

Result<PreparedCall> Preparer::Prepare(bool chat, std::string body) const {
  PreparedCall prepared;
  CompletionCall& call = prepared.call;
  ASSIGN_OR_RETURN(call, chat ? ParseChatCall(body) : ParseCompletionCall(body));
  body = std::string();
  if (!call.model.empty() && call.model != model_id_) {
    return NotFound("model: this server has \"{}\" and no other", model_id_);
  }
  RETURN_IF_ERROR(Validate(call.sampling, engine_.model().vocab_size));
  if (!call.sampling.seed) call.sampling.seed = RandomSeed();  // one for all prompts of the call
  ASSIGN_OR_RETURN(prepared.prompts, Tokenize(call));
  return prepared;
}

Result<std::string> Preparer::Render(ChatInput conversation) const {
  if (!chat_.ok()) return chat_.status();
  conversation.messages = PrepareMessages(conversation.messages, traits_);
  Result<std::string> text = chat_->Render(conversation);
  // What the template says is about them: that roles must alternate, or tools are not for it.
  return text.ok() ? std::move(text) : text.status().WithContext("messages");
}

Result<std::vector<std::vector<int32_t>>> Preparer::Tokenize(CompletionCall& call) const {
  std::vector<std::vector<int32_t>> prompts;
  if (call.chat) {
    ASSIGN_OR_RETURN(const std::string text, Render(std::exchange(call.conversation, {})));
    // Template text spells its special tokens, and carries the begin-of-text token if it wants one.
    ASSIGN_OR_RETURN(auto ids, engine_.Tokenize(text, /*add_special=*/false, true));
    prompts.push_back(std::move(ids));
  }
  for (size_t i = 0; i < call.prompts.size(); ++i) {
    const PromptInput& prompt = call.prompts[i];
    std::vector<int32_t> ids;
    if (const auto* text = std::get_if<std::string>(&prompt)) {
      ASSIGN_OR_RETURN(ids, engine_.Tokenize(*text, call.add_special_tokens, true));
    } else {
      ids = std::get<std::vector<int32_t>>(prompt);
    }
    const std::string path =
        call.prompts.size() == 1 ? std::string("prompt") : fmt::format("prompt[{}]", i);
    if (ids.empty()) return InvalidArgument("{}: must hold at least one token", path);
    for (const int32_t id : ids) {
      if (id < 0 || id >= engine_.model().vocab_size) {
        return InvalidArgument("{}: token id {} is outside [0, {})", path, id,
                               engine_.model().vocab_size);
      }
    }
    prompts.push_back(std::move(ids));
  }
  return prompts;
}

}  // namespace tokamak
