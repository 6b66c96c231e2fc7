#include "grammar/grammar.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "base/error.h"
#include "base/utf8.h"
#include "grammar/automaton.h"
#include "grammar/code_points.h"
#include "grammar/gbnf.h"
#include "grammar/json_schema.h"
#include "grammar/regex.h"

namespace tokamak {

namespace {

using grammar::CodePoints;
using grammar::Expr;
using grammar::ExprPool;

constexpr uint64_t kCompileWork = 500'000;   // about 0.1 s
constexpr size_t kMaxChoiceBytes = 1 << 20;  // of all choices together

Result<Expr> ChoiceExpr(ExprPool& pool, const std::vector<std::string>& choices) {
  if (choices.empty()) return InvalidArgument("a choice needs at least one text");
  size_t bytes = 0;
  std::vector<Expr> terms;
  for (const std::string& choice : choices) {
    bytes += choice.size();
    if (bytes > kMaxChoiceBytes) return InvalidArgument("the choices are longer than 1 MiB");
    if (!IsValidUtf8(choice)) return InvalidArgument("a choice is not valid UTF-8");
    terms.push_back(pool.Literal(choice));
  }
  return pool.Or(std::move(terms));
}

Result<Expr> Compile(ExprPool& pool, const GrammarSpec& spec, uint64_t& work);

// The begin or end of a tag, where `id` stands for "{id}".
Expr WithId(ExprPool& pool, std::string_view text, Expr id) {
  constexpr std::string_view kId = "{id}";
  const size_t at = id == grammar::kNothing ? text.npos : text.find(kId);
  if (at == text.npos) return pool.Literal(text);
  return pool.Concat(
      {pool.Literal(text.substr(0, at)), id, WithId(pool, text.substr(at + kId.size()), id)});
}

// Equal keys mean equal contents of tags, unless they are choices or parameters.
auto KeyOf(const GrammarSpec& content) {
  return std::tie(content.kind, content.text, content.whitespace, content.whitespace_pattern);
}

// Free text is what does not contain a trigger.
Result<Expr> TagsExpr(ExprPool& pool, const GrammarSpec& spec, uint64_t& work) {
  if (spec.tags.empty()) return InvalidArgument("tags: at least one is needed");
  std::vector<Expr> tags, triggers = {pool.Byte(static_cast<uint8_t>(kGrammarMark))};
  // Tools without a schema have equal contents, each of which would take a part of the work.
  std::map<decltype(KeyOf(spec)), Expr> contents;
  for (const std::string& trigger : spec.triggers) {
    if (trigger.empty()) return InvalidArgument("triggers: one is empty");
    triggers.push_back(pool.Literal(trigger));
  }
  for (size_t i = 0; i < spec.tags.size(); ++i) {
    const GrammarTag& tag = spec.tags[i];
    const std::string begin = spec.tags_begin + tag.begin;
    const bool triggered =
        spec.triggers.empty()
            ? !begin.empty()
            : std::any_of(spec.triggers.begin(), spec.triggers.end(),
                          [&](const std::string& trigger) { return begin.starts_with(trigger); });
    if (!triggered && !spec.at_least_one) {
      return InvalidArgument("tags[{}].begin: must start with a trigger, and not be empty", i);
    }
    if (tag.content == nullptr || tag.content->kind == GrammarSpec::Kind::kTags) {
      return InvalidArgument("tags[{}].content: must be a grammar without tags of its own", i);
    }
    if (spec.triggers.empty()) triggers.push_back(pool.Literal(begin));
    const auto known = contents.find(KeyOf(*tag.content));
    const bool is_new = known == contents.end() || tag.content->parameters ||
                        tag.content->kind == GrammarSpec::Kind::kChoice;
    Result<Expr> content = is_new ? Compile(pool, *tag.content, work) : known->second;
    if (!content.ok()) return content.status().WithContext(fmt::format("tags[{}].content", i));
    contents.emplace(KeyOf(*tag.content), *content);
    Expr id = grammar::kNothing;
    if (!tag.id.empty()) {
      ASSIGN_OR_RETURN(id, grammar::RegexExpr(pool, tag.id));
    }
    tags.push_back(pool.Concat({WithId(pool, tag.begin, id), *content, WithId(pool, tag.end, id)}));
  }
  Expr tag = pool.Or(std::move(tags));
  if (spec.separator) {
    ASSIGN_OR_RETURN(const Expr separator, grammar::RegexExpr(pool, *spec.separator));
    tag = pool.Concat(tag, pool.Star(pool.Concat(separator, tag)));
  }
  tag = pool.Concat({pool.Literal(spec.tags_begin), tag, pool.Literal(spec.tags_end)});
  if (spec.at_least_one) return tag;
  const Expr any = pool.Anything();
  const Expr free = pool.Not(pool.Concat({any, pool.Or(std::move(triggers)), any}));
  return spec.stop_after_first ? pool.Concat(free, pool.Optional(tag))
                               : pool.Concat(free, pool.Star(pool.Concat(tag, free)));
}

Result<Expr> Compile(ExprPool& pool, const GrammarSpec& spec, uint64_t& work) {
  switch (spec.kind) {
    case GrammarSpec::Kind::kRegex:
      return grammar::RegexExpr(pool, spec.text);
    case GrammarSpec::Kind::kChoice:
      return ChoiceExpr(pool, spec.choices);
    case GrammarSpec::Kind::kJsonObject:
    case GrammarSpec::Kind::kJsonSchema:
      return grammar::JsonSchemaExpr(pool, spec, work);
    case GrammarSpec::Kind::kGbnf:
      return grammar::GbnfExpr(pool, spec.text);
    case GrammarSpec::Kind::kTags:
      return TagsExpr(pool, spec, work);
  }
  return InvalidArgument("unknown kind of grammar");
}

}  // namespace

Result<std::shared_ptr<const Grammar>> CompileGrammar(const GrammarSpec& spec) {
  ExprPool pool;
  pool.Allow(kCompileWork);
  const CodePoints plain = CodePoints{{0, 0x1F}, {'"', '"'}, {'\\', '\\'}}.Complement();
  const Expr character = grammar::Utf8Char(pool, plain);
  const Expr short_text = pool.Repeat(character, 0, kShortCharacters);
  const Expr text = pool.Star(character);

  uint64_t work = 0;  // of schemas, beside that of the pool
  Result<Expr> compiled = Compile(pool, spec, work);
  const Expr start = compiled.ok() ? pool.Seal(*compiled) : grammar::kNothing;
  switch (pool.trouble()) {
    case ExprPool::Trouble::kTooMuchWork:
      return InvalidArgument("the grammar is too large; simplify it");
    case ExprPool::Trouble::kTooDeep:
      return InvalidArgument("the grammar is nested too deeply; simplify it");
    case ExprPool::Trouble::kLeftRecursion:
      return InvalidArgument("a rule of the grammar refers to itself before it reads any text");
    case ExprPool::Trouble::kNone:
      break;
  }
  if (!compiled.ok()) return compiled.status();
  if (start == grammar::kNothing) return InvalidArgument("no text fits the grammar");
  return std::make_shared<const Grammar>(
      std::make_unique<Grammar::Impl>(std::move(pool), start, short_text, text));
}

Grammar::Grammar(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Grammar::~Grammar() = default;
size_t Grammar::bytes() const { return impl_->pool.bytes(); }

}  // namespace tokamak
