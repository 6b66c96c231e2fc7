#include "local/structured_output.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <iterator>

#include "base/error.h"
#include "base/log.h"
#include "grammar/grammar.h"
#include "local/calls_constraint.h"
#include "local/forced_tokens.h"
#include "local/messages_constraint.h"
#include "local/reasoning_constraint.h"
#include "local/thinking_budget.h"

namespace tokamak {
namespace {

using Kind = StructuredOutput::Kind;

class GrammarConstraint final : public TokenConstraint {
 public:
  GrammarConstraint(Matcher matcher, std::shared_ptr<const ConstraintTokens> tokens)
      : matcher_(std::move(matcher)), tokens_(std::move(tokens)) {}

  // Takes the beginning of the answer. False if it may not be that.
  bool Start(std::string_view text) { return matcher_.AcceptBytes(text); }
  Status Allow(std::span<uint32_t> allowed) override { return matcher_.FillMask(allowed); }
  bool Accept(TokenId token) override { return matcher_.Accept(token); }
  bool complete() const override { return matcher_.complete(); }
  bool finished() const override { return matcher_.finished(); }
  std::unique_ptr<TokenConstraint> Clone() const override {
    return std::make_unique<GrammarConstraint>(matcher_.Clone(), tokens_);
  }
  std::vector<TokenId> ForcedTokens(int32_t most) override {
    return TokensOfForced([this](size_t bytes) { return matcher_.ForcedText(bytes); }, most,
                          *tokens_);
  }

 private:
  Matcher matcher_;
  const std::shared_ptr<const ConstraintTokens> tokens_;
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

void AddTags(const std::vector<StructuredOutput::Tag>& tags,
             const std::optional<StructuredOutput::Parameters>& parameters, GrammarSpec& spec) {
  for (const StructuredOutput::Tag& tag : tags) {
    GrammarSpec content{.kind = GrammarSpec::Kind::kJsonSchema, .text = tag.schema};
    content.whitespace = spec.whitespace;
    content.whitespace_pattern = spec.whitespace_pattern;
    if (parameters) {
      content.parameters = {parameters->before_name, parameters->after_name,
                            parameters->after_value, parameters->end,
                            parameters->stops,       tag.text_arguments};
    }
    spec.tags.push_back(
        {tag.begin, std::make_shared<const GrammarSpec>(std::move(content)), tag.end, tag.id});
  }
}

// Replaces the names of special tokens by marks of the grammar.
void Mark(const std::vector<std::string>& names, std::string& text) {
  std::string marked;
  for (size_t at = 0; at < text.size();) {
    const auto name = std::find_if(names.begin(), names.end(), [&](const std::string& one) {
      return std::string_view(text).substr(at).starts_with(one);
    });
    marked += name == names.end() ? text.substr(at, 1) : GrammarMark(*name);
    at += name == names.end() ? 1 : name->size();
  }
  text = std::move(marked);
}

// `marks`: those of output.call_marks that are special tokens.
GrammarSpec SpecOf(const StructuredOutput& output, bool calls,
                   const std::vector<std::string>& marks) {
  GrammarSpec spec;
  if (output.whitespace_pattern) {
    spec.whitespace = GrammarSpec::Whitespace::kPattern;
    spec.whitespace_pattern = *output.whitespace_pattern;
  }
  if (calls) {
    spec.kind = GrammarSpec::Kind::kTags;
    spec.at_least_one = !output.calls_in_text;
    spec.stop_after_first = output.ends_after_tag;
    if (!output.messages) spec.separator = output.call_separator;
    spec.tags_begin = output.calls_begin;
    spec.tags_end = output.calls_end;
    AddTags(output.calls, output.call_parameters, spec);
    for (std::string* text : {&spec.tags_begin, &spec.tags_end}) Mark(marks, *text);
    for (GrammarTag& tag : spec.tags) {
      for (std::string* text : {&tag.begin, &tag.end}) Mark(marks, *text);
    }
    if (!output.calls_in_text) return spec;
    // Readers of the answer take text that spells a mark for the mark, so both are triggers.
    spec.triggers = output.triggers;
    for (std::string trigger : output.triggers) {
      Mark(marks, trigger);
      spec.triggers.push_back(std::move(trigger));
    }
    return spec;
  }
  spec.kind = KindOf(output.kind);
  spec.text = output.text;
  spec.choices = output.choices;
  spec.triggers = output.triggers;
  spec.stop_after_first = output.ends_after_tag;
  AddTags(output.tags, std::nullopt, spec);
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

// Special tokens are not text, so free text cannot hold the one that opens a tag.
Status CheckTriggers(const StructuredOutput& output, const ConstraintTokens& tokens) {
  if (output.kind != Kind::kTags) return Status();
  // The beginnings of tags are the triggers if there are no others.
  const bool own = !output.triggers.empty();
  const size_t size = own ? output.triggers.size() : output.tags.size();
  for (const int32_t id : tokens.special) {
    const std::string& piece = tokens.bytes[static_cast<size_t>(id)];
    for (size_t i = 0; i < size; ++i) {
      const std::string& trigger = own ? output.triggers[i] : output.tags[i].begin;
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

namespace {

std::shared_ptr<ConstraintTokens> MakeTokens(std::vector<std::string> all_bytes,
                                             FunctionRef<bool(int32_t)> is_special) {
  const auto start = std::chrono::steady_clock::now();
  auto tokens = std::make_shared<ConstraintTokens>();
  tokens->bytes = std::move(all_bytes);
  std::vector<std::string> text;
  text.reserve(tokens->bytes.size());
  for (size_t i = 0; i < tokens->bytes.size(); ++i) {
    const auto id = static_cast<int32_t>(i);
    const std::string& bytes = tokens->bytes[i];
    const bool special = !bytes.empty() && is_special(id);
    const bool looks_like_mark = bytes.find(kGrammarMark) != std::string::npos;  // no text either
    text.push_back(special ? GrammarMark(bytes) : looks_like_mark ? "" : bytes);
    if (special) tokens->special.push_back(id);
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

}  // namespace

std::shared_ptr<const ConstraintTokens> MakeConstraintTokens(
    std::shared_ptr<const Tokenizer> tokenizer) {
  std::vector<std::string> bytes;
  bytes.reserve(static_cast<size_t>(tokenizer->vocab_size()));
  for (int32_t id = 0; id < tokenizer->vocab_size(); ++id) {
    bytes.emplace_back(tokenizer->TokenPiece(id));
  }
  auto tokens = MakeTokens(std::move(bytes), [&](int32_t id) { return tokenizer->IsSpecial(id); });
  tokens->tokenizer = std::move(tokenizer);
  return tokens;
}

std::shared_ptr<const ConstraintTokens> MakeConstraintTokens(
    std::vector<std::string> bytes, FunctionRef<bool(int32_t)> is_special) {
  return MakeTokens(std::move(bytes), is_special);
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
    return std::make_unique<GrammarConstraint>(Matcher(grammar, tokens->vocabulary), tokens);
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
    for (const std::string& begin : output.CallBegins()) {
      begins->push_back(begin);
      if (!output.reasoning) continue;
      // Line breaks after reasoning do not belong to the answer.
      for (const char* gap : {"\n", "\n\n"}) begins->push_back(gap + begin);
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

Result<std::vector<std::unique_ptr<TokenConstraint>>> ConstraintMaker::MakeFor(
    const SamplingParams& sampling) {
  std::vector<std::unique_ptr<TokenConstraint>> constraints;
  if (sampling.structured_output) {
    ASSIGN_OR_RETURN(constraints, Make(*sampling.structured_output, sampling.n));
  }
  if (!sampling.thinking_token_budget) return constraints;
  if (tokens_ == nullptr || !sampling.thinking) {
    return Unimplemented(
        "thinking_token_budget: what marks the reasoning of this model's answers is not known");
  }
  constraints.resize(static_cast<size_t>(sampling.n));
  for (std::unique_ptr<TokenConstraint>& constraint : constraints) {
    ASSIGN_OR_RETURN(
        constraint, MakeThinkingBudget(*sampling.thinking, *sampling.thinking_token_budget, tokens_,
                                       std::move(constraint)));
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
    if (!output.calls[i].begin.empty() && !output.calls[i].begin.starts_with("{id}")) continue;
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
  std::vector<std::string> marks;
  for (size_t i = 0; i < tokens_->special.size() && !output.call_marks.empty(); ++i) {
    const std::string& name = tokens_->bytes[static_cast<size_t>(tokens_->special[i])];
    if (std::find(output.call_marks.begin(), output.call_marks.end(), name) !=
        output.call_marks.end()) {
      marks.push_back(name);
    }
  }
  // Without the lock: compiling takes time, and two threads rarely compile the same.
  Result<std::shared_ptr<const Grammar>> grammar = CompileGrammar(SpecOf(output, calls, marks));
  if (!grammar.ok()) return WithPath(grammar.status(), calls);
  // After compiling, which bounds the length of triggers.
  if (!calls) RETURN_IF_ERROR(CheckTriggers(output, *tokens_));
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
    const size_t parameters = output.call_parameters ? output.call_parameters->stops.size() + 1 : 0;
    key =
        fmt::format("calls {} {} {} {} {} {} {}", output.messages.has_value(), output.calls.size(),
                    output.call_separator.has_value(), output.call_marks.size(), parameters,
                    output.calls_in_text, output.ends_after_tag);
    for (const std::string& text :
         {output.call_separator.value_or(""), output.calls_begin, output.calls_end}) {
      add(text);
    }
    for (const std::string& mark : output.call_marks) add(mark);
    if (output.call_parameters) {
      const StructuredOutput::Parameters& form = *output.call_parameters;
      for (const std::string& text :
           {form.before_name, form.after_name, form.after_value, form.end}) {
        add(text);
      }
      for (const std::string& stop : form.stops) add(stop);
    }
  } else {
    key = fmt::format("{} {} {} {}", static_cast<int>(output.kind), output.ends_after_tag,
                      output.choices.size(), output.tags.size());
    add(output.text);
    for (const std::string& choice : output.choices) add(choice);
  }
  for (const StructuredOutput::Tag& tag : calls ? output.calls : output.tags) {
    for (const std::string& text : {tag.begin, tag.schema, tag.end, tag.id}) add(text);
    key += fmt::format(" {}", tag.text_arguments.size());
    for (const std::string& name : tag.text_arguments) add(name);
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
