#include "chat/tool_calls.h"

#include <algorithm>
#include <utility>

#include "base/text.h"
#include "chat/harmony.h"

namespace tokamak {
namespace {

// The first marker in a text, or the place where one may begin once more text has come.
struct Found {
  size_t at = std::string_view::npos;
  std::string_view marker;  // empty: a marker may begin at `at`
};

Found FindMarker(std::string_view text, const std::vector<std::string_view>& markers) {
  for (size_t at = 0; at < text.size(); ++at) {
    const std::string_view rest = text.substr(at);
    bool may_begin = false;
    for (const std::string_view marker : markers) {
      if (rest.starts_with(marker)) return {at, marker};
      may_begin = may_begin || marker.starts_with(rest);
    }
    if (may_begin) return {at, {}};
  }
  return {};
}

}  // namespace

AnswerParser::AnswerParser(std::shared_ptr<const AnswerFormat> format)
    : format_(std::move(format)),
      harmony_(format_->harmony() ? std::make_unique<HarmonyParser>(format_) : nullptr),
      state_(format_->reasoning == nullptr ? AtAnswer()
             : format_->in_reasoning       ? State::kReasoning
                                           : State::kStart) {}

AnswerParser::~AnswerParser() = default;

AnswerPart AnswerParser::Append(std::string_view text, std::span<const size_t> marks) {
  AnswerPart part;
  if (harmony_ != nullptr) {
    harmony_->Append(text, marks, part);
    return part;
  }
  pending_ += text;
  Read(part);
  return part;
}

AnswerPart AnswerParser::Finish() {
  AnswerPart part;
  if (harmony_ != nullptr) {
    harmony_->Finish(part);
    return part;
  }
  if (state_ == State::kStart) state_ = AtAnswer();  // shorter than an opening marker
  Read(part);
  if (state_ == State::kBlock) {
    block_->Finish(part.calls);
    CloseBlock(part);
    Read(part);
  }
  const std::string rest = std::exchange(pending_, {});  // looked like the beginning of a marker
  if (state_ == State::kReasoning) {
    AddReasoning(rest, part);
  } else {
    AddContent(rest, part);
    if (!after_call_) part.content += gap_;
  }
  gap_.clear();
  return part;
}

void AnswerParser::Read(AnswerPart& part) {
  while (!pending_.empty()) {
    bool more = true;
    switch (state_) {
      case State::kStart:
        more = Start(part);
        break;
      case State::kReasoning:
        more = Reasoning(part);
        break;
      case State::kUndecided:
        more = Decide();
        break;
      case State::kContent:
        more = Content(part);
        break;
      case State::kBlock:
        InBlock(part);
        break;
      case State::kOnlyContent:
        AddContent(std::exchange(pending_, {}), part);
        break;
    }
    if (!more) return;
  }
}

bool AnswerParser::Start(AnswerPart& /*part*/) {
  const std::string_view open = format_->reasoning->open;
  if (format_->call_begins.empty()) {
    const size_t begin = std::min(pending_.find_first_not_of(kWhiteSpace), pending_.size());
    gap_ += pending_.substr(0, begin);
    pending_.erase(0, begin);
  }
  if (pending_.starts_with(open)) {
    pending_.erase(0, open.size());
    gap_.clear();
    state_ = State::kReasoning;
    return true;
  }
  if (open.starts_with(pending_)) return false;
  state_ = AtAnswer();
  return true;
}

bool AnswerParser::Reasoning(AnswerPart& part) {
  const ReasoningFormat& format = *format_->reasoning;
  if (!has_reasoning_) {  // models may repeat the opening marker of the prompt
    const size_t begin = std::min(pending_.find_first_not_of(kWhiteSpace), pending_.size());
    pending_.erase(0, begin);
    if (pending_.starts_with(format.open)) {
      pending_.erase(0, format.open.size());
      return true;
    }
    if (format.open.starts_with(pending_)) return false;
  }
  const Found found = FindMarker(pending_, {format.close});
  AddReasoning(std::string_view(pending_).substr(0, found.at), part);
  pending_.erase(0, found.at);
  if (found.marker.empty()) return false;
  pending_.erase(0, found.marker.size());
  gap_.clear();
  after_call_ = true;  // white space after reasoning is dropped as after a call
  state_ = AtAnswer();
  return true;
}

bool AnswerParser::Decide() {
  constexpr size_t kMaxLineBreaks = 2;
  for (; after_call_ && gap_.size() < kMaxLineBreaks && pending_.starts_with('\n');
       pending_.erase(0, 1)) {
    gap_ += '\n';
  }
  bool may_begin = false;
  for (const std::string& begin : format_->call_begins) {
    if (pending_.starts_with(begin)) {
      state_ = State::kContent;
      return true;
    }
    may_begin = may_begin || begin.starts_with(pending_);
  }
  if (!may_begin) state_ = State::kOnlyContent;
  return !may_begin;
}

bool AnswerParser::BareCallMayStart() const {
  return format_->tools != nullptr && format_->tools->bare && !has_content_;
}

bool AnswerParser::Content(AnswerPart& part) {
  if (format_->tools == nullptr) {
    AddContent(std::exchange(pending_, {}), part);
    return false;
  }
  const ToolFormat& tools = *format_->tools;
  if (BareCallMayStart()) {
    const auto separates = [&](char c) { return IsWhiteSpace(c) || (after_call_ && c == ';'); };
    const size_t begin = static_cast<size_t>(
        std::find_if_not(pending_.begin(), pending_.end(), separates) - pending_.begin());
    gap_ += pending_.substr(0, begin);
    pending_.erase(0, begin);
    if (pending_.starts_with('{')) {
      OpenBlock("");
      return true;
    }
    if (pending_.empty()) return false;
  }
  std::vector<std::string_view> markers = tools.starts;
  markers.insert(markers.end(), tools.ignored.begin(), tools.ignored.end());
  const Found found = FindMarker(pending_, markers);
  AddContent(std::string_view(pending_).substr(0, found.at), part);
  pending_.erase(0, found.at);
  if (found.marker.empty()) return false;
  const bool starts =
      std::find(tools.starts.begin(), tools.starts.end(), found.marker) != tools.starts.end();
  if (starts) {
    OpenBlock(found.marker);
  } else {
    pending_.erase(0, found.marker.size());
  }
  return true;
}

void AnswerParser::OpenBlock(std::string_view start) {
  block_.emplace(*format_->tools, format_->types, start);
  pending_.erase(0, start.size());
  state_ = State::kBlock;
}

void AnswerParser::InBlock(AnswerPart& part) {
  size_t taken = 0;
  auto verdict = CallReader::Verdict::kMore;
  while (verdict == CallReader::Verdict::kMore && taken < pending_.size()) {
    verdict = block_->Take(pending_[taken], part.calls);
    if (verdict != CallReader::Verdict::kNotACall) ++taken;
  }
  pending_.erase(0, taken);
  NoteCalls(part);
  if (verdict != CallReader::Verdict::kMore) CloseBlock(part);
}

// Drops the white space before a call.
void AnswerParser::NoteCalls(const AnswerPart& part) {
  if (part.calls.empty() || after_call_) return;
  if (!has_content_) gap_.clear();
  after_call_ = true;
}

void AnswerParser::CloseBlock(AnswerPart& part) {
  state_ = State::kContent;
  NoteCalls(part);
  AddContent(block_->TakeText(), part);
  block_.reset();
}

void AnswerParser::AddReasoning(std::string_view text, AnswerPart& part) {
  if (text.empty()) return;
  const size_t end = text.find_last_not_of(kWhiteSpace) + 1;  // 0 if it is all white space
  if (end > 0) {
    part.reasoning += std::exchange(gap_, {});
    part.reasoning += text.substr(0, end);
    has_reasoning_ = true;
  }
  if (has_reasoning_) gap_ += text.substr(end);
}

void AnswerParser::AddContent(std::string_view text, AnswerPart& part) {
  const size_t begin = text.find_first_not_of(kWhiteSpace);
  if (begin == std::string_view::npos) {
    gap_ += text;
    return;
  }
  const size_t end = text.find_last_not_of(kWhiteSpace) + 1;
  // White space between content and content is kept; before the first content, only if no
  // call or reasoning preceded it.
  if (!after_call_ || has_content_) {
    part.content += gap_;
    part.content += text.substr(0, begin);
  }
  part.content += text.substr(begin, end - begin);
  gap_ = text.substr(end);
  has_content_ = true;
  after_call_ = false;
}

}  // namespace tokamak
