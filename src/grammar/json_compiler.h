// Turns schemas into expressions.
#pragma once

#include <algorithm>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json/json_value.h"
#include "grammar/code_points.h"
#include "grammar/expr.h"
#include "grammar/grammar.h"
#include "grammar/json_merge.h"
#include "tokamak/status.h"

namespace tokamak::grammar {

// White space, by where it stands.
struct JsonSpace {
  Expr inside = kEmpty;  // after an opening and before a closing bracket
  Expr after_comma = kEmpty;
  Expr after_colon = kEmpty;
  Expr before_mark = kEmpty;  // before a comma or colon
  Expr in_empty = kEmpty;     // between the brackets of an empty list or object
};

class JsonCompiler {
 public:
  // How characters of strings are written.
  enum class Chars : uint8_t {
    kJson,
    kJsonInTags,  // JSON without "<", which is escaped
    kText,
  };
  // `work`: what other schemas of the grammar have taken.
  JsonCompiler(ExprPool& pool, const SchemaDocument& document, const JsonSpace& space,
               uint64_t work = 0, Chars chars = Chars::kJson);

  // A value that fits all of `schemas`.
  Result<Expr> Value(Schemas schemas);
  // An object that fits the schema, as a list of parameters. Requires kJsonInTags.
  Result<Expr> Parameters(const JsonValue& schema, const GrammarSpec::Parameters& form);

  // Counts the work beside that of the pool, in units of about 10 ns. Compiling fails where it
  // exceeds the bound.
  static constexpr uint64_t kMaxWork = 10'000'000;
  uint64_t work() const { return work_; }
  uint64_t work_left() const { return kMaxWork - std::min(work_, kMaxWork); }

 private:
  // A named member of an object.
  struct Member {
    std::string name;
    Expr text = kNothing;  // name, colon and value
    bool required = false;
  };

  // Expressions are kNothing from then on, so any end of compilation is as good.
  bool out_of_work() const { return pool_.trouble() != ExprPool::Trouble::kNone; }
  Status Spend(const JsonValue* place, uint64_t work);
  Result<Merged> Merge(const Schemas& schemas);
  Result<Expr> Build(const Schemas& schemas);
  // Any value with as many levels as parsers read.
  Result<Expr> AnyValue();
  Result<Expr> Choice(const Schemas& schemas, const Merged& merged,
                      std::vector<const JsonValue*> done);
  Status CheckExclusive(const Schemas& schemas, const JsonValue* list);
  Result<Expr> Typed(const Schemas& schemas, const Merged& merged);
  Result<Expr> Values(const Schemas& schemas, const Merged& merged);
  Result<Expr> String(const Merged& merged);
  Result<Expr> StringContent(const Merged& merged);
  Result<Expr> Array(const Schemas& schemas, const Merged& merged);
  Result<Expr> Object(const Schemas& schemas, const Merged& merged);
  Result<Expr> Pattern(const JsonValue* place, std::string_view pattern);
  // The schemas for the value of a member `name`.
  Result<Schemas> ForName(const Merged& merged, const std::string& name);
  // The named members, without their texts.
  Result<std::vector<Member>> NamedMembers(const Merged& merged);
  Result<std::vector<Member>> Members(const Merged& merged);
  // An error, with its path, if parameters in tags cannot express the schema.
  Status CheckParameters(const JsonValue& schema, const Merged& merged,
                         const std::vector<Member>& members);
  // A string as a parameter's text.
  Result<Expr> Text(const Schemas& schemas, Expr without_stops);
  Result<Expr> Extra(const Merged& merged, const std::vector<Member>& members);
  Result<Expr> Names(const Merged& merged);
  Expr NotEmpty(Expr content);
  Expr Sequence(const std::vector<Member>& members, Expr extra);
  Result<Expr> CountedSequence(const Schemas& schemas, const Merged& merged,
                               const std::vector<Member>& members, Expr extra);
  Expr Char(const CodePoints& set);
  Expr Literal(const JsonValue& value);
  Expr TextLiteral(std::string_view text);
  // The content of one of those values that are strings.
  Expr Texts(const std::vector<const JsonValue*>& values);
  Expr MemberText(Expr name, Expr value);
  Expr Bracketed(char open, Expr content, char close);
  Expr EmptyBrackets(char open, char close);
  // Whether no value fits both. False also if that is not known.
  Result<bool> Disjoint(const Schemas& a, const Schemas& b, int depth);
  Result<bool> DisjointObjects(const Merged& left, const Merged& right, int depth);
  Result<bool> DisjointStrings(const Merged& a, const Merged& b);
  Result<bool> Matches(const JsonValue* place, std::string_view pattern, std::string_view text);

  ExprPool& pool_;
  const SchemaDocument& document_;
  const JsonSpace space_;
  Chars chars_;
  const Expr quote_, comma_, string_char_;
  struct Known {
    Expr expr = kNothing;
    bool open = false;       // being compiled
    bool recursive = false;  // was needed meanwhile
  };
  std::map<Schemas, Known> values_;
  struct Automaton {
    ExprPool pool;
    Expr start = kNothing;
  };
  std::map<std::string_view, Automaton> automata_;  // by pattern
  std::vector<Expr> any_;                           // any value, by its number of levels
  bool any_is_open_ = false;
  int depth_ = 0;
  uint64_t work_;
};

// Stands for every schema that all values fit, wherever it is in a document.
const JsonValue* TrueSchema();

}  // namespace tokamak::grammar
