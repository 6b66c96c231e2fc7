#include "server/openai/request.h"

#include "base/error.h"
#include "server/openai/conversation_fields.h"
#include "server/openai/json_fields.h"
#include "server/openai/request_limits.h"
#include "server/openai/structured_fields.h"

namespace tokamak {
namespace {

constexpr size_t kMaxPrompts = 256;      // in one completions request
constexpr size_t kMaxAllowed = 1 << 20;  // Validate checks that the ids are in the vocabulary

void ReadLogitBias(const JsonReader& bias, SamplingParams& sampling) {
  if (!bias.present()) return;
  if (!bias.is_object()) return bias.Bad("an object");
  for (const auto& [key, value] : *bias.value().AsObject()) {
    const bool digits =
        !key.empty() && key.size() <= 9 && key.find_first_not_of("0123456789") == std::string::npos;
    if (!digits) return bias.Fail("its keys must be token ids");
    sampling.logit_bias.emplace_back(std::stoi(key), bias[key].Float());
    if (!bias.ok()) return;
  }
}

void ReadDryBreakers(const JsonReader& texts, SamplingParams& sampling) {
  if (!texts.present()) return;
  sampling.dry_sequence_breakers.clear();
  texts.ForEach(
      64, [&](const JsonReader& text) { sampling.dry_sequence_breakers.push_back(text.String()); });
}

void ReadSeed(const JsonReader& seed, SamplingParams& sampling) {
  if (!seed.present()) return;
  if (!seed.value().is_integer()) return seed.Bad("an integer");
  const std::optional<int64_t> number = seed.value().AsInt();
  sampling.seed = number ? static_cast<uint64_t>(*number) : *seed.value().AsUint();
}

void ReadStop(const JsonReader& stop, SamplingParams& sampling) {
  if (!stop.present()) return;
  if (stop.is_string()) return sampling.stop.push_back(stop.String());
  if (!stop.is_array()) return stop.Bad("a string or an array of them");
  stop.ForEach(kMaxStops, [&](const JsonReader& text) { sampling.stop.push_back(text.String()); });
}

void ReadMaxTokens(const JsonReader& fields, const char* name, CompletionRequest& request) {
  std::optional<int32_t> max_tokens;
  fields.Read(name, max_tokens);
  if (!max_tokens) return;
  if (request.max_tokens_given && request.sampling.max_tokens != max_tokens) {
    fields.Fail(name, "is another name of \"max_tokens\", which is given too; give one of them");
  }
  request.sampling.max_tokens = max_tokens;
  request.max_tokens_given = true;
}

void ReadSampling(const JsonReader& fields, SamplingParams& sampling) {
  fields.Read("temperature", sampling.temperature);
  fields.Read("dynatemp_range", sampling.dynatemp_range);
  fields.Read("dynatemp_exponent", sampling.dynatemp_exponent);
  fields.Read("top_n_sigma", sampling.top_n_sigma);
  if (sampling.top_n_sigma == -1.0f) sampling.top_n_sigma = 0;  // as for top_k
  fields.Read("top_k", sampling.top_k);
  if (sampling.top_k == -1) sampling.top_k = 0;  // means "off" on other servers
  fields.Read("top_p", sampling.top_p);
  fields.Read("min_p", sampling.min_p);
  fields.Read("typical_p", sampling.typical_p);
  fields.Read("xtc_probability", sampling.xtc_probability);
  fields.Read("xtc_threshold", sampling.xtc_threshold);
  fields.Read("repetition_penalty", sampling.repetition_penalty);
  fields.Read("presence_penalty", sampling.presence_penalty);
  fields.Read("frequency_penalty", sampling.frequency_penalty);
  fields.Read("repeat_last_n", sampling.repeat_last_n);
  fields.Read("dry_multiplier", sampling.dry_multiplier);
  fields.Read("dry_base", sampling.dry_base);
  fields.Read("dry_allowed_length", sampling.dry_allowed_length);
  fields.Read("dry_penalty_last_n", sampling.dry_penalty_last_n);
  ReadDryBreakers(fields["dry_sequence_breakers"], sampling);
  ReadLogitBias(fields["logit_bias"], sampling);
  fields["allowed_token_ids"].ForEach(
      kMaxAllowed, [&](const JsonReader& id) { sampling.allowed_token_ids.push_back(id.Int32()); });
  fields["bad_words"].ForEach(
      1024, [&](const JsonReader& text) { sampling.bad_words.push_back(text.String()); });
  ReadSeed(fields["seed"], sampling);
  fields.Read("n", sampling.n);
  fields.Read("min_tokens", sampling.min_tokens);
  ReadStop(fields["stop"], sampling);
  fields.Read("include_stop_str_in_output", sampling.include_stop_str_in_output);
  fields.Read("skip_special_tokens", sampling.skip_special_tokens);
  fields["stop_token_ids"].ForEach(
      1024, [&](const JsonReader& id) { sampling.stop_token_ids.push_back(id.Int32()); });
  fields.Read("ignore_eos", sampling.ignore_eos);
  fields.Read("prompt_logprobs", sampling.prompt_logprobs);
}

void ReadEarlyStopping(const JsonReader& field, EarlyStopping& early_stopping) {
  if (!field.present()) return;
  if (!field.is_string()) {
    early_stopping = field.Bool() ? EarlyStopping::kYes : EarlyStopping::kNo;
  } else if (field.String() == "never") {
    early_stopping = EarlyStopping::kNever;
  } else {
    field.Bad("a boolean or \"never\"");
  }
}

void ReadBeamSearch(const JsonReader& fields, CompletionRequest& request) {
  SamplingParams& sampling = request.sampling;
  BeamSearchParams beams;
  bool use = false;
  fields.Read("use_beam_search", use);
  int32_t best_of = 0;
  fields.Read("best_of", best_of);
  fields.Read("length_penalty", beams.length_penalty);
  ReadEarlyStopping(fields["early_stopping"], beams.early_stopping);
  if (!use) {
    if (best_of != sampling.n && best_of != 0) {
      fields.Fail("best_of", "must equal n, unless \"use_beam_search\" is true");
    }
    if (beams.length_penalty != 1 && beams.length_penalty != 0) {
      fields.Fail("length_penalty", "needs \"use_beam_search\": true");
    }
    return;
  }
  beams.width = best_of == 0 ? sampling.n : best_of;
  request.spellings.by_name["beam_search.width"] = best_of == 0 ? "n" : "best_of";
  sampling.beam_search = beams;
  if (fields["temperature"].present() && sampling.temperature > 0) {
    fields.Fail("temperature", "must be 0 or absent with \"use_beam_search\", which draws nothing");
  }
}

void ReadThinkingBudget(const JsonReader& fields, CompletionRequest& request) {
  std::optional<int32_t> budget;
  fields.Read("thinking_token_budget", budget);
  if (!budget) return;
  if (*budget == -1) {  // no limit, even if the server has one
    request.sampling.thinking_token_budget.reset();
    return;
  }
  request.sampling.thinking_token_budget = budget;
  request.thinking_budget_given = true;
}

// Fields for OpenAI's own bookkeeping, which have no effect here.
void CheckBookkeeping(const JsonReader& fields) {
  std::string text;
  for (const char* name : {"user", "service_tier", "safety_identifier", "prompt_cache_key"}) {
    fields.Read(name, text);
  }
  bool store = false;
  fields.Read("store", store);
  const JsonReader metadata = fields["metadata"];
  if (metadata.present() && !metadata.is_object()) metadata.Bad("an object");
}

void ReadStreamOptions(const JsonReader& fields, CompletionRequest& request) {
  const JsonReader options = fields["stream_options"];
  if (!options.present()) return;
  if (!options.is_object()) return options.Bad("an object");
  if (!request.stream) return options.Fail("needs \"stream\": true");
  options.Read("include_usage", request.include_usage);
  bool obfuscation = false;  // no effect: streams are not padded
  options.Read("include_obfuscation", obfuscation);
}

void ReadCommon(const JsonReader& fields, CompletionRequest& request) {
  fields.Read("model", request.model);
  ReadSampling(fields, request.sampling);
  ReadBeamSearch(fields, request);
  ReadStructuredOutput(fields, request.sampling, request.spellings);
  ReadMaxTokens(fields, "max_tokens", request);
  request.return_prompt_logprobs = request.sampling.prompt_logprobs.has_value();
  fields.Read("priority", request.priority);
  fields.Read("cache_salt", request.cache_salt);
  fields.Read("speculate", request.speculate);
  fields.Read("return_token_ids", request.return_token_ids);
  fields.Read("timings", request.timings);
  CheckBookkeeping(fields);
  fields.Read("stream", request.stream);
  ReadStreamOptions(fields, request);
}

void ReadCompletion(const JsonReader& fields, const SamplingDefaults& defaults,
                    CompletionRequest& request) {
  request.sampling.max_tokens = 16;  // OpenAI's default for this endpoint
  defaults.ApplyTo(request.sampling);
  request.sampling.thinking_token_budget.reset();  // where reasoning begins is not known
  const JsonReader prompt = fields["prompt"];
  request.prompts = ReadPromptInputs(prompt, kMaxPrompts);
  request.prompt_list = prompt.is_array() && prompt.Size() > 0 && !prompt[0].value().is_number();
  ReadCommon(fields, request);
  fields.Read("echo", request.echo);
  fields.Read("add_special_tokens", request.add_special_tokens);
  fields.Read("logprobs", request.sampling.logprobs);
  // The echoed prompt has logprobs like the generated text.
  if (request.echo && request.sampling.logprobs)
    request.sampling.prompt_logprobs = request.sampling.logprobs;
}

// Returns whether the model is told about the tools.
bool ReadChat(const JsonReader& fields, const SamplingDefaults& defaults,
              const std::optional<ImageInfo>& images, CompletionRequest& request) {
  request.chat = true;
  defaults.ApplyTo(request.sampling);
  const bool use_tools = CheckConversation(fields, images, request.conversation);
  fields.Read("parallel_tool_calls", request.parallel_tool_calls);
  ReadCommon(fields, request);
  ReadThinkingBudget(fields, request);
  ReadMaxTokens(fields, "max_completion_tokens", request);
  bool logprobs = false;
  fields.Read("logprobs", logprobs);
  std::optional<int32_t> top_logprobs;
  fields.Read("top_logprobs", top_logprobs);
  if (top_logprobs && !logprobs) fields.Fail("top_logprobs", "needs \"logprobs\": true");
  if (logprobs) request.sampling.logprobs = top_logprobs.value_or(0);
  if (logprobs && top_logprobs) {
    request.spellings.by_name["logprobs"] = request.spellings.Apply(std::string("top_logprobs"));
  }
  return use_tools;
}

Status Finish(const JsonReader& fields, CompletionRequest& request) {
  RETURN_IF_ERROR(request.spellings.Apply(fields.status()));
  if (request.spellings.unlimited_tokens) {
    if (request.max_tokens_given) {
      return request.spellings.Apply(
          InvalidArgument("max_tokens: is given as -1 too, by another name; give one of them"));
    }
    request.sampling.max_tokens.reset();
  }
  request.unknown_fields = request.spellings.Ignored(fields.Unread());
  return Status();
}

}  // namespace

Result<CompletionRequest> ParseCompletionRequest(const std::string& body,
                                                 const SamplingDefaults& defaults) {
  CompletionRequest request;
  ASSIGN_OR_RETURN(JsonValue json, ParseBody(body));
  ASSIGN_OR_RETURN(request.spellings, TakeOtherFields(kCompletionRequest, json));
  const JsonReader fields = ReadFields(json);
  ReadCompletion(fields, defaults, request);
  RETURN_IF_ERROR(Finish(fields, request));
  return request;
}

Result<CompletionRequest> ParseChatRequest(const std::string& body,
                                           const SamplingDefaults& defaults,
                                           const std::optional<ImageInfo>& images) {
  CompletionRequest request;
  ASSIGN_OR_RETURN(JsonValue json, ParseBody(body));
  ASSIGN_OR_RETURN(request.spellings, TakeOtherFields(kChatRequest, json));
  const JsonReader fields = ReadFields(json);
  const bool use_tools = ReadChat(fields, defaults, images, request);
  RETURN_IF_ERROR(Finish(fields, request));
  if (use_tools) {
    const bool structured = request.sampling.structured_output.has_value();
    request.held_tools = HeldTools(json, structured, &request.must_call);
  }
  RETURN_IF_ERROR(ReadConversation(json, request.spellings, use_tools, images, request.conversation,
                                   request.images));
  return request;
}

std::vector<std::string> KnownFields(bool chat) {
  CompletionRequest request;
  return NamesReadBy([&](const JsonReader& fields) {
    if (chat) {
      ReadChat(fields, {}, {}, request);
    } else {
      ReadCompletion(fields, {}, request);
    }
  });
}

}  // namespace tokamak
