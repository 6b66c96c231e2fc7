#include "server/openai_request.h"

#include <cmath>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "chat/json.h"
#include "chat/prepare_messages.h"

namespace tokamak {
namespace {

using Json = nlohmann::json;

constexpr int kMaxDepth = 32;        // nested arrays and objects
constexpr size_t kMaxPrompts = 256;  // in one completions request
constexpr size_t kMaxMessages = 4096;
constexpr size_t kMaxTools = 1024;

// Deeper than any request needs, and shallow enough for every recursive function of the library.
bool TooDeep(std::string_view text) {
  int depth = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      if (c == '"') in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '[' || c == '{') {
      if (++depth > kMaxDepth) return true;
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
  return false;
}

Result<Json> ParseBody(const std::string& body) {
  if (TooDeep(body)) return InvalidArgument("the body nests deeper than {} levels", kMaxDepth);
  try {
    Json json = Json::parse(body);
    if (!json.is_object()) return InvalidArgument("the body must be a JSON object");
    return json;
  } catch (const Json::parse_error& error) {
    // error.what() repeats what was read, which may be long and not even text.
    return InvalidArgument(
        "the body is not valid JSON at byte {} (strings must be UTF-8 without lone surrogates, "
        "numbers finite)",
        error.byte);
  } catch (const Json::exception&) {  // a number beyond every double
    return InvalidArgument("the body is not valid JSON: a number is out of range");
  }
}

// Reads the fields of one object and remembers the first error. A field that is null counts as
// absent, as OpenAI has it.
class Fields {
 public:
  Fields(const Json& object, std::string path) : object_(object), path_(std::move(path)) {}

  const Status& status() const { return status_; }
  std::string Path(std::string_view name) const {
    return path_.empty() ? std::string(name) : fmt::format("{}.{}", path_, name);
  }
  void Fail(std::string_view name, std::string_view message) {
    if (status_.ok()) status_ = InvalidArgument("{}: {}", Path(name), message);
  }
  const Json* Find(const char* name) const {
    const auto found = object_.find(name);
    return found == object_.end() || found->is_null() ? nullptr : &*found;
  }

  void Read(const char* name, bool& out) {
    const Json* value = Find(name);
    if (value == nullptr) return;
    if (!value->is_boolean()) return WrongType(name, "true or false", *value);
    out = value->get<bool>();
  }
  void Read(const char* name, std::string& out) {
    const Json* value = Find(name);
    if (value == nullptr) return;
    if (!value->is_string()) return WrongType(name, "a string", *value);
    out = value->get<std::string>();
  }
  void Read(const char* name, float& out) {
    const Json* value = Find(name);
    if (value == nullptr) return;
    if (!value->is_number()) return WrongType(name, "a number", *value);
    const auto number = static_cast<float>(value->get<double>());
    if (!std::isfinite(number)) return Fail(name, "is too large");
    out = number;
  }
  void Read(const char* name, int32_t& out) {
    const Json* value = Find(name);
    if (value == nullptr) return;
    if (const std::optional<int32_t> number = Int32(Path(name), *value)) out = *number;
  }
  void Read(const char* name, std::optional<int32_t>& out) {
    int32_t number = 0;
    if (Find(name) == nullptr) return;
    Read(name, number);
    out = number;
  }
  // One value or a list of them; `read` takes (path, value).
  template <typename Fn>
  void ReadList(const char* name, size_t max, Fn read) {
    const Json* value = Find(name);
    if (value == nullptr) return;
    if (!value->is_array()) return WrongType(name, "an array", *value);
    if (value->size() > max) return Fail(name, fmt::format("has more than {} entries", max));
    for (size_t i = 0; i < value->size() && status_.ok(); ++i) {
      read(fmt::format("{}[{}]", Path(name), i), (*value)[i]);
    }
  }
  std::optional<int32_t> Int32(const std::string& path, const Json& value) {
    if (!value.is_number_integer()) {
      FailAt(path, fmt::format("must be an integer, not {}", Describe(value)));
      return std::nullopt;
    }
    const bool fits = value.is_number_unsigned()
                          ? value.get<uint64_t>() <= std::numeric_limits<int32_t>::max()
                          : value.get<int64_t>() >= std::numeric_limits<int32_t>::min();
    if (!fits) {
      FailAt(path, fmt::format("{} is out of range", value.dump()));
      return std::nullopt;
    }
    return value.get<int32_t>();
  }
  void FailAt(const std::string& path, std::string_view message) {
    if (status_.ok()) status_ = InvalidArgument("{}: {}", path, message);
  }
  void WrongType(const char* name, std::string_view wanted, const Json& value) {
    Fail(name, fmt::format("must be {}, not {}", wanted, Describe(value)));
  }
  static std::string Describe(const Json& value) {
    if (value.is_number_float()) return "a fraction";
    if (value.is_number()) return "an integer";
    if (value.is_boolean()) return "a boolean";
    if (value.is_object()) return "an object";
    if (value.is_array()) return "an array";
    return value.is_string() ? "a string" : "null";
  }

 private:
  const Json& object_;
  std::string path_;
  Status status_;
};

void ReadLogitBias(Fields& fields, SamplingParams& sampling) {
  const Json* bias = fields.Find("logit_bias");
  if (bias == nullptr) return;
  if (!bias->is_object()) return fields.WrongType("logit_bias", "an object", *bias);
  for (const auto& [key, value] : bias->items()) {
    const bool digits =
        !key.empty() && key.size() <= 9 && key.find_first_not_of("0123456789") == std::string::npos;
    if (!digits) return fields.Fail("logit_bias", "its keys must be token ids");
    if (!value.is_number()) {
      return fields.FailAt("logit_bias." + key, "must be a number, not " + Fields::Describe(value));
    }
    sampling.logit_bias.emplace_back(std::stoi(key), static_cast<float>(value.get<double>()));
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
  fields.ReadList("stop", 64, [&](const std::string& path, const Json& value) {
    if (!value.is_string()) {
      return fields.FailAt(path, "must be a string, not " + Fields::Describe(value));
    }
    sampling.stop.push_back(value.get<std::string>());
  });
}

void ReadSampling(Fields& fields, SamplingParams& sampling) {
  fields.Read("temperature", sampling.temperature);
  fields.Read("top_k", sampling.top_k);
  if (sampling.top_k == -1) sampling.top_k = 0;  // what other servers call "off"
  fields.Read("top_p", sampling.top_p);
  fields.Read("min_p", sampling.min_p);
  fields.Read("typical_p", sampling.typical_p);
  fields.Read("repetition_penalty", sampling.repetition_penalty);
  fields.Read("presence_penalty", sampling.presence_penalty);
  fields.Read("frequency_penalty", sampling.frequency_penalty);
  ReadLogitBias(fields, sampling);
  ReadSeed(fields, sampling);
  fields.Read("n", sampling.n);
  fields.Read("max_tokens", sampling.max_tokens);
  fields.Read("min_tokens", sampling.min_tokens);
  ReadStop(fields, sampling);
  fields.ReadList("stop_token_ids", 1024, [&](const std::string& path, const Json& value) {
    if (const auto id = fields.Int32(path, value)) sampling.stop_token_ids.push_back(*id);
  });
  fields.Read("ignore_eos", sampling.ignore_eos);
  fields.Read("prompt_logprobs", sampling.prompt_logprobs);
}

void ReadCommon(Fields& fields, CompletionCall& call) {
  fields.Read("model", call.model);
  ReadSampling(fields, call.sampling);
  call.return_prompt_logprobs = call.sampling.prompt_logprobs.has_value();
  fields.Read("priority", call.priority);
  fields.Read("cache_salt", call.cache_salt);
  fields.Read("return_token_ids", call.return_token_ids);
  fields.Read("stream", call.stream);
  if (const Json* options = fields.Find("stream_options")) {
    if (!options->is_object()) return fields.WrongType("stream_options", "an object", *options);
    if (!call.stream) return fields.Fail("stream_options", "needs \"stream\": true");
    Fields inner(*options, "stream_options");
    inner.Read("include_usage", call.include_usage);
    if (!inner.status().ok())
      fields.FailAt("stream_options.include_usage", "must be true or false");
  }
}

// A list of token ids, or nothing after an error.
std::optional<std::vector<int32_t>> ReadIds(Fields& fields, const std::string& path,
                                            const Json& list) {
  std::vector<int32_t> ids;
  ids.reserve(list.size());
  for (size_t i = 0; i < list.size(); ++i) {
    const auto id = fields.Int32(fmt::format("{}[{}]", path, i), list[i]);
    if (!id) return std::nullopt;
    ids.push_back(*id);
  }
  return ids;
}

// A string, token ids, or a list of either.
void ReadPrompts(Fields& fields, CompletionCall& call) {
  const Json* prompt = fields.Find("prompt");
  if (prompt == nullptr) return fields.Fail("prompt", "is missing");
  if (prompt->is_string()) {
    call.prompts.emplace_back(prompt->get<std::string>());
    return;
  }
  if (!prompt->is_array()) {
    return fields.WrongType("prompt", "a string, token ids, or an array of either", *prompt);
  }
  if (prompt->empty()) return fields.Fail("prompt", "must not be empty");
  if (prompt->front().is_number()) {
    if (auto ids = ReadIds(fields, "prompt", *prompt)) call.prompts.emplace_back(std::move(*ids));
    return;
  }
  fields.ReadList("prompt", kMaxPrompts, [&](const std::string& path, const Json& value) {
    if (value.is_string()) {
      call.prompts.emplace_back(value.get<std::string>());
    } else if (value.is_array()) {
      if (auto ids = ReadIds(fields, path, value)) call.prompts.emplace_back(std::move(*ids));
    } else {
      fields.FailAt(path, "must be a string or token ids, not " + Fields::Describe(value));
    }
  });
}

// Text, or a list of parts of which this model takes only text.
void CheckContent(Fields& fields, const std::string& path, const Json& content) {
  if (content.is_null() || content.is_string()) return;
  if (!content.is_array()) {
    return fields.FailAt(path,
                         "must be a string or an array of parts, not " + Fields::Describe(content));
  }
  for (size_t i = 0; i < content.size(); ++i) {
    const std::string part_path = fmt::format("{}[{}]", path, i);
    const Json& part = content[i];
    if (!part.is_object()) {
      return fields.FailAt(part_path, "must be an object, not " + Fields::Describe(part));
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

// An object {"type": "function", "function": {"name": ...}}: a tool, or a call of one.
void CheckFunction(Fields& fields, const std::string& path, const Json& value) {
  if (!value.is_object()) {
    return fields.FailAt(path, "must be an object, not " + Fields::Describe(value));
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

// True when there is at least one.
bool CheckCalls(Fields& fields, const std::string& path, const Json& message) {
  const auto calls = message.find("tool_calls");
  if (calls == message.end() || calls->is_null()) return false;
  if (!calls->is_array()) {
    fields.FailAt(path, "must be an array, not " + Fields::Describe(*calls));
    return false;
  }
  for (size_t i = 0; i < calls->size(); ++i) {
    CheckFunction(fields, fmt::format("{}[{}]", path, i), (*calls)[i]);
  }
  return !calls->empty();
}

void CheckMessage(Fields& fields, const std::string& path, const Json& value) {
  if (!value.is_object()) {
    return fields.FailAt(path, "must be an object, not " + Fields::Describe(value));
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
  const bool calls = CheckCalls(fields, path + ".tool_calls", value);
  const auto content = value.find("content");
  const bool may_lack = *role == "assistant";
  if (content == value.end() ? !calls : content->is_null() && !may_lack) {
    return fields.FailAt(path + ".content", "is missing");
  }
  if (content != value.end()) CheckContent(fields, path + ".content", *content);
}

// Whether the model is to be told of the tools.
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

using jinja::Value;

// A message that was checked, as templates are used to.
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

// From a body that was checked. It is parsed once more because templates see the order of keys.
Status ReadConversation(const std::string& body, bool use_tools, ChatInput& conversation) {
  ASSIGN_OR_RETURN(const Value root, ParseJson(body));
  std::vector<Value> messages;
  for (const Value& message : root.dict().Find("messages")->items()) {
    messages.push_back(NormalizeMessage(message));
  }
  conversation.messages = Value::List(std::move(messages));
  if (use_tools) conversation.tools = *root.dict().Find("tools");
  const Value* variables = root.dict().Find("chat_template_kwargs");
  if (variables == nullptr || variables->is_none()) return Status();
  const Status added = AddVariables(*variables, conversation);
  return added.WithContext("chat_template_kwargs");
}

// Fields that change what an answer means, so that ignoring them would be a lie.
void RefuseUnsupported(Fields& fields, std::initializer_list<const char*> lists) {
  for (const char* name : lists) {
    const Json* list = fields.Find(name);
    if (list != nullptr && !(list->is_array() && list->empty())) {
      fields.Fail(name, "is not supported here; give \"tools\" to /v1/chat/completions");
    }
  }
  if (const Json* format = fields.Find("response_format")) {
    const bool text =
        format->is_object() && format->contains("type") && (*format)["type"] == "text";
    if (!text) fields.Fail("response_format", "only {\"type\": \"text\"} is supported");
  }
}

}  // namespace

Result<CompletionCall> ParseCompletionCall(const std::string& body) {
  ASSIGN_OR_RETURN(const Json json, ParseBody(body));
  Fields fields(json, "");
  CompletionCall call;
  call.sampling.max_tokens = 16;  // OpenAI's default for this endpoint
  ReadPrompts(fields, call);
  ReadCommon(fields, call);
  fields.Read("echo", call.echo);
  fields.Read("add_special_tokens", call.add_special_tokens);
  fields.Read("logprobs", call.sampling.logprobs);
  int32_t best_of = call.sampling.n;
  fields.Read("best_of", best_of);
  if (best_of != call.sampling.n) fields.Fail("best_of", "must equal n: nothing is ranked here");
  std::string suffix;
  fields.Read("suffix", suffix);
  if (!suffix.empty()) fields.Fail("suffix", "is not supported");
  RefuseUnsupported(fields, {"tools", "functions"});
  if (!fields.status().ok()) return fields.status();
  // The echoed prompt has logprobs like the rest.
  if (call.echo && call.sampling.logprobs) call.sampling.prompt_logprobs = call.sampling.logprobs;
  return call;
}

Result<CompletionCall> ParseChatCall(const std::string& body) {
  ASSIGN_OR_RETURN(const Json json, ParseBody(body));
  Fields fields(json, "");
  CompletionCall call;
  call.chat = true;
  if (fields.Find("messages") == nullptr) fields.Fail("messages", "is missing");
  fields.ReadList("messages", kMaxMessages, [&](const std::string& path, const Json& value) {
    CheckMessage(fields, path, value);
  });
  const Json* messages = fields.Find("messages");
  if (messages != nullptr && messages->empty()) fields.Fail("messages", "must not be empty");
  const bool use_tools = ReadTools(fields);
  fields.Read("add_generation_prompt", call.conversation.add_generation_prompt);
  ReadCommon(fields, call);
  fields.Read("max_completion_tokens", call.sampling.max_tokens);
  bool logprobs = false;
  fields.Read("logprobs", logprobs);
  std::optional<int32_t> top_logprobs;
  fields.Read("top_logprobs", top_logprobs);
  if (top_logprobs && !logprobs) fields.Fail("top_logprobs", "needs \"logprobs\": true");
  if (top_logprobs && (*top_logprobs < 0 || *top_logprobs > 20)) {
    fields.Fail("top_logprobs", fmt::format("must be in [0, 20], got {}", *top_logprobs));
  }
  if (logprobs) call.sampling.logprobs = top_logprobs.value_or(0);
  RefuseUnsupported(fields, {"functions"});
  if (!fields.status().ok()) return fields.status();
  RETURN_IF_ERROR(ReadConversation(body, use_tools, call.conversation));
  return call;
}

std::string LeadingPath(std::string_view message) {
  const size_t end = message.find(": ");
  if (end == std::string_view::npos || end == 0) return "";
  for (const char c : message.substr(0, end)) {
    const bool word = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    if (!word && c != '_' && c != '.' && c != '[' && c != ']') return "";
  }
  return std::string(message.substr(0, end));
}

}  // namespace tokamak
