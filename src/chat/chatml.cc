#include "chat/chatml.h"

#include "base/error.h"

namespace tokamak {
namespace {

// The two shapes of the template, with "\n" escapes already turned into line ends. The first has a
// default system message between kDefaultHead and kDefaultTail.
constexpr std::string_view kLoop = "{% for message in messages %}";
constexpr std::string_view kDefaultHead =
    "{% if loop.first and messages[0]['role'] != 'system' %}{{ '<|im_start|>system\n";
constexpr std::string_view kDefaultTail = "<|im_end|>\n' }}{% endif %}";
constexpr std::string_view kMessage =
    "{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";

bool Consume(std::string_view& text, std::string_view prefix) {
  if (!text.starts_with(prefix)) return false;
  text.remove_prefix(prefix.size());
  return true;
}

// In a Jinja string literal "\n" is a line end, and so is a real one.
std::string UnescapeLineEnds(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text.substr(i, 2) == "\\n") {
      out += '\n';
      ++i;
    } else {
      out += text[i];
    }
  }
  return out;
}

Status NotChatMl() {
  return Unimplemented(
      "this model's chat template is not the plain ChatML that this version renders; use the "
      "completions API with text that you format yourself");
}

void AppendMessage(std::string_view role, std::string_view content, std::string& out) {
  out.append("<|im_start|>").append(role).append("\n");
  out.append(content).append("<|im_end|>\n");
}

}  // namespace

Result<ChatMl> ChatMl::FromTemplate(std::string_view jinja) {
  if (jinja.empty()) {
    return Unimplemented(
        "this model has no chat template: it completes text and was not made for chat; use the "
        "completions API");
  }
  const std::string text = UnescapeLineEnds(jinja);
  std::string_view rest = text;
  while (!rest.empty() && rest.back() == '\n') rest.remove_suffix(1);
  if (!Consume(rest, kLoop)) return NotChatMl();
  std::optional<std::string> default_system;
  if (Consume(rest, kDefaultHead)) {
    const size_t end = rest.find(kDefaultTail);
    if (end == std::string_view::npos) return NotChatMl();
    default_system = std::string(rest.substr(0, end));
    // Quotes, escapes and braces would need a Jinja parser.
    if (default_system->find_first_of("'\\{}") != std::string::npos) return NotChatMl();
    rest.remove_prefix(end + kDefaultTail.size());
  }
  if (rest != kMessage) return NotChatMl();
  return ChatMl(std::move(default_system));
}

std::string ChatMl::Render(const std::vector<ChatMessage>& messages,
                           bool add_generation_prompt) const {
  std::string out;
  if (default_system_ && !messages.empty() && messages[0].role != "system") {
    AppendMessage("system", *default_system_, out);
  }
  for (const ChatMessage& message : messages) AppendMessage(message.role, message.content, out);
  if (add_generation_prompt) out += "<|im_start|>assistant\n";
  return out;
}

}  // namespace tokamak
