#include "server/openai/conversation_fields.h"

#include <algorithm>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "chat/json.h"
#include "chat/prepare_messages.h"
#include "images/data_url.h"
#include "images/file_url.h"
#include "images/image_options.h"

namespace tokamak {
namespace {

using jinja::Value;

constexpr size_t kMaxMessages = 4096;
constexpr size_t kMaxTools = 1024;

void CheckImage(const JsonReader& part) {
  const JsonReader image = part["image_url"];
  if (!image.is_object()) return image.Fail("must be an object with \"url\"");
  if (!image["url"].is_string()) return image.Fail("url", "must be a string");
  // No model of this server has ways to see an image with these names.
  const JsonReader detail = image["detail"];
  const JsonValue& value = detail.value();
  if (detail.present() && value != "auto" && value != "low" && value != "high") {
    detail.Fail("must be \"auto\", \"low\" or \"high\"");
  }
}

// Checks a content: text, or a list of parts. `max_images` may follow; 0: the model takes none.
// Returns how many there are.
int32_t CheckContent(const JsonReader& content, bool is_user, bool sees, int32_t max_images) {
  int32_t images = 0;
  if (content.is_null() || content.is_string()) return images;
  if (!content.is_array()) {
    content.Bad("a string or an array of parts");
    return images;
  }
  content.ForEach(SIZE_MAX, [&](const JsonReader& part) {
    if (!part.is_object()) return part.Bad("an object");
    const JsonReader type = part["type"];
    if (!type.is_string()) return type.Fail("must be a string");
    if (type.value() == "text") {
      if (!part["text"].is_string()) part.Fail("text", "must be a string");
    } else if (type.value() != "image_url" || !sees) {
      type.Fail(fmt::format("\"{}\" is not supported by this model; it accepts \"text\"{}",
                            type.String().substr(0, 64), sees ? " and \"image_url\"" : ""));
    } else if (!is_user) {
      type.Fail("\"image_url\" is for messages with the role \"user\"");
    } else if (++images > max_images) {
      part.Fail("is one image more than a conversation may have (--max-images)");
    } else {
      CheckImage(part);
    }
  });
  return images;
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

// Subtracts its images from `max_images`.
void CheckMessage(const JsonReader& message, bool sees, int32_t& max_images) {
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
  max_images -= CheckContent(content, role.value() == "user", sees, max_images);
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

// Reads the options of all images, and checks them.
ImageOptions ReadOptions(const JsonReader& fields, const std::optional<ImageInfo>& images) {
  const JsonReader kwargs = fields["mm_processor_kwargs"];
  if (IsOff(kwargs.value())) return {};
  if (!images) {
    kwargs.Fail("is not supported: this model takes only text; leave it out");
    return {};
  }
  const ImageOptions options = ReadImageOptions(kwargs);
  const Status status =
      CheckImageOptions(options, images->options, images->max_scaled_pixels, kwargs.path());
  if (!status.ok()) kwargs.Fail(status);
  return options;
}

// Reads the image of a checked part, which is at `path`.
Result<MessageImage> ReadImage(std::string path, const JsonValue& part, const ImageInfo& info) {
  const std::string& url = *part.Find("image_url")->Find("url")->AsString();
  for (const char* scheme : {"file", "http", "https"}) {
    if (HasScheme(url, scheme)) return MessageImage{.path = std::move(path), .url = url};
  }
  Result<std::string> bytes =
      DecodeDataUrl(url, {.max_bytes = static_cast<uint64_t>(info.max_bytes)});
  if (!bytes.ok()) return ImageError(path, bytes.status());
  return MessageImage{.path = std::move(path), .bytes = *std::move(bytes)};
}

// Copies a checked message. What its images leave is a part of the type "image"; `read_image` gets
// each, with its index.
Result<Value> CopyMessage(const JsonValue& message,
                          FunctionRef<Status(const JsonValue& part, size_t index)> read_image) {
  auto copy = std::make_unique<jinja::DictObject>();
  for (const auto& [key, value] : *message.AsObject()) {
    if (key == "role" && value == "developer") {  // OpenAI's newer name
      copy->Set(Value::String(key), Value::String("system"));
    } else if (key == "content" && value.is_array()) {
      std::vector<Value> parts;
      for (const JsonValue& part : *value.AsArray()) {
        if (*part.Find("type") == "text") {
          parts.push_back(ToTemplateValue(part));
          continue;
        }
        RETURN_IF_ERROR(read_image(part, parts.size()));
        JsonValue image;
        image.Set("type", "image");
        parts.push_back(ToTemplateValue(image));
      }
      copy->Set(Value::String(key), Value::List(std::move(parts)));
    } else {
      copy->Set(Value::String(key), ToTemplateValue(value));
    }
  }
  return jinja::MakeDict(std::move(copy), nullptr);
}

}  // namespace

bool MessageImage::on_web() const { return HasScheme(url, "http") || HasScheme(url, "https"); }

bool CheckConversation(const JsonReader& fields, const std::optional<ImageInfo>& images,
                       ChatInput& conversation) {
  const JsonReader messages = fields["messages"];
  if (!messages.present()) messages.Fail("is missing");
  int32_t max_images = images ? images->max_images : 0;
  messages.ForEach(kMaxMessages, [&](const JsonReader& message) {
    CheckMessage(message, images.has_value(), max_images);
  });
  if (messages.value().size() == 0) messages.Fail("must not be empty");
  const bool use_tools = ReadTools(fields);
  fields.Read("add_generation_prompt", conversation.add_generation_prompt);
  (void)ReadOptions(fields, images);
  const JsonReader variables = fields["chat_template_kwargs"];
  if (variables.present() && !variables.is_object()) variables.Bad("an object");
  std::string effort;
  fields.Read("reasoning_effort", effort);
  if (!effort.empty()) {
    conversation.variables.emplace_back("reasoning_effort", Value::String(std::move(effort)));
  }
  return use_tools;
}

Status ImageError(std::string_view path, const Status& status) {
  const bool limit = status.code() == StatusCode::kResourceExhausted;
  return Status(limit ? StatusCode::kInvalidArgument : status.code(), std::string(status.message()))
      .WithContext(path);
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
                        const std::optional<ImageInfo>& images, ChatInput& conversation,
                        std::vector<MessageImage>& read) {
  const std::string list = spellings.Apply(std::string("messages"));
  const ImageOptions options = ReadOptions(ReadFields(body), images);
  std::vector<Value> messages;
  const auto read_image = [&](const JsonValue& part, size_t index) -> Status {
    std::string path =
        fmt::format("{}[{}].content[{}].image_url.url", list, messages.size(), index);
    ASSIGN_OR_RETURN(MessageImage image, ReadImage(std::move(path), part, *images));
    image.options = options;
    read.push_back(std::move(image));
    return Status();
  };
  for (const JsonValue& message : *body.Find("messages")->AsArray()) {
    ASSIGN_OR_RETURN(Value copy, CopyMessage(message, read_image));
    messages.push_back(std::move(copy));
  }
  conversation.messages = Value::List(std::move(messages));
  conversation.tools = use_tools ? ToTemplateValue(*body.Find("tools")) : Value::None();
  const JsonValue* variables = body.Find("chat_template_kwargs");
  if (variables == nullptr || variables->is_null()) return Status();
  const Status added = AddVariables(ToTemplateValue(*variables), conversation);
  return added.WithContext(spellings.Apply(std::string("chat_template_kwargs")));
}

}  // namespace tokamak
