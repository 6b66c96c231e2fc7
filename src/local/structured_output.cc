#include "local/structured_output.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <iterator>

#include "base/error.h"
#include "base/log.h"
#include "grammar/grammar.h"
#include "local/calls_constraint.h"
#include "local/messages_constraint.h"
#include "local/reasoning_constraint.h"

namespace tokamak {
namespace {

using Kind = StructuredOutput::Kind;

class GrammarConstraint final : public TokenConstraint {
 public:
  GrammarConstraint(std::shared_ptr<const Grammar> grammar,
                    std::shared_ptr<const Vocabulary> vocabulary)
      : matcher_(std::move(grammar), std::move(vocabulary)) {}

  // Takes the beginning of the answer. False if it may not be that.
  bool Start(std::string_view text) { return matcher_.AcceptBytes(text); }
  Status Allow(std::span<uint32_t> allowed) override { return matcher_.FillMask(allowed); }
  bool Accept(TokenId token) override { return matcher_.Accept(token); }
  bool complete() const override { return matcher_.complete(); }
  bool finished() const override { return matcher_.finished(); }

 private:
  Matcher matcher_;
};

GrammarSpec::Kind KindOf(Kind kind) {
  switch (kind) {
    case Kind::kJsonObject:
      return GrammarSpec::Kind::kJsonObject;
    case Kind::kJsonSchema:
      return GrammarSpec::Kind::kJsonSchema;
    case Kind::kRegex:
      return GrammarSpec::Kind::kRegex;
    case Kind::kChoice:
      return GrammarSpec::Kind::kChoice;
    case Kind::kGrammar:
      return GrammarSpec::Kind::kGbnf;
    case Kind::kTags:
      return GrammarSpec::Kind::kTags;
  }
  return GrammarSpec::Kind::kJsonObject;
}

void AddTags(const std::vector<StructuredOutput::Tag>& tags, GrammarSpec& spec) {
  for (const StructuredOutput::Tag& tag : tags) {
    GrammarSpec content{.kind = GrammarSpec::Kind::kJsonSchema, .text = tag.schema};
    content.whitespace = spec.whitespace;
    content.whitespace_pattern = spec.whitespace_pattern;
    spec.tags.push_back(
        {tag.begin, std::make_shared<const GrammarSpec>(std::move(content)), tag.end});
  }
}

GrammarSpec SpecOf(const StructuredOutput& output, bool calls) {
  GrammarSpec spec;
  if (output.whitespace_pattern) {
    spec.whitespace = GrammarSpec::Whitespace::kPattern;
    spec.whitespace_pattern = *output.whitespace_pattern;
  }
  if (calls) {
    spec.kind = GrammarSpec::Kind::kTags;
    spec.at_least_one = !output.calls_in_text;
    spec.stop_after_first =
        output.calls_in_text ? output.ends_after_tag : !output.call_separator || output.messages;
    spec.separator = output.call_separator.value_or("");
    if (output.calls_in_text) spec.triggers = output.triggers;
    AddTags(output.calls, spec);
    return spec;
  }
  spec.kind = KindOf(output.kind);
  spec.text = output.text;
  spec.choices = output.choices;
  spec.triggers = output.triggers;
  spec.stop_after_first = output.ends_after_tag;
  AddTags(output.tags, spec);
  return spec;
}

// Begins the message with the path: "structured_output.properties.a: ..." for "$.properties.a:
// ...", and "structured_output.tags[0].content.a: ..." for "tags[0].content: $.a: ...", or "calls"
// for "tags".
Status WithPath(const Status& status, bool calls) {
  std::string message(status.message());
  constexpr std::string_view kTags = "tags[";
  if (message.starts_with(kTags)) {
    const size_t at = message.find(": $");
    if (at != std::string::npos) message.erase(at, 3);
    if (calls) message.replace(0, kTags.size(), "calls[");
    return Status(status.code(), "structured_output." + message);
  }
  const bool path = message.starts_with("$") && message.find(": ") != std::string::npos;
  return path ? Status(status.code(), "structured_output" + message.substr(1))
              : status.WithContext("structured_output");
}

// Whether the answer may be what stands above `calls`.
bool MayBeText(const StructuredOutput& output) {
  return !output.must_call && !output.calls_in_text;
}

// Special tokens are not text, so free text cannot hold the one that opens a call.
Status CheckTriggers(const StructuredOutput& output, const ConstraintTokens& tokens) {
  if (output.kind != Kind::kTags && !output.calls_in_text) return Status();
  // The beginnings of tags are the triggers if there are no others.
  const bool own = !output.triggers.empty();
  const auto& tags = output.calls_in_text ? output.calls : output.tags;
  const size_t size = own ? output.triggers.size() : tags.size();
  for (const int32_t id : tokens.special) {
    const std::string& piece = tokens.bytes[static_cast<size_t>(id)];
    for (size_t i = 0; i < size; ++i) {
      const std::string& trigger = own ? output.triggers[i] : tags[i].begin;
      if (trigger.find(piece) == std::string::npos) continue;
      return Unimplemented(
          "structured_output{}: \"{}\" is a special token of this model, so it cannot come after "
          "free text that keeps to tags",
          own ? fmt::format(".triggers[{}]", i) : "", piece);
    }
  }
  return Status();
}

}  // namespace

std::shared_ptr<const ConstraintTokens> MakeConstraintTokens(const Tokenizer& tokenizer) {
  const auto start = std::chrono::steady_clock::now();
  auto tokens = std::make_shared<ConstraintTokens>();
  const auto size = static_cast<size_t>(tokenizer.vocab_size());
  std::vector<std::string> text;
  text.reserve(size);
  tokens->bytes.reserve(size);
  for (int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
    const std::string_view bytes = tokenizer.TokenPiece(id);
    tokens->bytes.emplace_back(bytes);
    text.emplace_back(tokenizer.IsSpecial(id) ? "" : bytes);
    if (text.back().empty() && !bytes.empty()) tokens->special.push_back(id);
    if (bytes == "\n" || bytes == "\n\n") tokens->newlines.push_back(id);
    tokens->memory += static_cast<int64_t>(sizeof(std::string) + bytes.size());
  }
  tokens->vocabulary = Vocabulary::Make(text);
  tokens->memory += static_cast<int64_t>(tokens->vocabulary->bytes());
  tokens->seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  LogInfo("structured output: made the tables of {} tokens in {:.0f} ms ({:.1f} MiB)",
          tokens->bytes.size(), tokens->seconds * 1e3,
          static_cast<double>(tokens->memory) / (1 << 20));
  return tokens;
}

ConstraintMaker::ConstraintMaker(std::shared_ptr<const ConstraintTokens> tokens,
                                 const Limits& limits)
    : tokens_(std::move(tokens)), limits_(limits) {}

ConstraintMaker::~ConstraintMaker() = default;

Status ConstraintMaker::Prepare(const StructuredOutput& output) {
  RETURN_IF_ERROR(CompileAll(output).status());
  if (output.messages) {
    ASSIGN_OR_RETURN(auto marks, Marks(output.messages->marks));
    return CutHeaders(output, std::move(marks)).status();
  }
  if (output.reasoning) (void)Across(output.reasoning->close);
  return Status();
}

Result<std::vector<std::unique_ptr<TokenConstraint>>> ConstraintMaker::Make(
    const StructuredOutput& output, int32_t n) {
  ASSIGN_OR_RETURN(const Grammars grammars, CompileAll(output));
  const auto start = [tokens = tokens_](const std::shared_ptr<const Grammar>& grammar) {
    return std::make_unique<GrammarConstraint>(grammar, tokens->vocabulary);
  };
  std::function<std::unique_ptr<TokenConstraint>()> make;
  if (output.messages) {
    ASSIGN_OR_RETURN(auto marks, Marks(output.messages->marks));
    ASSIGN_OR_RETURN(MessageHeaders cut, CutHeaders(output, std::move(marks)));
    make = [start, grammars, tokens = tokens_,
            headers = std::make_shared<const MessageHeaders>(std::move(cut)),
            calls = std::make_shared<const std::vector<StructuredOutput::Tag>>(output.calls)] {
      return MakeMessagesConstraint(
          headers, tokens, [=](size_t content) -> std::unique_ptr<TokenConstraint> {
            if (content == calls->size()) return start(grammars.answer);
            auto call = start(grammars.calls);
            return call->Start((*calls)[content].begin) ? std::move(call) : nullptr;
          });
    };
  } else if (grammars.answer && grammars.calls) {
    auto begins = std::make_shared<std::vector<std::string>>();
    for (const StructuredOutput::Tag& call : output.calls) {
      begins->push_back(call.begin);
      if (!output.reasoning) continue;
      // Line breaks after reasoning do not belong to the answer.
      for (const char* gap : {"\n", "\n\n"}) begins->push_back(gap + call.begin);
    }
    make = [start, grammars, begins, tokens = tokens_] {
      return MakeCallsConstraint(start(grammars.calls), start(grammars.answer), begins, tokens);
    };
  } else {
    make = [start, grammar = grammars.answer ? grammars.answer : grammars.calls] {
      return start(grammar);
    };
  }
  const bool reasons = output.reasoning && !output.messages;
  const auto across = reasons ? Across(output.reasoning->close) : nullptr;
  std::vector<std::unique_ptr<TokenConstraint>> constraints;
  for (int32_t i = 0; i < n; ++i) {
    constraints.push_back(
        reasons ? MakeReasoningConstraint(*output.reasoning, tokens_, across, make) : make());
  }
  return constraints;
}

Result<ConstraintMaker::Grammars> ConstraintMaker::CompileAll(const StructuredOutput& output) {
  if (tokens_ == nullptr) {
    return Unimplemented("structured_output: this model has no tokenizer, so it has no text");
  }
  if (!MayBeText(output) && output.calls.empty()) {
    return InvalidArgument(
        "structured_output.calls: must_call and calls_in_text need at least one");
  }
  for (size_t i = 0; i < output.calls.size(); ++i) {
    if (!output.calls[i].begin.empty()) continue;
    return InvalidArgument("structured_output.calls[{}].begin: must not be empty", i);
  }
  Grammars grammars;
  if (MayBeText(output)) {
    ASSIGN_OR_RETURN(grammars.answer, Compile(output, Part::kAnswer));
  }
  if (!output.calls.empty()) {
    ASSIGN_OR_RETURN(grammars.calls, Compile(output, Part::kCalls));
  }
  return grammars;
}

Result<std::shared_ptr<const Grammar>> ConstraintMaker::Compile(const StructuredOutput& output,
                                                                Part part) {
  std::string key = KeyOf(output, part);
  if (auto found = Find(key)) return found;
  const bool calls = part == Part::kCalls;
  // Without the lock: compiling takes time, and two threads rarely compile the same.
  Result<std::shared_ptr<const Grammar>> grammar = CompileGrammar(SpecOf(output, calls));
  if (!grammar.ok()) return WithPath(grammar.status(), calls);
  // After compiling, which bounds the length of triggers.
  if (!calls || output.calls_in_text) RETURN_IF_ERROR(CheckTriggers(output, *tokens_));
  const size_t bytes = key.size() + (*grammar)->bytes();
  Keep({std::move(key), *grammar, bytes});
  return grammar;
}

// Keys of different texts differ, because each part has its length before it.
std::string ConstraintMaker::KeyOf(const StructuredOutput& output, Part part) {
  std::string key;
  const auto add = [&key](std::string_view text) {
    key += fmt::format(" {}:{}", text.size(), text);
  };
  const bool calls = part == Part::kCalls;
  if (calls) {
    key =
        fmt::format("calls {} {} {} {} {}", output.messages.has_value(), output.calls.size(),
                    output.call_separator.has_value(), output.calls_in_text, output.ends_after_tag);
    add(output.call_separator.value_or(""));
  } else {
    key = fmt::format("{} {} {} {}", static_cast<int>(output.kind), output.ends_after_tag,
                      output.choices.size(), output.tags.size());
    add(output.text);
    for (const std::string& choice : output.choices) add(choice);
  }
  for (const StructuredOutput::Tag& tag : calls ? output.calls : output.tags) {
    for (const std::string& text : {tag.begin, tag.schema, tag.end}) add(text);
  }
  if (!calls || output.calls_in_text) {
    for (const std::string& trigger : output.triggers) add(trigger);
  }
  if (output.whitespace_pattern) {
    key += " w";
    add(*output.whitespace_pattern);
  }
  return key;
}

std::shared_ptr<const Grammar> ConstraintMaker::Find(const std::string& key) {
  MutexLock lock(mutex_);
  const auto found = by_key_.find(key);
  if (found == by_key_.end()) return nullptr;
  entries_.splice(entries_.begin(), entries_, found->second);
  return found->second->grammar;
}

void ConstraintMaker::Keep(Entry entry) {
  MutexLock lock(mutex_);
  if (by_key_.contains(entry.key)) return;
  bytes_ += entry.bytes;
  entries_.push_front(std::move(entry));
  by_key_[entries_.front().key] = entries_.begin();
  while (entries_.size() > kAlwaysKept &&
         (bytes_ > limits_.bytes || entries_.size() > limits_.grammars)) {
    bytes_ -= entries_.back().bytes;
    by_key_.erase(entries_.back().key);
    entries_.pop_back();
  }
}

size_t ConstraintMaker::num_grammars() const {
  MutexLock lock(mutex_);
  return entries_.size();
}

bool ConstraintMaker::prepared(const StructuredOutput& output) {
  if (MayBeText(output) && Find(KeyOf(output, Part::kAnswer)) == nullptr) return false;
  if (!output.calls.empty() && Find(KeyOf(output, Part::kCalls)) == nullptr) return false;
  MutexLock lock(scan_mutex_);
  if (output.messages) return marks_ != nullptr && mark_names_ == output.messages->marks;
  return !output.reasoning || (across_ != nullptr && across_close_ == output.reasoning->close);
}

std::shared_ptr<const std::vector<TokenId>> ConstraintMaker::Across(const std::string& close) {
  MutexLock lock(scan_mutex_);
  if (across_ == nullptr || across_close_ != close) {
    across_ = std::make_shared<const std::vector<TokenId>>(TokensAcross(close, *tokens_));
    across_close_ = close;
  }
  return across_;
}

Result<std::shared_ptr<const MessageMarks>> ConstraintMaker::Marks(
    const std::vector<std::string>& names) {
  MutexLock lock(scan_mutex_);
  if (marks_ == nullptr || mark_names_ != names) {
    ASSIGN_OR_RETURN(MessageMarks found, FindMarks(names, *tokens_));
    marks_ = std::make_shared<const MessageMarks>(std::move(found));
    mark_names_ = names;
  }
  return marks_;
}

}  // namespace tokamak
