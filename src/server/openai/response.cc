#include "server/openai/response.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/option_names.h"
#include "server/json_text.h"

namespace tokamak {
namespace {

using Json = nlohmann::ordered_json;

std::string Event(std::string_view json) { return fmt::format("data: {}\n\n", json); }

// Writes a JSON object field by field, for values that are JSON text already.
class ObjectWriter {
 public:
  explicit ObjectWriter(const Json& fields) : text_(DumpJson(fields)) { text_.pop_back(); }
  void Add(std::string_view name, std::string_view json) {
    if (text_.size() > 1) text_ += ',';
    text_ += DumpJson(Json(name));
    text_ += ':';
    text_ += json;
  }
  std::string Finish() { return std::move(text_) + '}'; }

 private:
  std::string text_;
};

template <typename T>
Json OrNull(const std::optional<T>& value) {
  return value ? Json(*value) : Json(nullptr);
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
                     {"draft_n", tail.timings->drafts},
                     {"draft_n_accepted", tail.timings->accepted_drafts},
                     {"draft_n_per_pos", tail.timings->drafts_at},
                     {"draft_n_accepted_per_pos", tail.timings->accepted_drafts_at},
                     {"draft_saved_ms", Milliseconds(tail.timings->saved_seconds)},
                     {"cached_tokens", tail.usage.cached_tokens}};
}

Json ToolCallsJson(const std::vector<ToolCallPart>& calls, bool chunk) {
  Json list = Json::array();
  for (const ToolCallPart& call : calls) {
    Json json = Json::object();
    if (chunk) json["index"] = call.index;
    if (call.id.empty()) {
      json["function"] = {{"arguments", call.arguments}};
    } else {
      json["id"] = call.id;
      json["type"] = "function";
      json["function"] = {{"name", call.name}, {"arguments", call.arguments}};
    }
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

std::string ChoiceJson(const ResponseHead& head, const ChoicePart& part, bool chunk,
                       TokenBytesRef bytes_of) {
  Json fields = {{"index", part.index}};
  if (!head.chat) {
    fields["text"] = part.text;
  } else if (!chunk) {
    fields["message"] = MessageJson(part);
  } else {
    fields["delta"] = DeltaJson(part);
  }
  fields["finish_reason"] = OrNull(part.finish_reason);
  if (part.token_ids) fields["token_ids"] = *part.token_ids;
  ObjectWriter choice(fields);
  choice.Add("logprobs", !part.with_logprobs ? "null"
                         : head.chat         ? ChatLogprobsJson(part.logprobs, bytes_of)
                                             : CompletionLogprobsJson(part.logprobs, bytes_of));
  if (part.prompt_logprobs) {
    choice.Add("prompt_logprobs", PromptLogprobsJson(*part.prompt_logprobs, bytes_of));
  }
  return choice.Finish();
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
                          {"pooling", Name(embedding.pooling)},
                          {"normalized", embedding.normalized},
                          {"prompts", embedding.prompts}};
  }
  entry["input_modalities"] = {"text"};
  if (const std::optional<ImageInfo>& images = model.images) {
    entry["input_modalities"].push_back("image");
    entry["images"] = {{"max_images", images->max_images},
                       {"max_bytes", images->max_bytes},
                       {"max_pixels", images->max_pixels},
                       {"max_tokens", images->max_tokens}};
  }
  // Default sampling values of the checkpoint and of the options.
  Json defaults = Json::object();
  model.sampling.ForEach([&](const char* name, const auto& value) { defaults[name] = value; });
  if (!defaults.empty()) entry["default_sampling_params"] = std::move(defaults);
  return entry;
}

}  // namespace

std::string FormatResponse(const ResponseHead& head, const std::vector<ChoicePart>& choices,
                           const ResponseTail& tail, TokenBytesRef bytes_of) {
  Json fields = HeadJson(head, false);
  fields["usage"] = UsageJson(tail.usage);
  AddTimings(tail, fields);
  ObjectWriter response(fields);
  std::string list = "[";
  for (const ChoicePart& part : choices) {
    if (list.size() > 1) list += ',';
    list += ChoiceJson(head, part, false, bytes_of);
  }
  response.Add("choices", list += ']');
  return response.Finish();
}

std::string FormatChunk(const ResponseHead& head, const ChoicePart& part, bool null_usage,
                        const std::optional<ResponseTail>& tail, TokenBytesRef bytes_of) {
  const auto event = [&](const ChoicePart& one, bool last) {
    Json fields = HeadJson(head, true);
    if (null_usage) fields["usage"] = nullptr;
    if (last && tail) AddTimings(*tail, fields);
    ObjectWriter chunk(fields);
    chunk.Add("choices", '[' + ChoiceJson(head, one, true, bytes_of) + ']');
    return Event(chunk.Finish());
  };
  const auto split = [](const ToolCallPart& call) {
    return !call.id.empty() && !call.arguments.empty();
  };
  if (std::none_of(part.tool_calls.begin(), part.tool_calls.end(), split)) return event(part, true);
  // All but the rest of the calls and the end goes first.
  ChoicePart next = part;
  next.tool_calls.clear();
  next.finish_reason.reset();
  std::string events;
  for (const ToolCallPart& call : part.tool_calls) {
    next.tool_calls.push_back(call);
    if (!split(call)) continue;
    next.tool_calls.back().arguments.clear();
    events += event(next, false);
    next = ChoicePart();
    next.index = part.index;
    next.with_logprobs = part.with_logprobs;
    if (part.token_ids) next.token_ids.emplace();
    next.tool_calls.push_back({call.index, "", "", call.arguments});
  }
  next.finish_reason = part.finish_reason;
  return events + event(next, true);
}

std::string FormatUsageChunk(const ResponseHead& head, const ResponseTail& tail) {
  Json json = HeadJson(head, true);
  json["choices"] = Json::array();
  json["usage"] = UsageJson(tail.usage);
  AddTimings(tail, json);
  return Event(DumpJson(json));
}

std::string FormatErrorEvent(std::string_view error_json) { return Event(error_json); }

std::string FormatModels(const std::string& id, int64_t created, const ModelInfo& model) {
  return DumpJson({{"object", "list"}, {"data", Json::array({ModelJson(id, created, model)})}});
}

std::string FormatModel(const std::string& id, int64_t created, const ModelInfo& model) {
  return DumpJson(ModelJson(id, created, model));
}

}  // namespace tokamak
