#include "chat/jinja/parser.h"

#include <algorithm>

#include "base/error.h"
#include "chat/jinja/expression_parser.h"

namespace tokamak::jinja {
namespace {

using StmtPtr = std::unique_ptr<Stmt>;

class Parser : ExpressionParser {
 public:
  Parser(std::vector<Token> tokens, Program& program)
      : ExpressionParser(std::move(tokens), program) {}

  Status Run() {
    program_.body = ParseBlock({});
    ReportUnknown();
    return status_;
  }

 private:
  // Parses statements up to a tag that begins with one of `ends`, which is not consumed; without
  // `ends`, up to the end of the template.
  Block ParseBlock(std::initializer_list<std::string_view> ends) {
    const Nesting nesting(*this);
    Block block;
    while (!Failed()) {
      const Token& token = Peek();
      if (token.kind == Token::Kind::kEnd) {
        if (ends.size() > 0) Fail(fmt::format("the template ends before '{}'", *ends.begin()));
        break;
      }
      if (token.kind == Token::Kind::kText) {
        StmtPtr stmt = Make(Stmt::Kind::kText);
        stmt->text = Next().text;
        block.push_back(std::move(stmt));
        continue;
      }
      if (token.kind == Token::Kind::kOutputBegin) {
        Next();
        StmtPtr stmt = Make(Stmt::Kind::kOutput);
        stmt->expr = ParseTuple(kWithConditional, /*parentheses=*/false);
        ExpectEnd(Token::Kind::kOutputEnd);
        block.push_back(std::move(stmt));
        continue;
      }
      Next();  // the beginning of a block
      const auto ends_it = [this](std::string_view end) { return IsWord(end); };
      if (std::any_of(ends.begin(), ends.end(), ends_it)) break;
      if (StmtPtr stmt = ParseStatement()) block.push_back(std::move(stmt));
      ExpectEnd(Token::Kind::kBlockEnd);
    }
    return block;
  }

  // Parses the rest of an opening tag and the body after it.
  Block ParseBody(std::initializer_list<std::string_view> ends) {
    TakeOperator(":");
    ExpectEnd(Token::Kind::kBlockEnd);
    return ParseBlock(ends);
  }

  // The same up to the tag `end`, which is consumed. Unknown filters in it are errors.
  Block ParseWholeBody(std::string_view end) {
    const bool was_soft = std::exchange(soft_, false);
    Block body = ParseBody({end});
    soft_ = was_soft;
    TakeWord(end);
    return body;
  }

  void ExpectEnd(Token::Kind kind) {
    if (Failed()) return;
    if (Peek().kind != kind) {
      Fail(kind == Token::Kind::kBlockEnd ? "expected '%}'" : "expected '}}'");
    } else {
      Next();
    }
  }

  StmtPtr Make(Stmt::Kind kind) {
    auto stmt = std::make_unique<Stmt>();
    stmt->kind = kind;
    stmt->line = Peek().line;
    return stmt;
  }

  StmtPtr ParseStatement() {
    const Token token = Peek();
    const std::string name = ExpectName();
    if (name == "if") return ParseIf();
    if (name == "for") return ParseFor();
    if (name == "set") return ParseSet();
    if (name == "macro") return ParseMacro();
    if (name == "call") return ParseCallBlock();
    if (name == "filter") return ParseFilterBlock();
    if (name == "with") return ParseWith();
    if (name == "generation") return ParseGeneration();
    if (name == "break" || name == "continue") {
      if (loops_ == 0) Fail(fmt::format("'{}' outside of a loop", name));
      return Make(name == "break" ? Stmt::Kind::kBreak : Stmt::Kind::kContinue);
    }
    FailAt(token.line, fmt::format("unknown or unsupported tag '{}'", name.substr(0, 64)));
    return nullptr;
  }

  StmtPtr ParseIf() {
    StmtPtr stmt = Make(Stmt::Kind::kIf);
    const bool was_soft = std::exchange(soft_, true);
    std::string word = "if";
    while (!Failed() && word != "endif") {
      Stmt::Branch branch;
      if (word != "else") branch.condition = ParseTuple(kNoConditional, /*parentheses=*/false);
      branch.body = word == "else" ? ParseBody({"endif"}) : ParseBody({"endif", "elif", "else"});
      stmt->branches.push_back(std::move(branch));
      if (!Failed()) word = Next().text;
    }
    soft_ = was_soft;
    return stmt;
  }

  StmtPtr ParseFor() {
    StmtPtr stmt = Make(Stmt::Kind::kFor);
    stmt->loop = std::make_unique<ForNode>();
    ForNode& loop = *stmt->loop;
    loop.line = stmt->line;
    loop.target = ParseTarget("in", /*attributes=*/false);
    if (!TakeWord("in")) Fail("expected 'in'");
    loop.iterable = ParseTuple(kNoConditional, /*parentheses=*/false, "recursive");
    const bool was_soft = std::exchange(soft_, false);
    if (TakeWord("if")) loop.filter = ParseExpression();
    loop.recursive = TakeWord("recursive");
    ++loops_;
    loop.body = ParseBody({"endfor", "else"});
    --loops_;
    if (TakeWord("else")) loop.otherwise = ParseBody({"endfor"});
    TakeWord("endfor");
    soft_ = was_soft;
    return stmt;
  }

  StmtPtr ParseSet() {
    StmtPtr stmt = Make(Stmt::Kind::kSet);
    stmt->target = ParseTarget("", /*attributes=*/true);
    if (TakeOperator("=")) {
      stmt->expr = ParseTuple(kWithConditional, /*parentheses=*/false);
      stmt->appends = !Failed() && Appends(stmt->target, *stmt->expr);
      return stmt;
    }
    stmt->kind = Stmt::Kind::kSetBlock;
    stmt->expr = ParseFilters(nullptr, /*first_inline=*/false);
    stmt->body = ParseWholeBody("endset");
    return stmt;
  }

  static bool Appends(const Target& target, const Expr& value) {
    const Expr* first = &value;
    if (first->kind == Expr::Kind::kConcat) first = first->operands[0].get();
    while (first->kind == Expr::Kind::kBinary && first->op == Operator::kAdd) {
      first = first->operands[0].get();
    }
    if (first == &value || target.tuple) return false;
    if (target.attribute.empty()) {
      return first->kind == Expr::Kind::kName && first->symbol == target.symbol;
    }
    return first->kind == Expr::Kind::kAttribute && first->constant.text() == target.attribute &&
           first->operands[0]->kind == Expr::Kind::kName &&
           first->operands[0]->symbol == target.symbol;
  }

  StmtPtr ParseMacro() {
    StmtPtr stmt = Make(Stmt::Kind::kMacro);
    stmt->macro = std::make_unique<MacroNode>();
    stmt->macro->line = stmt->line;
    stmt->macro->name = ExpectName();
    stmt->macro->symbol = program_.Intern(stmt->macro->name);
    ParseSignature(*stmt->macro);
    ParseMacroBody(*stmt->macro, "endmacro");
    return stmt;
  }

  StmtPtr ParseCallBlock() {
    StmtPtr stmt = Make(Stmt::Kind::kCallBlock);
    stmt->macro = std::make_unique<MacroNode>();
    stmt->macro->line = stmt->line;
    if (IsOperator("(")) ParseSignature(*stmt->macro);
    stmt->expr = ParseExpression();
    if (!Failed() && stmt->expr->kind != Expr::Kind::kCall) Fail("expected call");
    ParseMacroBody(*stmt->macro, "endcall");
    return stmt;
  }

  // Parses "(a, b=1)".
  void ParseSignature(MacroNode& macro) {
    ExpectOperator("(");
    while (!Failed() && !IsOperator(")")) {
      const std::string name = ExpectName();
      macro.parameters.push_back(program_.Intern(name));
      macro.parameter_names.push_back(name);
      if (TakeOperator("=")) {
        macros_.push_back(&macro);
        macro.defaults.push_back(ParseExpression());
        macros_.pop_back();
      } else if (!macro.defaults.empty()) {
        Fail("non-default argument follows default argument");
      }
      if (!TakeOperator(",")) break;
    }
    ExpectOperator(")");
  }

  void ParseMacroBody(MacroNode& macro, std::string_view end) {
    const int were_loops = std::exchange(loops_, 0);
    macros_.push_back(&macro);
    macro.body = ParseWholeBody(end);
    macros_.pop_back();
    loops_ = were_loops;
  }

  StmtPtr ParseFilterBlock() {
    StmtPtr stmt = Make(Stmt::Kind::kFilterBlock);
    stmt->expr = ParseFilters(nullptr, /*first_inline=*/true);
    stmt->body = ParseWholeBody("endfilter");
    return stmt;
  }

  StmtPtr ParseWith() {
    StmtPtr stmt = Make(Stmt::Kind::kScope);
    while (!Failed() && Peek().kind != Token::Kind::kBlockEnd) {
      stmt->with_targets.push_back(ParseTarget("", /*attributes=*/false, /*tuples=*/false));
      ExpectOperator("=");
      stmt->with_values.push_back(ParseExpression());
      if (!TakeOperator(",")) break;
    }
    stmt->body = ParseWholeBody("endwith");
    return stmt;
  }

  // transformers uses this tag to mark what the assistant says; for the text it is only a scope.
  StmtPtr ParseGeneration() {
    StmtPtr stmt = Make(Stmt::Kind::kScope);
    const int were_loops = std::exchange(loops_, 0);
    stmt->body = ParseWholeBody("endgeneration");
    loops_ = were_loops;
    return stmt;
  }

  // Parses "a", "a, b", "(a, b), c" and, with `attributes`, "namespace.a".
  Target ParseTarget(std::string_view end_word, bool attributes, bool tuples = true) {
    Target tuple;
    tuple.tuple = true;
    bool is_tuple = false;
    while (!Failed() && !IsOperator(")") && !IsOperator("=") &&
           Peek().kind != Token::Kind::kBlockEnd && (end_word.empty() || !IsWord(end_word))) {
      tuple.targets.push_back(ParseSingleTarget(attributes));
      if (!tuples || !TakeOperator(",")) break;
      is_tuple = true;
    }
    if (is_tuple) return tuple;
    if (!tuple.targets.empty()) {
      Target single = std::move(tuple.targets[0]);
      return single;
    }
    Fail("expected a name to assign to");
    return tuple;
  }

  Target ParseSingleTarget(bool attributes) {
    const Nesting nesting(*this);
    Target target;
    if (Failed()) return target;
    if (TakeOperator("(")) {
      target = ParseTarget("", attributes);
      ExpectOperator(")");
      return target;
    }
    const Token token = Peek();
    const std::string name = ExpectName();
    static constexpr std::string_view kConstants[] = {"true", "false", "none",
                                                      "True", "False", "None"};
    if (std::find(std::begin(kConstants), std::end(kConstants), name) != std::end(kConstants)) {
      FailAt(token.line, fmt::format("can't assign to '{}'", name));
    }
    target.symbol = program_.Intern(name);
    if (attributes && TakeOperator(".")) {
      target.attribute = ExpectName();
    }
    return target;
  }

  int loops_ = 0;  // enclosing loops in the same macro
};

}  // namespace

Symbol Program::Intern(std::string_view name) {
  const auto found = symbols.find(name);
  if (found != symbols.end()) return found->second;
  const auto symbol = static_cast<Symbol>(symbol_names.size());
  symbols.emplace(std::string(name), symbol);
  symbol_names.push_back(SharedString(std::string(name)));
  Value global = Value::Missing();
  if (const GlobalFunction function = FindGlobal(name)) {
    auto object = std::make_unique<CallableObject>();
    object->function = function;
    object->shared = true;
    global = Value::FromObject(Type::kCallable, object.get());
    constants.push_back(std::move(object));
  }
  globals.push_back(std::move(global));
  return symbol;
}

Result<std::unique_ptr<const Program>> ParseTemplate(std::string_view source) {
  constexpr size_t kMaxBytes = size_t{4} << 20;
  if (source.size() > kMaxBytes) {
    return InvalidArgument("the template is longer than {} bytes", kMaxBytes);
  }
  ASSIGN_OR_RETURN(std::vector<Token> tokens, Tokenize(source));
  auto program = std::make_unique<Program>();
  program->loop = program->Intern("loop");
  program->caller = program->Intern("caller");
  program->varargs = program->Intern("varargs");
  program->kwargs = program->Intern("kwargs");
  RETURN_IF_ERROR(Parser(std::move(tokens), *program).Run());
  return std::unique_ptr<const Program>(std::move(program));
}

}  // namespace tokamak::jinja
