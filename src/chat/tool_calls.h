// From the text that a model generates to what it means: reasoning, content and calls of tools.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "chat/tool_calls_format.h"

namespace tokamak {

class HarmonyParser;

// How to read the answers to one request. Immutable and shared by its choices.
struct AnswerFormat {
  const ToolFormat* tools = nullptr;           // null: calls are content
  const ReasoningFormat* reasoning = nullptr;  // null: reasoning is content
  bool in_reasoning = false;                   // the prompt has opened it
  ToolTypes types = {};

  bool active() const { return tools != nullptr || reasoning != nullptr; }
  // Whether answers are Harmony's messages.
  bool harmony() const {
    return (tools != nullptr && tools->harmony) || (reasoning != nullptr && reasoning->harmony);
  }
};

struct AnswerPart {
  std::string reasoning;
  std::string content;
  std::vector<ToolCall> calls;

  bool empty() const { return reasoning.empty() && content.empty() && calls.empty(); }
};

// Reads one answer piece by piece. Joined together, the parts depend on the whole text alone, not
// on where it was cut. What cannot be told apart yet is held back: no part has a piece of a marker.
// A call comes whole, once it has ended and holds what it should; what looked like one and is
// none is content, as it was written. Time is linear in the text.
//
// White space around calls and around reasoning is left out. Reasoning is looked for where an
// answer begins and nowhere else; without an end it takes the whole answer. Harmony has rules of
// its own (harmony.h).
class AnswerParser {
 public:
  explicit AnswerParser(std::shared_ptr<const AnswerFormat> format);
  ~AnswerParser();

  AnswerPart Append(std::string_view text);
  // The answer has ended. A call that lacks nothing but its end marker is one.
  AnswerPart Finish();

 private:
  enum class State { kStart, kReasoning, kContent, kBlock };
  // The part of a block that its next byte belongs to.
  enum class Piece { kHead, kJson, kTail, kTagged };
  struct Block {
    std::string raw;  // with the start: what becomes content if it is no call
    ToolBlock parts;
    Piece piece = Piece::kHead;
    int depth = 0;  // of brackets in the JSON
    bool in_string = false;
    bool escaped = false;
  };
  enum class Verdict { kMore, kDone, kNotACall };

  // Each takes what it can from pending_; false: nothing more can be said without more text.
  bool Start(AnswerPart& part);
  bool Reasoning(AnswerPart& part);
  bool Content(AnswerPart& part);
  void InBlock(AnswerPart& part);

  void Read(AnswerPart& part);
  void AddReasoning(std::string_view text, AnswerPart& part);
  void AddContent(std::string_view text, AnswerPart& part);
  void OpenBlock(std::string_view start);
  Verdict Take(char c);
  Verdict TakeHead(char c);
  Verdict TakeJson(char c);
  void CloseBlock(bool may_be_call, AnswerPart& part);
  // Whether a { opens a call here.
  bool BareCallMayStart() const;

  const std::shared_ptr<const AnswerFormat> format_;
  const std::unique_ptr<HarmonyParser> harmony_;  // reads everything, where it is not null
  State state_;
  std::string pending_;  // text that nothing was said of
  std::string gap_;      // white space that may turn out to be beside a call
  Block block_;
  bool has_content_ = false;
  bool has_reasoning_ = false;
  bool after_call_ = false;  // the last thing but for the gap
};

}  // namespace tokamak
