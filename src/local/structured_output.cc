#include "local/structured_output.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <iterator>

#include "base/error.h"
#include "base/log.h"
#include "grammar/grammar.h"
#include "local/marked_tags.h"
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

GrammarSpec SpecOf(const StructuredOutput& output) {
  GrammarSpec spec;
  spec.kind = KindOf(output.kind);
  spec.text = output.text;
  spec.choices = output.choices;
  if (output.whitespace_pattern) {
    spec.whitespace = GrammarSpec::Whitespace::kPattern;
    spec.whitespace_pattern = *output.whitespace_pattern;
  }
  for (const StructuredOutput::Tag& tag : output.tags) {
    GrammarSpec content{.kind = GrammarSpec::Kind::kJsonSchema, .text = tag.schema};
    content.whitespace = spec.whitespace;
    content.whitespace_pattern = spec.whitespace_pattern;
    spec.tags.push_back(
        {tag.begin, std::make_shared<const GrammarSpec>(std::move(content)), tag.end});
  }
  spec.triggers = output.triggers;
  spec.at_least_one = output.starts_with_tag;
  spec.stop_after_first = output.ends_after_tag;
  spec.separator = output.separator;
  return spec;
}

// Keys of different outputs differ, because each part has its length before it.
std::string KeyOf(const StructuredOutput& output) {
  std::string key =
      fmt::format("{}{}{} {} {}", static_cast<int>(output.kind), output.starts_with_tag,
                  output.ends_after_tag, output.choices.size(), output.tags.size());
  const auto add = [&key](std::string_view part) {
    key += fmt::format(" {}:{}", part.size(), part);
  };
  add(output.text);
  for (const std::string& choice : output.choices) add(choice);
  for (const StructuredOutput::Tag& tag : output.tags) {
    for (const std::string& part : {tag.begin, tag.schema, tag.end}) add(part);
  }
  add(output.separator);
  for (const std::string& trigger : output.triggers) add(trigger);
  if (output.whitespace_pattern) {
    key += " w";
    add(*output.whitespace_pattern);
  }
  return key;
}

// Begins the message with the path: "structured_output.properties.a: ..." for "$.properties.a:
// ...", and "structured_output.tags[0].content.a: ..." for "tags[0].content: $.a: ...".
Status WithPath(const Status& status) {
  std::string message(status.message());
  if (message.starts_with("tags[")) {
    const size_t at = message.find(": $");
    if (at != std::string::npos) message.erase(at, 3);
    return Status(status.code(), "structured_output." + message);
  }
  const bool path = message.starts_with("$") && message.find(": ") != std::string::npos;
  return path ? Status(status.code(), "structured_output" + message.substr(1))
              : status.WithContext("structured_output");
}

// Reasoning must not contain what begins the answer, either.
std::shared_ptr<const std::vector<TokenId>> WithMarks(std::vector<TokenId> across,
                                                      const std::vector<MarkedBegin>& begins) {
  for (const MarkedBegin& begin : begins) {
    for (const MarkedBegin::Piece& piece : begin.pieces) {
      if (piece.special >= 0) across.push_back(piece.special);
    }
  }
  std::sort(across.begin(), across.end());
  across.erase(std::unique(across.begin(), across.end()), across.end());
  return std::make_shared<const std::vector<TokenId>>(std::move(across));
}

// Special tokens are not text, so free text cannot hold the one that opens a call.
Status CheckTriggers(const StructuredOutput& output, const ConstraintTokens& tokens) {
  if (output.kind != Kind::kTags || output.starts_with_tag) return Status();
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
  RETURN_IF_ERROR(Compile(output).status());
  if (output.reasoning) (void)Across(output.reasoning->close);
  return Status();
}

Result<std::vector<std::unique_ptr<TokenConstraint>>> ConstraintMaker::Make(
    const StructuredOutput& output, int32_t n) {
  ASSIGN_OR_RETURN(const auto grammar, Compile(output));
  const std::shared_ptr<const ConstraintTokens> tokens = tokens_;
  std::function<std::unique_ptr<TokenConstraint>()> make = [grammar,
                                                            vocabulary = tokens->vocabulary] {
    return std::make_unique<GrammarConstraint>(grammar, vocabulary);
  };
  auto across = output.reasoning ? Across(output.reasoning->close) : nullptr;
  const auto begins =
      std::make_shared<const std::vector<MarkedBegin>>(MarkedBegins(output, *tokens));
  if (!begins->empty()) {
    make = [=, tags = std::make_shared<const std::vector<StructuredOutput::Tag>>(output.tags)] {
      return MakeMarkedConstraint(
          begins, tokens, [=](size_t i) -> std::unique_ptr<TokenConstraint> {
            auto content = std::make_unique<GrammarConstraint>(grammar, tokens->vocabulary);
            return content->Start((*tags)[i].begin) ? std::move(content) : nullptr;
          });
    };
    if (across != nullptr) across = WithMarks(*across, *begins);
  }
  std::vector<std::unique_ptr<TokenConstraint>> constraints;
  for (int32_t i = 0; i < n; ++i) {
    constraints.push_back(output.reasoning
                              ? MakeReasoningConstraint(*output.reasoning, tokens, across, make)
                              : make());
  }
  return constraints;
}

Result<std::shared_ptr<const Grammar>> ConstraintMaker::Compile(const StructuredOutput& output) {
  if (tokens_ == nullptr) {
    return Unimplemented("structured_output: this model has no tokenizer, so it has no text");
  }
  std::string key = KeyOf(output);
  if (auto found = Find(key)) return found;
  // Without the lock: compiling takes time, and two threads rarely compile the same.
  Result<std::shared_ptr<const Grammar>> grammar = CompileGrammar(SpecOf(output));
  if (!grammar.ok()) return WithPath(grammar.status());
  // After compiling, which bounds the length of triggers.
  RETURN_IF_ERROR(CheckTriggers(output, *tokens_));
  const size_t bytes = key.size() + (*grammar)->bytes();
  Keep({std::move(key), *grammar, bytes});
  return grammar;
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
  if (Find(KeyOf(output)) == nullptr) return false;
  MutexLock lock(across_mutex_);
  return !output.reasoning || (across_ != nullptr && across_close_ == output.reasoning->close);
}

std::shared_ptr<const std::vector<TokenId>> ConstraintMaker::Across(const std::string& close) {
  MutexLock lock(across_mutex_);
  if (across_ == nullptr || across_close_ != close) {
    across_ = std::make_shared<const std::vector<TokenId>>(TokensAcross(close, *tokens_));
    across_close_ = close;
  }
  return across_;
}

}  // namespace tokamak
