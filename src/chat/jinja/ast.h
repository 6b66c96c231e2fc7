// A parsed template. Immutable; shared by the threads that render it.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "chat/jinja/operators.h"
#include "chat/jinja/runtime.h"
#include "chat/jinja/value.h"

namespace tokamak::jinja {

struct Expr;
struct Stmt;
using ExprPtr = std::unique_ptr<Expr>;
using Block = std::vector<std::unique_ptr<Stmt>>;
using Symbol = int32_t;  // a name, as an index

struct Arguments {
  std::vector<ExprPtr> positional;
  std::vector<std::pair<std::string, ExprPtr>> named;
  ExprPtr rest;        // *rest
  ExprPtr named_rest;  // **named_rest
};

struct Expr {
  enum class Kind : uint8_t {
    kConstant,
    kName,
    kList,
    kTuple,
    kDict,       // operands: key, value, key, value, ...
    kAttribute,  // operand.constant
    kItem,       // operand[operand]
    kSlice,      // operand[operand:operand:operand]; omitted operands are null
    kCall,       // operand(arguments)
    kFilter,     // operand | filter(arguments); without operand, filters the enclosing block
    kTest,       // operand is test(arguments)
    kNot,
    kNegate,
    kPositive,
    kBinary,   // operand op operand
    kCompare,  // operand op operand op operand ...: one more operand than comparisons
    kConcat,   // operand ~ operand ~ ...
    kAnd,
    kOr,
    kConditional,  // operand if operand else operand; the last may be null
  };
  Kind kind = Kind::kConstant;
  Operator op = Operator::kAdd;
  int32_t line = 0;
  int32_t height = 1;  // of the tree from here down
  Symbol symbol = -1;  // kName
  Value constant;      // kConstant, kAttribute: shared
  std::vector<ExprPtr> operands;
  std::vector<Operator> comparisons;
  std::unique_ptr<Arguments> arguments;
  std::string name;         // kFilter, kTest: for the error if the name is unknown
  Filter filter = nullptr;  // kFilter
  Test test = nullptr;      // kTest
};

// The target of an assignment: a variable, an attribute of a namespace, or several targets.
struct Target {
  Symbol symbol = -1;
  std::string attribute;        // if not empty: attribute of the namespace `symbol`
  std::vector<Target> targets;  // if `tuple`: unpacks that many values
  bool tuple = false;
};

struct MacroNode {
  std::string name;  // empty: the body of a call block
  Symbol symbol = -1;
  std::vector<std::string> parameter_names;
  std::vector<Symbol> parameters;
  std::vector<ExprPtr> defaults;  // of the last parameters
  Block body;
  // Whether the body mentions these.
  bool uses_varargs = false, uses_kwargs = false, uses_caller = false;
  int32_t line = 0;
};

struct ForNode {
  Target target;
  ExprPtr iterable;
  ExprPtr filter;  // may be null
  bool recursive = false;
  Block body, otherwise;
  int32_t line = 0;
};

struct Stmt {
  enum class Kind : uint8_t {
    kText,
    kOutput,  // {{ expr }}
    kIf,      // a branch without a condition is the else
    kFor,
    kSet,       // target = expr
    kSetBlock,  // target = body, passed through the filters in expr (may be null)
    kMacro,
    kCallBlock,    // expr is a call whose `caller` is the macro
    kFilterBlock,  // body passed through the filters in expr
    kScope,        // body, with with_targets bound to with_values
    kBreak,
    kContinue,
  };
  struct Branch {
    ExprPtr condition;
    Block body;
  };
  Kind kind = Kind::kText;
  int32_t line = 0;
  std::string text;
  ExprPtr expr;
  Target target;
  bool appends = false;  // kSet: target = target ~ ... (or +)
  std::vector<Branch> branches;
  Block body;
  std::vector<Target> with_targets;
  std::vector<ExprPtr> with_values;
  std::unique_ptr<MacroNode> macro;
  std::unique_ptr<ForNode> loop;
};

struct Program {
  std::vector<std::unique_ptr<Object>> constants;  // the objects of shared values; outlives them
  Block body;
  std::map<std::string, Symbol, std::less<>> symbols;
  std::vector<Value> symbol_names;  // shared strings
  std::vector<Value> globals;       // by symbol; Missing if there is no such global
  Symbol loop = -1, caller = -1, varargs = -1, kwargs = -1;

  // Makes a value that any thread may read while the program lives.
  Value SharedString(std::string text) {
    auto object = std::make_unique<StringObject>();
    object->text = std::move(text);
    object->shared = true;
    const Value value = Value::FromObject(Type::kString, object.get());
    constants.push_back(std::move(object));
    return value;
  }
  Symbol Intern(std::string_view name);
};

}  // namespace tokamak::jinja
