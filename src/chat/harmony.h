// Harmony, the format of gpt-oss's answers: a sequence of messages, each with a header that says
// whether it is reasoning, a tool call or text for the user.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "chat/call_reader.h"
#include "chat/tool_calls.h"
#include "tokamak/sampling_params.h"

namespace tokamak {

inline constexpr std::string_view kHarmonyTokens[] = {"<|start|>",   "<|channel|>", "<|constrain|>",
                                                      "<|message|>", "<|end|>",     "<|call|>",
                                                      "<|return|>"};
inline constexpr std::string_view kHarmonyAnalysis = "<|channel|>analysis<|message|>";

// The messages of an answer to `prompt` that ends with a final message or a call: analysis may come
// before, and if `commentary`, messages to the user, too.
StructuredOutput::Messages HarmonyMessages(std::string_view prompt, bool commentary);

// Reads one answer piece by piece, with the guarantees of AnswerParser. An answer is:
//
//   HEADER<|message|>TEXT<|end|> HEADER<|message|>TEXT<|end|> ...
//   HEADER: [<|start|>assistant] [to=NAME] [<|channel|>CHANNEL] [to=NAME] [[<|constrain|>]json]
//
// An answer begins within a header, because prompts end with "<|start|>assistant". The channel
// "analysis" is reasoning; "final", "commentary" and no channel are content; a message to NAME is a
// call, which goes from the first bracket to the closing one if NAME is a tool of the request, and
// otherwise is returned at its end. Text that does not have this form (another role or channel, an
// invalid call, text that looks like a special token) is kept as written: in the message where it
// stands, or as content.
class HarmonyParser {
 public:
  explicit HarmonyParser(std::shared_ptr<const AnswerFormat> format);

  // `marks` as in AnswerParser::Append.
  void Append(std::string_view text, std::span<const size_t> marks, AnswerPart& part);
  void Finish(AnswerPart& part);

 private:
  // The part of an answer that a message's text goes to.
  enum class Kind { kReasoning, kContent, kCall };
  struct Boundary;  // the end of one message and the header of the next
  class Input;      // text with marks

  void Read(AnswerPart& part);
  void Begin(const Boundary& boundary, AnswerPart& part);
  void End(std::string_view end_tokens, AnswerPart& part);
  void AddText(std::string_view text, AnswerPart& part);
  void AddArguments(std::string_view text, AnswerPart& part);
  // Takes the next byte of a call that has begun. Returns whether it is the closing bracket.
  bool CloseCall(char c);

  const std::shared_ptr<const AnswerFormat> format_;
  std::string pending_;        // not parsed yet: may be a boundary
  std::vector<size_t> marks_;  // offsets in pending_, if they are told
  // False at the start of the answer, whose header may lack its special tokens.
  bool in_message_ = false;
  Kind kind_ = Kind::kContent;
  bool as_written_ = false;  // this message's special tokens go to the content too
  std::string header_;       // of a call, as written
  std::string name_;         // of the tool; empty if it is none
  std::string call_;         // the call's text that has not been returned
  bool begun_ = false;       // the call has been returned, but for what follows
  bool closed_ = false;      // its closing bracket too
  int depth_ = 0;            // of its brackets
  JsonStrings strings_;
  bool has_reasoning_ = false, has_content_ = false;
  bool apart_ = false;  // the next text starts a new message of its kind
};

}  // namespace tokamak
