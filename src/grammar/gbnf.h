// Grammars in llama.cpp's GBNF (llama.cpp, grammars/README.md).
#pragma once

#include <string_view>

#include "grammar/expr.h"
#include "tokamak/status.h"

namespace tokamak::grammar {

// The expression of the rule "root". Tokens in angle brackets are refused. Errors name the line.
Result<Expr> GbnfExpr(ExprPool& pool, std::string_view text);

}  // namespace tokamak::grammar
