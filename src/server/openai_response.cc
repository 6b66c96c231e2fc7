#include "server/openai_response.h"

#include <cmath>
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

Json Milliseconds(double seconds) { return std::round(seconds * 1e6) / 1e3; }

void AddTimings(const ResponseTail& tail, Json& json) {
  if (!tail.timings) return;
  json["timings"] = {{"queued_ms", Milliseconds(tail.timings->queued_seconds)},
                     {"prefill_ms", Milliseconds(tail.timings->prefill_seconds)},
                     {"decode_ms", Milliseconds(tail.timings->decode_seconds)},
                     {"preemptions", tail.timings->preemptions},
                     {"steps", tail.timings->steps},
                     {"cached_tokens", tail.usage.cached_tokens}};
}

Json ToolCallsJson(const std::vector<ToolCallPart>& calls, bool chunk) {
  Json list = Json::array();
  for (const ToolCallPart& call : calls) {
    Json json = Json::object();
    if (chunk) json["index"] = call.index;
    json["id"] = call.id;
    json["type"] = "function";
    json["function"] = {{"name", call.name}, {"arguments", call.arguments}};
    list.push_back(std::move(json));
  }
  return list;
}

Json MessageJson(const ChoicePart& part) {
  Json message = {{"role", "assistant"}, {"content", part.text}, {"refusal", nullptr}};
  if (!part.tool_calls.empty()) {
    if (part.text.empty()) message["content"] = nullptr;
    message["tool_calls"] = ToolCallsJson(part.tool_calls, false);
  }
  if (!part.reasoning.empty()) message["reasoning_content"] = part.reasoning;
  return message;
}

Json DeltaJson(const ChoicePart& part) {
  Json delta = Json::object();
  const bool only_text = part.tool_calls.empty() && part.reasoning.empty();
  if (part.first) delta["role"] = "assistant";
  if ((part.first && only_text) || !part.text.empty()) delta["content"] = part.text;
  if (!part.reasoning.empty()) delta["reasoning_content"] = part.reasoning;
  if (!part.tool_calls.empty()) delta["tool_calls"] = ToolCallsJson(part.tool_calls, true);
  return delta;
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
    choice["message"] = MessageJson(part);
  } else {
    choice["delta"] = DeltaJson(part);
  }
  choice["logprobs"] = !part.with_logprobs ? Json(nullptr)
                       : head.chat         ? ChatLogprobs(part.logprobs)
                                           : CompletionLogprobs(part.logprobs);
  choice["finish_reason"] = OrNull(part.finish_reason);
  if (part.prompt_logprobs) choice["prompt_logprobs"] = PromptLogprobs(*part.prompt_logprobs);
  if (part.token_ids) choice["token_ids"] = *part.token_ids;
  return choice;
}

Json ModelJson(const std::string& id, int64_t created, const ModelInfo& model) {
  Json entry = {{"id", id},
                {"object", "model"},
                {"created", created},
                {"owned_by", "tokamak"},
                {"architecture", model.architecture},
                {"max_model_len", model.max_context}};
  entry["task"] = model.task == Task::kEmbed ? "embed" : "generate";
  if (model.task == Task::kEmbed) {
    const EmbeddingInfo& embedding = model.embedding;
    entry["embedding"] = {{"dimensions", embedding.dimensions},
                          {"pooling", embedding.pooling},
                          {"normalized", embedding.normalized},
                          {"prompts", embedding.prompts}};
  }
  // What a request gets that leaves these out; only those that the checkpoint states.
  Json defaults = Json::object();
  const auto add = [&](const char* name, const auto& value) {
    if (value) defaults[name] = *value;
  };
  add("temperature", model.sampling.temperature);
  add("top_k", model.sampling.top_k);
  add("top_p", model.sampling.top_p);
  add("min_p", model.sampling.min_p);
  add("repetition_penalty", model.sampling.repetition_penalty);
  add("max_tokens", model.sampling.max_tokens);
  if (!defaults.empty()) entry["default_sampling_params"] = std::move(defaults);
  return entry;
}

}  // namespace

std::string FormatResponse(const ResponseHead& head, const std::vector<ChoicePart>& choices,
                           const ResponseTail& tail) {
  Json json = HeadJson(head, false);
  Json list = Json::array();
  for (const ChoicePart& part : choices) list.push_back(ChoiceJson(head, part, false));
  json["choices"] = std::move(list);
  json["usage"] = UsageJson(tail.usage);
  AddTimings(tail, json);
  return Dump(json);
}

std::string FormatChunk(const ResponseHead& head, const ChoicePart& part, bool null_usage,
                        const ResponseTail* tail) {
  Json json = HeadJson(head, true);
  json["choices"] = Json::array({ChoiceJson(head, part, true)});
  if (null_usage) json["usage"] = nullptr;
  if (tail != nullptr) AddTimings(*tail, json);
  return Event(json);
}

std::string FormatUsageChunk(const ResponseHead& head, const ResponseTail& tail) {
  Json json = HeadJson(head, true);
  json["choices"] = Json::array();
  json["usage"] = UsageJson(tail.usage);
  AddTimings(tail, json);
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
  return Dump({{"object", "list"}, {"data", Json::array({ModelJson(id, created, model)})}});
}

std::string FormatModel(const std::string& id, int64_t created, const ModelInfo& model) {
  return Dump(ModelJson(id, created, model));
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
