#include "server/openai/request.h"

#include <gtest/gtest.h>

#include <map>

#include "server/openai/status_response.h"
#include "server/openai/tokenize_request.h"

namespace tokamak {
namespace {

TEST(OpenAiRequest, ReadsEverySamplingField) {
  const Result<CompletionRequest> request = ParseCompletionRequest(R"({
    "model": "m", "prompt": "Hi", "temperature": 0.5, "dynatemp_range": 0.25,
    "dynatemp_exponent": 2, "top_n_sigma": 1.5, "xtc_probability": 0.75, "xtc_threshold": 0.0625, "top_k": 3, "top_p": 0.25, "min_p": 0.125,
    "typical_p": 0.75, "repetition_penalty": 1.5, "presence_penalty": -1, "frequency_penalty": 2,
    "repeat_last_n": 64, "dry_multiplier": 0.5, "dry_base": 1.25, "dry_allowed_length": 3,
    "dry_penalty_last_n": 40, "dry_sequence_breakers": ["x", "yz"], "logit_bias": {"5": -100, "7": 1.5}, "allowed_token_ids": [3, 4],
    "bad_words": ["no", " way"], "seed": 18446744073709551615, "n": 2, "max_tokens": 9,
    "min_tokens": 4, "stop": ["a", "b"], "include_stop_str_in_output": true,
    "skip_special_tokens": false, "stop_token_ids": [1, 2], "ignore_eos": true,
    "logprobs": 3, "prompt_logprobs": 2, "priority": -4, "cache_salt": "s", "echo": false,
    "stream": true, "stream_options": {"include_usage": true}, "speculate": false,
    "user": "ignored", "x": {"y": []}})");
  ASSERT_TRUE(request.ok()) << request.status().ToString();
  const SamplingParams& s = request->sampling;
  EXPECT_EQ(request->model, "m");
  EXPECT_EQ(std::get<std::string>(request->prompts.at(0)), "Hi");
  EXPECT_EQ(s.temperature, 0.5f);
  EXPECT_EQ(s.dynatemp_range, 0.25f);
  EXPECT_EQ(s.dynatemp_exponent, 2.0f);
  EXPECT_EQ(s.top_n_sigma, 1.5f);
  EXPECT_EQ(s.xtc_probability, 0.75f);
  EXPECT_EQ(s.xtc_threshold, 0.0625f);
  EXPECT_EQ(s.top_k, 3);
  EXPECT_EQ(s.top_p, 0.25f);
  EXPECT_EQ(s.min_p, 0.125f);
  EXPECT_EQ(s.typical_p, 0.75f);
  EXPECT_EQ(s.repetition_penalty, 1.5f);
  EXPECT_EQ(s.presence_penalty, -1.0f);
  EXPECT_EQ(s.frequency_penalty, 2.0f);
  EXPECT_EQ(s.repeat_last_n, 64);
  EXPECT_EQ(s.dry_multiplier, 0.5f);
  EXPECT_EQ(s.dry_base, 1.25f);
  EXPECT_EQ(s.dry_allowed_length, 3);
  EXPECT_EQ(s.dry_penalty_last_n, 40);
  EXPECT_EQ(s.dry_sequence_breakers, (std::vector<std::string>{"x", "yz"}));
  EXPECT_EQ(s.allowed_token_ids, (std::vector<int32_t>{3, 4}));
  EXPECT_EQ(s.bad_words, (std::vector<std::string>{"no", " way"}));
  EXPECT_EQ(s.logit_bias, (std::vector<std::pair<int32_t, float>>{{5, -100.0f}, {7, 1.5f}}));
  EXPECT_EQ(s.seed, UINT64_MAX);
  EXPECT_EQ(s.n, 2);
  EXPECT_EQ(s.max_tokens, 9);
  EXPECT_EQ(s.min_tokens, 4);
  EXPECT_EQ(s.stop, (std::vector<std::string>{"a", "b"}));
  EXPECT_TRUE(s.include_stop_str_in_output);
  EXPECT_FALSE(s.skip_special_tokens);
  EXPECT_EQ(s.stop_token_ids, (std::vector<int32_t>{1, 2}));
  EXPECT_TRUE(s.ignore_eos);
  EXPECT_EQ(s.logprobs, 3);
  EXPECT_EQ(s.prompt_logprobs, 2);
  EXPECT_EQ(request->priority, -4);
  EXPECT_EQ(request->cache_salt, "s");
  EXPECT_FALSE(request->speculate);
  EXPECT_TRUE(request->stream);
  EXPECT_TRUE(request->include_usage);
}

TEST(OpenAiRequest, ReadsEveryFormOfPrompt) {
  EXPECT_EQ(std::get<std::vector<int32_t>>(
                ParseCompletionRequest(R"({"prompt": [1, 2]})").value().prompts.at(0)),
            (std::vector<int32_t>{1, 2}));
  const auto mixed = ParseCompletionRequest(R"({"prompt": ["a", [3], "b"]})").value().prompts;
  ASSERT_EQ(mixed.size(), 3u);
  EXPECT_EQ(std::get<std::vector<int32_t>>(mixed[1]), std::vector<int32_t>{3});
  const std::string with_nul = std::get<std::string>(
      ParseCompletionRequest(R"({"prompt": "a\u0000b\ud83d\ude00"})").value().prompts.at(0));
  EXPECT_EQ(with_nul, std::string("a\0b\xF0\x9F\x98\x80", 7));
}

TEST(OpenAiRequest, ReadsConversations) {
  const Result<CompletionRequest> request = ParseChatRequest(R"({
    "messages": [{"role": "developer", "content": "Be brief."},
                 {"role": "user", "content": [{"type": "text", "text": "a"},
                                              {"type": "text", "text": "b"}]},
                 {"role": "assistant", "content": null},
                 {"role": "user", "content": "c", "name": "kept"}],
    "max_tokens": 6, "max_completion_tokens": 6, "logprobs": true, "top_logprobs": 4,
    "tools": [], "response_format": {"type": "text"}, "seed": -1, "top_k": -1})");
  ASSERT_TRUE(request.ok()) << request.status().ToString();
  const auto& messages = request->conversation.messages.items();
  ASSERT_EQ(messages.size(), 4u);
  const auto field = [&](size_t i, const char* name) { return *messages[i].dict().Find(name); };
  EXPECT_EQ(field(0, "role").text(), "system");
  EXPECT_EQ(field(0, "content").text(), "Be brief.");
  EXPECT_EQ(field(1, "content").items().size(), 2u);
  EXPECT_EQ(field(1, "content").items()[1].dict().Find("text")->text(), "b");
  EXPECT_TRUE(field(2, "content").is_none());
  EXPECT_EQ(field(3, "name").text(), "kept");
  EXPECT_TRUE(request->conversation.tools.is_none());
  EXPECT_EQ(request->sampling.max_tokens, 6);
  EXPECT_EQ(request->sampling.logprobs, 4);
  EXPECT_EQ(request->sampling.seed, UINT64_MAX);
  EXPECT_EQ(request->sampling.top_k, 0);
}

TEST(OpenAiRequest, ReadsToolsInTheirOrder) {
  const std::string body = R"({"messages": [{"role": "user", "content": "x"},
      {"role": "assistant", "tool_calls": [{"id": "1", "type": "function",
       "function": {"name": "f", "arguments": "{}"}}]},
      {"role": "tool", "tool_call_id": "1", "content": "y"}],
    "chat_template_kwargs": {"enable_thinking": false}, "add_generation_prompt": false,
    "tools": [{"type": "function", "function": {"name": "f", "z": 1, "a": 2}}])";
  const Result<CompletionRequest> request = ParseChatRequest(body + "}");
  ASSERT_TRUE(request.ok()) << request.status().ToString();
  const auto& function = request->conversation.tools.items().at(0).dict().Find("function")->dict();
  EXPECT_EQ(function.entries.at(1).first.text(), "z");
  EXPECT_EQ(request->conversation.variables.at(0).first, "enable_thinking");
  EXPECT_FALSE(request->conversation.add_generation_prompt);
  EXPECT_TRUE(ParseChatRequest(body + R"(, "tool_choice": "none"})")->conversation.tools.is_none());
}

struct BadBody {
  bool chat;
  std::string body;
  std::string path;  // start of the message; empty: no path
};

void ExpectRefused(const std::vector<BadBody>& cases) {
  for (const BadBody& bad : cases) {
    const Result<CompletionRequest> request =
        bad.chat ? ParseChatRequest(bad.body) : ParseCompletionRequest(bad.body);
    ASSERT_FALSE(request.ok()) << bad.body.substr(0, 200);
    EXPECT_EQ(request.status().code(), StatusCode::kInvalidArgument) << bad.body.substr(0, 200);
    EXPECT_EQ(LeadingPath(request.status().message()), bad.path) << bad.body.substr(0, 200) << "\n"
                                                                 << request.status().ToString();
  }
}

TEST(OpenAiRequest, NamesThePathOfWhatIsWrongInACompletion) {
  const std::string deep =
      "{\"prompt\": \"a\", \"x\": " + std::string(5000, '[') + std::string(5000, ']') + "}";
  const std::vector<BadBody> cases = {
      {false, "", ""},
      {false, "[]", ""},
      {false, "{\"prompt\": \"a\"", ""},
      {false, "{\"prompt\": \"\xFF\"}", ""},
      {false, R"({"prompt": "\ud800"})", ""},
      {false, R"({"prompt": "a", "temperature": NaN})", ""},
      {false, R"({"prompt": "a", "temperature": 1e999})", ""},
      {false, deep, ""},
      {false, "{}", "prompt"},
      {false, R"({"prompt": null})", "prompt"},
      {false, R"({"prompt": {}})", "prompt"},
      {false, R"({"prompt": []})", "prompt"},
      {false, R"({"prompt": [1, "a"]})", "prompt[1]"},
      {false, R"({"prompt": [1, 1.5]})", "prompt[1]"},
      {false, R"({"prompt": [1, 3000000000]})", "prompt[1]"},
      {false, R"({"prompt": ["a", [1, true]]})", "prompt[1][1]"},
      {false, R"({"prompt": ["a", {}]})", "prompt[1]"},
      {false, R"({"prompt": "a", "temperature": "0"})", "temperature"},
      {false, R"({"prompt": "a", "temperature": 1e300})", "temperature"},
      {false, R"({"prompt": "a", "n": 1.5})", "n"},
      {false, R"({"prompt": "a", "max_tokens": 99999999999999999999})", "max_tokens"},
      {false, R"({"prompt": "a", "max_tokens": -9999999999})", "max_tokens"},
      {false, R"({"prompt": "a", "max_tokens": true})", "max_tokens"},
      {true, R"({"messages": [{"role": "user", "content": "a"}], "max_tokens": -1,
                "max_completion_tokens": 5})",
       "max_completion_tokens"},
      {false, R"({"prompt": "a", "seed": 1.5})", "seed"},
      {false, R"({"prompt": "a", "seed": 18446744073709551616})", "seed"},
      {false, R"({"prompt": "a", "stop": 5})", "stop"},
      {false, R"({"prompt": "a", "stop": ["a", 5]})", "stop[1]"},
      {false, R"({"prompt": "a", "stop_token_ids": ["a"]})", "stop_token_ids[0]"},
      {false, R"({"prompt": "a", "logit_bias": []})", "logit_bias"},
      {false, R"({"prompt": "a", "logit_bias": {"x": 1}})", "logit_bias"},
      {false, R"({"prompt": "a", "logit_bias": {"1": "x"}})", "logit_bias.1"},
      {false, R"({"prompt": "a", "logit_bias": {"1": 1e300}})", "logit_bias.1"},
      {false, R"({"prompt": "a", "stream": 1})", "stream"},
      {false, R"({"prompt": "a", "stream_options": {}})", "stream_options"},
      {false, R"({"prompt": "a", "stream": true, "stream_options": {"include_usage": 1}})",
       "stream_options.include_usage"},
      {false, R"({"prompt": "a", "best_of": 5})", "best_of"},
      {true, R"({"messages": [{"role": "user", "content": "a"}], "best_of": 2})", "best_of"},
      {false, R"({"prompt": "a", "length_penalty": 0.5})", "length_penalty"},
      {false, R"({"prompt": "a", "early_stopping": "always"})", "early_stopping"},
      {false, R"({"prompt": "a", "early_stopping": 1})", "early_stopping"},
      {false, R"({"prompt": "a", "use_beam_search": 1})", "use_beam_search"},
      {false, R"({"prompt": "a", "use_beam_search": true, "temperature": 0.1})", "temperature"},
      {false, R"({"prompt": "a", "suffix": "x"})", "suffix"},
      {false, R"({"prompt": "a", "user": 5})", "user"},
      {false, R"({"prompt": "a", "metadata": "x"})", "metadata"},
      {false, R"({"prompt": "a", "store": 1})", "store"},
      {false, R"({"prompt": "a", "service_tier": []})", "service_tier"},
      {false, R"({"prompt": "a", "safety_identifier": {}})", "safety_identifier"},
      {false, R"({"prompt": "a", "prompt_cache_key": 1})", "prompt_cache_key"},
      {false, R"({"prompt": "a", "stream": true, "stream_options": {"include_obfuscation": 1}})",
       "stream_options.include_obfuscation"},
  };
  ExpectRefused(cases);
}

TEST(OpenAiRequest, ReadsABeamSearch) {
  const auto parse = [](const std::string& fields, const SamplingDefaults& defaults = {}) {
    return ParseCompletionRequest(R"({"prompt": "a", "use_beam_search": true)" + fields + "}",
                                  defaults)
        .value();
  };
  CompletionRequest request = parse(R"(, "n": 2, "best_of": 4, "length_penalty": 0.6,
                                       "early_stopping": "never", "temperature": 0)");
  EXPECT_EQ(request.sampling.n, 2);
  EXPECT_EQ(request.sampling.beam_search,
            (BeamSearchParams{
                .width = 4, .length_penalty = 0.6f, .early_stopping = EarlyStopping::kNever}));
  // A default is no wish of the client's.
  request = parse(R"(, "n": 3, "early_stopping": true)", {.temperature = 0.7f});
  EXPECT_EQ(request.sampling.beam_search,
            (BeamSearchParams{.width = 3, .early_stopping = EarlyStopping::kYes}));
  EXPECT_EQ(parse(R"(, "early_stopping": false)").sampling.beam_search,
            BeamSearchParams{.width = 1});
  EXPECT_FALSE(ParseCompletionRequest(R"({"prompt": "a", "use_beam_search": false, "best_of": 1,
                                           "length_penalty": 1, "early_stopping": true})")
                   .value()
                   .sampling.beam_search);
  // Errors name the field that the client gave.
  for (const auto& [fields, name] : std::map<std::string, std::string>{
           {R"(, "n": 3, "best_of": 2)", "best_of"}, {R"(, "n": 129)", "n"}}) {
    request = parse(fields);
    const Status status = request.spellings.Apply(Validate(request.sampling, 100));
    EXPECT_TRUE(status.message().starts_with(name + ": ")) << status.message();
  }
}

TEST(OpenAiRequest, NamesThePathOfWhatIsWrongInAConversation) {
  const std::vector<BadBody> cases = {
      {true, R"({})", "messages"},
      {true, R"({"messages": []})", "messages"},
      {true, R"({"messages": "a"})", "messages"},
      {true, R"({"messages": [5]})", "messages[0]"},
      {true, R"({"messages": [{"content": "a"}]})", "messages[0].role"},
      {true, R"({"messages": [{"role": "king", "content": "a"}]})", "messages[0].role"},
      {true, R"({"messages": [{"role": "user"}]})", "messages[0].content"},
      {true, R"({"messages": [{"role": "user", "content": 5}]})", "messages[0].content"},
      {true, R"({"messages": [{"role": "user", "content": ["a"]}]})", "messages[0].content[0]"},
      {true, R"({"messages": [{"role": "user", "content": [{"type": "video"}]}]})",
       "messages[0].content[0].type"},
      {true, R"({"messages": [{"role": "user", "content": [{"type": "text", "text": 1}]}]})",
       "messages[0].content[0].text"},
      {true, R"({"messages": [{"role": "user", "content": "a"}], "top_logprobs": 3})",
       "top_logprobs"},
      {true, R"({"messages": [{"role": "user", "content": "a"}], "logprobs": 3})", "logprobs"},
      {true, R"({"messages": [{"role": "user", "content": "a"}], "tools": [{}]})",
       "tools[0].function"},
      {true, R"({"messages": [{"role": "user", "content": "a"}], "tools": {}})", "tools"},
      {true,
       R"({"messages": [{"role": "user", "content": "a"}],
           "tools": [{"type": "retrieval", "function": {"name": "f"}}]})",
       "tools[0].type"},
      {true, R"({"messages": [{"role": "user", "content": "a"}], "tool_choice": "required"})",
       "tool_choice"},
      {true, R"({"messages": [{"role": "assistant", "tool_calls": [{"function": {}}]}]})",
       "messages[0].tool_calls[0].function.name"},
      {true, R"({"messages": [{"role": "assistant", "tool_calls": 5}]})", "messages[0].tool_calls"},
      {true,
       R"({"messages": [{"role": "assistant", "tool_calls": [{"function": {"name": "f",
           "arguments": [1]}}]}]})",
       "messages[0].tool_calls[0].function.arguments"},
      {true,
       R"({"messages": [{"role": "assistant", "tool_calls": [{"id": 1,
           "function": {"name": "f"}}]}]})",
       "messages[0].tool_calls[0].id"},
      {true, R"({"messages": [{"role": "assistant"}]})", "messages[0].content"},
      {true, R"({"messages": [{"role": "user", "content": "a", "name": 5}]})", "messages[0].name"},
      {true, R"({"messages": [{"role": "tool", "content": "a", "tool_call_id": 5}]})",
       "messages[0].tool_call_id"},
      {true, R"({"messages": [{"role": "assistant", "content": "a", "reasoning_content": []}]})",
       "messages[0].reasoning_content"},
      {true, R"({"messages": [{"role": "user", "content": "a"}], "functions": [{}]})", "functions"},
      {true,
       R"({"messages": [{"role": "user", "content": "a"}],
           "chat_template_kwargs": {"messages": []}})",
       "chat_template_kwargs"},
      {true, R"({"messages": [{"role": "user", "content": "a"}], "chat_template_kwargs": 5})",
       "chat_template_kwargs"},
      {false, R"({"prompt": "a", "tools": [{}]})", "tools"},
      {true,
       R"({"messages": [{"role": "user", "content": "a"}], "response_format": {"type": "json"}})",
       "response_format.type"},
  };
  ExpectRefused(cases);
}

TEST(OpenAiRequest, RefusesNulBytes) {
  const std::string good = R"({"prompt": "a", "max_tokens": 1})";
  ASSERT_TRUE(ParseCompletionRequest(good).ok());
  const std::string nul(1, '\0');
  for (const std::string& tail :
       {nul, nul + "}", nul + R"({"prompt": "b"})", nul + nul, "\n" + nul}) {
    const auto request = ParseCompletionRequest(good + tail);
    EXPECT_EQ(request.status().code(), StatusCode::kInvalidArgument) << tail.size();
  }
  for (size_t at = 0; at < good.size(); ++at) {
    std::string body = good;
    body.insert(at, nul);
    EXPECT_FALSE(ParseCompletionRequest(body).ok()) << at;
    EXPECT_FALSE(ParseTokenizeRequest(body).ok()) << at;
  }
}

TEST(OpenAiRequest, LeadingPathTakesNothingButPaths) {
  EXPECT_EQ(LeadingPath("top_p: must be in (0, 1]"), "top_p");
  EXPECT_EQ(LeadingPath("messages[2].content[0].type: \"video\""), "messages[2].content[0].type");
  EXPECT_EQ(LeadingPath("the body: is wrong"), "");
  EXPECT_EQ(LeadingPath("no colon"), "");
  EXPECT_EQ(LeadingPath(": x"), "");
}

}  // namespace
}  // namespace tokamak
