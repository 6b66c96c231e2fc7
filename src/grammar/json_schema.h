// JSON Schema, draft 2020-12, as an expression over the bytes of JSON texts.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/json/json_value.h"
#include "grammar/expr.h"
#include "grammar/grammar.h"
#include "tokamak/status.h"

namespace tokamak::grammar {

// Reads spec.text, or takes any object if the kind is kJsonObject. Errors name a JSON path. `work`
// counts that of all schemas of a grammar (JsonCompiler::kMaxWork).
Result<Expr> JsonSchemaExpr(ExprPool& pool, const GrammarSpec& spec, uint64_t& work);

}  // namespace tokamak::grammar
