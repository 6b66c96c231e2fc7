#include "server/openai/conversation_fields.h"

#include <algorithm>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "chat/json.h"
#include "chat/prepare_messages.h"

namespace tokamak {
namespace {

using jinja::Value;

constexpr size_t kMaxMessages = 4096;
constexpr size_t kMaxTools = 1024;

// Checks a content: text, or a list of parts. This model takes only parts with text.
void CheckContent(const JsonReader& content) {
  if (content.is_null() || content.is_string()) return;
  if (!content.is_array()) return content.Bad("a string or an array of parts");
  content.ForEach(SIZE_MAX, [](const JsonReader& part) {
    if (!part.is_object()) return part.Bad("an object");
    const JsonReader type = part["type"];
    if (!type.is_string()) return type.Fail("must be a string");
    if (type.value() != "text") {
      return type.Fail(fmt::format("\"{}\" is not supported by this model; it accepts \"text\"",
                                   type.String().substr(0, 64)));
    }
    if (!part["text"].is_string()) part.Fail("text", "must be a string");
  });
}

// Returns whether the member exists, even as null, and `allowed` is false for its value.
bool Violates(const JsonReader& object, std::string_view name,
              FunctionRef<bool(const JsonValue&)> allowed) {
  const JsonValue* value = object.value().Find(name);
  return value != nullptr && !allowed(*value);
}

// Checks an object {"type": "function", "function": {"name": ...}}: a tool or a tool call.
void CheckFunction(const JsonReader& value) {
  if (!value.is_object()) return value.Bad("an object");
  if (Violates(value, "type", [](const JsonValue& type) { return type == "function"; })) {
    return value.Fail("type", "must be \"function\"");
  }
  const JsonReader function = value["function"];
  if (!function.is_object()) return function.Fail("must be an object");
  if (!function["name"].is_string()) function.Fail("name", "must be a string");
}

// Returns whether there is at least one tool.
bool CheckCalls(const JsonReader& calls) {
  calls.ForEach(SIZE_MAX, [](const JsonReader& call) {
    CheckFunction(call);
    if (!call.ok()) return;
    if (Violates(call, "id", [](const JsonValue& id) { return id.is_string(); })) {
      call["id"].Bad("a string");
    }
    const auto is_arguments = [](const JsonValue& v) { return v.is_string() || v.is_object(); };
    if (Violates(call["function"], "arguments", is_arguments)) {
      call["function"]["arguments"].Bad("a string of JSON");
    }
  });
  return calls.is_array() && calls.Size() > 0;
}

void CheckMessage(const JsonReader& message) {
  if (!message.is_object()) return message.Bad("an object");
  const JsonReader role = message["role"];
  if (!role.is_string()) return role.Fail("must be a string");
  constexpr std::string_view kRoles[] = {"system", "developer", "user", "assistant", "tool"};
  if (std::find(std::begin(kRoles), std::end(kRoles), role.String()) == std::end(kRoles)) {
    return role.Fail("must be \"system\", \"developer\", \"user\", \"assistant\" or \"tool\"");
  }
  std::string text;
  for (const char* name : {"name", "tool_call_id", "reasoning_content"}) message.Read(name, text);
  const bool calls = CheckCalls(message["tool_calls"]);
  const JsonReader content = message["content"];
  const bool may_lack = message.IsNull("content") ? role.value() == "assistant" : calls;
  if (!content.present() && !may_lack) return content.Fail("is missing");
  CheckContent(content);
}

// Checks {"type": "function", "function": {"name": ...}}, which names one of the tools.
void CheckNamedTool(const JsonReader& choice, const JsonReader& tools) {
  CheckFunction(choice);
  if (!choice.ok() || !tools.ok()) return;
  const JsonReader name = choice["function"]["name"];
  for (size_t i = 0; i < tools.value().size(); ++i) {
    if (tools[i]["function"]["name"].value() == name.value()) return;
  }
  name.Fail("names none of the tools");
}

// Returns whether the model is told about the tools.
bool ReadTools(const JsonReader& fields) {
  const JsonReader tools = fields["tools"], choice = fields["tool_choice"];
  tools.ForEach(kMaxTools, [](const JsonReader& tool) { CheckFunction(tool); });
  if (choice.is_object()) {
    CheckNamedTool(choice, tools);
  } else if (choice.value() == "required") {
    if (tools.value().size() == 0) choice.Fail("needs \"tools\"");
  } else if (choice.present() && choice.value() != "none" && choice.value() != "auto") {
    choice.Fail("must be \"auto\", \"none\", \"required\" or name a function");
  }
  return tools.value().size() > 0 && choice.value() != "none";
}

// Returns a checked message in the form that templates expect.
Value NormalizeMessage(const Value& message) {
  auto normal = std::make_unique<jinja::DictObject>();
  for (const auto& [key, value] : message.dict().entries) {
    if (key.text() == "role" && value.text() == "developer") {  // OpenAI's newer name
      normal->Set(key, Value::String("system"));
    } else if (key.text() == "content" && value.is(jinja::Type::kList)) {
      std::string text;
      for (const Value& part : value.items()) text += part.dict().Find("text")->text();
      normal->Set(key, Value::String(std::move(text)));
    } else {
      normal->Set(key, value);
    }
  }
  return jinja::MakeDict(std::move(normal), nullptr);
}

}  // namespace

bool CheckConversation(const JsonReader& fields, ChatInput& conversation) {
  const JsonReader messages = fields["messages"];
  if (!messages.present()) messages.Fail("is missing");
  messages.ForEach(kMaxMessages, [](const JsonReader& message) { CheckMessage(message); });
  if (messages.value().size() == 0) messages.Fail("must not be empty");
  const bool use_tools = ReadTools(fields);
  fields.Read("add_generation_prompt", conversation.add_generation_prompt);
  const JsonReader variables = fields["chat_template_kwargs"];
  if (variables.present() && !variables.is_object()) variables.Bad("an object");
  std::string effort;
  fields.Read("reasoning_effort", effort);
  if (!effort.empty()) {
    conversation.variables.emplace_back("reasoning_effort", Value::String(std::move(effort)));
  }
  return use_tools;
}

std::vector<HeldTool> HeldTools(const JsonValue& body, bool structured, bool* must_call) {
  const JsonValue* choice = body.Find("tool_choice");
  const bool named = choice != nullptr && choice->is_object();
  *must_call = named || (choice != nullptr && *choice == "required");
  std::vector<HeldTool> held;
  bool any_strict = false;
  const JsonValue::Array& tools = *body.Find("tools")->AsArray();
  for (size_t i = 0; i < tools.size(); ++i) {
    const JsonValue& function = *tools[i].Find("function");
    const JsonValue& name = *function.Find("name");
    if (named && *choice->Find("function")->Find("name") != name) continue;
    const JsonValue* strict = function.Find("strict");
    const bool is_strict = strict != nullptr && !IsOff(*strict);
    any_strict = any_strict || is_strict;
    JsonValue schema;
    const JsonValue* parameters = function.Find("parameters");
    if (parameters != nullptr && (*must_call || is_strict)) schema = *parameters;
    // Arguments are an object, even if the schema does not say so.
    const bool typed = schema.is_object() && schema.Find("type") != nullptr;
    if ((schema.is_null() || schema.is_object()) && !typed) schema.Set("type", "object");
    held.push_back({i, *name.AsString(), schema.Dump()});
  }
  if (!*must_call && !any_strict && !structured) held.clear();
  return held;
}

Status ReadConversation(const JsonValue& body, const FieldSpellings& spellings, bool use_tools,
                        ChatInput& conversation) {
  std::vector<Value> messages;
  for (const JsonValue& message : *body.Find("messages")->AsArray()) {
    messages.push_back(NormalizeMessage(ToTemplateValue(message)));
  }
  conversation.messages = Value::List(std::move(messages));
  conversation.tools = use_tools ? ToTemplateValue(*body.Find("tools")) : Value::None();
  const JsonValue* variables = body.Find("chat_template_kwargs");
  if (variables == nullptr || variables->is_null()) return Status();
  const Status added = AddVariables(ToTemplateValue(*variables), conversation);
  return added.WithContext(spellings.Apply(std::string("chat_template_kwargs")));
}

}  // namespace tokamak
