// tokamak render: a conversation as text, rendered with a model's chat template.
#include <cstdio>
#include <memory>

#include "base/error.h"
#include "chat/chat_template.h"
#include "chat/json.h"
#include "chat/prepare_messages.h"
#include "cli/commands.h"
#include "cli/common.h"
#include "tokenizer/load/chat_source.h"

namespace tokamak::cli {
namespace {

constexpr char kExamples[] =
    "  tokamak render --messages chat.json                the default model's template\n"
    "  tokamak render model.gguf --messages chat.json --tools tools.json --openai\n"
    "  echo '[{\"role\": \"user\", \"content\": \"Hi\"}]' | tokamak render --template a.jinja\n";

struct RenderFlags {
  std::string model;
  std::string template_file;
  std::string messages_file = "-";
  std::string tools_file;
  std::string variables;
  std::optional<std::string> bos_token, eos_token;
  bool no_generation_prompt = false;
  bool openai = false;
};

Result<ChatTemplate> LoadTemplate(const RenderFlags& flags) {
  std::string source, bos_token, eos_token;
  if (!flags.template_file.empty()) {
    ASSIGN_OR_RETURN(source, ReadText(flags.template_file));
  } else {
    ASSIGN_OR_RETURN(const std::string path, ResolveModel(flags.model));
    ASSIGN_OR_RETURN(const ChatSource chat, OpenChatSource(path));
    source = chat.TemplateFor(/*with_tools=*/!flags.tools_file.empty());
    bos_token = chat.bos_token;
    eos_token = chat.eos_token;
  }
  return ChatTemplate::Parse(source, flags.bos_token.value_or(bos_token),
                             flags.eos_token.value_or(eos_token));
}

Result<jinja::Value> ReadJson(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string text, ReadText(path));
  Result<jinja::Value> value = ParseJson(text);
  if (!value.ok()) return value.status().WithContext(path);
  return value;
}

Status Render(const RenderFlags& flags) {
  ASSIGN_OR_RETURN(const ChatTemplate chat, LoadTemplate(flags));
  ChatInput input;
  input.add_generation_prompt = !flags.no_generation_prompt;
  ASSIGN_OR_RETURN(input.messages, ReadJson(flags.messages_file));
  if (!flags.tools_file.empty()) {
    ASSIGN_OR_RETURN(input.tools, ReadJson(flags.tools_file));
  }
  if (!flags.variables.empty()) {
    ASSIGN_OR_RETURN(const jinja::Value variables, ParseJson(flags.variables));
    RETURN_IF_ERROR(AddVariables(variables, input));
  }
  if (flags.openai) input.messages = PrepareMessages(input.messages, ProbeTemplate(chat));
  ASSIGN_OR_RETURN(const std::string text, chat.Render(input));
  std::fwrite(text.data(), 1, text.size(), stdout);
  return Status();
}

int Run(const RenderFlags& flags) {
  if (!flags.model.empty() && !flags.template_file.empty()) {
    return UsageError("give either MODEL or --template, not both");
  }
  const Status status = Render(flags);
  return status.ok() ? kOk : Fail(status);
}

}  // namespace

void AddRenderCommand(CommandLine& line) {
  auto flags = std::make_shared<RenderFlags>();
  Flags f = line.Command("render", "Show the text that a conversation becomes", kExamples,
                         [flags] { return Run(*flags); });
  AddModel(f, flags->model);
  f.Add("--template", flags->template_file,
        "File with a Jinja template, instead of the model's own");
  f.Add("--messages", flags->messages_file, "File with the JSON array of messages; - is stdin");
  f.Add("--tools", flags->tools_file, "File with the JSON array of tools");
  f.Add("--variables", flags->variables, "JSON object of further variables for the template");
  f.Add("--bos-token", flags->bos_token, "Value of bos_token, instead of the model's");
  f.Add("--eos-token", flags->eos_token, "Value of eos_token, instead of the model's");
  f.Add("--no-generation-prompt", flags->no_generation_prompt,
        "Leave out the beginning of the answer");
  f.Add("--openai", flags->openai, "Adapt the messages to the template as the server does");
}

}  // namespace tokamak::cli
