#include "chat/jinja/expression_parser.h"

#include <algorithm>
#include <cstdlib>

#include "base/error.h"
#include "chat/jinja/format.h"

namespace tokamak::jinja {
namespace {

// The evaluation of a tree is recursive.
constexpr int32_t kMaxHeight = 250;

std::string Describe(const Token& token) {
  switch (token.kind) {
    case Token::Kind::kText:
      return "text";
    case Token::Kind::kOutputBegin:
      return "'{{'";
    case Token::Kind::kOutputEnd:
      return "'}}'";
    case Token::Kind::kBlockBegin:
      return "'{%'";
    case Token::Kind::kBlockEnd:
      return "'%}'";
    case Token::Kind::kEnd:
      return "the end of the template";
    case Token::Kind::kString:
      return "a string";
    default:
      return "'" + token.text.substr(0, 64) + "'";
  }
}

}  // namespace

void ExpressionParser::FailAt(int32_t line, std::string_view message) {
  if (status_.ok()) status_ = InvalidArgument("line {}: {}", line, message);
  next_ = tokens_.size() - 1;  // skips to the end, so that all loops stop
}

bool ExpressionParser::TakeOperator(std::string_view op) {
  if (!IsOperator(op)) return false;
  ++next_;
  return true;
}

bool ExpressionParser::TakeWord(std::string_view word) {
  if (!IsWord(word)) return false;
  ++next_;
  return true;
}

void ExpressionParser::ExpectOperator(std::string_view op) {
  if (!TakeOperator(op)) Fail(fmt::format("expected '{}', got {}", op, Describe(Peek())));
}

std::string ExpressionParser::ExpectName() {
  if (Peek().kind != Token::Kind::kName) {
    Fail("expected a name, got " + Describe(Peek()));
    return "";
  }
  return Next().text;
}

void ExpressionParser::NoteUnknown(int32_t line, std::string message) {
  if (!soft_) unknown_.push_back({line, std::move(message)});
}

void ExpressionParser::ReportUnknown() {
  if (!unknown_.empty()) FailAt(unknown_.front().line, unknown_.front().message);
}

ExprPtr ExpressionParser::Make(Expr::Kind kind, int32_t line) {
  auto expr = std::make_unique<Expr>();
  expr->kind = kind;
  expr->line = line;
  return expr;
}

void ExpressionParser::Add(Expr& expr, ExprPtr operand) {
  Grow(expr, operand);
  expr.operands.push_back(std::move(operand));
}

void ExpressionParser::Grow(Expr& expr, const ExprPtr& below) {
  if (below == nullptr) return;
  expr.height = std::max(expr.height, below->height + 1);
  if (expr.height > kMaxHeight) Fail("an expression is too long");
}

void ExpressionParser::SetArguments(Expr& expr, std::unique_ptr<Arguments> arguments) {
  for (const ExprPtr& value : arguments->positional) Grow(expr, value);
  for (const auto& [name, value] : arguments->named) Grow(expr, value);
  Grow(expr, arguments->rest);
  Grow(expr, arguments->named_rest);
  expr.arguments = std::move(arguments);
}

ExprPtr ExpressionParser::ParseTuple(Conditional conditional, bool parentheses,
                                     std::string_view end_word) {
  const int32_t line = Peek().line;
  const auto at_end = [&] {
    return Peek().kind == Token::Kind::kOutputEnd || Peek().kind == Token::Kind::kBlockEnd ||
           IsOperator(")") || (!end_word.empty() && IsWord(end_word));
  };
  ExprPtr tuple = Make(Expr::Kind::kTuple, line);
  bool is_tuple = false;
  while (!Failed() && !at_end()) {
    Add(*tuple, ParseExpression(conditional));
    if (!TakeOperator(",")) break;
    is_tuple = true;
  }
  if (!is_tuple && tuple->operands.size() == 1) return std::move(tuple->operands[0]);
  if (!is_tuple && !parentheses) Fail("expected an expression, got " + Describe(Peek()));
  return tuple;
}

ExprPtr ExpressionParser::ParseExpression(Conditional conditional) {
  const Nesting nesting(*this);
  if (Failed()) return Make(Expr::Kind::kConstant, 0);
  return conditional == kWithConditional ? ParseConditional() : ParseOr();
}

ExprPtr ExpressionParser::ParseConditional() {
  const size_t known = unknown_.size();
  int32_t line = Peek().line;
  ExprPtr value = ParseOr();
  while (TakeWord("if")) {
    ExprPtr condition = ParseOr();
    ExprPtr otherwise;
    if (TakeWord("else")) {
      const Nesting nesting(*this);
      if (!Failed()) otherwise = ParseConditional();
    }
    ExprPtr expr = Make(Expr::Kind::kConditional, line);
    Add(*expr, std::move(value));
    Add(*expr, std::move(condition));
    Add(*expr, std::move(otherwise));
    value = std::move(expr);
    line = Peek().line;
    unknown_.resize(std::min(known, unknown_.size()));
  }
  return value;
}

ExprPtr ExpressionParser::ParseLogic(std::string_view word, Expr::Kind kind,
                                     ExprPtr (ExpressionParser::*operand)()) {
  const int32_t line = Peek().line;
  ExprPtr left = (this->*operand)();
  while (TakeWord(word)) {
    ExprPtr expr = Make(kind, line);
    Add(*expr, std::move(left));
    Add(*expr, (this->*operand)());
    left = std::move(expr);
  }
  return left;
}

ExprPtr ExpressionParser::ParseOr() {
  return ParseLogic("or", Expr::Kind::kOr, &ExpressionParser::ParseAnd);
}

ExprPtr ExpressionParser::ParseAnd() {
  return ParseLogic("and", Expr::Kind::kAnd, &ExpressionParser::ParseNot);
}

ExprPtr ExpressionParser::ParseNot() {
  if (!IsWord("not")) return ParseCompare();
  const Nesting nesting(*this);
  ExprPtr expr = Make(Expr::Kind::kNot, Next().line);
  Add(*expr, Failed() ? nullptr : ParseNot());
  return expr;
}

ExprPtr ExpressionParser::ParseCompare() {
  static constexpr OperatorName kOperators[] = {
      {"==", Operator::kEqual},     {"!=", Operator::kNotEqual}, {"<", Operator::kLess},
      {"<=", Operator::kLessEqual}, {">", Operator::kGreater},   {">=", Operator::kGreaterEqual}};
  const int32_t line = Peek().line;
  ExprPtr first = ParseSum();
  ExprPtr compare;
  while (!Failed()) {
    std::optional<Operator> op;
    for (const auto& [text, kind] : kOperators) {
      if (!op && TakeOperator(text)) op = kind;
    }
    if (!op && TakeWord("in")) op = Operator::kIn;
    if (!op && IsWord("not") && IsWord("in", 1)) {
      op = Operator::kNotIn;
      next_ += 2;
    }
    if (!op) break;
    if (compare == nullptr) {
      compare = Make(Expr::Kind::kCompare, line);
      Add(*compare, std::move(first));
    }
    compare->comparisons.push_back(*op);
    Add(*compare, ParseSum());
  }
  return compare != nullptr ? std::move(compare) : std::move(first);
}

ExprPtr ExpressionParser::ParseBinary(std::span<const OperatorName> operators,
                                      ExprPtr (ExpressionParser::*operand)()) {
  ExprPtr left = (this->*operand)();
  for (;;) {
    const int32_t line = Peek().line;
    const auto found = std::find_if(operators.begin(), operators.end(),
                                    [this](const auto& name) { return TakeOperator(name.first); });
    if (found == operators.end()) return left;
    ExprPtr expr = Make(Expr::Kind::kBinary, line);
    expr->op = found->second;
    Add(*expr, std::move(left));
    Add(*expr, (this->*operand)());
    left = std::move(expr);
  }
}

ExprPtr ExpressionParser::ParseSum() {
  static constexpr OperatorName kOperators[] = {{"+", Operator::kAdd}, {"-", Operator::kSubtract}};
  return ParseBinary(kOperators, &ExpressionParser::ParseConcat);
}

ExprPtr ExpressionParser::ParseConcat() {
  ExprPtr first = ParseProduct();
  if (!IsOperator("~")) return first;
  ExprPtr concat = Make(Expr::Kind::kConcat, Peek().line);
  Add(*concat, std::move(first));
  while (TakeOperator("~")) Add(*concat, ParseProduct());
  return concat;
}

ExprPtr ExpressionParser::ParseProduct() {
  static constexpr OperatorName kOperators[] = {{"*", Operator::kMultiply},
                                                {"/", Operator::kDivide},
                                                {"//", Operator::kFloorDivide},
                                                {"%", Operator::kModulo}};
  return ParseBinary(kOperators, &ExpressionParser::ParsePower);
}

ExprPtr ExpressionParser::ParsePower() {
  static constexpr OperatorName kOperators[] = {{"**", Operator::kPower}};
  return ParseBinary(kOperators, &ExpressionParser::ParseFilteredUnary);
}

ExprPtr ExpressionParser::ParseFilteredUnary() { return ParseUnary(/*with_filter=*/true); }

ExprPtr ExpressionParser::ParseUnary(bool with_filter) {
  const Nesting nesting(*this);
  if (Failed()) return Make(Expr::Kind::kConstant, 0);
  ExprPtr expr;
  if (IsOperator("-") || IsOperator("+")) {
    const Token sign = Next();
    expr = Make(sign.text == "-" ? Expr::Kind::kNegate : Expr::Kind::kPositive, sign.line);
    Add(*expr, ParseUnary(/*with_filter=*/false));
  } else {
    expr = ParsePrimary();
  }
  expr = ParsePostfix(std::move(expr));
  return with_filter ? ParseFilterOrTest(std::move(expr)) : std::move(expr);
}

ExprPtr ExpressionParser::ParsePrimary() {
  const Token& token = Peek();
  ExprPtr expr = Make(Expr::Kind::kConstant, token.line);
  switch (token.kind) {
    case Token::Kind::kName:
      return ParseName();
    case Token::Kind::kString: {
      std::string text;
      while (Peek().kind == Token::Kind::kString) text += Next().text;
      expr->constant = program_.SharedString(std::move(text));
      return expr;
    }
    case Token::Kind::kInteger:
    case Token::Kind::kFloat:
      return ParseNumber();
    default:
      break;
  }
  if (TakeOperator("(")) {
    expr = ParseTuple(kWithConditional, /*parentheses=*/true);
    ExpectOperator(")");
    return expr;
  }
  if (IsOperator("[")) return ParseList();
  if (IsOperator("{")) return ParseDict();
  Fail("unexpected " + Describe(token));
  return expr;
}

ExprPtr ExpressionParser::ParseName() {
  const Token token = Next();
  ExprPtr expr = Make(Expr::Kind::kConstant, token.line);
  if (token.text == "true" || token.text == "True") {
    expr->constant = Value::Bool(true);
  } else if (token.text == "false" || token.text == "False") {
    expr->constant = Value::Bool(false);
  } else if (token.text == "none" || token.text == "None") {
    expr->constant = Value::None();
  } else {
    expr->kind = Expr::Kind::kName;
    expr->symbol = program_.Intern(token.text);
    for (MacroNode* macro : macros_) {
      macro->uses_varargs |= token.text == "varargs";
      macro->uses_kwargs |= token.text == "kwargs";
      macro->uses_caller |= token.text == "caller";
    }
  }
  return expr;
}

ExprPtr ExpressionParser::ParseNumber() {
  const Token token = Next();
  ExprPtr expr = Make(Expr::Kind::kConstant, token.line);
  if (token.kind == Token::Kind::kFloat) {
    expr->constant = Value::Float(std::strtod(token.text.c_str(), nullptr));
    return expr;
  }
  const std::optional<int64_t> number = ParseInt(token.text, 0);
  if (!number) FailAt(token.line, "an integer does not fit in 64 bits");
  expr->constant = Value::Int(number.value_or(0));
  return expr;
}

ExprPtr ExpressionParser::ParseList() {
  ExprPtr list = Make(Expr::Kind::kList, Next().line);
  while (!Failed() && !IsOperator("]")) {
    Add(*list, ParseExpression());
    if (!TakeOperator(",")) break;
  }
  ExpectOperator("]");
  return list;
}

ExprPtr ExpressionParser::ParseDict() {
  ExprPtr dict = Make(Expr::Kind::kDict, Next().line);
  while (!Failed() && !IsOperator("}")) {
    Add(*dict, ParseExpression());
    ExpectOperator(":");
    Add(*dict, ParseExpression());
    if (!TakeOperator(",")) break;
  }
  ExpectOperator("}");
  return dict;
}

ExprPtr ExpressionParser::ParsePostfix(ExprPtr operand) {
  while (!Failed()) {
    if (IsOperator(".") || IsOperator("[")) {
      operand = ParseSubscript(std::move(operand));
    } else if (IsOperator("(")) {
      operand = ParseCall(std::move(operand));
    } else {
      break;
    }
  }
  return operand;
}

ExprPtr ExpressionParser::ParseFilterOrTest(ExprPtr operand) {
  while (!Failed()) {
    if (IsOperator("|")) {
      operand = ParseFilters(std::move(operand), /*first_inline=*/false);
    } else if (IsWord("is")) {
      operand = ParseTest(std::move(operand));
    } else if (IsOperator("(")) {
      operand = ParseCall(std::move(operand));
    } else {
      break;
    }
  }
  return operand;
}

ExprPtr ExpressionParser::ParseSubscript(ExprPtr operand) {
  const Token token = Next();
  if (token.text == "[") return ParseSubscribed(std::move(operand));
  if (Peek().kind == Token::Kind::kInteger) {
    ExprPtr expr = Make(Expr::Kind::kItem, token.line);
    Add(*expr, std::move(operand));
    Add(*expr, ParseNumber());
    return expr;
  }
  ExprPtr expr = Make(Expr::Kind::kAttribute, token.line);
  Add(*expr, std::move(operand));
  expr->constant = program_.SharedString(ExpectName());
  return expr;
}

// Parses what follows "[": an index or a slice.
ExprPtr ExpressionParser::ParseSubscribed(ExprPtr operand) {
  const int32_t line = Peek().line;
  ExprPtr first;
  if (!IsOperator(":")) first = ParseTuple(kWithConditional, /*parentheses=*/false, "");
  if (!IsOperator(":")) {
    ExprPtr expr = Make(Expr::Kind::kItem, line);
    Add(*expr, std::move(operand));
    Add(*expr, std::move(first));
    ExpectOperator("]");
    return expr;
  }
  ExprPtr expr = Make(Expr::Kind::kSlice, line);
  Add(*expr, std::move(operand));
  Add(*expr, std::move(first));
  for (int part = 0; part < 2; ++part) {
    const bool given = TakeOperator(":") && !IsOperator("]") && !IsOperator(":");
    Add(*expr, given ? ParseExpression() : nullptr);
  }
  ExpectOperator("]");
  return expr;
}

ExprPtr ExpressionParser::ParseCall(ExprPtr operand) {
  ExprPtr expr = Make(Expr::Kind::kCall, Peek().line);
  Add(*expr, std::move(operand));
  SetArguments(*expr, ParseArguments());
  return expr;
}

std::unique_ptr<Arguments> ExpressionParser::ParseArguments() {
  auto arguments = std::make_unique<Arguments>();
  ExpectOperator("(");
  while (!Failed() && !IsOperator(")")) {
    ParseArgument(*arguments);
    if (!TakeOperator(",")) break;
  }
  ExpectOperator(")");
  return arguments;
}

void ExpressionParser::ParseArgument(Arguments& arguments) {
  const auto require = [this](bool condition) {
    if (!condition) Fail("invalid syntax for function call expression");
  };
  if (TakeOperator("*")) {
    require(arguments.rest == nullptr && arguments.named_rest == nullptr);
    arguments.rest = ParseExpression();
  } else if (TakeOperator("**")) {
    require(arguments.named_rest == nullptr);
    arguments.named_rest = ParseExpression();
  } else if (Peek().kind == Token::Kind::kName && IsOperator("=", 1)) {
    require(arguments.named_rest == nullptr);
    std::string name = Next().text;
    Next();
    arguments.named.emplace_back(std::move(name), ParseExpression());
  } else {
    require(arguments.rest == nullptr && arguments.named_rest == nullptr &&
            arguments.named.empty());
    arguments.positional.push_back(ParseExpression());
  }
}

std::string ExpressionParser::DottedName() {
  std::string name = ExpectName();
  while (TakeOperator(".")) name += "." + ExpectName();
  return name;
}

ExprPtr ExpressionParser::ParseFilters(ExprPtr operand, bool first_inline) {
  while (!Failed() && (first_inline || TakeOperator("|"))) {
    first_inline = false;
    ExprPtr expr = Make(Expr::Kind::kFilter, Peek().line);
    expr->name = DottedName();
    expr->filter = FindFilter(expr->name);
    if (expr->filter == nullptr) {
      NoteUnknown(expr->line, fmt::format("No filter named '{}'.", expr->name));
    }
    Add(*expr, std::move(operand));
    SetArguments(*expr, IsOperator("(") ? ParseArguments() : std::make_unique<Arguments>());
    operand = std::move(expr);
  }
  return operand;
}

ExprPtr ExpressionParser::ParseTest(ExprPtr operand) {
  const int32_t line = Next().line;
  const bool negated = TakeWord("not");
  ExprPtr expr = Make(Expr::Kind::kTest, line);
  expr->name = DottedName();
  expr->test = FindTest(expr->name);
  if (expr->test == nullptr) NoteUnknown(line, fmt::format("No test named '{}'.", expr->name));
  Add(*expr, std::move(operand));
  auto arguments = std::make_unique<Arguments>();
  const Token::Kind kind = Peek().kind;
  const bool value = kind == Token::Kind::kName || kind == Token::Kind::kString ||
                     kind == Token::Kind::kInteger || kind == Token::Kind::kFloat ||
                     IsOperator("[") || IsOperator("{");
  if (IsOperator("(")) {
    arguments = ParseArguments();
  } else if (value && !IsWord("else") && !IsWord("or") && !IsWord("and")) {
    if (IsWord("is")) Fail("You cannot chain multiple tests with is");
    arguments->positional.push_back(ParsePostfix(ParsePrimary()));
  }
  SetArguments(*expr, std::move(arguments));
  if (!negated) return expr;
  ExprPtr inverse = Make(Expr::Kind::kNot, line);
  Add(*inverse, std::move(expr));
  return inverse;
}

}  // namespace tokamak::jinja
