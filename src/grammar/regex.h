// Reads regular expressions: the part of ECMA 262 and RE2 that describes regular languages.
#pragma once

#include <string_view>

#include "base/function_ref.h"
#include "grammar/code_points.h"
#include "grammar/expr.h"
#include "tokamak/status.h"

namespace tokamak::grammar {

struct RegexOptions {
  // True: ECMA's "." and "\s", and the pattern may match anywhere within the text, as JSON Schema
  // says. False: RE2's, and the pattern must match the whole text.
  bool ecma = false;
};

// `character` makes the expression for one character of a set, so that a pattern may apply to the
// content of a JSON string. Lookaround, backreferences, word boundaries, flags and counts beyond
// 100,000 are refused, by position.
Result<Expr> RegexExpr(ExprPool& pool, std::string_view pattern, const RegexOptions& options,
                       FunctionRef<Expr(const CodePoints&)> character);

// Characters in UTF-8.
Result<Expr> RegexExpr(ExprPool& pool, std::string_view pattern);

}  // namespace tokamak::grammar
