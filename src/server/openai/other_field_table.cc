#include "server/openai/other_fields.h"

namespace tokamak {
namespace {

constexpr unsigned kChat = kChatRequest;
constexpr unsigned kText = kCompletionRequest;
constexpr unsigned kGenerate = kChat | kText;
constexpr unsigned kTemplate = kChat | kTokenizeRequest;  // requests that render the chat template
constexpr unsigned kEmbed = kEmbeddingRequest;
constexpr unsigned kAll = kTemplate | kText | kEmbed | kDetokenizeRequest;

constexpr auto kRefused = FieldRule::kRefused;
constexpr auto kOnly = FieldRule::kOnly;
constexpr auto kIgnored = FieldRule::kIgnored;
constexpr auto kRenamed = FieldRule::kRenamed;
constexpr auto kUnlimited = FieldRule::kUnlimited;
constexpr auto kWithin = FieldRule::kWithin;
constexpr auto kNoEffect = FieldRule::kNoEffect;

constexpr std::string_view kKwargs = "set the template's variable in \"chat_template_kwargs\"";
constexpr std::string_view kToChat = "give it to /v1/chat/completions";
constexpr std::string_view kTextOnly = "this server takes and gives text only";

// Sources: OpenAI's API reference; the request classes and docs of vLLM, SGLang, llama.cpp's
// server, text-generation-inference, text-embeddings-inference, Ollama, Mistral and OpenRouter.
constexpr OtherField kTable[] = {
    // Fields that other engines spell differently.
    {"n_predict", kGenerate, kUnlimited, "max_tokens"},
    {"num_predict", kGenerate, kUnlimited, "max_tokens"},
    {"max_new_tokens", kGenerate, kRenamed, "max_tokens"},
    {"max_output_tokens", kGenerate, kRenamed, "max_tokens"},
    {"max_tokens_to_sample", kGenerate, kRenamed, "max_tokens"},
    {"max_completion_tokens", kText, kRenamed, "max_tokens"},
    {"min_new_tokens", kGenerate, kRenamed, "min_tokens"},
    {"repeat_penalty", kGenerate, kRenamed, "repetition_penalty"},
    {"typ_p", kGenerate, kRenamed, "typical_p"},
    {"reasoning_budget", kChat, kRenamed, "thinking_token_budget"},
    {"reasoning_budget_tokens", kChat, kRenamed, "thinking_token_budget"},
    {"thinking_budget", kChat, kRenamed, "thinking_token_budget"},
    {"thinking_budget_tokens", kChat, kRenamed, "thinking_token_budget"},
    {"random_seed", kGenerate, kRenamed, "seed"},
    {"sampling_seed", kGenerate, kRenamed, "seed"},
    {"num_return_sequences", kGenerate, kRenamed, "n"},
    {"stop_sequences", kGenerate, kRenamed, "stop"},
    {"extra_key", kGenerate, kRenamed, "cache_salt"},
    {"return_tokens", kGenerate, kRenamed, "return_token_ids"},
    {"timings_per_token", kGenerate, kRenamed, "timings"},
    {"return_full_text", kText, kRenamed, "echo"},
    {"regex", kGenerate, kRenamed, "guided_regex"},
    {"ebnf", kGenerate, kRenamed, "guided_grammar"},
    {"n_probs", kText, kRenamed, "logprobs"},
    {"inputs", kEmbed, kRenamed, "input"},
    {"output_dimension", kEmbed, kRenamed, "dimensions"},
    {"content", kTokenizeRequest, kRenamed, "text"},
    {"add_special", kTokenizeRequest, kRenamed, "add_special_tokens"},
    {"with_pieces", kTokenizeRequest, kRenamed, "return_pieces"},
    {"extra_body", kAll, kWithin, ""},  // first, because it may hold the others
    {"options", kGenerate, kWithin, ""},
    {"parameters", kGenerate, kWithin, ""},
    {"sampling_params", kGenerate, kWithin, ""},

    // Constraints on the generated text.
    {"structural_tag", kGenerate, kRefused, ""},
    {"grammar_lazy", kGenerate, kRefused, ""},
    {"grammar_triggers", kGenerate, kRefused, ""},
    {"format", kGenerate, kRefused, "use \"response_format\""},
    {"stop_regex", kGenerate, kRefused, "\"stop\" takes strings"},
    {"logits_processors", kGenerate, kRefused, ""},
    {"custom_logit_processor", kGenerate, kRefused, ""},
    {"custom_params", kGenerate, kRefused, ""},
    {"vllm_xargs", kGenerate, kRefused, ""},
    // OpenAI's client sends it for tools that it makes from classes.
    {"tools[].function.strict", kTemplate, kIgnored, ""},
    {"guided_decoding_backend", kGenerate, kNoEffect, ""},

    // The input of the model.
    {"chat_template", kTemplate, kRefused, "the model's own template is used"},
    {"template", kGenerate, kRefused, "the model's own template is used"},
    {"documents", kTemplate, kRefused, "put them into a message"},
    {"continue_final_message", kTemplate, kRefused, "/v1/completions continues any text"},
    {"messages[].prefix", kTemplate, kRefused, "/v1/completions continues any text"},
    {"messages[].function_call", kTemplate, kRefused, "use \"tool_calls\""},
    {"messages[].audio", kTemplate, kRefused, kTextOnly},
    {"system", kGenerate, kRefused, "send a message with the role \"system\""},
    {"system_prompt", kGenerate, kRefused, "send a message with the role \"system\""},
    {"safe_prompt", kGenerate, kRefused, ""},
    {"prompt_mode", kGenerate, kRefused, kKwargs},
    {"prompt", kChat, kRefused, "give it to /v1/completions"},
    {"messages", kText, kRefused, kToChat},
    {"messages", kEmbed, kRefused, "give texts as \"input\""},
    {"suffix", kText, kRefused, ""},
    {"input_prefix", kGenerate, kRefused, ""},
    {"input_suffix", kGenerate, kRefused, ""},
    {"input_extra", kGenerate, kRefused, ""},
    {"context", kGenerate, kRefused, ""},
    {"prompt_embeds", kGenerate, kRefused, ""},
    {"input_embeds", kGenerate, kRefused, ""},
    {"images", kGenerate, kRefused, kTextOnly},
    {"image_data", kGenerate, kRefused, kTextOnly},
    {"audio", kGenerate, kRefused, kTextOnly},
    {"modalities", kGenerate, kRefused, kTextOnly, R"([["text"]])"},
    {"mm_processor_kwargs", kGenerate | kEmbed, kRefused, kTextOnly},
    {"truncate_prompt_tokens", kGenerate, kRefused, "send a shorter prompt"},
    {"truncate", kGenerate, kRefused, "send a shorter prompt"},
    {"truncate", kEmbed, kRefused, "use \"truncate_prompt_tokens\""},
    {"echo", kChat, kRefused, "/v1/completions has it"},
    {"add_special_tokens", kChat, kRefused, "templates write their special tokens"},
    {"web_search_options", kGenerate, kOnly, "", "[]"},
    {"plugins", kGenerate, kRefused, ""},
    {"transforms", kGenerate, kRefused, ""},
    {"lora", kGenerate, kRefused, ""},
    {"lora_path", kGenerate, kRefused, ""},
    {"adapter_id", kGenerate, kRefused, ""},
    {"session_params", kGenerate, kRefused, ""},
    {"kv_transfer_params", kGenerate, kRefused, ""},

    // Tools and reasoning.
    {"functions", kGenerate, kRefused, "give \"tools\" to /v1/chat/completions"},
    {"function_call", kGenerate, kRefused, "use \"tool_choice\"", R"(["none", "auto"])"},
    {"tools", kText, kRefused, kToChat},
    {"tool_choice", kText, kRefused, kToChat, R"(["none", "auto"])"},
    {"chat_template_kwargs", kText, kRefused, kToChat},
    {"reasoning_effort", kText, kRefused, kToChat},
    {"reasoning", kGenerate, kRefused, "use \"reasoning_effort\""},
    {"verbosity", kGenerate, kRefused, "", R"(["medium"])"},
    {"think", kGenerate, kOnly, kKwargs, "[]"},
    {"thinking", kGenerate, kOnly, kKwargs, "[]"},
    {"enable_thinking", kGenerate, kOnly, kKwargs, "[]"},
    {"thinking_token_budget", kText, kOnly, kToChat, "[-1]"},
    {"reasoning_budget", kText, kOnly, kToChat, "[-1]"},
    {"reasoning_budget_tokens", kText, kOnly, kToChat, "[-1]"},
    {"thinking_budget", kText, kOnly, kToChat, "[-1]"},
    {"thinking_budget_tokens", kText, kOnly, kToChat, "[-1]"},
    {"thinking_forced_open", kGenerate, kRefused, ""},
    {"reasoning_budget_message", kGenerate, kRefused, ""},
    {"thinking_budget_message", kGenerate, kRefused, ""},
    {"reasoning_format", kGenerate, kOnly, "--reasoning-parser sets it", R"(["", "auto"])"},
    {"include_reasoning", kGenerate, kOnly, "", "[true]"},
    {"separate_reasoning", kGenerate, kOnly, "", "[true]"},
    {"stream_reasoning", kGenerate, kOnly, "", "[true]"},
    {"parse_tool_calls", kGenerate, kOnly, "--tool-call-parser sets it", "[true]"},

    // Sampling.
    {"num_beams", kGenerate, kRefused, "use \"use_beam_search\" and \"best_of\"", "[1]"},
    {"do_sample", kGenerate, kOnly, "\"temperature\": 0 is greedy", "[true]"},
    {"penalty_alpha", kGenerate, kRefused, ""},
    {"no_repeat_ngram_size", kGenerate, kRefused, ""},
    {"encoder_repetition_penalty", kGenerate, kRefused, "", "[1]"},
    {"penalize_nl", kGenerate, kOnly, "", "[true]"},
    {"penalize_newline", kGenerate, kOnly, "", "[true]"},
    {"smoothing_factor", kGenerate, kRefused, ""},
    {"tfs_z", kGenerate, kRefused, "", "[1]"},
    {"top_a", kGenerate, kRefused, ""},
    {"epsilon_cutoff", kGenerate, kRefused, ""},
    {"eta_cutoff", kGenerate, kRefused, ""},
    {"mirostat", kGenerate, kRefused, ""},
    {"mirostat_mode", kGenerate, kRefused, ""},
    {"adaptive_target", kGenerate, kRefused, "", "[-1]"},
    {"min_keep", kGenerate, kRefused, ""},
    {"samplers", kGenerate, kRefused, "the order is fixed"},
    {"sampler_order", kGenerate, kRefused, "the order is fixed"},
    {"temperature_last", kGenerate, kRefused, "the order is fixed"},
    {"watermark", kGenerate, kRefused, ""},
    {"max_length", kGenerate, kRefused, "\"max_tokens\" counts generated tokens"},
    {"min_length", kGenerate, kRefused, "\"min_tokens\" counts generated tokens"},
    {"max_time", kGenerate, kRefused, ""},
    {"t_max_predict_ms", kGenerate, kRefused, "", "[-1]"},
    {"t_max_prompt_ms", kGenerate, kRefused, "", "[-1]"},
    {"n_indent", kGenerate, kRefused, ""},
    {"ban_eos_token", kGenerate, kRefused, "\"ignore_eos\" continues after an end token"},
    // Each has an effect only together with a field above that is refused.
    {"smoothing_curve", kGenerate, kNoEffect, ""},
    {"mirostat_tau", kGenerate, kNoEffect, ""},
    {"mirostat_eta", kGenerate, kNoEffect, ""},
    {"adaptive_decay", kGenerate, kNoEffect, ""},

    // Parts of the response.
    {"skip_special_tokens", kDetokenizeRequest, kRefused, "leave their ids out"},
    {"detokenize", kGenerate, kOnly, "\"return_token_ids\" gives ids too", "[true]"},
    {"no_stop_trim", kGenerate, kRefused, "\"return_token_ids\" includes its tokens"},
    {"return_tokens_as_token_ids", kGenerate, kRefused, "use \"return_token_ids\""},
    {"n_probs", kChat, kRefused, "use \"logprobs\" and \"top_logprobs\""},
    {"top_logprobs", kText, kRefused, "use \"logprobs\""},
    {"top_n_tokens", kGenerate, kRefused, "use \"logprobs\""},
    {"post_sampling_probs", kGenerate, kRefused, ""},
    {"decoder_input_details", kGenerate, kRefused, "use \"prompt_logprobs\""},
    {"details", kGenerate, kRefused, "use \"logprobs\" and \"return_token_ids\""},
    {"return_hidden_states", kGenerate, kRefused, ""},
    {"return_routed_experts", kGenerate, kRefused, ""},
    {"return_progress", kGenerate, kRefused, ""},
    {"response_fields", kGenerate, kRefused, ""},
    {"stream_options.continuous_usage_stats", kGenerate, kRefused, "use \"include_usage\""},
    {"return_token_strs", kTokenizeRequest, kRefused, "use \"return_pieces\""},
    {"parse_special", kTokenizeRequest, kOnly, "", "[true]"},
    {"normalize", kEmbed, kOnly, "the model's files decide it", "[]"},
    {"embd_normalize", kEmbed, kOnly, "the model's files decide it", "[]"},
    {"input_type", kEmbed, kRefused, "use \"prompt_name\""},
    {"task", kEmbed, kRefused, "use \"prompt_name\""},
    {"prompt", kEmbed, kRefused, "use \"prompt_name\""},
    {"embedding_type", kEmbed, kRefused, "use \"encoding_format\"", R"(["float"])"},
    {"embedding_types", kEmbed, kRefused, "use \"encoding_format\"", R"([["float"]])"},
    {"late_chunking", kEmbed, kRefused, ""},

    // These change when, where or how fast a response is made, but never its content.
    {"prediction", kGenerate, kNoEffect, ""},
    {"prompt_cache_retention", kGenerate, kNoEffect, ""},
    {"cache_prompt", kGenerate, kNoEffect, ""},
    {"n_cache_reuse", kGenerate, kNoEffect, ""},
    {"n_keep", kGenerate, kNoEffect, ""},
    {"n_discard", kGenerate, kNoEffect, ""},
    {"id_slot", kGenerate, kNoEffect, ""},
    {"slot_id", kGenerate, kNoEffect, ""},
    {"spaces_between_special_tokens", kGenerate, kNoEffect, ""},
    {"return_cached_tokens_details", kGenerate, kNoEffect, ""},
    {"request_id", kGenerate | kEmbed, kNoEffect, ""},
    {"rid", kGenerate | kEmbed, kNoEffect, ""},
    {"keep_alive", kGenerate | kEmbed, kNoEffect, ""},
    {"data_parallel_rank", kGenerate | kEmbed, kNoEffect, ""},
    {"num_ctx", kGenerate, kNoEffect, ""},
    {"num_batch", kGenerate, kNoEffect, ""},
    {"num_gpu", kGenerate, kNoEffect, ""},
    {"main_gpu", kGenerate, kNoEffect, ""},
    {"num_thread", kGenerate, kNoEffect, ""},
    {"use_mmap", kGenerate, kNoEffect, ""},
    {"use_mlock", kGenerate, kNoEffect, ""},
    {"numa", kGenerate, kNoEffect, ""},
    {"provider", kGenerate, kNoEffect, ""},
    {"route", kGenerate, kNoEffect, ""},
};

}  // namespace

std::span<const OtherField> OtherFieldTable() { return kTable; }

}  // namespace tokamak
