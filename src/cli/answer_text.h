// The text of an answer as a terminal shows it.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "chat/tool_calls.h"

namespace tokamak::cli {

// Shows Harmony's reasoning between <think> and </think>, as most models write theirs, and its
// other messages as text. Shows the text of other models unchanged.
class AnswerText {
 public:
  explicit AnswerText(std::string_view chat_template);

  // Return the text to show after the next piece and at the end.
  std::string Append(std::string_view text) { return Show(text, /*ends=*/false); }
  std::string Finish() { return Show("", /*ends=*/true); }

 private:
  std::string Show(std::string_view text, bool ends);

  std::unique_ptr<AnswerParser> parser_;  // null: not Harmony
  bool begun_ = false;                    // content was shown
  bool thinking_ = false;                 // <think> is open
};

}  // namespace tokamak::cli
