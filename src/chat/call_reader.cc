#include "chat/call_reader.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/json/json_value.h"
#include "base/text.h"

namespace tokamak {
namespace {

using Verdict = CallReader::Verdict;

constexpr size_t kMaxHead = 512;  // bytes before the JSON of a call: its name and markers
constexpr size_t kMaxRest = 512;  // bytes of JSON after the arguments
constexpr size_t kMaxTail = 32;   // bytes between the JSON and the end marker
constexpr int kMaxDepth = 64;     // of JSON that is parsed, because the parser is recursive
constexpr std::string_view kFence = "```";
// Qwen's coder models: <function=NAME> <parameter=KEY> VALUE </parameter> ... </function>
constexpr std::string_view kFunction = "<function=";
// GLM: NAME <arg_key>KEY</arg_key> <arg_value>VALUE</arg_value> ...
constexpr std::string_view kArgKey = "<arg_key>";

std::optional<JsonValue> Parse(std::string_view text) {
  return JsonValue::Parse(text, {.max_depth = 100});
}

bool IsObject(std::string_view text) {
  const std::optional<JsonValue> json = Parse(text);
  return json && json->is_object();
}

// Removes the longest prefix of `marker` from the end of `text`.
void CutPrefixOf(std::string_view marker, std::string& text) {
  for (size_t n = std::min(text.size(), marker.size()); n > 0; --n) {
    if (!std::string_view(text).ends_with(marker.substr(0, n))) continue;
    text.resize(text.size() - n);
    return;
  }
}

bool IsArguments(std::string_view key) { return key == "arguments" || key == "parameters"; }

}  // namespace

// How a call in tags is written after its name.
struct CallReader::TagForm {
  std::string_view key, key_end;
  std::string_view value;  // empty: the value follows the key at once
  std::string_view value_end;
  std::string_view end;  // after the last value; empty: the end of the block
};

std::optional<ToolCall> NamedCall(std::string_view name, std::string id, std::string_view json) {
  if (!IsToolName(name) || !IsObject(json)) return std::nullopt;
  return ToolCall{std::move(id), std::string(name), std::string(json)};
}

void ContinueCall(std::string_view arguments, std::vector<ToolCall>& calls) {
  if (calls.empty()) calls.emplace_back();
  calls.back().arguments += arguments;
}

CallReader::CallReader(const ToolFormat& format, const ToolTypes& tools, std::string_view start)
    : format_(format), tools_(tools), text_(start) {}

Verdict CallReader::Take(char c, Calls& calls) {
  if (piece_ == Piece::kArguments) return TakeArguments(c, calls);
  text_ += c;
  Verdict verdict = Verdict::kNotACall;
  switch (piece_) {
    case Piece::kHead:
      verdict = TakeHead(c, calls);
      break;
    case Piece::kJson:
      verdict = TakeJson(c, calls);
      break;
    case Piece::kRest:
      verdict = TakeRest(c, calls);
      break;
    case Piece::kTail:
      verdict = TakeTail(c, calls);
      break;
    case Piece::kTags:
      verdict = TakeTags(c, calls);
      break;
    case Piece::kValues:
      verdict = TakeValues(c, calls);
      break;
    case Piece::kArguments:
      break;
  }
  if (verdict == Verdict::kNotACall) text_.pop_back();
  return verdict;
}

void CallReader::Finish(Calls& calls) {
  switch (piece_) {
    case Piece::kHead:
      return;
    case Piece::kJson:
      if (begun_ && !in_element_) text_.clear();
      return;
    case Piece::kArguments:
    case Piece::kRest:
      text_.clear();
      return;
    case Piece::kTail:
      // A stop string or the token limit may have cut off the end marker.
      CutPrefixOf(format_.end, tail_);
      return EndBlock(calls);
    case Piece::kTags:
      CutPrefixOf(format_.end, head_);
      return EndTags(calls);
    case Piece::kValues:
      CutPrefixOf(format_.end, head_);
      if (tags_->end.empty()) EndValues(calls);
      if (begun_) text_.clear();
      return;
  }
}

Verdict CallReader::TakeHead(char c, Calls& calls) {
  const bool blank = Trim(head_).empty();
  const bool after_mark =
      !format_.json_after.empty() && head_.find(format_.json_after) != std::string::npos;
  const bool at_once = blank && (format_.json_after.empty() || format_.json_at_once);
  if ((c == '{' && (at_once || after_mark)) || (c == '[' && at_once)) {
    piece_ = Piece::kJson;
    if (blank) return TakeJson(c, calls);
    call_ = format_.in_head(head_);
    if (!call_) return Verdict::kNotACall;
    // The object is the value of a member "arguments", as it were.
    OpenElement();
    call_depth_ = 0;
    key_ = "arguments";
    name_ = call_->name;
    id_ = call_->id;
    return TakeJson(c, calls);
  }
  if (!format_.json_after.empty()) {
    if (head_.size() == kMaxHead || (c == '{' && !after_mark)) return Verdict::kNotACall;
  } else if (!IsWhiteSpace(c)) {
    if (!format_.tagged) return Verdict::kNotACall;
    piece_ = Piece::kTags;
    return TakeTags(c, calls);
  }
  if (head_.size() == kMaxHead) return Verdict::kNotACall;
  head_ += c;
  return Verdict::kMore;
}

Verdict CallReader::TakeJson(char c, Calls& calls) {
  if (!in_element_) {
    const bool opens = c == '{' && (depth_ == 0 || wants_element_);
    if (!opens) return TakeBetween(c, calls);
    OpenElement();
  }
  element_ += c;
  if (InString(c)) return Verdict::kMore;
  switch (c) {
    case ':':
      if (depth_ != call_depth_) return Verdict::kMore;
      key_ = std::move(last_);
      if (IsArguments(key_) && arguments_at_ == 0) arguments_at_ = element_.size();
      return Verdict::kMore;
    case ',':
      if (depth_ == call_depth_) EndMember();
      return Verdict::kMore;
    case '{':
    case '[':
      return OpenBracket(c, calls);
    case '}':
    case ']':
      return CloseBracket(calls);
    default:
      return Verdict::kMore;
  }
}

// Reads a list outside of its elements.
Verdict CallReader::TakeBetween(char c, Calls& calls) {
  if (depth_ == 0) {
    list_ = wants_element_ = true;
    depth_ = 1;
    return Verdict::kMore;
  }
  if (IsWhiteSpace(c)) return Verdict::kMore;
  if (!wants_element_) {
    wants_element_ = c == ',';
    if (wants_element_) return Verdict::kMore;
    if (c == ']') return EndJson(calls);
  }
  if (!begun_ || format_.end.empty()) return Verdict::kNotACall;
  piece_ = Piece::kTail;  // the list lacks its end
  return TakeTail(c, calls);
}

bool JsonStrings::Take(char c) {
  if (!inside_) return inside_ = c == '"';
  inside_ = escaped_ || c != '"';
  escaped_ = !escaped_ && c == '\\';
  return true;
}

bool CallReader::InString(char c) {
  const bool was_inside = strings_.inside();
  const bool is_part = strings_.Take(c);
  if (piece_ != Piece::kJson || was_inside == strings_.inside()) return is_part;
  if (!was_inside) {
    string_at_ = element_.size() - 1;
  } else if (depth_ == call_depth_) {
    EndString();
  }
  return is_part;
}

void CallReader::EndString() {
  const std::optional<JsonValue> json = Parse(std::string_view(element_).substr(string_at_));
  if (!json) return;
  const std::string& text = *json->AsString();
  if (key_.empty()) {
    last_ = text;
  } else if ((key_ == "name" || key_ == "tool_name") && name_.empty()) {
    name_ = text;
  } else if (key_ == "id" && id_.empty()) {
    id_ = text;
  }
}

void CallReader::EndMember() {
  if (IsArguments(key_) && arguments_end_ == 0) arguments_end_ = element_.size() - 1;
  key_.clear();
  last_.clear();
}

void CallReader::OpenElement() {
  in_element_ = true;
  wants_element_ = false;
  element_.clear();
  OpenCall(depth_ + 1);
}

void CallReader::OpenCall(int depth) {
  call_depth_ = depth;
  for (std::string* text : {&key_, &last_, &name_, &id_}) text->clear();
  arguments_at_ = arguments_end_ = 0;
}

Verdict CallReader::OpenBracket(char c, Calls& calls) {
  if (++depth_ > kMaxDepth) return Verdict::kNotACall;
  if (c != '{' || depth_ - 1 != call_depth_) return Verdict::kMore;
  if (key_ == "function") {  // some models write the call inside of it
    OpenCall(depth_);
  } else if (IsArguments(key_) && arguments_end_ == 0 && tools_.Has(name_)) {
    piece_ = Piece::kArguments;
    arguments_depth_ = depth_ - 1;
    BeginCall({id_, name_, ""}, calls);
    Continue("{", calls);
  }
  return Verdict::kMore;
}

Verdict CallReader::CloseBracket(Calls& calls) {
  if (depth_ == call_depth_) EndMember();
  --depth_;
  if (depth_ < call_depth_) call_depth_ = -1;
  return depth_ == (list_ ? 1 : 0) ? EndElement(calls) : Verdict::kMore;
}

// Ends the JSON of a call that has not begun.
Verdict CallReader::EndElement(Calls& calls) {
  in_element_ = false;
  std::optional<ToolCall> call;
  if (call_) {
    call = NamedCall(call_->name, call_->id, element_);
  } else if (IsToolName(name_) && IsObject(element_)) {
    std::optional<std::string> arguments = WrittenArguments();
    if (arguments) call = {id_, name_, *std::move(arguments)};
  }
  if (!call || (format_.only_known && !tools_.Has(call->name))) return Verdict::kNotACall;
  (begun_ ? calls : waiting_).push_back(*std::move(call));
  if (begun_) text_.clear();
  return list_ ? Verdict::kMore : EndJson(calls);
}

// Returns the arguments as OpenAI has them: an object, or a string that holds one; nullopt for
// anything else.
std::optional<std::string> CallReader::WrittenArguments() const {
  if (arguments_at_ == 0) return "{}";
  std::string text(
      Trim(std::string_view(element_).substr(arguments_at_, arguments_end_ - arguments_at_)));
  if (text == "null") return "{}";
  const std::optional<JsonValue> json = Parse(text);
  if (json && json->is_string()) {
    text = *json->AsString();
    if (Trim(text).empty()) return "{}";
  }
  return IsObject(text) ? std::optional(std::move(text)) : std::nullopt;
}

Verdict CallReader::TakeArguments(char c, Calls& calls) {
  if (!strings_.inside() && !format_.end.empty() && (!mark_.empty() || c == format_.end.front())) {
    // JSON does not contain the end marker outside of strings, so the model left brackets open.
    mark_ += c;
    if (mark_ == format_.end) return Verdict::kDone;
    if (format_.end.starts_with(mark_)) return Verdict::kMore;
    mark_.pop_back();
    Continue(std::exchange(mark_, {}), calls);
    if (c == format_.end.front()) {
      mark_ = c;
      return Verdict::kMore;
    }
  }
  Continue({&c, 1}, calls);
  if (InString(c)) return Verdict::kMore;
  if (c == '{' || c == '[') ++depth_;
  if ((c != '}' && c != ']') || --depth_ > arguments_depth_) return Verdict::kMore;
  if (call_) return EndJson(calls);
  piece_ = Piece::kRest;
  return Verdict::kMore;
}

Verdict CallReader::TakeRest(char c, Calls& calls) {
  if (!InString(c)) {
    if (!format_.end.empty() && text_.ends_with(format_.end)) {
      text_.clear();
      return Verdict::kDone;
    }
    if (c == '{' || c == '[') ++depth_;
    if ((c == '}' || c == ']') && --depth_ == (list_ ? 1 : 0)) {
      if (!list_) return EndJson(calls);
      text_.clear();
      in_element_ = false;
      piece_ = Piece::kJson;
      return Verdict::kMore;
    }
  }
  return text_.size() > kMaxRest ? Verdict::kNotACall : Verdict::kMore;
}

Verdict CallReader::EndJson(Calls& calls) {
  piece_ = Piece::kTail;
  if (begun_) text_.clear();
  if (!format_.end.empty()) return Verdict::kMore;
  EndBlock(calls);
  return Verdict::kDone;
}

Verdict CallReader::TakeTail(char c, Calls& calls) {
  tail_ += c;
  if (tail_.ends_with(format_.end)) {
    tail_.resize(tail_.size() - format_.end.size());
    EndBlock(calls);
    return Verdict::kDone;
  }
  return tail_.size() < kMaxTail + format_.end.size() ? Verdict::kMore : Verdict::kNotACall;
}

// Ends the block after its JSON or its tags.
void CallReader::EndBlock(Calls& calls) {
  const std::string_view tail = Trim(tail_);
  const bool valid = tail.empty() || (tail == kFence && head_.find(kFence) != std::string::npos);
  if (valid) {
    Release(calls);
    text_.clear();
  } else if (begun_) {
    text_ = tail_;
  }
}

// ---- Tags ----

Verdict CallReader::TakeTags(char c, Calls& calls) {
  // Prose that mentions the start marker: a name contains no space.
  if (c == ' ' && !any_tag_) return Verdict::kNotACall;
  any_tag_ = any_tag_ || c == '<';
  head_ += c;
  if (head_.ends_with(format_.end)) {
    head_.resize(head_.size() - format_.end.size());
    EndTags(calls);
    return Verdict::kDone;
  }
  if (c == '>' && head_.size() <= kMaxHead) OpenTags(calls);
  return Verdict::kMore;
}

// Begins a call if its name has been read.
void CallReader::OpenTags(Calls& calls) {
  static constexpr TagForm kFunctionForm = {"<parameter=", ">", "", "</parameter>", "</function>"};
  static constexpr TagForm kKeyForm = {kArgKey, "</arg_key>", "<arg_value>", "</arg_value>", ""};
  const std::string text(Trim(head_));
  const TagForm* form = nullptr;
  std::string_view name = text, read;
  if (text.starts_with(kFunction)) {
    form = &kFunctionForm;
    name = name.substr(kFunction.size(), text.size() - kFunction.size() - 1);
  } else if (text.find('<') == text.size() - std::min(text.size(), kArgKey.size()) &&
             text.ends_with(kArgKey)) {
    form = &kKeyForm;
    name.remove_suffix(kArgKey.size());
    read = kArgKey;
  }
  name = Trim(name);
  if (form == nullptr || !(tools_.Has(name) || IsToolName(name))) return;
  tags_ = form;
  name_ = name;
  head_ = read;
  piece_ = Piece::kValues;
  BeginCall({"", name_, ""}, calls);
  Continue("{", calls);
  if (begun_) text_ = read;
}

Verdict CallReader::TakeValues(char c, Calls& calls) {
  if (head_.empty() && IsWhiteSpace(c)) return Verdict::kMore;
  head_ += c;
  if (head_.ends_with(format_.end)) {
    head_.resize(head_.size() - format_.end.size());
    if (!head_.empty()) CloseArguments(calls);
    EndValues(calls);
    return Verdict::kDone;
  }
  if (head_ == tags_->end) {
    Continue("}", calls);
    return EndJson(calls);
  }
  if (c == '>' && head_.ends_with(tags_->value_end)) {
    if (AddValue(calls)) {
      head_.clear();
      if (begun_) text_.clear();
      return Verdict::kMore;
    }
    if (!tags_->value.empty()) return CloseArguments(calls);
  }
  const auto agrees = [this](std::string_view marker) {
    return !marker.empty() && (marker.starts_with(head_) || head_.starts_with(marker));
  };
  const bool fits = agrees(tags_->key) || agrees(tags_->end) || agrees(format_.end);
  return fits ? Verdict::kMore : CloseArguments(calls);
}

// The text does not go on as values do. A call that has begun is not taken back, and its brackets
// are ours to close.
Verdict CallReader::CloseArguments(Calls& calls) {
  if (begun_) Continue("}", calls);
  return Verdict::kNotACall;
}

// Adds the value that `head_` ends with. Returns false if there is none.
bool CallReader::AddValue(Calls& calls) {
  std::string_view text = head_;
  if (!TakeUntil(text, tags_->key)) return false;
  const auto key = TakeUntil(text, tags_->key_end);
  if (!key) return false;
  const bool lines = tags_->value.empty();  // the value stands on lines of its own
  if (!lines && (!Trim(text).starts_with(tags_->value) || !TakeUntil(text, tags_->value))) {
    return false;
  }
  auto value = TakeUntil(text, tags_->value_end);
  if (!value) return false;
  if (lines && value->starts_with('\n')) value->remove_prefix(1);
  if (lines && value->ends_with('\n')) value->remove_suffix(1);
  const std::string name(Trim(*key));
  Continue((std::exchange(any_value_, true) ? ", " : "") + JsonValue(name).Dump() + ": " +
               tools_.ToJson(name_, name, *value),
           calls);
  return true;
}

// Ends the block after its last value. A call that has begun may lack its own end.
void CallReader::EndValues(Calls& calls) {
  if (!head_.empty() || (!begun_ && !tags_->end.empty())) return;
  Continue("}", calls);
  EndBlock(calls);
}

// Ends the block without any values: it holds the name of a call, or no call.
void CallReader::EndTags(Calls& calls) {
  const std::string_view name = Trim(head_);
  if (!tools_.Has(name) && !IsToolName(name)) return;
  calls.push_back({"", std::string(name), "{}"});
  text_.clear();
}

// ---- Calls ----

void CallReader::BeginCall(ToolCall call, Calls& calls) {
  if (!tools_.Has(call.name)) return waiting_.push_back(std::move(call));
  Release(calls);
  begun_ = true;
  text_.clear();
  calls.push_back(std::move(call));
}

void CallReader::Continue(std::string_view arguments, Calls& calls) {
  ContinueCall(arguments, begun_ ? calls : waiting_);
}

void CallReader::Release(Calls& calls) {
  std::move(waiting_.begin(), waiting_.end(), std::back_inserter(calls));
  waiting_.clear();
}

}  // namespace tokamak
