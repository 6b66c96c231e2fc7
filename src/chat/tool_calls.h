// Splits the text that a model generates into reasoning, content and tool calls.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "chat/call_reader.h"
#include "chat/tool_calls_format.h"

namespace tokamak {

class HarmonyParser;

// How to read the answers to one request. Immutable; shared by the request's choices.
struct AnswerFormat {
  const ToolFormat* tools = nullptr;           // null: calls are content
  const ReasoningFormat* reasoning = nullptr;  // null: reasoning is content
  bool in_reasoning = false;                   // the prompt ends inside the reasoning
  // Harmony's marks stand only where AnswerParser::Append is told so. Otherwise any text that looks
  // like a mark counts.
  bool marks_are_told = false;
  // If there are any, the answer consists of calls exactly if it begins with one of these, after
  // reasoning and up to two line breaks. Otherwise it is all content. Nothing may come before the
  // mark that opens the reasoning. Harmony does not need them.
  std::vector<std::string> call_begins = {};
  ToolTypes types = {};

  bool active() const { return tools != nullptr || reasoning != nullptr; }
  // Whether answers consist of Harmony messages.
  bool harmony() const {
    return (tools != nullptr && tools->harmony) || (reasoning != nullptr && reasoning->harmony);
  }
};

struct AnswerPart {
  std::string reasoning;
  std::string content;
  // Each begins a call, in order, or continues the arguments of the last one if it has no name.
  std::vector<ToolCall> calls;

  bool empty() const { return reasoning.empty() && content.empty() && calls.empty(); }
};

// Reads one answer piece by piece. The joined parts depend only on the whole text, not on where it
// was cut. Text that is still ambiguous is held back, so no part contains a piece of a marker. A
// call of a tool of the request is returned while it is written, other calls once they have ended
// and are valid (call_reader.h). Text that looked like a call but is not one becomes content, as
// written. Takes time linear in the text.
//
// White space around calls and around reasoning is dropped. Reasoning is recognized only at the
// start of an answer; if it does not end, it is the whole answer. Harmony has its own rules
// (harmony.h).
class AnswerParser {
 public:
  explicit AnswerParser(std::shared_ptr<const AnswerFormat> format);
  ~AnswerParser();

  // `marks`: offsets in `text` where a special token's name begins, ascending.
  AnswerPart Append(std::string_view text, std::span<const size_t> marks = {});
  // Ends the answer. A call that lacks only its end marker still counts; one that has begun stays
  // incomplete.
  AnswerPart Finish();

 private:
  enum class State {
    kStart,  // reasoning may begin
    kReasoning,
    kUndecided,  // one of call_begins may come
    kContent,    // a call may begin
    kBlock,
    kOnlyContent,
  };
  // Each consumes what it can from pending_. False if it needs more text to go on.
  bool Start(AnswerPart& part);
  bool Reasoning(AnswerPart& part);
  bool Decide();
  bool Content(AnswerPart& part);
  void InBlock(AnswerPart& part);

  void Read(AnswerPart& part);
  void AddReasoning(std::string_view text, AnswerPart& part);
  void AddContent(std::string_view text, AnswerPart& part);
  void OpenBlock(std::string_view start);
  void NoteCalls(const AnswerPart& part);
  void CloseBlock(AnswerPart& part);
  // The state at the start of an answer or after its reasoning.
  State AtAnswer() const {
    return format_->call_begins.empty() ? State::kContent : State::kUndecided;
  }
  // Whether a { here starts a call.
  bool BareCallMayStart() const;

  const std::shared_ptr<const AnswerFormat> format_;
  const std::unique_ptr<HarmonyParser> harmony_;  // null unless the format is Harmony
  State state_;
  std::string pending_;  // not parsed yet
  std::string gap_;      // white space that may turn out to be next to a call
  std::optional<CallReader> block_;
  bool has_content_ = false;
  bool has_reasoning_ = false;
  bool after_call_ = false;  // only gap_ has followed the last call or reasoning
};

}  // namespace tokamak
