// Parses the expressions of a template. The derived class in parser.cc parses statements.
#pragma once

#include <algorithm>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "chat/jinja/ast.h"
#include "chat/jinja/lexer.h"

namespace tokamak::jinja {

// Errors are sticky: anything parsed after the first one is discarded.
class ExpressionParser {
 protected:
  ExpressionParser(std::vector<Token> tokens, Program& program)
      : tokens_(std::move(tokens)), program_(program) {}

  enum Conditional : bool { kNoConditional = false, kWithConditional = true };

  // "a, b" is a tuple; a single expression is returned as itself. With `parentheses` it may be
  // empty.
  ExprPtr ParseTuple(Conditional conditional, bool parentheses, std::string_view end_word = "");
  ExprPtr ParseExpression(Conditional conditional = kWithConditional);
  // Parses any number of "| name(arguments)"; `first_inline`: the first has no "|" before it.
  ExprPtr ParseFilters(ExprPtr operand, bool first_inline);

  // Fails if an unknown filter or test was used.
  void ReportUnknown();
  void Fail(std::string_view message) { FailAt(Peek().line, message); }
  void FailAt(int32_t line, std::string_view message);
  bool Failed() const { return !status_.ok(); }

  const Token& Peek(size_t ahead = 0) const {
    return tokens_[std::min(next_ + ahead, tokens_.size() - 1)];
  }
  Token Next() { return next_ + 1 < tokens_.size() ? tokens_[next_++] : tokens_.back(); }
  bool IsOperator(std::string_view op, size_t ahead = 0) const {
    return Peek(ahead).kind == Token::Kind::kOperator && Peek(ahead).text == op;
  }
  bool IsWord(std::string_view word, size_t ahead = 0) const {
    return Peek(ahead).kind == Token::Kind::kName && Peek(ahead).text == word;
  }
  bool TakeOperator(std::string_view op);
  bool TakeWord(std::string_view word);
  void ExpectOperator(std::string_view op);
  // Returns a name that may be assigned to.
  std::string ExpectName();

  class Nesting {
   public:
    explicit Nesting(ExpressionParser& parser) : parser_(parser) {
      if (++parser_.depth_ > kMaxDepth) parser_.Fail("the template nests too deeply");
    }
    ~Nesting() { --parser_.depth_; }

   private:
    static constexpr int kMaxDepth = 150;
    ExpressionParser& parser_;
  };

  std::vector<Token> tokens_;
  Program& program_;
  size_t next_ = 0;
  Status status_;
  std::vector<MacroNode*> macros_;  // the enclosing macros, outermost first
  // Inside an if, an unknown filter is an error only when it is evaluated.
  bool soft_ = false;

 private:
  struct Unknown {
    int32_t line;
    std::string message;
  };

  using OperatorName = std::pair<std::string_view, Operator>;

  // Parse operands that operators of one precedence join, grouped from the left.
  ExprPtr ParseLogic(std::string_view word, Expr::Kind kind,
                     ExprPtr (ExpressionParser::*operand)());
  ExprPtr ParseBinary(std::span<const OperatorName> operators,
                      ExprPtr (ExpressionParser::*operand)());
  ExprPtr ParseConditional();
  ExprPtr ParseOr();
  ExprPtr ParseAnd();
  ExprPtr ParseNot();
  ExprPtr ParseCompare();
  ExprPtr ParseSum();
  ExprPtr ParseConcat();
  ExprPtr ParseProduct();
  ExprPtr ParsePower();
  ExprPtr ParseFilteredUnary();
  ExprPtr ParseUnary(bool with_filter);
  ExprPtr ParsePrimary();
  ExprPtr ParseName();
  ExprPtr ParseNumber();
  ExprPtr ParseList();
  ExprPtr ParseDict();
  ExprPtr ParsePostfix(ExprPtr operand);
  ExprPtr ParseFilterOrTest(ExprPtr operand);
  ExprPtr ParseSubscript(ExprPtr operand);
  ExprPtr ParseSubscribed(ExprPtr operand);
  ExprPtr ParseCall(ExprPtr operand);
  ExprPtr ParseTest(ExprPtr operand);
  std::unique_ptr<Arguments> ParseArguments();
  void ParseArgument(Arguments& arguments);
  std::string DottedName();
  void NoteUnknown(int32_t line, std::string message);

  ExprPtr Make(Expr::Kind kind, int32_t line);
  // Adds an operand, which may be null.
  void Add(Expr& expr, ExprPtr operand);
  void SetArguments(Expr& expr, std::unique_ptr<Arguments> arguments);
  // Updates the height of `expr` for `below`, which may be null.
  void Grow(Expr& expr, const ExprPtr& below);

  int depth_ = 0;
  std::vector<Unknown> unknown_;  // filters and tests whose absence is an error
};

}  // namespace tokamak::jinja
