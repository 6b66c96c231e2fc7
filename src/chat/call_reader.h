// Reads one block of tool calls byte by byte, and returns the calls while they are written.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "chat/tool_calls_format.h"

namespace tokamak {

// Makes a call whose name stands before the JSON of its arguments; nullopt if that is no object, or
// if no tool can have this name.
std::optional<ToolCall> NamedCall(std::string_view name, std::string id, std::string_view json);

// Appends to the arguments of the last call, which an earlier part may have begun.
void ContinueCall(std::string_view arguments, std::vector<ToolCall>& calls);

// Finds strings in JSON that comes byte by byte.
class JsonStrings {
 public:
  // Returns whether the next byte belongs to a string, quotes included.
  bool Take(char c);
  bool inside() const { return inside_; }  // behind an opening quote

 private:
  bool inside_ = false, escaped_ = false;
};

// A block is the text from a start marker of the format to its end marker.
//
// A call of one of the request's tools begins when its name and the opening bracket of its
// arguments have been read. From then on nothing takes it back: its arguments are passed on as
// written, valid or not, up to the closing bracket. All other calls are returned whole, after a
// block that is valid. Values in tags become JSON, one at a time.
class CallReader {
 public:
  enum class Verdict { kMore, kDone, kNotACall };
  using Calls = std::vector<ToolCall>;

  // Both outlive the reader. `start` is the start marker, which has been read.
  CallReader(const ToolFormat& format, const ToolTypes& tools, std::string_view start);

  // Adds to `calls` as AnswerPart::calls has it. kNotACall: the block has ended before this byte.
  Verdict Take(char c, Calls& calls);
  // Ends the answer in the middle of the block. A call that lacks only its end marker counts.
  void Finish(Calls& calls);
  // Returns the text that belongs to no call, once the block has ended.
  std::string TakeText() { return std::move(text_); }

 private:
  // The part of a block that the next byte belongs to.
  enum class Piece {
    kHead,       // before the JSON
    kJson,       // JSON, up to the arguments of a call that has begun
    kArguments,  // of such a call
    kRest,       // of the JSON around these arguments
    kTail,       // between the JSON and the end marker
    kTags,       // text in tags, up to the arguments
    kValues,     // tags with arguments
  };
  struct TagForm;

  Verdict TakeHead(char c, Calls& calls);
  Verdict TakeJson(char c, Calls& calls);
  Verdict TakeBetween(char c, Calls& calls);
  Verdict TakeArguments(char c, Calls& calls);
  Verdict TakeRest(char c, Calls& calls);
  Verdict TakeTail(char c, Calls& calls);
  Verdict TakeTags(char c, Calls& calls);
  Verdict TakeValues(char c, Calls& calls);

  // Whether the byte is in a string, its quotes included.
  bool InString(char c);
  void EndString();
  void EndMember();
  void OpenElement();
  // Begins the object with the call's members, which are `depth` brackets deep.
  void OpenCall(int depth);
  Verdict OpenBracket(char c, Calls& calls);
  Verdict CloseBracket(Calls& calls);
  Verdict EndElement(Calls& calls);
  std::optional<std::string> WrittenArguments() const;
  Verdict EndJson(Calls& calls);
  void EndBlock(Calls& calls);
  void OpenTags(Calls& calls);
  Verdict CloseArguments(Calls& calls);
  bool AddValue(Calls& calls);
  void EndValues(Calls& calls);
  void EndTags(Calls& calls);
  // Begins a call, which waits for the end of the block unless it calls a known tool.
  void BeginCall(ToolCall call, Calls& calls);
  void Continue(std::string_view arguments, Calls& calls);
  // Returns the calls that have waited.
  void Release(Calls& calls);

  const ToolFormat& format_;
  const ToolTypes& tools_;
  Piece piece_ = Piece::kHead;
  std::string text_;  // since the last call that has begun, or since the block's start
  std::string head_, tail_;
  Calls waiting_;
  bool begun_ = false;  // a call has begun, so calls no longer wait

  // JSON.
  int depth_ = 0;  // of brackets
  JsonStrings strings_;
  bool list_ = false;
  bool wants_element_ = false;  // in a list: an element must come
  bool in_element_ = false;
  std::string element_;           // the JSON of a call that has not begun
  size_t string_at_ = 0;          // in element_: the last string
  int call_depth_ = 0;            // of the call's members; -1 after them
  std::string key_, last_;        // at that depth: the member whose value comes, the last string
  std::string name_, id_;         // of the call, as far as they are known
  size_t arguments_at_ = 0;       // in element_; 0: not there yet
  size_t arguments_end_ = 0;      // 0: not closed yet
  int arguments_depth_ = 0;       // around the arguments of a call that has begun
  std::optional<ToolCall> call_;  // from the head
  std::string mark_;              // may be the beginning of the end marker, in arguments

  // Tags.
  const TagForm* tags_ = nullptr;
  bool any_tag_ = false, any_value_ = false;
};

}  // namespace tokamak
