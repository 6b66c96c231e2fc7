// Harmony, the form of gpt-oss's answers: a sequence of messages, each with a header that says
// whether it is reasoning, a call of a tool or what the user reads.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "chat/tool_calls.h"

namespace tokamak {

inline constexpr std::string_view kHarmonyMarks[] = {"<|start|>",   "<|channel|>", "<|constrain|>",
                                                     "<|message|>", "<|end|>",     "<|call|>",
                                                     "<|return|>"};
inline constexpr std::string_view kHarmonyAnalysis = "<|channel|>analysis<|message|>";

// Reads one answer piece by piece, under the promises of AnswerParser. An answer is
//
//   HEADER<|message|>TEXT<|end|> HEADER<|message|>TEXT<|end|> ...
//   HEADER: [<|start|>assistant] [to=NAME] [<|channel|>CHANNEL] [to=NAME] [[<|constrain|>]json]
//
// and begins within a header, because prompts end with "<|start|>assistant". The channel analysis
// is reasoning; final, commentary and none are content; a message to NAME is a call. Of what is not
// of this form (another role or channel, a call that is not one, text that looks like a marker)
// everything is kept as it was written: in the message where it stands, or as content.
class HarmonyParser {
 public:
  explicit HarmonyParser(std::shared_ptr<const AnswerFormat> format);

  void Append(std::string_view text, AnswerPart& part);
  void Finish(AnswerPart& part);

 private:
  // The part of an answer that a message's text goes to.
  enum class Kind { kReasoning, kContent, kCall };
  struct Boundary;  // between two messages

  void Read(AnswerPart& part);
  void Begin(const Boundary& boundary, AnswerPart& part);
  void End(std::string_view end_marks, AnswerPart& part);
  void AddText(std::string_view text, AnswerPart& part);

  const std::shared_ptr<const AnswerFormat> format_;
  std::string pending_;      // text that nothing was said of: what may be a boundary
  bool in_message_ = false;  // else the answer begins: a header may lack its marks
  Kind kind_ = Kind::kContent;
  bool as_written_ = false;  // this message's marks are content as well
  std::string header_;       // a call's, as it was written
  std::string recipient_;    // whom it goes to
  std::string call_;         // its text
  bool has_reasoning_ = false, has_content_ = false;
  bool apart_ = false;  // the next text is of another message than what its kind has
};

}  // namespace tokamak
