#include "grammar/json_schema.h"

#include <optional>
#include <utility>

#include "base/error.h"
#include "grammar/json_compiler.h"
#include "grammar/json_merge.h"
#include "grammar/regex.h"

namespace tokamak::grammar {

namespace {

constexpr size_t kMaxBytes = 4 << 20;
constexpr uint32_t kMaxIndent = 64;

Result<JsonSpace> MakeSpace(ExprPool& pool, const GrammarSpec& spec) {
  JsonSpace space;
  switch (spec.whitespace) {
    case GrammarSpec::Whitespace::kNone:
      break;
    case GrammarSpec::Whitespace::kJsonDumps: {
      const Expr indent = pool.Repeat(pool.Or({pool.Byte(' '), pool.Byte('\t')}), 0, kMaxIndent);
      space.inside = pool.Optional(pool.Or({pool.Byte(' '), pool.Concat(pool.Byte('\n'), indent)}));
      space.after_comma = space.inside;
      space.after_colon = pool.Optional(pool.Byte(' '));
      break;
    }
    case GrammarSpec::Whitespace::kPattern: {
      Result<Expr> pattern = RegexExpr(pool, spec.whitespace_pattern);
      if (!pattern.ok()) return pattern.status().WithContext("white space");
      // Anything else between the tokens of JSON would change their meaning.
      const Expr only = pool.And({*pattern, pool.Star(pool.OneOf(" \t\n\r"))});
      space = {only, only, only, only, only};
      break;
    }
  }
  return space;
}

Status NotJson(const JsonError& error) {
  switch (error.kind) {
    case JsonError::kTooLong:
      return InvalidArgument("the schema is longer than 4 MiB");
    case JsonError::kTooDeep:
      return InvalidArgument("the schema has more than 100 levels of objects and arrays");
    case JsonError::kOutOfRange:
      return InvalidArgument("the schema has a number that exceeds a double (byte {})", error.byte);
    case JsonError::kMalformed:
    case JsonError::kRepeatedName:
      break;
  }
  return InvalidArgument("the schema is not JSON (byte {})", error.byte);
}

}  // namespace

Result<Expr> JsonSchemaExpr(ExprPool& pool, const GrammarSpec& spec, uint64_t& work) {
  JsonValue schema(JsonValue::Object{{"type", JsonValue("object")}});
  if (spec.kind == GrammarSpec::Kind::kJsonSchema) {
    JsonError error;
    std::optional<JsonValue> parsed = JsonValue::Parse(spec.text, {.max_bytes = kMaxBytes}, &error);
    if (!parsed) {
      return NotJson(error);
    }
    schema = *std::move(parsed);
  }
  ASSIGN_OR_RETURN(const JsonSpace space, MakeSpace(pool, spec));
  const SchemaDocument document(schema);
  using Chars = JsonCompiler::Chars;
  JsonCompiler compiler(pool, document, space, work,
                        spec.parameters ? Chars::kJsonInTags : Chars::kJson);
  Result<Expr> value =
      spec.parameters ? compiler.Parameters(schema, *spec.parameters) : compiler.Value({&schema});
  work = compiler.work();
  return value;
}

}  // namespace tokamak::grammar
