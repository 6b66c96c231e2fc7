// Renders any template with any messages (after a line "---"): within the limits, the result is
// UTF-8 text or an error with a message.
#include <cstdint>
#include <cstdlib>
#include <ctime>
#include <string>
#include <string_view>

#include "chat/jinja/interpreter.h"
#include "chat/jinja/parser.h"
#include "chat/jinja/unicode.h"
#include "chat/json.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tokamak;
  using jinja::Value;
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const size_t split = input.find("\n---\n");
  const std::string_view source = input.substr(0, split);
  const std::string_view json = split == std::string_view::npos ? "[]" : input.substr(split + 5);

  const auto program = jinja::ParseTemplate(source);
  if (!program.ok()) {
    if (program.status().message().empty()) std::abort();
    return 0;
  }
  const Result<Value> parsed = ParseJson(json);
  jinja::Limits limits;
  limits.steps = 20'000;
  limits.memory_bytes = 1 << 20;
  limits.output_bytes = 1 << 18;
  const jinja::Inputs inputs = {{"messages", parsed.ok() ? *parsed : Value::List({})},
                                {"tools", Value::None()},
                                {"s", Value::String("text \xC3\xA9")},
                                {"add_generation_prompt", Value::Bool(true)}};
  jinja::Interpreter interpreter(**program, inputs, limits, std::tm{});
  const Result<std::string> text = interpreter.Render();
  if (text.ok() && !IsValidUtf8(*text)) std::abort();
  if (text.ok() && text->size() > limits.memory_bytes) std::abort();
  if (!text.ok() && text.status().message().empty()) std::abort();
  return 0;
}
