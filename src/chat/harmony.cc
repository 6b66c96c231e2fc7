#include "chat/harmony.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/error.h"
#include "base/text.h"

namespace tokamak {
namespace {

constexpr std::string_view kStart = kHarmonyTokens[0], kChannel = kHarmonyTokens[1],
                           kConstrain = kHarmonyTokens[2], kMessage = kHarmonyTokens[3];
constexpr std::string_view kEnds[] = {kHarmonyTokens[4], kHarmonyTokens[5], kHarmonyTokens[6]};
constexpr std::string_view kRole = "assistant";
constexpr std::string_view kAnalysis = "analysis", kCommentary = "commentary", kFinal = "final";
constexpr std::string_view kTypes[] = {"json", "code"};  // how models label a call's text
constexpr std::string_view kTo = "to=";
constexpr std::string_view kBetween = "\n\n";  // between the texts of two messages of one kind
constexpr size_t kMaxBoundary = 512;           // bytes

// Whether `word` is one of these or, with `may_go_on`, the beginning of one.
bool IsOneOf(std::string_view word, std::initializer_list<std::string_view> all, bool may_go_on) {
  return std::any_of(all.begin(), all.end(), [&](std::string_view one) {
    return one == word || (may_go_on && one.starts_with(word));
  });
}

bool IsType(std::string_view word, bool may_go_on) {
  return IsOneOf(word, {kTypes[0], kTypes[1]}, may_go_on);
}

// Returns the tool that a message to `recipient` calls: functions.NAME or a tool of the request.
std::string_view ToolOf(std::string_view recipient, const ToolTypes& tools) {
  constexpr std::string_view kPrefix = "functions.";
  if (recipient.starts_with(kPrefix)) return recipient.substr(kPrefix.size());
  return tools.Has(recipient) ? recipient : std::string_view();
}

}  // namespace

StructuredOutput::Messages HarmonyMessages(std::string_view prompt, bool commentary) {
  StructuredOutput::Messages messages;
  messages.marks.assign(std::begin(kHarmonyTokens), std::end(kHarmonyTokens));
  messages.start = fmt::format("{}{}", kStart, kRole);
  messages.answer = fmt::format("{}{}{}", kChannel, kFinal, kMessage);
  messages.free = {std::string(kHarmonyAnalysis)};
  if (commentary) messages.free.push_back(fmt::format("{}{}{}", kChannel, kCommentary, kMessage));
  messages.end = kEnds[0];
  messages.begun = Trim(prompt).ends_with(kHarmonyAnalysis);
  return messages;
}

class HarmonyParser::Input {
 public:
  // `marks`: offsets in `text`; null: all that looks like a mark is one.
  Input(std::string_view text, const std::vector<size_t>* marks) : text_(text), marks_(marks) {}

  std::string_view text() const { return text_; }
  size_t taken() const { return taken_; }
  void Take(size_t size) {
    text_.remove_prefix(size);
    taken_ += size;
  }

  // Returns the special token at this place of text(). Sets *cut if all text from there on is the
  // beginning of a special token.
  std::string_view TokenAt(size_t at, bool* cut) const {
    *cut = false;
    const std::string_view text = text_.substr(at);
    if (!text.starts_with('<')) return {};
    if (marks_ && !std::binary_search(marks_->begin(), marks_->end(), taken_ + at)) return {};
    for (const std::string_view token : kHarmonyTokens) {
      if (text.starts_with(token)) return token;
      *cut = *cut || token.starts_with(text);
    }
    return {};
  }

 private:
  std::string_view text_;
  const std::vector<size_t>* marks_;
  size_t taken_ = 0;  // bytes before text_
};

struct HarmonyParser::Boundary {
  enum class Verdict { kMore, kNone, kHeader };

  // Reads the start of the input. `bare`: the header may begin without a special token.
  static Boundary Read(const Input& input, bool bare);

  // Whether a header that was cut off can be dropped: it has no recipient and nothing unknown.
  bool says_nothing() const {
    return !says_more && IsOneOf(role, {kRole}, true) &&
           IsOneOf(channel, {kAnalysis, kCommentary, kFinal}, true);
  }

  Verdict verdict = Verdict::kMore;
  std::string_view ends;    // special tokens that end a message
  std::string_view header;  // as written
  std::string_view role, channel, recipient;
  bool has_token = false;  // the header has a special token
  bool says_more = false;  // more than its role and channel
  size_t size = 0;         // of `ends` and the header, spaces included, once there is a header

 private:
  enum class Slot { kAny, kRole, kChannel, kType };
  // False if a header cannot contain this here.
  bool TakeToken(std::string_view token, bool first, Slot* slot);
  bool TakeWord(std::string_view word, bool cut, Slot slot);
};

bool HarmonyParser::Boundary::TakeToken(std::string_view token, bool first, Slot* slot) {
  if (*slot != Slot::kAny) return false;  // the last special token lacks its text
  has_token = true;
  if (token == kStart && first) {
    *slot = Slot::kRole;
  } else if (token == kChannel && channel.empty()) {
    *slot = Slot::kChannel;
  } else if (token == kConstrain) {
    *slot = Slot::kType;
  } else {
    return token == kMessage;
  }
  return true;
}

bool HarmonyParser::Boundary::TakeWord(std::string_view word, bool cut, Slot slot) {
  if (slot == Slot::kRole) {
    role = word;
    return true;
  }
  if (slot == Slot::kChannel) {
    channel = word;
    return true;
  }
  says_more = true;
  if (slot == Slot::kType) return IsType(word, cut);
  if (word.starts_with(kTo)) {
    const std::string_view name = word.substr(kTo.size());
    const bool same =
        recipient.empty() || recipient == name || (cut && recipient.starts_with(name));
    recipient = recipient.empty() ? name : recipient;
    return same && (cut || !name.empty());
  }
  if (cut && kTo.starts_with(word)) return true;
  return (!channel.empty() || !recipient.empty()) && IsType(word, cut);
}

HarmonyParser::Boundary HarmonyParser::Boundary::Read(const Input& input, bool bare) {
  const std::string_view text = input.text();
  Boundary b;
  const auto skip_space = [&](size_t at) {
    return std::min(text.find_first_not_of(kWhiteSpace, at), text.size());
  };
  size_t at = 0;
  bool cut = false;
  while (at <= kMaxBoundary) {
    const std::string_view token = input.TokenAt(at, &cut);
    if (std::find(std::begin(kEnds), std::end(kEnds), token) == std::end(kEnds)) break;
    b.ends = text.substr(0, at + token.size());
    at = skip_space(b.ends.size());
  }
  const size_t header_at = at, first = skip_space(at);
  b.header = text.substr(header_at);
  Slot slot = Slot::kAny;
  for (b.verdict = Verdict::kNone; (at = skip_space(at)) < text.size();) {
    const std::string_view token = input.TokenAt(at, &cut);
    const bool opens =
        bare || !b.ends.empty() || at > first || token == kStart || token == kChannel;
    if (at > kMaxBoundary || (!opens && !cut)) return b;
    if (cut) {
      b.says_more = true;
      b.verdict = Verdict::kMore;
      return b;
    }
    if (!token.empty()) {
      if (!b.TakeToken(token, at == first, &slot)) return b;
      at += token.size();
      if (token != kMessage) continue;
      b.verdict = Verdict::kHeader;
      b.size = at;
      b.header = text.substr(header_at, at - header_at);
      return b;
    }
    const size_t end = std::min(text.find_first_of(" \t\r\n<", at), text.size());
    if (end == at || end > kMaxBoundary) return b;
    if (!b.TakeWord(text.substr(at, end - at), end == text.size(), slot)) return b;
    slot = Slot::kAny;
    at = end;
  }
  if (at <= kMaxBoundary) b.verdict = Verdict::kMore;
  return b;
}

HarmonyParser::HarmonyParser(std::shared_ptr<const AnswerFormat> format)
    : format_(std::move(format)),
      in_message_(format_->in_reasoning),
      kind_(format_->in_reasoning ? Kind::kReasoning : Kind::kContent) {}

void HarmonyParser::Append(std::string_view text, std::span<const size_t> marks, AnswerPart& part) {
  for (const size_t at : marks) marks_.push_back(pending_.size() + at);
  pending_ += text;
  Read(part);
}

void HarmonyParser::Finish(AnswerPart& part) {
  Read(part);
  const std::string rest = std::exchange(pending_, {});
  const std::vector<size_t> marks = std::exchange(marks_, {});
  const Boundary last =
      Boundary::Read(Input(rest, format_->marks_are_told ? &marks : nullptr), !in_message_);
  const bool boundary = last.has_token || !last.ends.empty();
  if (!in_message_ || !boundary) {
    const bool only_mark = boundary && last.says_nothing();
    const bool cut_end = in_message_ && kind_ == Kind::kCall;  // cut off by a stop string
    if (!only_mark && !cut_end) AddText(rest, part);
    if (in_message_) End(cut_end ? rest : "", part);
    return;
  }
  End(last.ends, part);
  if (last.says_nothing()) return;
  part.content += last.header;
}

void HarmonyParser::Read(AnswerPart& part) {
  Input input(pending_, format_->marks_are_told ? &marks_ : nullptr);
  while (!input.text().empty()) {
    if (in_message_) {
      const std::string_view text = input.text();
      size_t at = text.find('<');
      bool cut = false;
      for (; at != std::string_view::npos; at = text.find('<', at + 1)) {
        const std::string_view token = input.TokenAt(at, &cut);
        if (cut || !token.empty()) break;
      }
      AddText(text.substr(0, at), part);
      input.Take(std::min(at, text.size()));
      if (input.text().empty()) break;
    }
    const Boundary boundary = Boundary::Read(input, !in_message_);
    if (boundary.verdict == Boundary::Verdict::kMore) break;
    if (boundary.verdict == Boundary::Verdict::kHeader) {
      if (in_message_) End(boundary.ends, part);
      Begin(boundary, part);
      input.Take(boundary.size);
    } else if (in_message_) {  // text that looks like a special token
      AddText(input.text().substr(0, 1), part);
      input.Take(1);
    } else {  // text without any header
      in_message_ = true;
    }
  }
  const size_t taken = input.taken();
  pending_.erase(0, taken);
  std::erase_if(marks_, [taken](size_t at) { return at < taken; });
  for (size_t& at : marks_) at -= taken;
}

void HarmonyParser::Begin(const Boundary& boundary, AnswerPart& part) {
  const bool known = IsOneOf(boundary.role, {"", kRole}, false) &&
                     IsOneOf(boundary.channel, {"", kAnalysis, kCommentary, kFinal}, false);
  const bool reads_calls = format_->tools != nullptr && format_->tools->harmony;
  const bool reads_reasoning = format_->reasoning != nullptr && format_->reasoning->harmony;
  in_message_ = true;
  as_written_ = false;
  apart_ = true;
  kind_ = Kind::kContent;
  if (known && !boundary.recipient.empty() && reads_calls) {
    kind_ = Kind::kCall;
    header_ = boundary.header;
    name_ = ToolOf(boundary.recipient, format_->types);
    call_.clear();
    begun_ = false;
  } else if (!known || !boundary.recipient.empty()) {
    as_written_ = true;
  } else if (boundary.channel == kAnalysis) {
    if (reads_reasoning) kind_ = Kind::kReasoning;
    as_written_ = !reads_reasoning;
  }
  if (!as_written_) return;
  apart_ = false;
  AddText(boundary.header, part);
}

void HarmonyParser::End(std::string_view end_tokens, AnswerPart& part) {
  if (as_written_) AddText(end_tokens, part);
  if (kind_ != Kind::kCall || begun_) return;
  const std::string_view arguments = Trim(call_);
  if (auto call = NamedCall(name_, "", arguments.empty() ? "{}" : arguments)) {
    part.calls.push_back(*std::move(call));
    return;
  }
  kind_ = Kind::kContent;
  apart_ = false;
  for (const std::string_view text :
       {std::string_view(header_), std::string_view(call_), end_tokens})
    AddText(text, part);
}

void HarmonyParser::AddText(std::string_view text, AnswerPart& part) {
  if (text.empty()) return;
  if (kind_ == Kind::kCall) return AddArguments(text, part);
  const bool reasoning = kind_ == Kind::kReasoning;
  std::string& to = reasoning ? part.reasoning : part.content;
  bool& begun = reasoning ? has_reasoning_ : has_content_;
  if (std::exchange(apart_, false) && begun) to += kBetween;
  begun = true;
  to += text;
}

// Keeps white space at the end back, which is not part of the arguments.
void HarmonyParser::AddArguments(std::string_view text, AnswerPart& part) {
  const size_t last = text.find_last_not_of(kWhiteSpace);
  call_ += text;
  if (last == std::string_view::npos) return;
  if (!begun_) {
    if (!Trim(call_).starts_with('{') || !format_->types.Has(name_)) return;
    begun_ = true;
    closed_ = false;
    strings_ = {};
    depth_ = 0;
    part.calls.push_back({"", name_, ""});
    call_.erase(0, call_.find('{'));
  }
  const size_t end = call_.size() - (text.size() - 1 - last);
  size_t size = 0;
  while (size < end && !closed_) closed_ = CloseCall(call_[size++]);
  ContinueCall(std::string_view(call_).substr(0, size), part.calls);
  call_.erase(0, size);
  if (size == end) return;
  kind_ = Kind::kContent;
  AddText(std::exchange(call_, {}), part);
}

bool HarmonyParser::CloseCall(char c) {
  if (strings_.Take(c)) return false;
  if (c == '{' || c == '[') ++depth_;
  return (c == '}' || c == ']') && --depth_ == 0;
}

}  // namespace tokamak
