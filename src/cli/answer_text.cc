#include "cli/answer_text.h"

#include <utility>

namespace tokamak::cli {

AnswerText::AnswerText(std::string_view chat_template) {
  auto format = std::make_shared<AnswerFormat>();
  format->reasoning = DetectReasoningFormat(chat_template);
  if (format->harmony()) parser_ = std::make_unique<AnswerParser>(std::move(format));
}

std::string AnswerText::Show(std::string_view text, bool ends) {
  if (parser_ == nullptr) return std::string(text);
  const AnswerPart part = ends ? parser_->Finish() : parser_->Append(text);
  std::string shown;
  if (!part.reasoning.empty()) {
    if (!std::exchange(thinking_, true)) shown += begun_ ? "\n\n<think>\n" : "<think>\n";
    shown += part.reasoning;
  }
  if (thinking_ && (ends || !part.content.empty())) {
    shown += "\n</think>\n\n";
    thinking_ = false;
  }
  begun_ |= !part.content.empty();
  return shown + part.content;
}

}  // namespace tokamak::cli
