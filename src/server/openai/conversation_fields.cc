#include "server/openai/conversation_fields.h"

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "chat/json.h"
#include "chat/prepare_messages.h"

namespace tokamak {
namespace {

using Json = nlohmann::json;
using jinja::Value;

constexpr size_t kMaxMessages = 4096;
constexpr size_t kMaxTools = 1024;

// Checks a content: text, or a list of parts. This model takes only parts with text.
void CheckContent(Fields& fields, const std::string& path, const Json& content) {
  if (content.is_null() || content.is_string()) return;
  if (!content.is_array()) {
    return fields.FailAt(path,
                         "must be a string or an array of parts, not " + DescribeJson(content));
  }
  for (size_t i = 0; i < content.size(); ++i) {
    const std::string part_path = fmt::format("{}[{}]", path, i);
    const Json& part = content[i];
    if (!part.is_object()) {
      return fields.FailAt(part_path, "must be an object, not " + DescribeJson(part));
    }
    const auto type = part.find("type");
    if (type == part.end() || !type->is_string()) {
      return fields.FailAt(part_path + ".type", "must be a string");
    }
    if (*type != "text") {
      return fields.FailAt(part_path + ".type",
                           fmt::format("\"{}\" is not supported by this model; it accepts \"text\"",
                                       type->get<std::string>().substr(0, 64)));
    }
    const auto text = part.find("text");
    if (text == part.end() || !text->is_string()) {
      return fields.FailAt(part_path + ".text", "must be a string");
    }
  }
}

// Checks an object {"type": "function", "function": {"name": ...}}: a tool or a tool call.
void CheckFunction(Fields& fields, const std::string& path, const Json& value) {
  if (!value.is_object()) {
    return fields.FailAt(path, "must be an object, not " + DescribeJson(value));
  }
  const auto type = value.find("type");
  if (type != value.end() && *type != "function") {
    return fields.FailAt(path + ".type", "must be \"function\"");
  }
  const auto function = value.find("function");
  if (function == value.end() || !function->is_object()) {
    return fields.FailAt(path + ".function", "must be an object");
  }
  const auto name = function->find("name");
  if (name == function->end() || !name->is_string()) {
    return fields.FailAt(path + ".function.name", "must be a string");
  }
}

// Returns whether there is at least one tool.
bool CheckCalls(Fields& fields, const std::string& path, const Json& message) {
  const auto calls = message.find("tool_calls");
  if (calls == message.end() || calls->is_null()) return false;
  if (!calls->is_array()) {
    fields.FailAt(path, "must be an array, not " + DescribeJson(*calls));
    return false;
  }
  for (size_t i = 0; i < calls->size() && fields.status().ok(); ++i) {
    const std::string call_path = fmt::format("{}[{}]", path, i);
    const Json& call = (*calls)[i];
    CheckFunction(fields, call_path, call);
    if (!fields.status().ok()) return false;
    const auto id = call.find("id");
    if (id != call.end() && !id->is_string()) {
      fields.FailAt(call_path + ".id", "must be a string, not " + DescribeJson(*id));
    }
    const Json& function = call["function"];
    const auto arguments = function.find("arguments");
    if (arguments != function.end() && !arguments->is_string() && !arguments->is_object()) {
      fields.FailAt(call_path + ".function.arguments",
                    "must be a string of JSON, not " + DescribeJson(*arguments));
    }
  }
  return !calls->empty();
}

void CheckMessage(Fields& fields, const std::string& path, const Json& value) {
  if (!value.is_object()) {
    return fields.FailAt(path, "must be an object, not " + DescribeJson(value));
  }
  const auto role = value.find("role");
  if (role == value.end() || !role->is_string()) {
    return fields.FailAt(path + ".role", "must be a string");
  }
  if (*role != "system" && *role != "developer" && *role != "user" && *role != "assistant" &&
      *role != "tool") {
    return fields.FailAt(path + ".role",
                         "must be \"system\", \"developer\", \"user\", \"assistant\" or \"tool\"");
  }
  Fields texts(value, path);
  std::string text;
  for (const char* name : {"name", "tool_call_id", "reasoning_content"}) texts.Read(name, text);
  fields.Adopt(texts.status());
  const bool calls = CheckCalls(fields, path + ".tool_calls", value);
  const auto content = value.find("content");
  const bool may_lack = *role == "assistant";
  if (content == value.end() ? !calls : content->is_null() && !may_lack) {
    return fields.FailAt(path + ".content", "is missing");
  }
  if (content != value.end()) CheckContent(fields, path + ".content", *content);
}

// Returns whether the model is told about the tools.
bool ReadTools(Fields& fields) {
  fields.ReadList("tools", kMaxTools, [&](const std::string& path, const Json& value) {
    CheckFunction(fields, path, value);
  });
  const Json* tools = fields.Find("tools");
  bool use = tools != nullptr && !tools->empty();
  if (const Json* choice = fields.Find("tool_choice")) {
    if (*choice == "none") {
      use = false;
    } else if (*choice != "auto") {
      fields.Fail("tool_choice", "only \"auto\" and \"none\" are supported");
    }
  }
  return use;
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

// Returns the value of a field of the body, also if the client put it into an object such as
// "extra_body". None if it is absent.
Value FindField(const Value& body, const FieldSpellings& spellings, const std::string& name) {
  const std::string path = spellings.Apply(name);
  Value value = body;
  for (size_t begin = 0; begin < path.size();) {
    const size_t end = std::min(path.find('.', begin), path.size());
    const std::string_view key = std::string_view(path).substr(begin, end - begin);
    const Value* found = value.is_dict() ? value.dict().Find(key) : nullptr;
    if (found == nullptr) return Value::None();
    value = *found;
    begin = end + 1;
  }
  return value;
}

}  // namespace

bool CheckConversation(Fields& fields, ChatInput& conversation) {
  const Json* messages = fields.Find("messages");
  if (messages == nullptr) fields.Fail("messages", "is missing");
  fields.ReadList("messages", kMaxMessages, [&](const std::string& path, const Json& value) {
    CheckMessage(fields, path, value);
  });
  if (messages != nullptr && messages->empty()) fields.Fail("messages", "must not be empty");
  const bool use_tools = ReadTools(fields);
  fields.Read("add_generation_prompt", conversation.add_generation_prompt);
  const Json* variables = fields.Find("chat_template_kwargs");
  if (variables != nullptr && !variables->is_object()) {
    fields.WrongType("chat_template_kwargs", "an object", *variables);
  }
  std::string effort;
  fields.Read("reasoning_effort", effort);
  if (!effort.empty()) {
    conversation.variables.emplace_back("reasoning_effort", Value::String(std::move(effort)));
  }
  return use_tools;
}

Status ReadConversation(const std::string& body, const FieldSpellings& spellings, bool use_tools,
                        ChatInput& conversation) {
  ASSIGN_OR_RETURN(const Value root, ParseJson(body));
  const Value checked = FindField(root, spellings, "messages");
  const Value tools = use_tools ? FindField(root, spellings, "tools") : Value::None();
  if (!checked.is_list_like() || (use_tools && !tools.is_list_like())) {
    return Internal("the conversation that was checked is not in the body; report this");
  }
  std::vector<Value> messages;
  for (const Value& message : checked.items()) messages.push_back(NormalizeMessage(message));
  conversation.messages = Value::List(std::move(messages));
  conversation.tools = tools;
  const Value variables = FindField(root, spellings, "chat_template_kwargs");
  if (variables.is_none()) return Status();
  const Status added = AddVariables(variables, conversation);
  return added.WithContext(spellings.Apply(std::string("chat_template_kwargs")));
}

}  // namespace tokamak
