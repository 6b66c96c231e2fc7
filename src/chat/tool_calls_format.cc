#include "chat/tool_calls_format.h"

#include <algorithm>
#include <optional>
#include <span>
#include <utility>

#include "base/error.h"
#include "base/json/json_value.h"
#include "base/text.h"
#include "chat/harmony.h"
#include "chat/json.h"

namespace tokamak {
namespace {

// Since version 11: [TOOL_CALLS]NAME[ARGS]{...}; some versions add [CALL_ID]ID after the name.
std::optional<ToolCall> MistralHead(std::string_view head) {
  const auto before = TakeUntil(head, "[ARGS]");
  if (!before || !Trim(head).empty()) return std::nullopt;
  std::string_view id = *before;
  const auto name = TakeUntil(id, "[CALL_ID]");
  return ToolCall{name ? std::string(Trim(id)) : "", std::string(Trim(name.value_or(*before))), ""};
}

// NAME<sep>{...}, or before V3.1 function<sep>NAME and the JSON in a ```json fence.
std::optional<ToolCall> DeepSeekHead(std::string_view head) {
  const auto before = TakeUntil(head, "<｜tool▁sep｜>");
  if (!before) return std::nullopt;
  constexpr std::string_view kFence = "```json";
  head = Trim(head);
  if (head.ends_with(kFence)) head = Trim(head.substr(0, head.size() - kFence.size()));
  return ToolCall{"", std::string(head.empty() ? Trim(*before) : head), ""};
}

// functions.NAME:INDEX<mark>{...}; everything before the mark is the call's id.
std::optional<ToolCall> KimiHead(std::string_view head) {
  const auto before = TakeUntil(head, "<|tool_call_argument_begin|>");
  if (!before || !Trim(head).empty()) return std::nullopt;
  const std::string_view id = Trim(*before);
  std::string_view name = id.substr(0, id.rfind(':'));
  constexpr std::string_view kPrefix = "functions.";
  if (name.starts_with(kPrefix)) name.remove_prefix(kPrefix.size());
  return ToolCall{std::string(id), std::string(name), ""};
}

// <function=NAME>{...}</function>
std::optional<ToolCall> FunctionaryHead(std::string_view head) {
  const auto name = TakeUntil(head, ">");
  if (!name || !Trim(head).empty()) return std::nullopt;
  return ToolCall{"", std::string(Trim(*name)), ""};
}

// Values of this type are the text as it is written.
constexpr std::string_view kStringType = "string";

// Returns the first name of a type, which may be a list with "null" in it.
std::string TypeName(const jinja::Value* type) {
  if (type == nullptr) return "";
  if (type->is_string()) return std::string(type->text());
  if (!type->is(jinja::Type::kList)) return "";
  for (const jinja::Value& one : type->items()) {
    if (one.is_string() && one.text() != "null") return std::string(one.text());
  }
  return "";
}

const jinja::Value* Find(const jinja::Value* dict, std::string_view key) {
  return dict != nullptr && dict->is_dict() ? dict->dict().Find(key) : nullptr;
}

ToolFormat GptOss() {
  return {.name = "openai",
          .in_template = {"<|start|>assistant", "<|channel|>commentary"},
          .harmony = true,
          .written = {.call = "<|channel|>commentary to=functions.{name} "
                              "<|constrain|>json<|message|>{arguments}"}};
}

ToolFormat ToolCallTag(std::string_view name, std::vector<std::string_view> in_template,
                       WrittenCalls written) {
  return {.name = name,
          .in_template = std::move(in_template),
          .starts = {"<tool_call>"},
          .end = "</tool_call>",
          .tagged = true,
          .written = std::move(written)};
}

ToolFormat Hermes() {
  return ToolCallTag(
      "hermes", {"<tool_call>"},
      {.call = "<tool_call>\n{\"name\": \"{name}\", \"arguments\": {arguments}}\n</tool_call>",
       .separator = "\n?"});
}

ToolFormat QwenCoder() {
  return ToolCallTag(
      "qwen3_coder", {"<tool_call>", "<function="},
      {.call = "<tool_call>\n<function={name}>\n{arguments}</function>\n</tool_call>",
       .separator = "\n?",
       .parameters = {{.before_name = "<parameter=",
                       .after_name = ">\n",
                       .after_value = "\n</parameter>\n",
                       .stops = {"</parameter>", "</tool_call>"}}}});
}

ToolFormat Glm() {
  return ToolCallTag("glm45", {"<tool_call>", "<arg_key>"},
                     {.call = "<tool_call>{name}{arguments}</tool_call>",
                      .separator = "\n?",
                      .parameters = {{.before_name = "\n?<arg_key>",
                                      .after_name = "</arg_key>\n?<arg_value>",
                                      .after_value = "</arg_value>",
                                      .end = "\n{0,2}",
                                      .stops = {"</arg_value>", "</tool_call>"}}}});
}

ToolFormat KimiK2() {
  return {.name = "kimi_k2",
          .in_template = {"<|tool_call_argument_begin|>"},
          .starts = {"<|tool_call_begin|>"},
          .end = "<|tool_call_end|>",
          .ignored = {"<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"},
          .json_after = "<|tool_call_argument_begin|>",
          // The id counts the calls of the whole conversation.
          .written = {.call = "<|tool_call_begin|>functions.{name}:{id}<|tool_call_argument_begin|>"
                              "{arguments}<|tool_call_end|>",
                      .separator = "",
                      .begin = "<|tool_calls_section_begin|>",
                      .end = "<|tool_calls_section_end|>",
                      .id = "[0-9]{1,4}"},
          .in_head = KimiHead};
}

ToolFormat DeepSeek(std::string_view name, std::vector<std::string_view> in_template,
                    std::string_view call, std::string_view separator) {
  return {.name = name,
          .in_template = std::move(in_template),
          .starts = {"<｜tool▁call▁begin｜>"},
          .end = "<｜tool▁call▁end｜>",
          .ignored = {"<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"},
          .json_after = "<｜tool▁sep｜>",
          .written = {.call = call,
                      .separator = separator,
                      .begin = "<｜tool▁calls▁begin｜>",
                      .end = "<｜tool▁calls▁end｜>"},
          .in_head = DeepSeekHead};
}

// Versions are those of Mistral's tokenizers.
ToolFormat Mistral(std::string_view name, std::vector<std::string_view> in_template,
                   WrittenCalls written) {
  written.id = "[a-zA-Z0-9]{9}";
  return {.name = name,
          .in_template = std::move(in_template),
          .starts = {"[TOOL_CALLS]"},
          .inside = "[CALL_ID]",
          .json_after = "[ARGS]",
          .json_at_once = true,
          .short_ids = true,
          .written = written,
          .in_head = MistralHead};
}

ToolFormat CommandR7b() {
  return {.name = "command_r7b",
          .in_template = {"<|START_ACTION|>"},
          .starts = {"<|START_ACTION|>"},
          .end = "<|END_ACTION|>",
          .ignored = {"<|START_RESPONSE|>", "<|END_RESPONSE|>"},
          .written = {.call = R"({"tool_call_id": "{id}", "tool_name": "{name}", )"
                              R"("parameters": {arguments}})",
                      .separator = ",\n    ",
                      .begin = "<|START_ACTION|>[\n    ",
                      .end = "\n]<|END_ACTION|>",
                      .id = "[0-9]{1,4}"}};
}

WrittenCalls CallsInList(std::string_view begin, std::string_view end) {
  return {.call = R"({"name": "{name}", "arguments": {arguments}})",
          .separator = ", ",
          .begin = begin,
          .end = end};
}

const std::vector<ToolFormat>& Formats() {
  static const std::vector<ToolFormat> kFormats = {
      KimiK2(),
      DeepSeek("deepseek_v3", {"<｜tool▁call▁begin｜>", "```json"},
               "<｜tool▁call▁begin｜>function<｜tool▁sep｜>{name}\n```json\n{arguments}\n```"
               "<｜tool▁call▁end｜>",
               "\n"),
      DeepSeek("deepseek_v31", {"<｜tool▁call▁begin｜>"},
               "<｜tool▁call▁begin｜>{name}<｜tool▁sep｜>{arguments}<｜tool▁call▁end｜>", ""),
      Mistral("mistral_v11", {"[TOOL_CALLS]", "[ARGS]", "[CALL_ID]"},
              {.call = "[TOOL_CALLS]{name}[CALL_ID]{id}[ARGS]{arguments}", .separator = ""}),
      Mistral("mistral_v13", {"[TOOL_CALLS]", "[ARGS]"},
              {.call = "[TOOL_CALLS]{name}[ARGS]{arguments}", .separator = ""}),
      Mistral("mistral", {"[TOOL_CALLS]"},
              {.call = R"({"name": "{name}", "arguments": {arguments}, "id": "{id}"})",
               .separator = ", ",
               .begin = "[TOOL_CALLS][",
               .end = "]"}),
      CommandR7b(),
      {.name = "nemotron",
       .in_template = {"<TOOLCALL>"},
       .starts = {"<TOOLCALL>"},
       .end = "</TOOLCALL>",
       .written = CallsInList("<TOOLCALL>[", "]</TOOLCALL>")},
      {.name = "apriel",
       .in_template = {"<tool_calls>["},
       .starts = {"<tool_calls>"},
       .end = "</tool_calls>",
       .written = CallsInList("<tool_calls>[", "]</tool_calls>")},
      {.name = "granite",
       .in_template = {"<|tool_call|>"},
       .starts = {"<|tool_call|>"},
       .ignored = {"<|/tool_call|>"},
       .written = CallsInList("<|tool_call|>[", "]")},
      // The next three differ in their templates, but each reads what models with any of them
      // write.
      QwenCoder(),
      Glm(),
      Hermes(),
      {.name = "functionary_v3.1",
       .in_template = {"`<function`"},
       .starts = {"<function="},
       .end = "</function>",
       .json_after = ">",
       .written = {.call = "<function={name}>{arguments}</function>", .separator = ""},
       .in_head = FunctionaryHead},
      {.name = "llama3_json",
       .in_template = {"<|start_header_id|>", "\"parameters\": "},
       .starts = {"<|python_tag|>"},
       .bare = true,
       .only_known = true,
       .written = {.call = R"({"name": "{name}", "parameters": {arguments}})"}},
      GptOss(),
  };
  return kFormats;
}

constexpr ReasoningFormat kReasoningFormats[] = {
    {"think", "<think>", "</think>"},
    {"mistral", "[THINK]", "[/THINK]"},
    {"seed", "<seed:think>", "</seed:think>"},
    {"command_r7b", "<|START_THINKING|>", "<|END_THINKING|>"},
    {"openai_gptoss", kHarmonyAnalysis, "<|end|>", true},
};

template <typename Format>
Result<const Format*> Choose(std::string_view name, std::span<const Format> formats,
                             const Format* detected, std::string_view flag) {
  if (name == "auto") return detected;
  if (name == "none") return static_cast<const Format*>(nullptr);
  std::string names = "auto, none";
  for (const Format& format : formats) {
    if (format.name == name) return &format;
    names += fmt::format(", {}", format.name);
  }
  return InvalidArgument("{}: \"{}\" does not exist; choose one of {}", flag, name, names);
}

// The arguments for which ToolTypes::ToJson takes any text for a string.
std::vector<std::string> TextArguments(const std::string& schema) {
  std::vector<std::string> names;
  const Result<jinja::Value> json = ParseJson(schema);
  const jinja::Value* properties = json.ok() ? Find(&*json, "properties") : nullptr;
  if (properties == nullptr || !properties->is_dict()) return names;
  for (const auto& [name, property] : properties->dict().entries) {
    if (TypeName(Find(&property, "type")) == kStringType) names.emplace_back(name.text());
  }
  return names;
}

// Adds each tool as a call, and how calls are written.
Status AddCalls(const ToolFormat& format,
                std::span<const std::pair<std::string, std::string>> tools, bool parallel,
                StructuredOutput& output) {
  const WrittenCalls& written = format.written;
  std::string_view end = written.call;
  const std::string_view before_name = TakeUntil(end, "{name}").value();
  const std::string_view after_name = TakeUntil(end, "{arguments}").value();
  output.calls.clear();
  for (const auto& [name, schema] : tools) {
    if (!IsToolName(name)) {
      return InvalidArgument("\"{}\" cannot be the name of a tool: use letters, digits, _ and -",
                             name.substr(0, 64));
    }
    output.calls.push_back({.begin = std::string(before_name) + name + std::string(after_name),
                            .schema = schema,
                            .end = std::string(end),
                            .id = std::string(written.id)});
    if (written.parameters) output.calls.back().text_arguments = TextArguments(schema);
  }
  if (parallel) output.call_separator = written.separator;
  output.calls_begin = written.begin;
  output.calls_end = written.end;
  output.call_parameters = written.parameters;
  if (format.harmony) return Status();  // messages have marks of their own
  for (const std::string_view mark : MarksOf(&format, nullptr)) {
    output.call_marks.emplace_back(mark);
  }
  return Status();
}

}  // namespace

bool IsToolName(std::string_view text) {
  constexpr std::string_view kOther = "_-.:/";
  if (text.empty() || text.size() > 256) return false;
  return std::all_of(text.begin(), text.end(), [&](char c) {
    const bool word = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    return word || kOther.find(c) != std::string_view::npos || static_cast<uint8_t>(c) >= 0x80;
  });
}

std::optional<std::string_view> TakeUntil(std::string_view& text, std::string_view mark) {
  const size_t at = text.find(mark);
  if (at == std::string_view::npos) return std::nullopt;
  const std::string_view before = text.substr(0, at);
  text.remove_prefix(at + mark.size());
  return before;
}

ToolTypes::ToolTypes(const jinja::Value& tools) {
  if (!tools.is(jinja::Type::kList)) return;
  for (const jinja::Value& tool : tools.items()) {
    const jinja::Value* function = Find(&tool, "function");
    const jinja::Value* name = Find(function, "name");
    if (name == nullptr || !name->is_string() || name->text().empty()) continue;
    auto& types = tools_[std::string(name->text())];
    const jinja::Value* properties = Find(Find(function, "parameters"), "properties");
    if (properties == nullptr || !properties->is_dict()) continue;
    for (const auto& [key, schema] : properties->dict().entries) {
      types[std::string(key.text())] = TypeName(Find(&schema, "type"));
    }
  }
}

std::string ToolTypes::ToJson(std::string_view tool, std::string_view parameter,
                              std::string_view value) const {
  std::string type;
  if (const auto found = tools_.find(tool); found != tools_.end()) {
    const auto of = found->second.find(parameter);
    if (of != found->second.end()) type = of->second;
  }
  const std::string_view trimmed = Trim(value);
  if (type != kStringType) {
    if (trimmed == "True") return "true";  // models write Python's constants instead of JSON's
    if (trimmed == "False") return "false";
    if (trimmed == "None") return "null";
    if (JsonValue::Parse(trimmed, {.max_depth = 100})) return std::string(trimmed);
  }
  return JsonValue(std::string(value)).Dump();
}

std::span<const ToolFormat> ToolFormats() { return Formats(); }
std::span<const ReasoningFormat> ReasoningFormats() { return kReasoningFormats; }

std::vector<std::string_view> MarksOf(const ToolFormat* tools, const ReasoningFormat* reasoning) {
  if ((tools != nullptr && tools->harmony) || (reasoning != nullptr && reasoning->harmony)) {
    return {std::begin(kHarmonyTokens), std::end(kHarmonyTokens)};
  }
  std::vector<std::string_view> marks;
  if (tools != nullptr) {
    marks = tools->starts;
    marks.insert(marks.end(), tools->ignored.begin(), tools->ignored.end());
    marks.insert(marks.end(), {tools->end, tools->inside, tools->json_after});
  }
  if (reasoning != nullptr) marks.insert(marks.end(), {reasoning->open, reasoning->close});
  std::erase(marks, "");
  return marks;
}

const ToolFormat* DetectToolFormat(std::string_view template_source) {
  // MiniMax's tags have the same names but other content.
  if (template_source.find("<invoke name=") != std::string_view::npos) return nullptr;
  for (const ToolFormat& format : Formats()) {
    const bool all = std::all_of(format.in_template.begin(), format.in_template.end(),
                                 [&](std::string_view marker) {
                                   return template_source.find(marker) != std::string_view::npos;
                                 });
    if (all) return &format;
  }
  return nullptr;
}

const ReasoningFormat* DetectReasoningFormat(std::string_view template_source) {
  for (const ReasoningFormat& format : kReasoningFormats) {
    // <|end|> also occurs in other families.
    const std::string_view mark = format.harmony ? format.open : format.close;
    if (template_source.find(mark) != std::string_view::npos) return &format;
  }
  return nullptr;
}

bool OpensReasoning(std::string_view prompt, const ReasoningFormat* format) {
  return format != nullptr && Trim(prompt).ends_with(format->open);
}

Result<StructuredOutput> ForceCalls(const ToolFormat& format,
                                    std::span<const std::pair<std::string, std::string>> tools,
                                    bool parallel) {
  StructuredOutput output;
  RETURN_IF_ERROR(OrCalls(format, tools, parallel, output));
  output.must_call = true;
  return output;
}

Status OrCalls(const ToolFormat& format, std::span<const std::pair<std::string, std::string>> tools,
               bool parallel, StructuredOutput& output) {
  return AddCalls(format, tools, parallel, output);
}

Result<StructuredOutput> AllowCalls(const ToolFormat& format,
                                    std::span<const std::pair<std::string, std::string>> tools,
                                    bool parallel) {
  if (format.harmony) {
    StructuredOutput output{.kind = StructuredOutput::Kind::kRegex, .text = "[\\s\\S]*"};
    RETURN_IF_ERROR(OrCalls(format, tools, parallel, output));
    return output;
  }
  StructuredOutput output{.calls_in_text = true};
  RETURN_IF_ERROR(AddCalls(format, tools, parallel, output));
  // Free text must not contain anything that is read as the start of a call.
  output.triggers.assign(format.starts.begin(), format.starts.end());
  const std::string begin = std::string(format.written.begin) + std::string(format.written.call);
  for (const std::string_view mark : format.ignored) {
    if (begin.starts_with(mark)) output.triggers.emplace_back(mark);
  }
  if (std::none_of(output.triggers.begin(), output.triggers.end(),
                   [&](const std::string& trigger) { return begin.starts_with(trigger); })) {
    return Unimplemented(
        "calls have no opening tag in this model's form of tool calls ({}), so they cannot be told "
        "from text while they are written",
        format.name);
  }
  output.ends_after_tag = !parallel;
  return output;
}

std::optional<StructuredOutput::Reasoning> FreeReasoning(std::string_view prompt,
                                                         const ReasoningFormat* format) {
  if (format == nullptr) return std::nullopt;
  const std::string_view text = prompt.substr(0, prompt.find_last_not_of('\n') + 1);
  if (text.ends_with(format->close)) return std::nullopt;
  return StructuredOutput::Reasoning{.open = std::string(format->open),
                                     .close = std::string(format->close),
                                     .begun = OpensReasoning(prompt, format)};
}

void BoundThinking(const ReasoningFormat& format, bool begun, SamplingParams& sampling) {
  if (!sampling.thinking_token_budget || format.harmony) return;
  sampling.thinking = {
      .open = std::string(format.open), .close = std::string(format.close), .begun = begun};
}

Result<const ToolFormat*> ChooseToolFormat(std::string_view name,
                                           std::string_view template_source) {
  return Choose(name, ToolFormats(), DetectToolFormat(template_source), "--tool-call-parser");
}

Result<const ReasoningFormat*> ChooseReasoningFormat(std::string_view name,
                                                     std::string_view template_source) {
  return Choose(name, ReasoningFormats(), DetectReasoningFormat(template_source),
                "--reasoning-parser");
}

}  // namespace tokamak
