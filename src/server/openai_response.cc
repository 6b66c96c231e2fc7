#include "server/openai_response.h"

#include <nlohmann/json.hpp>

namespace tokamak {
namespace {

using Json = nlohmann::ordered_json;

std::string Dump(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string Event(const Json& json) { return "data: " + Dump(json) + "\n\n"; }

template <typename T>
Json OrNull(const std::optional<T>& value) {
  return value ? Json(*value) : Json(nullptr);
}

Json BytesOf(const TokenText& token) {
  Json bytes = Json::array();
  for (const char c : token.bytes) bytes.push_back(static_cast<uint8_t>(c));
  return bytes;
}

Json ChatLogprobs(const std::vector<LogprobEntry>& entries) {
  Json content = Json::array();
  for (const LogprobEntry& entry : entries) {
    Json top = Json::array();
    for (const auto& [token, logprob] : entry.top) {
      top.push_back({{"token", token.text}, {"logprob", logprob}, {"bytes", BytesOf(token)}});
    }
    content.push_back({{"token", entry.token.text},
                       {"logprob", OrNull(entry.logprob)},
                       {"bytes", BytesOf(entry.token)},
                       {"top_logprobs", std::move(top)}});
  }
  return {{"content", std::move(content)}, {"refusal", nullptr}};
}

Json TopByText(const LogprobEntry& entry) {
  Json top = Json::object();
  for (const auto& [token, logprob] : entry.top) {
    if (!top.contains(token.text)) top[token.text] = logprob;  // the best of equal spellings
  }
  return top;
}

Json CompletionLogprobs(const std::vector<LogprobEntry>& entries) {
  Json tokens = Json::array(), logprobs = Json::array(), tops = Json::array(),
       offsets = Json::array();
  for (const LogprobEntry& entry : entries) {
    tokens.push_back(entry.token.text);
    logprobs.push_back(OrNull(entry.logprob));
    tops.push_back(entry.logprob ? TopByText(entry) : Json(nullptr));
    offsets.push_back(entry.text_offset);
  }
  return {{"tokens", std::move(tokens)},
          {"token_logprobs", std::move(logprobs)},
          {"top_logprobs", std::move(tops)},
          {"text_offset", std::move(offsets)}};
}

Json PromptLogprobs(const std::vector<LogprobEntry>& entries) {
  Json list = Json::array();
  for (const LogprobEntry& entry : entries) {
    if (!entry.logprob) {
      list.push_back(nullptr);
      continue;
    }
    list.push_back({{"token", entry.token.text},
                    {"logprob", *entry.logprob},
                    {"top_logprobs", TopByText(entry)}});
  }
  return list;
}

Json UsageJson(const Usage& usage) {
  return {{"prompt_tokens", usage.prompt_tokens},
          {"completion_tokens", usage.completion_tokens},
          {"total_tokens", usage.prompt_tokens + usage.completion_tokens},
          {"prompt_tokens_details", {{"cached_tokens", usage.cached_tokens}}}};
}

Json HeadJson(const ResponseHead& head, bool chunk) {
  const char* object = !head.chat ? "text_completion"
                       : chunk    ? "chat.completion.chunk"
                                  : "chat.completion";
  return {{"id", head.id},
          {"object", object},
          {"created", head.created},
          {"model", head.model},
          {"system_fingerprint", head.system_fingerprint},
          {"seed", head.seed}};
}

Json ChoiceJson(const ResponseHead& head, const ChoicePart& part, bool chunk) {
  Json choice = {{"index", part.index}};
  if (!head.chat) {
    choice["text"] = part.text;
  } else if (!chunk) {
    choice["message"] = {{"role", "assistant"}, {"content", part.text}, {"refusal", nullptr}};
  } else {
    Json delta = Json::object();
    if (part.first) delta["role"] = "assistant";
    if (part.first || !part.text.empty()) delta["content"] = part.text;
    choice["delta"] = std::move(delta);
  }
  choice["logprobs"] = !part.with_logprobs ? Json(nullptr)
                       : head.chat         ? ChatLogprobs(part.logprobs)
                                           : CompletionLogprobs(part.logprobs);
  choice["finish_reason"] = OrNull(part.finish_reason);
  if (part.prompt_logprobs) choice["prompt_logprobs"] = PromptLogprobs(*part.prompt_logprobs);
  if (part.token_ids) choice["token_ids"] = *part.token_ids;
  return choice;
}

}  // namespace

std::string FormatResponse(const ResponseHead& head, const std::vector<ChoicePart>& choices,
                           const Usage& usage) {
  Json json = HeadJson(head, false);
  Json list = Json::array();
  for (const ChoicePart& part : choices) list.push_back(ChoiceJson(head, part, false));
  json["choices"] = std::move(list);
  json["usage"] = UsageJson(usage);
  return Dump(json);
}

std::string FormatChunk(const ResponseHead& head, const ChoicePart& part, bool null_usage) {
  Json json = HeadJson(head, true);
  json["choices"] = Json::array({ChoiceJson(head, part, true)});
  if (null_usage) json["usage"] = nullptr;
  return Event(json);
}

std::string FormatUsageChunk(const ResponseHead& head, const Usage& usage) {
  Json json = HeadJson(head, true);
  json["choices"] = Json::array();
  json["usage"] = UsageJson(usage);
  return Event(json);
}

std::string FormatErrorEvent(std::string_view error_json) {
  return "data: " + std::string(error_json) + "\n\n";
}

std::string FormatError(std::string_view type, std::string_view message, std::string_view param,
                        std::string_view code) {
  const auto or_null = [](std::string_view text) {
    return text.empty() ? Json(nullptr) : Json(text);
  };
  return Dump({{"error",
                {{"message", message},
                 {"type", type},
                 {"param", or_null(param)},
                 {"code", or_null(code)}}}});
}

std::string FormatModels(const std::string& id, int64_t created, const ModelInfo& model) {
  return Dump({{"object", "list"},
               {"data", Json::array({{{"id", id},
                                      {"object", "model"},
                                      {"created", created},
                                      {"owned_by", "tokamak"},
                                      {"architecture", model.architecture},
                                      {"max_model_len", model.max_context}}})}});
}

std::string FormatHealth(std::string_view status, std::string_view error, size_t preparing,
                         const EngineStats& stats, const ModelInfo& model) {
  Json health = {{"status", status},
                 {"model", model.name},
                 {"preparing", preparing},
                 {"running", stats.running},
                 {"waiting", stats.waiting},
                 {"total_blocks", stats.total_blocks},
                 {"used_blocks", stats.used_blocks},
                 {"cached_blocks", stats.cached_blocks},
                 {"steps", stats.steps},
                 {"prompt_tokens", stats.prompt_tokens},
                 {"generated_tokens", stats.generated_tokens},
                 {"cached_prompt_tokens", stats.cached_prompt_tokens},
                 {"preemptions", stats.preemptions},
                 {"seconds_since_progress", stats.seconds_since_progress}};
  if (!error.empty()) health["error"] = error;
  return Dump(health);
}

}  // namespace tokamak
