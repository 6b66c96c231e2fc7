// How a request's tokens are sampled and when its generation ends.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tokamak/status.h"

namespace tokamak {

// The form that the generated text must have. Every token is drawn from those that keep the text
// within it, and end tokens are drawn only where the text is complete. If nothing more may follow,
// generation ends there, whatever min_tokens and ignore_eos say. Generation that ends at max_tokens
// may leave the text incomplete; its FinishReason is kLength.
struct StructuredOutput {
  enum class Kind : uint8_t {
    kJsonObject,  // any JSON object
    kJsonSchema,  // JSON that is valid under the schema in `text`
    kRegex,       // a match of the regular expression in `text` (docs/grammars.md)
    kChoice,      // one of `choices`
    kGrammar,     // a sentence of the grammar in `text`, written in llama.cpp's GBNF
    kTags,        // free text with parts that follow `tags`, such as tool calls
  };
  Kind kind = Kind::kJsonObject;
  std::string text = {};
  std::vector<std::string> choices = {};
  // Regular expression for the white space between the tokens of JSON. Absent: none but what
  // Python's json.dumps writes, with or without indent.
  std::optional<std::string> whitespace_pattern = {};

  // kTags: where the text contains `begin`, JSON that is valid under `schema` follows, then `end`.
  struct Tag {
    std::string begin = {};
    std::string schema = {};
    std::string end = {};
    // Only in `calls`: a regular expression. A match of it stands for "{id}" in `begin` and `end`.
    std::string id = {};
    // Only with call_parameters: the arguments that are written as text.
    std::vector<std::string> text_arguments = {};

    friend bool operator==(const Tag&, const Tag&) = default;
  };
  std::vector<Tag> tags = {};
  // After one of these, only tags that begin with it may be written. Empty: after the `begin` of
  // each tag.
  std::vector<std::string> triggers = {};
  bool ends_after_tag = false;  // the text ends after the first tag

  // Tool calls. If there are any, the text may be one of these tags instead of the above, or
  // several. A text that begins like calls (CallBegins), after up to two line breaks if there was
  // reasoning, is never the above.
  std::vector<Tag> calls = {};
  // Regular expression for what stands between calls; absent: there is one.
  std::optional<std::string> call_separator = {};
  std::string calls_begin = {}, calls_end = {};  // around all of them
  // How arguments are written if not as JSON: one after another, with matches of these regular
  // expressions around their names and values, and `end` after the last one. Values are JSON
  // without "<"; those of Tag::text_arguments are text without any of `stops`.
  struct Parameters {
    std::string before_name = {}, after_name = {}, after_value = {}, end = {};
    std::vector<std::string> stops = {};

    friend bool operator==(const Parameters&, const Parameters&) = default;
  };
  std::optional<Parameters> call_parameters = {};
  // Names of special tokens. Where `calls`, calls_begin, calls_end and `triggers` contain them,
  // calls have the tokens, which no other text has, and no free text spells a trigger.
  std::vector<std::string> call_marks = {};
  bool must_call = false;  // the text must be calls; what is above `calls` does not count
  // The text is free and may contain calls, each after one of `triggers`. Of what is above `calls`
  // only whitespace_pattern, `triggers` and ends_after_tag count.
  bool calls_in_text = false;
  // The texts with which calls begin, each up to its id if it has one. Each text once.
  std::vector<std::string> CallBegins() const {
    std::vector<std::string> begins;
    for (const Tag& call : calls) {
      const size_t same = call.id.empty() ? std::string::npos : call.begin.find("{id}");
      std::string begin = calls_begin + call.begin.substr(0, same);
      if (std::find(begins.begin(), begins.end(), begin) == begins.end()) {
        begins.push_back(std::move(begin));
      }
    }
    return begins;
  }

  // Lets the model reason before the answer. Text from `open` to `close` is free; with `begun` the
  // prompt has already opened it. The markers may be special tokens.
  struct Reasoning {
    std::string open = {};
    std::string close = {};
    bool begun = false;

    friend bool operator==(const Reasoning&, const Reasoning&) = default;
  };
  std::optional<Reasoning> reasoning = {};

  // For models that write messages, each after a header (OpenAI's Harmony): the last message is the
  // text that the fields above describe, or one call, whose header is the tag's `begin`.
  // `reasoning` and call_separator do not count then.
  struct Messages {
    // Names of the tokens that give messages their structure. In messages these tokens never stand
    // for text.
    std::vector<std::string> marks = {};
    std::string start = {};              // begins every header but the first
    std::string answer = {};             // the header of the text
    std::vector<std::string> free = {};  // headers of messages with any text, which may come before
    std::string end = {};                // the mark that ends these
    bool begun = false;                  // the prompt ends with the header free[0]

    friend bool operator==(const Messages&, const Messages&) = default;
  };
  std::optional<Messages> messages = {};

  friend bool operator==(const StructuredOutput&, const StructuredOutput&) = default;
};

// When a beam search ends, once there are `width` answers.
enum class EarlyStopping : uint8_t {
  kNo,     // false: when the best beam is worse than all of them, at the length that it has
  kYes,    // true: at once
  kNever,  // "never": when the best beam is worse than all of them, at the best possible length
};

// Beam search: keeps the `width` most probable continuations instead of drawing one. The same as in
// transformers: candidates are ranked by the sum of their tokens' logprobs, and answers by that sum
// / length ^ length_penalty (end token included, prompt not).
struct BeamSearchParams {
  int32_t width = 4;            // [n, 128]
  float length_penalty = 1.0f;  // [-100, 100]; above 0 favors long answers
  EarlyStopping early_stopping = EarlyStopping::kNo;

  friend bool operator==(const BeamSearchParams&, const BeamSearchParams&) = default;
};

// Applied to the logits in this order: structured_output, allowed_token_ids and bad_words;
// logit_bias; repetition, presence and frequency penalties; DRY; min_tokens; top_n_sigma;
// temperature (or the dynamic one); then top_k, typical_p, top_p, min_p and xtc on the resulting
// distribution; then one draw.
struct SamplingParams {
  float temperature = 1.0f;  // >= 0; 0 is greedy (lowest id on ties)
  // Dynamic temperature, off at range 0: lower where the model is sure. It is between temperature -
  // range (at least 0) and temperature + range, at (entropy / ln(number of tokens)) ^ exponent of
  // the way.
  float dynatemp_range = 0.0f;     // >= 0
  float dynatemp_exponent = 1.0f;  // >= 0
  // >= 0; drop tokens whose logit is more than so many standard deviations of all logits below the
  // largest, arXiv:2411.07641; 0 is off
  float top_n_sigma = 0.0f;
  int32_t top_k = 0;       // >= 0; keep the k most likely tokens; 0 is off
  float top_p = 1.0f;      // (0, 1]; keep the smallest set with at least this probability
  float min_p = 0.0f;      // [0, 1]; drop tokens below min_p × the best probability
  float typical_p = 1.0f;  // (0, 1]; locally typical sampling, arXiv:2202.00666
  // XTC: with this probability, drop all tokens that have at least xtc_threshold of the probability
  // but the least likely of them.
  float xtc_probability = 0.0f;     // [0, 1]
  float xtc_threshold = 0.1f;       // [0, 1]; above 0.5 no two tokens reach it
  float repetition_penalty = 1.0f;  // > 0; arXiv:1909.05858, over prompt and output
  float presence_penalty = 0.0f;    // [-2, 2]; subtracted once if the output has the token
  float frequency_penalty = 0.0f;   // [-2, 2]; subtracted per occurrence in the output
  // [-1, 65535]; the penalties look only at so many last tokens of prompt and output; -1: at all
  int32_t repeat_last_n = -1;
  // DRY, off with multiplier 0: a token that would go on repeating what the last tokens repeat has
  // dry_multiplier × dry_base ^ (length of the repeat - dry_allowed_length) subtracted. Shorter
  // repeats are free.
  float dry_multiplier = 0.0f;      // >= 0
  float dry_base = 1.75f;           // >= 1
  int32_t dry_allowed_length = 2;   // [0, 1024]
  int32_t dry_penalty_last_n = 64;  // [-1, 65535] last tokens of prompt and output; -1: 65535
  // No repeat goes across these texts. The engine turns them into the two fields after them: the
  // tokens that contain one, and sequences of tokens that spell one together.
  std::vector<std::string> dry_sequence_breakers = {"\n", ":", "\"", "*"};
  std::vector<int32_t> dry_breaker_tokens = {};
  std::vector<std::vector<int32_t>> dry_breaker_sequences = {};
  std::vector<std::pair<int32_t, float>> logit_bias =
      {};                                       // token id, [-100, 100] added to its logit
  std::vector<int32_t> allowed_token_ids = {};  // only these are drawn; empty: all
  // Texts that the output does not spell with the tokens into which the tokenizer cuts them, with
  // and without a space before. The engine turns them into bad_words_ids.
  std::vector<std::string> bad_words = {};
  std::vector<std::vector<int32_t>> bad_words_ids = {};  // sequences that the output does not have
  std::optional<uint64_t> seed = {};  // absent: chosen by the engine, returned in OutputChunk

  int32_t n = 1;                             // choices: continuations of the prompt, [1, 128]
  std::optional<int32_t> max_tokens = {};    // absent: up to the context's end; 0: prompt only
  int32_t min_tokens = 0;                    // generation does not end before this many tokens
  std::vector<std::string> stop = {};        // the text ends before the first of these
  bool include_stop_str_in_output = false;   // it ends behind it
  std::vector<int32_t> stop_token_ids = {};  // generation ends at any of these, not emitted
  bool ignore_eos = false;                   // do not end at the model's end tokens
  bool skip_special_tokens = true;           // false: the text has the names of all special tokens
  // Special tokens to include in the text, where stop strings see them. Others are left out.
  std::vector<int32_t> shown_special_tokens = {};
  // Alternatives for each generated token and each prompt token, at most those that the engine
  // allows (EngineOptions::max_logprobs).
  std::optional<int32_t> logprobs = {};
  std::optional<int32_t> prompt_logprobs = {};
  std::optional<StructuredOutput> structured_output = {};  // absent: any text
  // Absent: none. The n best answers come in one chunk each. What changes logits changes logprobs
  // instead, also those in `logprobs`; temperature and what follows it are ignored. max_tokens is
  // not 0. The width fits the engine's sequences (EngineOptions::max_seqs) and tokens per step.
  std::optional<BeamSearchParams> beam_search = {};
  // The most tokens of reasoning at the beginning of the answer, between the marks of `thinking`,
  // which must be given: then the closing one is forced. Absent: any number.
  std::optional<int32_t> thinking_token_budget = {};  // >= 0
  std::optional<StructuredOutput::Reasoning> thinking = {};

  friend bool operator==(const SamplingParams&, const SamplingParams&) = default;
};

// Values that are used where a request sets nothing: the recommendations of a checkpoint's authors
// (generation_config.json), or those of EngineOptions. Absent: none.
struct SamplingDefaults {
  std::optional<float> temperature = {};
  std::optional<float> dynatemp_range = {};
  std::optional<float> dynatemp_exponent = {};
  std::optional<float> top_n_sigma = {};
  std::optional<int32_t> top_k = {};
  std::optional<float> top_p = {};
  std::optional<float> min_p = {};
  std::optional<float> typical_p = {};
  std::optional<float> xtc_probability = {};
  std::optional<float> xtc_threshold = {};
  std::optional<float> repetition_penalty = {};
  std::optional<float> presence_penalty = {};
  std::optional<float> frequency_penalty = {};
  std::optional<int32_t> repeat_last_n = {};
  std::optional<float> dry_multiplier = {};
  std::optional<float> dry_base = {};
  std::optional<int32_t> dry_allowed_length = {};
  std::optional<int32_t> dry_penalty_last_n = {};
  std::optional<std::vector<std::string>> dry_sequence_breakers = {};
  std::optional<int32_t> max_tokens = {};
  std::optional<int32_t> thinking_token_budget = {};

  void ApplyTo(SamplingParams& params) const;
  // Takes the values that `others` has.
  void Override(const SamplingDefaults& others);
  // Calls visit("temperature", value) and so on for each value that there is.
  template <typename Visit>
  void ForEach(Visit visit) const {
    ForEachField([&](const char* name, auto field, auto) {
      if (const auto& value = this->*field) visit(name, *value);
    });
  }
  // "temperature 0.6, top_p 0.95"; empty if there are none.
  std::string ToString() const;

 private:
  // Calls visit(name, field, the field of SamplingParams) for each field.
  template <typename Visit>
  static void ForEachField(Visit visit) {
    using Defaults = SamplingDefaults;
    using Params = SamplingParams;
    visit("temperature", &Defaults::temperature, &Params::temperature);
    visit("dynatemp_range", &Defaults::dynatemp_range, &Params::dynatemp_range);
    visit("dynatemp_exponent", &Defaults::dynatemp_exponent, &Params::dynatemp_exponent);
    visit("top_n_sigma", &Defaults::top_n_sigma, &Params::top_n_sigma);
    visit("top_k", &Defaults::top_k, &Params::top_k);
    visit("top_p", &Defaults::top_p, &Params::top_p);
    visit("min_p", &Defaults::min_p, &Params::min_p);
    visit("typical_p", &Defaults::typical_p, &Params::typical_p);
    visit("xtc_probability", &Defaults::xtc_probability, &Params::xtc_probability);
    visit("xtc_threshold", &Defaults::xtc_threshold, &Params::xtc_threshold);
    visit("repetition_penalty", &Defaults::repetition_penalty, &Params::repetition_penalty);
    visit("presence_penalty", &Defaults::presence_penalty, &Params::presence_penalty);
    visit("frequency_penalty", &Defaults::frequency_penalty, &Params::frequency_penalty);
    visit("repeat_last_n", &Defaults::repeat_last_n, &Params::repeat_last_n);
    visit("dry_multiplier", &Defaults::dry_multiplier, &Params::dry_multiplier);
    visit("dry_base", &Defaults::dry_base, &Params::dry_base);
    visit("dry_allowed_length", &Defaults::dry_allowed_length, &Params::dry_allowed_length);
    visit("dry_penalty_last_n", &Defaults::dry_penalty_last_n, &Params::dry_penalty_last_n);
    visit("dry_sequence_breakers", &Defaults::dry_sequence_breakers,
          &Params::dry_sequence_breakers);
    visit("max_tokens", &Defaults::max_tokens, &Params::max_tokens);
    visit("thinking_token_budget", &Defaults::thinking_token_budget,
          &Params::thinking_token_budget);
  }
};

inline constexpr int32_t kDefaultMaxLogprobs = 20;

// Returns OK or kInvalidArgument. The message starts with the field: "top_p: must be in (0, 1], got
// 1.5". Token ids must be below `vocab_size`, and counts of alternatives at most `max_logprobs`.
Status Validate(const SamplingParams& params, int32_t vocab_size,
                int32_t max_logprobs = kDefaultMaxLogprobs);

}  // namespace tokamak
