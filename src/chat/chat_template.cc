#include "chat/chat_template.h"

#include <algorithm>

#include "base/error.h"
#include "chat/jinja/interpreter.h"
#include "chat/jinja/parser.h"

namespace tokamak {
namespace {

using jinja::DictObject;
using jinja::MakeDict;
using jinja::Value;

// The names that a message's reasoning may have; the first is the one that templates should read.
constexpr std::string_view kReasoningNames[] = {"reasoning_content", "thinking", "reasoning"};

Value WithReasoning(const Value& message) {
  const Value* reasoning = FindReasoning(message);
  if (reasoning == nullptr) return message;
  const Value text = *reasoning;
  auto extended = std::make_unique<DictObject>();
  extended->Set(Value::String("thinking"), text);  // first, as in transformers' JSON
  for (const auto& [key, value] : message.dict().entries) extended->Set(key, value);
  extended->Set(Value::String("reasoning_content"), text);
  return MakeDict(std::move(extended), nullptr);
}

// A lower bound of the size of the value's JSON.
size_t BytesOf(const Value& value) {
  constexpr size_t kEach = 2;
  size_t bytes = kEach;
  if (value.is_string()) bytes += value.text().size();
  if (value.is(jinja::Type::kList)) {
    for (const Value& item : value.items()) bytes += BytesOf(item);
  } else if (value.is_dict()) {
    for (const auto& [key, item] : value.dict().entries) bytes += BytesOf(key) + BytesOf(item);
  }
  return bytes;
}

// A few templates loop over all messages for each message: millions of steps for a thousand
// messages. So larger inputs may take more steps, in proportion; the time per byte stays bounded
// for any template. The maximum suffices for as many messages as a request may have.
jinja::Limits LimitsFor(const ChatInput& input) {
  constexpr int64_t kStepsPerByte = 46, kMostSteps = 60'000'000;
  jinja::Limits limits;
  const auto bytes = static_cast<int64_t>(BytesOf(input.messages) + BytesOf(input.tools));
  limits.steps = std::clamp(std::min(bytes, kMostSteps) * kStepsPerByte, limits.steps, kMostSteps);
  return limits;
}

std::tm LocalTime() {
  const std::time_t now = std::time(nullptr);
  std::tm local = {};
  ::localtime_r(&now, &local);
  return local;
}

}  // namespace

const Value* FindReasoning(const Value& message) {
  if (!message.is_dict()) return nullptr;
  for (const std::string_view name : kReasoningNames) {
    const Value* reasoning = message.dict().Find(name);
    if (reasoning != nullptr && !reasoning->is_none()) return reasoning;
  }
  return nullptr;
}

Value MakeMessage(std::string_view role, std::string_view content) {
  auto message = std::make_unique<DictObject>();
  message->Set(Value::String("role"), Value::String(std::string(role)));
  message->Set(Value::String("content"), Value::String(std::string(content)));
  return MakeDict(std::move(message), nullptr);
}

Result<ChatTemplate> ChatTemplate::Parse(std::string_view source, std::string bos_token,
                                         std::string eos_token) {
  if (source.empty()) {
    return Unimplemented(
        "this model has no chat template: it completes text and was not made for chat; use the "
        "completions API");
  }
  Result<std::unique_ptr<const jinja::Program>> program = jinja::ParseTemplate(source);
  if (!program.ok()) return program.status().WithContext("the model's chat template");
  ChatTemplate parsed;
  parsed.program_ = *std::move(program);
  parsed.bos_token_ = std::move(bos_token);
  parsed.eos_token_ = std::move(eos_token);
  return parsed;
}

Result<std::string> ChatTemplate::Render(const ChatInput& input) const {
  if (!input.messages.is(jinja::Type::kList)) {
    return InvalidArgument("messages: must be an array of objects");
  }
  std::vector<Value> messages;
  for (const Value& message : input.messages.items()) {
    if (!message.is_dict()) return InvalidArgument("messages: must be an array of objects");
    messages.push_back(WithReasoning(message));
  }
  jinja::Inputs inputs;
  if (!bos_token_.empty()) inputs.emplace_back("bos_token", Value::String(bos_token_));
  if (!eos_token_.empty()) inputs.emplace_back("eos_token", Value::String(eos_token_));
  inputs.insert(inputs.end(), input.variables.begin(), input.variables.end());
  inputs.emplace_back("messages", Value::List(std::move(messages)));
  inputs.emplace_back("tools", input.tools);
  inputs.emplace_back("documents", Value::None());
  inputs.emplace_back("add_generation_prompt", Value::Bool(input.add_generation_prompt));
  jinja::Interpreter interpreter(*program_, inputs, LimitsFor(input),
                                 input.now ? *input.now : LocalTime());
  return interpreter.Render();
}

}  // namespace tokamak
