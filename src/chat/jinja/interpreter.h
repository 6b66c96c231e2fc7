// Runs a program: statements in interpreter.cc, expressions in evaluate.cc.
#pragma once

#include <ctime>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "chat/jinja/ast.h"
#include "chat/jinja/runtime.h"
#include "tokamak/status.h"

namespace tokamak::jinja {

using Inputs = std::vector<std::pair<std::string, Value>>;

// The variables of a loop's iteration, a macro call or a block.
struct Scope {
  Scope* parent = nullptr;  // null: the top level
  std::vector<std::pair<Symbol, Value>> values;
  bool captured = false;  // by a macro defined in it, which may outlive it
};

// One rendering. The program and the objects of the inputs must outlive it. Inputs are only read.
class Interpreter : public Runtime {
 public:
  Interpreter(const Program& program, const Inputs& inputs, const Limits& limits,
              const std::tm& now);
  ~Interpreter() override;

  // Returns the text. kInvalidArgument for errors in the template, with their line, errors that it
  // raises, and exceeded limits.
  Result<std::string> Render();

  Value KeepNamespace(std::unique_ptr<NamespaceObject> names) override;
  Value Call(const Value& callee, CallArgs& args) override;
  std::optional<Value> NextItem(LoopObject& loop) override;

 private:
  enum class Flow { kNext, kBreak, kContinue };

  // Limits the interpreter's own recursion.
  class Depth {
   public:
    explicit Depth(Interpreter& interpreter) : interpreter_(interpreter) {
      if (++interpreter_.depth_ > interpreter_.budget().limits().depth) {
        interpreter_.budget().Exhaust("it nests too deeply");
      }
    }
    ~Depth() { --interpreter_.depth_; }

   private:
    Interpreter& interpreter_;
  };
  // Makes a new scope the current one during its lifetime.
  class InScope {
   public:
    InScope(Interpreter& interpreter, Scope* parent)
        : interpreter_(interpreter),
          saved_(interpreter.scope_),
          scope_(interpreter.NewScope(parent)) {
      interpreter_.scope_ = scope_;
    }
    ~InScope() {
      interpreter_.scope_ = saved_;
      interpreter_.DropScope(scope_);
    }

   private:
    Interpreter& interpreter_;
    Scope* const saved_;
    Scope* const scope_;
  };

  Scope* NewScope(Scope* parent);
  void DropScope(Scope* scope);
  // Keeps the current scopes until the end, because a macro refers to them.
  void CaptureScopes();
  // Null if it has no such symbol.
  Value* FindIn(Scope& scope, Symbol symbol);
  Value Lookup(Symbol symbol);
  void Set(Symbol symbol, Value value);
  void Assign(const Target& target, const Value& value);
  // Returns where the target's value is stored in the current scope; null if it is not there.
  Value* Slot(const Target& target);
  // Runs target = target ~ ... in place: copying would make building a text piece by piece
  // quadratic.
  void Append(const Stmt& stmt);

  Flow Run(const Block& block, Text& out);
  Flow RunStatement(const Stmt& stmt, Text& out);
  Flow RunIf(const Stmt& stmt, Text& out);
  void RunFor(const ForNode& node, const Value& iterable, int64_t depth0, Text& out);
  Flow RunTurn(const ForNode& node, const Value& loop, Text& out);
  Flow RunSetBlock(const Stmt& stmt);
  Flow RunFilterBlock(const Stmt& stmt, Text& out);
  Flow RunScope(const Stmt& stmt, Text& out);
  void RunCallBlock(const Stmt& stmt, Text& out);
  Value MakeMacro(const MacroNode& node);
  Value MakeLoop(const ForNode& node, const Value& items, int64_t depth0);

  Value CallMacro(const CallableObject& callable, CallArgs& args);
  bool BindParameters(const MacroNode& node, CallArgs& args);

  // ---- evaluate.cc ----
  Value Eval(const Expr& expr);
  Value EvalItems(const Expr& expr);
  Value EvalDict(const Expr& expr);
  Value EvalSlice(const Expr& expr);
  Value EvalCall(const Expr& expr);
  Value EvalFilter(const Expr& expr, const Value* block);
  Value EvalTest(const Expr& expr);
  Value EvalBinary(const Expr& expr);
  Value EvalCompare(const Expr& expr);
  Value EvalConcat(const Expr& expr);
  Value EvalUnary(const Expr& expr);
  Value EvalLogic(const Expr& expr);
  void EvalArguments(const Arguments& arguments, CallArgs& out);
  bool EvalNamedRest(const Expr& expr, CallArgs& out);

  const Program& program_;
  std::vector<Value> inputs_;  // by symbol; Missing if there is no such input
  std::vector<Value> root_;    // set at the top level of the template
  std::vector<std::unique_ptr<Scope>> scopes_;
  std::vector<Scope*> free_scopes_;
  Scope* scope_ = nullptr;
  std::vector<Value> namespaces_;
  int depth_ = 0;
};

}  // namespace tokamak::jinja
