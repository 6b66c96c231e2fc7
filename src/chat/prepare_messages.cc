#include "chat/prepare_messages.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "chat/json.h"

namespace tokamak {
namespace {

using jinja::DictObject;
using jinja::Type;
using jinja::Value;

Value Text(std::string_view text) { return Value::String(std::string(text)); }

// Returns a copy of a dictionary with one value changed or added.
Value With(const Value& dict, std::string_view key, Value value) {
  auto copy = std::make_unique<DictObject>();
  for (const auto& [k, v] : dict.dict().entries) copy->Set(k, v);
  copy->Set(Text(key), std::move(value));
  return jinja::MakeDict(std::move(copy), nullptr);
}

// Null if it is missing, or if `value` is not a dictionary.
const Value* Find(const Value& value, std::string_view key) {
  return value.is_dict() ? value.dict().Find(key) : nullptr;
}

// Returns whether a part of a content is an image, in OpenAI's form or in that of templates.
bool IsImage(const Value& part) {
  const Value* type = Find(part, "type");
  return type != nullptr && type->is_string() &&
         (type->text() == "image_url" || type->text() == "image");
}

Value Part(std::string_view type) {
  auto part = std::make_unique<DictObject>();
  part->Set(Text("type"), Text(type));
  return jinja::MakeDict(std::move(part), nullptr);
}

// The text of a list of parts; nullopt if there is a part that is neither text nor an image.
std::optional<std::string> TextOf(const Value& parts, const std::string& image_placeholder) {
  std::string joined;
  bool after_image = false;
  for (const Value& part : parts.items()) {
    const Value* text = Find(part, "text");
    const bool is_image = IsImage(part);
    if (!is_image && (text == nullptr || !text->is_string())) return std::nullopt;
    const std::string_view piece = is_image ? std::string_view(image_placeholder) : text->text();
    if (piece.empty()) continue;
    if (!joined.empty() && (is_image || after_image)) joined += '\n';
    joined += piece;
    after_image = is_image;
  }
  return joined;
}

Value PrepareParts(const Value& parts, const TemplateTraits& traits) {
  const std::vector<Value>& list = parts.items();
  const bool has_image = std::any_of(list.begin(), list.end(), IsImage);
  if (!has_image || (!traits.image_parts && !traits.image_placeholder.empty())) {
    std::optional<std::string> text = TextOf(parts, traits.image_placeholder);
    return text ? Text(*text) : parts;
  }
  std::vector<Value> prepared;
  for (const Value& part : list) prepared.push_back(IsImage(part) ? Part("image") : part);
  return Value::List(std::move(prepared));
}

Value PrepareCall(const Value& call) {
  const Value* function = Find(call, "function");
  const Value* arguments = function == nullptr ? nullptr : Find(*function, "arguments");
  if (arguments == nullptr || !arguments->is_string()) return call;
  // Models send an empty string for a call without arguments.
  const std::string_view json = arguments->text().empty() ? "{}" : arguments->text();
  Result<Value> parsed = ParseJson(json);
  if (!parsed.ok() || !parsed->is_dict()) return call;
  return With(call, "function", With(*function, "arguments", *std::move(parsed)));
}

// For templates that refuse content beside reasoning. The content joins the reasoning, because such
// templates show content as reasoning too if there is no other.
Value JoinTexts(const Value& message) {
  const Value* content = Find(message, "content");
  const Value* reasoning = FindReasoning(message);
  const auto has_text = [](const Value* v) {
    return v != nullptr && v->is_string() && !v->text().empty();
  };
  if (!has_text(content) || !has_text(reasoning)) return message;
  const Value both = Text(std::string(reasoning->text()) + "\n\n" + std::string(content->text()));
  return With(With(With(message, "reasoning_content", both), "thinking", both), "content",
              Text(""));
}

Value PrepareMessage(Value message, const TemplateTraits& traits) {
  if (!message.is_dict()) return message;
  if (const Value* parts = Find(message, "content"); parts && parts->is(Type::kList)) {
    message = With(message, "content", PrepareParts(*parts, traits));
  }
  const Value* calls = Find(message, "tool_calls");
  const bool has_calls = calls != nullptr && calls->is(Type::kList) && !calls->items().empty();
  if (has_calls && traits.arguments_as_object) {
    std::vector<Value> prepared;
    for (const Value& call : calls->items()) prepared.push_back(PrepareCall(call));
    message = With(message, "tool_calls", Value::List(std::move(prepared)));
  }
  if (has_calls && traits.one_text_with_calls) message = JoinTexts(message);
  const Value* content = Find(message, "content");
  const bool empty = content == nullptr ? has_calls : content->is_none();
  if (empty) {
    const bool keep_null = has_calls && traits.null_content;
    return With(message, "content", keep_null ? Value::None() : Text(""));
  }
  if (traits.content_as_parts && content != nullptr && content->is_string()) {
    const Value part = With(Part("text"), "text", *content);
    return With(message, "content", Value::List({part}));
  }
  return message;
}

// ---- Probing ----

constexpr char kTools[] = R"([{"type": "function", "function": {
  "name": "probe_tool", "description": "Probes.", "parameters": {"type": "object",
  "properties": {"probe_key": {"type": "string", "description": "A key."}},
  "required": ["probe_key"]}}}])";
// An id that Mistral's templates accept: nine letters and digits.
constexpr char kCall[] = R"([{"role": "user", "content": "probe-question"},
  {"role": "assistant", "content": null, "tool_calls": [{"id": "call00001", "type": "function",
   "function": {"name": "probe_tool", "arguments": "{\"probe_key\": \"probe-value\"}"}}]},
  {"role": "tool", "tool_call_id": "call00001", "name": "probe_tool", "content": "probe-result"}])";
// The same call with content beside it, and with content and reasoning.
constexpr char kWithContent[] = R"([{"role": "user", "content": "probe-question"},
  {"role": "assistant", "content": "probe-said", "tool_calls": [{"id": "call00001", "type":
   "function", "function": {"name": "probe_tool", "arguments": "{}"}}]}])";
constexpr char kWithBoth[] = R"([{"role": "user", "content": "probe-question"},
  {"role": "assistant", "content": "probe-said", "reasoning_content": "probe-thought",
   "tool_calls": [{"id": "call00001", "type": "function", "function": {"name": "probe_tool",
   "arguments": "{}"}}]}])";
constexpr char kImage[] = R"([{"role": "user", "content": [{"type": "image"},
  {"type": "text", "text": "probe-question"}]}])";
constexpr char kQuestion[] = R"([{"role": "user", "content": "probe-question"}])";

// Empty if rendering fails.
std::string RenderProbe(const ChatTemplate& chat, const char* messages,
                        const TemplateTraits& traits) {
  ChatInput input;
  input.messages = PrepareMessages(*ParseJson(messages), traits);
  input.tools = *ParseJson(kTools);
  Result<std::string> text = chat.Render(input);
  return text.ok() ? *std::move(text) : std::string();
}

int Count(const std::string& text, std::string_view what) {
  int count = 0;
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++count;
  return count;
}

}  // namespace

TemplateTraits ProbeTemplate(const ChatTemplate& chat, std::string_view image_placeholder) {
  TemplateTraits traits{.image_placeholder = std::string(image_placeholder)};
  if (RenderProbe(chat, kQuestion, traits).find("probe-question") == std::string::npos) {
    TemplateTraits parts = traits;
    parts.content_as_parts = true;
    if (RenderProbe(chat, kQuestion, parts).find("probe-question") != std::string::npos) {
      traits = parts;
    }
  }
  if (!image_placeholder.empty()) {
    TemplateTraits parts = traits;
    parts.image_parts = true;
    const std::string text = RenderProbe(chat, kImage, parts);
    traits.image_parts = Count(text, image_placeholder) == 1 && Count(text, "probe-question") == 1;
  }
  for (const bool as_object : {true, false}) {
    TemplateTraits tried = traits;
    tried.arguments_as_object = as_object;
    tried.null_content = false;
    const std::string plain = RenderProbe(chat, kCall, tried);
    for (const bool null_content : {true, false}) {
      tried.null_content = null_content;
      const std::string text = null_content ? RenderProbe(chat, kCall, tried) : plain;
      const bool shown = Count(text, "probe-value") > 0;
      const bool as_python = Count(text, "'probe_key'") > 0;
      const bool encoded_twice = Count(text, "\\\"probe_key\\\"") > 0;
      const bool none = null_content && Count(text, "None") > Count(plain, "None");
      if (!shown || as_python || encoded_twice || none) continue;
      tried.one_text_with_calls = RenderProbe(chat, kWithBoth, tried).empty() &&
                                  !RenderProbe(chat, kWithContent, tried).empty();
      return tried;
    }
  }
  return traits;  // it shows no tool calls, or none correctly
}

Value PrepareMessages(const Value& messages, const TemplateTraits& traits) {
  if (!messages.is(Type::kList)) return messages;
  std::vector<Value> prepared;
  for (const Value& message : messages.items()) {
    prepared.push_back(PrepareMessage(message, traits));
  }
  return Value::List(std::move(prepared));
}

Status AddVariables(const Value& object, ChatInput& input) {
  if (!object.is_dict()) return InvalidArgument("template variables must be an object");
  for (const auto& [key, value] : object.dict().entries) {
    const std::string_view name = key.text();
    if (name == "messages" || name == "tools" || name == "documents" ||
        name == "add_generation_prompt") {
      return InvalidArgument("\"{}\" is not for template variables", name);
    }
    input.variables.emplace_back(name, value);
  }
  return Status();
}

}  // namespace tokamak
