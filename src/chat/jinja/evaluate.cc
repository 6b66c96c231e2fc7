// Evaluates expressions for the interpreter.
#include <algorithm>

#include "chat/jinja/interpreter.h"
#include "chat/jinja/operators.h"
#include "chat/jinja/print.h"

namespace tokamak::jinja {

Value Interpreter::Eval(const Expr& expr) {
  if (Failed() || !budget().Step()) return Value();
  if (expr.kind == Expr::Kind::kConstant) return expr.constant;
  if (expr.kind == Expr::Kind::kName) return Lookup(expr.symbol);
  const Depth depth(*this);
  switch (expr.kind) {
    case Expr::Kind::kList:
    case Expr::Kind::kTuple:
      return EvalItems(expr);
    case Expr::Kind::kDict:
      return EvalDict(expr);
    case Expr::Kind::kAttribute: {
      const Value value = Eval(*expr.operands[0]);
      set_line(expr.line);
      return Failed() ? Value() : GetAttribute(*this, value, expr.constant);
    }
    case Expr::Kind::kItem: {
      const Value value = Eval(*expr.operands[0]);
      const Value key = Eval(*expr.operands[1]);
      set_line(expr.line);
      return Failed() ? Value() : GetItem(*this, value, key);
    }
    case Expr::Kind::kSlice:
      return EvalSlice(expr);
    case Expr::Kind::kCall:
      return EvalCall(expr);
    case Expr::Kind::kFilter:
      return EvalFilter(expr, nullptr);
    case Expr::Kind::kTest:
      return EvalTest(expr);
    case Expr::Kind::kBinary:
      return EvalBinary(expr);
    case Expr::Kind::kCompare:
      return EvalCompare(expr);
    case Expr::Kind::kConcat:
      return EvalConcat(expr);
    case Expr::Kind::kNot:
    case Expr::Kind::kNegate:
    case Expr::Kind::kPositive:
      return EvalUnary(expr);
    default:
      return EvalLogic(expr);
  }
}

Value Interpreter::EvalItems(const Expr& expr) {
  std::vector<Value> items;
  items.reserve(expr.operands.size());
  for (const ExprPtr& operand : expr.operands) {
    items.push_back(Eval(*operand));
    if (Failed()) return Value();
  }
  return List(std::move(items), expr.kind == Expr::Kind::kList ? Type::kList : Type::kTuple);
}

Value Interpreter::EvalDict(const Expr& expr) {
  auto dict = std::make_unique<DictObject>();
  for (size_t i = 0; i < expr.operands.size(); i += 2) {
    Value key = Eval(*expr.operands[i]);
    Value value = Eval(*expr.operands[i + 1]);
    if (Failed()) return Value();
    if (!Hashable(key)) return Fail("unhashable type: '{}'", TypeName(key.type()));
    dict->Set(std::move(key), std::move(value), &budget());
  }
  return MakeDict(std::move(dict), &budget());
}

Value Interpreter::EvalSlice(const Expr& expr) {
  const Value value = Eval(*expr.operands[0]);
  Value bounds[3];
  for (size_t i = 0; i < 3; ++i) {
    const ExprPtr& operand = expr.operands[i + 1];
    bounds[i] = operand == nullptr ? Value::Missing() : Eval(*operand);
  }
  set_line(expr.line);
  return Failed() ? Value() : GetSlice(*this, value, bounds[0], bounds[1], bounds[2]);
}

Value Interpreter::EvalCall(const Expr& expr) {
  const Expr& callee = *expr.operands[0];
  if (callee.kind == Expr::Kind::kAttribute) {
    // Calls a method without making a value of it first.
    const Value receiver = Eval(*callee.operands[0]);
    if (Failed()) return Value();
    const std::string_view name = callee.constant.text();
    const Method method = FindMethod(receiver.type(), name);
    CallArgs args;
    if (method != nullptr) {
      EvalArguments(*expr.arguments, args);
      set_line(expr.line);
      return Failed() ? Value() : method(*this, receiver, args);
    }
    const Value function = GetAttribute(*this, receiver, callee.constant);
    EvalArguments(*expr.arguments, args);
    set_line(expr.line);
    return Call(function, args);
  }
  const Value function = Eval(callee);
  CallArgs args;
  EvalArguments(*expr.arguments, args);
  set_line(expr.line);
  return Call(function, args);
}

void Interpreter::EvalArguments(const Arguments& arguments, CallArgs& out) {
  out.positional.reserve(arguments.positional.size());
  for (const ExprPtr& value : arguments.positional) out.positional.push_back(Eval(*value));
  for (const auto& [name, value] : arguments.named) out.named.emplace_back(name, Eval(*value));
  if (arguments.rest != nullptr && !Failed()) {
    const Value rest = Eval(*arguments.rest);
    const Value items = Failed() ? Value() : Iterate(*this, rest);
    if (Failed() || !budget().StepBytes(items.items().size() * sizeof(Value))) return;
    out.positional.insert(out.positional.end(), items.items().begin(), items.items().end());
  }
  if (arguments.named_rest != nullptr && !Failed()) EvalNamedRest(*arguments.named_rest, out);
}

bool Interpreter::EvalNamedRest(const Expr& expr, CallArgs& out) {
  out.named_owner = Eval(expr);
  if (Failed()) return false;
  if (!out.named_owner.is_dict()) {
    Fail("argument after ** must be a mapping, not {}", TypeName(out.named_owner.type()));
    return false;
  }
  const auto& entries = out.named_owner.dict().entries;
  // The search for names is linear.
  if (entries.size() > 1000) {
    Fail("there are more than 1000 named arguments");
    return false;
  }
  for (const auto& [key, value] : entries) {
    if (!key.is_string()) {
      Fail("keywords must be strings");
      return false;
    }
    const std::string_view name = key.text();
    // In the worst case all names differ only in their last letters.
    if (!budget().StepBytes((name.size() + 8) * out.named.size())) return false;
    const bool twice = std::any_of(out.named.begin(), out.named.end(),
                                   [name](const auto& entry) { return entry.first == name; });
    if (twice) {
      Fail("got multiple values for keyword argument '{}'", name);
      return false;
    }
    out.named.emplace_back(name, value);
  }
  return true;
}

Value Interpreter::EvalFilter(const Expr& expr, const Value* block) {
  Value input;
  if (expr.operands[0] == nullptr) {
    input = *block;
  } else if (block != nullptr) {
    input = EvalFilter(*expr.operands[0], block);
  } else {
    input = Eval(*expr.operands[0]);
  }
  if (Failed()) return Value();
  CallArgs args;
  EvalArguments(*expr.arguments, args);
  set_line(expr.line);
  if (Failed()) return Value();
  if (expr.filter == nullptr) return Fail("No filter named '{}'.", expr.name);
  return expr.filter(*this, input, args);
}

Value Interpreter::EvalTest(const Expr& expr) {
  const Value input = Eval(*expr.operands[0]);
  CallArgs args;
  EvalArguments(*expr.arguments, args);
  set_line(expr.line);
  if (Failed()) return Value();
  if (expr.test == nullptr) return Fail("No test named '{}'.", expr.name);
  return Value::Bool(expr.test(*this, input, args));
}

Value Interpreter::EvalBinary(const Expr& expr) {
  const Value a = Eval(*expr.operands[0]);
  const Value b = Eval(*expr.operands[1]);
  set_line(expr.line);
  return Failed() ? Value() : Arithmetic(*this, expr.op, a, b);
}

// a < b < c evaluates b once, and c only if a < b holds.
Value Interpreter::EvalCompare(const Expr& expr) {
  Value left = Eval(*expr.operands[0]);
  bool result = true;
  for (size_t i = 0; i < expr.comparisons.size() && result; ++i) {
    Value right = Eval(*expr.operands[i + 1]);
    set_line(expr.line);
    if (Failed()) return Value();
    result = Compare(*this, expr.comparisons[i], left, right);
    left = std::move(right);
  }
  return Value::Bool(result);
}

Value Interpreter::EvalConcat(const Expr& expr) {
  Text out(budget());
  for (const ExprPtr& operand : expr.operands) {
    const Value value = Eval(*operand);
    if (Failed() || !Print(*this, value, out)) return Value();
  }
  return Take(out);
}

Value Interpreter::EvalUnary(const Expr& expr) {
  const Value value = Eval(*expr.operands[0]);
  set_line(expr.line);
  if (Failed()) return Value();
  if (expr.kind == Expr::Kind::kNot) return Value::Bool(!Truth(value));
  if (expr.kind == Expr::Kind::kNegate) return Negate(*this, value);
  if (value.is(Type::kFloat)) return value;
  if (value.is_integral()) return Value::Int(value.integer());
  return Fail("bad operand type for unary +: '{}'", TypeName(value.type()));
}

// Evaluates expressions that need only some of their operands.
Value Interpreter::EvalLogic(const Expr& expr) {
  if (expr.kind == Expr::Kind::kConditional) {
    const bool condition = Truth(Eval(*expr.operands[1]));
    if (Failed()) return Value();
    if (condition) return Eval(*expr.operands[0]);
    return expr.operands[2] == nullptr ? Value() : Eval(*expr.operands[2]);
  }
  Value left = Eval(*expr.operands[0]);
  if (Failed() || Truth(left) == (expr.kind == Expr::Kind::kOr)) return left;
  return Eval(*expr.operands[1]);
}

}  // namespace tokamak::jinja
