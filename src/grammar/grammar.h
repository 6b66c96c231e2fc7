// Constrained answers: which tokens may come next so that the text stays a prefix of some text of a
// grammar. A grammar comes from a JSON schema, a regular expression, a list of choices or GBNF.
//
// Compile a spec once and share it; make one Matcher per answer. Before each draw FillMask says
// which tokens are allowed, and Accept takes the token that was drawn. A token is allowed exactly
// if its bytes are, wherever it starts and ends within the grammar.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/function_ref.h"
#include "tokamak/status.h"

namespace tokamak {

struct GrammarSpec;

// A token that is not text, as it stands in tags and among the bytes of a vocabulary. No grammar
// allows it elsewhere: it has a byte that no text has.
inline constexpr char kGrammarMark = '\xFF';
inline std::string GrammarMark(std::string_view name) {
  return kGrammarMark + std::string(name) + kGrammarMark;
}

// A part of an otherwise free text.
struct GrammarTag {
  std::string begin;
  std::shared_ptr<const GrammarSpec> content;  // not kTags
  std::string end;
  // A regular expression, whose matches stand for "{id}" in `begin` and `end`. Empty: "{id}" does.
  std::string id = {};
};

struct GrammarSpec {
  enum class Kind {
    kJsonObject,  // any JSON object
    kJsonSchema,  // `text` is a JSON Schema, draft 2020-12
    kRegex,       // the whole answer matches the regular expression `text`
    kChoice,      // the answer is one of `choices`
    kGbnf,        // `text` is a grammar as llama.cpp's GBNF; its start is the rule "root"
    kTags,        // free text with parts that follow `tags`
  };
  Kind kind = Kind::kJsonObject;
  std::string text = {};
  std::vector<std::string> choices = {};

  // White space between the tokens of JSON. Without a pattern: after an opening bracket and a comma
  // and before a closing bracket one space, or a line break and up to 64 spaces or tabs; after a
  // colon one space.
  enum class Whitespace { kJsonDumps, kNone, kPattern };
  Whitespace whitespace = Whitespace::kJsonDumps;
  std::string whitespace_pattern = {};  // a regular expression, used between all tokens

  // Makes an object of kJsonSchema a list of parameters: what stands around each name and value,
  // and what may follow the last one, as regular expressions. Values are JSON without "<"; those of
  // `texts` are strings, written as they are, without any of `stops`, which begin with "<".
  struct Parameters {
    std::string before_name, after_name, after_value, end;
    std::vector<std::string> stops;
    std::vector<std::string> texts = {};
  };
  std::optional<Parameters> parameters = {};

  // kTags: where the text contains `begin` of a tag, its content and `end` must follow.
  std::vector<GrammarTag> tags = {};
  // Only tags that begin with a trigger may be written after it. Empty: each tag's `begin` is one.
  std::vector<std::string> triggers = {};
  // A tag may be several, with a match of this regular expression between them. Absent: it is one.
  std::optional<std::string> separator = {};
  std::string tags_begin = {}, tags_end = {};  // around these
  bool at_least_one = false;                   // no free text
  bool stop_after_first = false;               // no free text after the first tag
};

// Immutable apart from caches that it guards, so threads may share it.
class Grammar {
 public:
  class Impl;
  explicit Grammar(std::unique_ptr<Impl> impl);
  ~Grammar();
  Grammar(const Grammar&) = delete;
  Grammar& operator=(const Grammar&) = delete;

  // Memory without what matchers leave to the next one, which takes at most twice as much and 4 MiB
  // more. For a bound on cached grammars.
  size_t bytes() const;
  Impl& impl() const { return *impl_; }

 private:
  std::unique_ptr<Impl> impl_;
};

// Takes bounded time and memory, or fails. Messages name the place by JSON path ("$.properties.a"),
// or by position and line.
Result<std::shared_ptr<const Grammar>> CompileGrammar(const GrammarSpec& spec);

// The bytes of each token of a tokenizer, as a trie. Immutable.
class Vocabulary {
 public:
  class Impl;
  // Bytes by token id. A token without bytes, as special tokens are, is never allowed.
  static std::shared_ptr<const Vocabulary> Make(std::span<const std::string> token_bytes);
  explicit Vocabulary(std::unique_ptr<const Impl> impl);
  ~Vocabulary();
  Vocabulary(const Vocabulary&) = delete;
  Vocabulary& operator=(const Vocabulary&) = delete;

  size_t size() const;   // tokens
  size_t bytes() const;  // memory
  // Calls `found` with each token that `text` begins with.
  void ForEachStart(std::string_view text, FunctionRef<void(int32_t)> found) const;
  // Calls `found` with each token that begins with `text`, which is not empty.
  void ForEachWithPrefix(std::string_view text, FunctionRef<void(int32_t)> found) const;
  const Impl& impl() const { return *impl_; }

 private:
  std::unique_ptr<const Impl> impl_;
};

// Follows one answer. Not thread-safe, but may move between threads. Takes little memory before its
// first use. From then on it has a copy of the grammar, or what an earlier matcher left.
class Matcher {
 public:
  Matcher(std::shared_ptr<const Grammar> grammar, std::shared_ptr<const Vocabulary> vocabulary);
  ~Matcher();
  Matcher(Matcher&&) noexcept;
  Matcher& operator=(Matcher&&) noexcept;
  // A matcher of the same answer so far, for a look ahead: it may fail where this one would not,
  // because it has less work. It shares what is found about the grammar with this one, so only one
  // of them may be in use at a time.
  Matcher Clone() const;

  // Sets bit t % 32 of word t / 32 for each allowed token t and clears all others. `allowed` has at
  // least (vocabulary size + 31) / 32 words. Tokens that end the answer are the caller's: it adds
  // them if complete(). An error means that the grammar needs more work than the bound allows, or
  // that no token can continue an unfinished answer; nothing is allowed then.
  Status FillMask(std::span<uint32_t> allowed);
  // Takes the next token. Returns false, and changes nothing, if it is not allowed.
  bool Accept(int32_t token);
  // The same for bytes.
  bool AcceptBytes(std::string_view bytes);

  bool complete() const;  // the answer may end here
  bool finished() const;  // it must: nothing can follow

  // The text that must come next, as far as there is only one, up to `most` bytes.
  std::string ForcedText(size_t most) const;

 private:
  struct State;
  explicit Matcher(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace tokamak
