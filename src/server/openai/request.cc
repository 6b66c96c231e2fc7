#include "server/openai/request.h"

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "server/openai/conversation_fields.h"
#include "server/openai/json_fields.h"
#include "server/openai/request_limits.h"

namespace tokamak {
namespace {

using Json = nlohmann::json;

constexpr size_t kMaxPrompts = 256;  // in one completions request

void ReadLogitBias(Fields& fields, SamplingParams& sampling) {
  const Json* bias = fields.Find("logit_bias");
  if (bias == nullptr) return;
  if (!bias->is_object()) return fields.WrongType("logit_bias", "an object", *bias);
  for (const auto& [key, value] : bias->items()) {
    const bool digits =
        !key.empty() && key.size() <= 9 && key.find_first_not_of("0123456789") == std::string::npos;
    if (!digits) return fields.Fail("logit_bias", "its keys must be token ids");
    const std::optional<float> added = fields.Float("logit_bias." + key, value);
    if (!added) return;
    sampling.logit_bias.emplace_back(std::stoi(key), *added);
  }
}

void ReadSeed(Fields& fields, SamplingParams& sampling) {
  const Json* seed = fields.Find("seed");
  if (seed == nullptr) return;
  if (!seed->is_number_integer()) return fields.WrongType("seed", "an integer", *seed);
  sampling.seed = seed->is_number_unsigned() ? seed->get<uint64_t>()
                                             : static_cast<uint64_t>(seed->get<int64_t>());
}

void ReadStop(Fields& fields, SamplingParams& sampling) {
  const Json* stop = fields.Find("stop");
  if (stop == nullptr) return;
  if (stop->is_string()) {
    sampling.stop.push_back(stop->get<std::string>());
    return;
  }
  if (!stop->is_array()) return fields.WrongType("stop", "a string or an array of them", *stop);
  fields.ReadList("stop", kMaxStops, [&](const std::string& path, const Json& value) {
    if (!value.is_string()) {
      return fields.FailAt(path, "must be a string, not " + DescribeJson(value));
    }
    sampling.stop.push_back(value.get<std::string>());
  });
}

void ReadMaxTokens(Fields& fields, const char* name, CompletionRequest& request) {
  std::optional<int32_t> max_tokens;
  fields.Read(name, max_tokens);
  if (!max_tokens) return;
  if (request.max_tokens_given && request.sampling.max_tokens != max_tokens) {
    fields.Fail(name, "is another name of \"max_tokens\", which is given too; give one of them");
  }
  request.sampling.max_tokens = max_tokens;
  request.max_tokens_given = true;
}

void ReadSampling(Fields& fields, SamplingParams& sampling) {
  fields.Read("temperature", sampling.temperature);
  fields.Read("top_k", sampling.top_k);
  if (sampling.top_k == -1) sampling.top_k = 0;  // means "off" on other servers
  fields.Read("top_p", sampling.top_p);
  fields.Read("min_p", sampling.min_p);
  fields.Read("typical_p", sampling.typical_p);
  fields.Read("repetition_penalty", sampling.repetition_penalty);
  fields.Read("presence_penalty", sampling.presence_penalty);
  fields.Read("frequency_penalty", sampling.frequency_penalty);
  ReadLogitBias(fields, sampling);
  ReadSeed(fields, sampling);
  fields.Read("n", sampling.n);
  fields.Read("min_tokens", sampling.min_tokens);
  ReadStop(fields, sampling);
  fields.ReadList("stop_token_ids", 1024, [&](const std::string& path, const Json& value) {
    if (const auto id = fields.Int32(path, value)) sampling.stop_token_ids.push_back(*id);
  });
  fields.Read("ignore_eos", sampling.ignore_eos);
  fields.Read("prompt_logprobs", sampling.prompt_logprobs);
}

// Fields for OpenAI's own bookkeeping, which have no effect here.
void CheckBookkeeping(Fields& fields) {
  std::string text;
  for (const char* name : {"user", "service_tier", "safety_identifier", "prompt_cache_key"}) {
    fields.Read(name, text);
  }
  bool store = false;
  fields.Read("store", store);
  const Json* metadata = fields.Find("metadata");
  if (metadata != nullptr && !metadata->is_object()) {
    fields.WrongType("metadata", "an object", *metadata);
  }
}

void ReadStreamOptions(Fields& fields, CompletionRequest& request) {
  const Json* options = fields.Find("stream_options");
  if (options == nullptr) return;
  if (!options->is_object()) return fields.WrongType("stream_options", "an object", *options);
  if (!request.stream) return fields.Fail("stream_options", "needs \"stream\": true");
  Fields inner(*options, "stream_options");
  inner.Read("include_usage", request.include_usage);
  bool obfuscation = false;  // no effect: streams are not padded
  inner.Read("include_obfuscation", obfuscation);
  fields.Adopt(inner.status());
}

void ReadCommon(Fields& fields, CompletionRequest& request) {
  fields.Read("model", request.model);
  ReadSampling(fields, request.sampling);
  ReadMaxTokens(fields, "max_tokens", request);
  request.return_prompt_logprobs = request.sampling.prompt_logprobs.has_value();
  fields.Read("priority", request.priority);
  fields.Read("cache_salt", request.cache_salt);
  fields.Read("return_token_ids", request.return_token_ids);
  fields.Read("timings", request.timings);
  CheckBookkeeping(fields);
  fields.Read("stream", request.stream);
  ReadStreamOptions(fields, request);
}

// Reads a string, token ids, or a list of either.
void ReadPrompts(Fields& fields, CompletionRequest& request) {
  const Json* prompt = fields.Find("prompt");
  if (prompt == nullptr) return fields.Fail("prompt", "is missing");
  if (prompt->is_string()) {
    request.prompts.emplace_back(prompt->get<std::string>());
    return;
  }
  if (!prompt->is_array()) {
    return fields.WrongType("prompt", "a string, token ids, or an array of either", *prompt);
  }
  if (prompt->empty()) return fields.Fail("prompt", "must not be empty");
  if (prompt->front().is_number()) {
    if (auto ids = fields.TokenIds("prompt", *prompt))
      request.prompts.emplace_back(std::move(*ids));
    return;
  }
  request.prompt_list = true;
  fields.ReadList("prompt", kMaxPrompts, [&](const std::string& path, const Json& value) {
    if (value.is_string()) {
      request.prompts.emplace_back(value.get<std::string>());
    } else if (value.is_array()) {
      if (auto ids = fields.TokenIds(path, value)) request.prompts.emplace_back(std::move(*ids));
    } else {
      fields.FailAt(path, "must be a string or token ids, not " + DescribeJson(value));
    }
  });
}

void ReadCompletion(Fields& fields, const SamplingDefaults& defaults, CompletionRequest& request) {
  request.sampling.max_tokens = 16;  // OpenAI's default for this endpoint
  defaults.ApplyTo(request.sampling);
  ReadPrompts(fields, request);
  ReadCommon(fields, request);
  fields.Read("echo", request.echo);
  fields.Read("add_special_tokens", request.add_special_tokens);
  fields.Read("logprobs", request.sampling.logprobs);
  int32_t best_of = request.sampling.n;
  fields.Read("best_of", best_of);
  if (best_of != request.sampling.n && best_of != 0) {
    fields.Fail("best_of", "must equal n: nothing is ranked here");
  }
  // The echoed prompt has logprobs like the generated text.
  if (request.echo && request.sampling.logprobs)
    request.sampling.prompt_logprobs = request.sampling.logprobs;
}

// Returns whether the model is told about the tools.
bool ReadChat(Fields& fields, const SamplingDefaults& defaults, CompletionRequest& request) {
  request.chat = true;
  defaults.ApplyTo(request.sampling);
  const bool use_tools = CheckConversation(fields, request.conversation);
  fields.Read("parallel_tool_calls", request.parallel_tool_calls);
  ReadCommon(fields, request);
  ReadMaxTokens(fields, "max_completion_tokens", request);
  bool logprobs = false;
  fields.Read("logprobs", logprobs);
  std::optional<int32_t> top_logprobs;
  fields.Read("top_logprobs", top_logprobs);
  if (top_logprobs && !logprobs) fields.Fail("top_logprobs", "needs \"logprobs\": true");
  if (top_logprobs && (*top_logprobs < 0 || *top_logprobs > 20)) {
    fields.Fail("top_logprobs", fmt::format("must be in [0, 20], got {}", *top_logprobs));
  }
  if (logprobs) request.sampling.logprobs = top_logprobs.value_or(0);
  return use_tools;
}

Status Finish(const Fields& fields, CompletionRequest& request) {
  RETURN_IF_ERROR(request.spellings.Apply(fields.status()));
  if (request.spellings.unlimited_tokens) {
    if (request.max_tokens_given) {
      return request.spellings.Apply(
          InvalidArgument("max_tokens: is given as -1 too, by another name; give one of them"));
    }
    request.sampling.max_tokens.reset();
  }
  request.unknown_fields = request.spellings.Ignored(fields.Unknown());
  return Status();
}

}  // namespace

Result<CompletionRequest> ParseCompletionRequest(const std::string& body,
                                                 const SamplingDefaults& defaults) {
  CompletionRequest request;
  ASSIGN_OR_RETURN(Json json, ParseBody(body));
  ASSIGN_OR_RETURN(request.spellings, TakeOtherFields(kCompletionRequest, json));
  Fields fields(json, "");
  ReadCompletion(fields, defaults, request);
  RETURN_IF_ERROR(Finish(fields, request));
  return request;
}

Result<CompletionRequest> ParseChatRequest(const std::string& body,
                                           const SamplingDefaults& defaults) {
  CompletionRequest request;
  ASSIGN_OR_RETURN(Json json, ParseBody(body));
  ASSIGN_OR_RETURN(request.spellings, TakeOtherFields(kChatRequest, json));
  Fields fields(json, "");
  const bool use_tools = ReadChat(fields, defaults, request);
  RETURN_IF_ERROR(Finish(fields, request));
  RETURN_IF_ERROR(ReadConversation(body, request.spellings, use_tools, request.conversation));
  return request;
}

std::vector<std::string> KnownFields(bool chat) {
  const Json nothing = Json::object();
  Fields fields(nothing, "");
  CompletionRequest request;
  if (chat) {
    ReadChat(fields, {}, request);
  } else {
    ReadCompletion(fields, {}, request);
  }
  return fields.known();
}

}  // namespace tokamak
