#include "chat/jinja/interpreter.h"

#include <algorithm>

#include "base/error.h"
#include "chat/jinja/operators.h"
#include "chat/jinja/print.h"

namespace tokamak::jinja {

Value Runtime::FailWith(std::string message) {
  if (!failed_) {
    failed_ = true;
    message_ = std::move(message);
    message_line_ = line_;
  }
  return Value();
}

Value Runtime::Raise(std::string message) {
  if (!failed_) raised_ = true;
  return FailWith(std::move(message));
}

Interpreter::Interpreter(const Program& program, const Inputs& inputs, const Limits& limits,
                         const std::tm& now)
    : Runtime(limits, now), program_(program) {
  inputs_.assign(program.symbol_names.size(), Value::Missing());
  root_.assign(program.symbol_names.size(), Value::Missing());
  for (const auto& [name, value] : inputs) {
    const auto found = program.symbols.find(name);
    if (found != program.symbols.end()) inputs_[static_cast<size_t>(found->second)] = value;
  }
}

Interpreter::~Interpreter() {
  for (const Value& names : namespaces_) names.name_space().attributes.clear();
}

Result<std::string> Interpreter::Render() {
  Text out(budget());
  Run(program_.body, out);
  if (const char* reason = budget().exhausted()) {
    return InvalidArgument("line {}: the chat template was stopped: {}", line(), reason);
  }
  if (!failed_) return out.Take();
  // Raised by the model's author to tell users what is not allowed, e.g. that roles must alternate.
  if (raised_) return InvalidArgument("{}", message_);
  return InvalidArgument("line {} of the chat template: {}", message_line_, message_);
}

Scope* Interpreter::NewScope(Scope* parent) {
  if (free_scopes_.empty()) {
    scopes_.push_back(std::make_unique<Scope>());
    free_scopes_.push_back(scopes_.back().get());
  }
  Scope* scope = free_scopes_.back();
  free_scopes_.pop_back();
  scope->parent = parent;
  return scope;
}

void Interpreter::DropScope(Scope* scope) {
  if (scope->captured) return;
  scope->values.clear();
  free_scopes_.push_back(scope);
}

void Interpreter::CaptureScopes() {
  for (Scope* scope = scope_; scope != nullptr && !scope->captured; scope = scope->parent) {
    scope->captured = true;
    if (!budget().Charge(sizeof(Scope) + 16 * sizeof(Value))) return;  // until the end
  }
}

Value* Interpreter::FindIn(Scope& scope, Symbol symbol) {
  constexpr size_t kFree = 16;  // included in the caller's step
  auto& values = scope.values;
  size_t i = 0;
  while (i < values.size() && values[i].first != symbol) ++i;
  if (i >= kFree) budget().Step(static_cast<int64_t>(i / kFree));
  return i < values.size() ? &values[i].second : nullptr;
}

Value Interpreter::Lookup(Symbol symbol) {
  constexpr int kFree = 16;
  int passed = 0;
  for (Scope* scope = scope_; scope != nullptr; scope = scope->parent) {
    if (const Value* value = FindIn(*scope, symbol)) return *value;
    if (++passed % kFree == 0) budget().Step();
  }
  const auto i = static_cast<size_t>(symbol);
  if (!root_[i].is_missing()) return root_[i];
  if (!inputs_[i].is_missing()) return inputs_[i];
  if (!program_.globals[i].is_missing()) return program_.globals[i];
  return Value::Undefined(program_.symbol_names[i]);
}

void Interpreter::Set(Symbol symbol, Value value) {
  if (value.is_missing()) value = Value();
  if (scope_ == nullptr) {
    root_[static_cast<size_t>(symbol)] = std::move(value);
    return;
  }
  if (Value* old = FindIn(*scope_, symbol)) {
    *old = std::move(value);
    return;
  }
  scope_->values.emplace_back(symbol, std::move(value));
}

void Interpreter::Assign(const Target& target, const Value& value) {
  if (Failed()) return;
  if (target.tuple) {
    const Value items = Iterate(*this, value);
    if (Failed()) return;
    if (items.items().size() != target.targets.size()) {
      Fail("cannot unpack {} values into {} names", items.items().size(), target.targets.size());
      return;
    }
    for (size_t i = 0; i < target.targets.size(); ++i) Assign(target.targets[i], items.items()[i]);
    return;
  }
  if (target.attribute.empty()) return Set(target.symbol, value);
  const Value names = Lookup(target.symbol);
  if (!names.is(Type::kNamespace)) {
    Fail("cannot assign attribute on non-namespace object");
    return;
  }
  if (target.attribute.starts_with('_')) {
    Fail("names in a namespace must not begin with an underscore");
    return;
  }
  if (Value* old = names.name_space().Find(target.attribute, budget())) {
    *old = value;
    return;
  }
  auto& attributes = names.name_space().attributes;
  if (budget().Charge(sizeof(attributes[0]) + target.attribute.size())) {
    attributes.emplace_back(target.attribute, value);
  }
}

Value* Interpreter::Slot(const Target& target) {
  if (!target.attribute.empty()) {
    const Value names = Lookup(target.symbol);
    if (!names.is(Type::kNamespace)) return nullptr;
    return names.name_space().Find(target.attribute, budget());
  }
  if (scope_ == nullptr) return &root_[static_cast<size_t>(target.symbol)];
  return FindIn(*scope_, target.symbol);
}

void Interpreter::Append(const Stmt& stmt) {
  // The operands of ~ or of a chain of +.
  std::vector<const Expr*> operands;
  const bool concat = stmt.expr->kind == Expr::Kind::kConcat;
  if (concat && stmt.expr->operands[0]->kind != Expr::Kind::kBinary) {
    for (const ExprPtr& operand : stmt.expr->operands) operands.push_back(operand.get());
  } else if (!concat) {
    const Expr* expr = stmt.expr.get();
    for (; expr->kind == Expr::Kind::kBinary && expr->op == Operator::kAdd;
         expr = expr->operands[0].get()) {
      operands.push_back(expr->operands[1].get());
    }
    operands.push_back(expr);
    std::reverse(operands.begin(), operands.end());
  }
  Value text = operands.empty() ? Value() : Eval(*operands[0]);
  if (!text.is_string() || text.markup() || text.string().shared) {
    return Assign(stmt.target, Eval(*stmt.expr));
  }
  Text tail(budget());
  size_t i = 1;
  Value other;  // an operand of + that is not plain text
  for (; i < operands.size() && other.is_undefined(); ++i) {
    const Value piece = Eval(*operands[i]);
    set_line(stmt.line);
    if (Failed()) return;
    if (concat || (piece.is_string() && !piece.markup())) {
      if (!Print(*this, piece, tail)) return;
    } else {
      if (piece.is_undefined()) FailWith(piece.UndefinedMessage());
      other = piece;
    }
  }
  // With only two references, the variable's and `text`, nothing else can see the change.
  Value* slot = Slot(stmt.target);
  StringObject& object = text.string();
  if (slot != nullptr && slot->object() == &object && object.references == 2 &&
      object.budget == &budget() && other.is_undefined()) {
    if (!budget().Charge(tail.size())) return;
    object.charged += tail.size();
    object.text += tail.view();
    object.length = -1;
    return;
  }
  text = Arithmetic(*this, Operator::kAdd, text, Take(tail));
  if (!other.is_undefined()) text = Arithmetic(*this, Operator::kAdd, text, other);
  for (; i < operands.size() && !Failed(); ++i) {
    text = Arithmetic(*this, Operator::kAdd, text, Eval(*operands[i]));
  }
  Assign(stmt.target, text);
}

Value Interpreter::KeepNamespace(std::unique_ptr<NamespaceObject> names) {
  if (!budget().Charge(sizeof(NamespaceObject) +
                       names->attributes.size() * sizeof(names->attributes[0]))) {
    return Value();
  }
  namespaces_.push_back(Value::FromObject(Type::kNamespace, names.release()));
  return namespaces_.back();
}

Interpreter::Flow Interpreter::Run(const Block& block, Text& out) {
  const Depth depth(*this);
  for (const auto& stmt : block) {
    if (Failed() || !budget().Step()) return Flow::kNext;
    set_line(stmt->line);
    const Flow flow = RunStatement(*stmt, out);
    if (flow != Flow::kNext) return flow;
  }
  return Flow::kNext;
}

Interpreter::Flow Interpreter::RunStatement(const Stmt& stmt, Text& out) {
  switch (stmt.kind) {
    case Stmt::Kind::kText:
      out.Append(stmt.text);
      break;
    case Stmt::Kind::kOutput: {
      const Value value = Eval(*stmt.expr);
      if (!Failed()) Print(*this, value, out);
      break;
    }
    case Stmt::Kind::kIf:
      return RunIf(stmt, out);
    case Stmt::Kind::kFor: {
      const Value iterable = Eval(*stmt.loop->iterable);
      if (!Failed()) RunFor(*stmt.loop, iterable, 0, out);
      break;
    }
    case Stmt::Kind::kSet:
      stmt.appends ? Append(stmt) : Assign(stmt.target, Eval(*stmt.expr));
      break;
    case Stmt::Kind::kSetBlock:
      return RunSetBlock(stmt);
    case Stmt::Kind::kMacro:
      Set(stmt.macro->symbol, MakeMacro(*stmt.macro));
      break;
    case Stmt::Kind::kCallBlock:
      RunCallBlock(stmt, out);
      break;
    case Stmt::Kind::kFilterBlock:
      return RunFilterBlock(stmt, out);
    case Stmt::Kind::kScope:
      return RunScope(stmt, out);
    case Stmt::Kind::kBreak:
      return Flow::kBreak;
    case Stmt::Kind::kContinue:
      return Flow::kContinue;
  }
  if (out.size() > budget().limits().output_bytes) budget().Exhaust("its output is too long");
  return Flow::kNext;
}

Interpreter::Flow Interpreter::RunIf(const Stmt& stmt, Text& out) {
  for (const Stmt::Branch& branch : stmt.branches) {
    const bool taken = branch.condition == nullptr || Truth(Eval(*branch.condition));
    if (Failed()) return Flow::kNext;
    if (taken) return Run(branch.body, out);
  }
  return Flow::kNext;
}

Value Interpreter::MakeLoop(const ForNode& node, const Value& items, int64_t depth0) {
  if (!budget().Charge(sizeof(LoopObject))) return Value();
  auto loop = std::make_unique<LoopObject>();
  loop->budget = &budget();
  loop->charged = sizeof(LoopObject);
  loop->depth = items.object()->depth + 1;
  loop->source = items;
  loop->depth0 = depth0;
  loop->node = &node;
  loop->scope = scope_;
  loop->filtered = node.filter != nullptr;
  if (!loop->filtered) loop->length = static_cast<int64_t>(items.items().size());
  return Value::FromObject(Type::kLoop, loop.release());
}

void Interpreter::RunFor(const ForNode& node, const Value& iterable, int64_t depth0, Text& out) {
  const Value items = Iterate(*this, iterable);
  if (Failed()) return;
  const Value value = MakeLoop(node, items, depth0);
  if (Failed()) return;
  LoopObject& loop = value.loop();
  bool completed = false;  // some iteration ran to its end; otherwise Jinja runs the else
  while (std::optional<Value> item = NextItem(loop)) {
    loop.has_pending = false;
    ++loop.index0;
    loop.previous = std::exchange(loop.current, *std::move(item));
    const Flow flow = RunTurn(node, value, out);
    if (Failed() || flow == Flow::kBreak) break;
    completed |= flow == Flow::kNext;
  }
  // The template may still refer to the loop. Drops what the loop refers to: scopes that are about
  // to go, and values that may contain the loop itself.
  loop.node = nullptr;
  loop.scope = nullptr;
  loop.filtered = false;
  loop.position = loop.source.items().size();
  loop.changed = Value::Missing();
  if (!completed && !Failed() && !node.otherwise.empty()) {
    const InScope scope(*this, scope_);
    Run(node.otherwise, out);
  }
}

Interpreter::Flow Interpreter::RunTurn(const ForNode& node, const Value& loop, Text& out) {
  const InScope scope(*this, loop.loop().scope);
  Set(program_.loop, loop);
  Assign(node.target, loop.loop().current);
  return Failed() ? Flow::kBreak : Run(node.body, out);
}

std::optional<Value> Interpreter::NextItem(LoopObject& loop) {
  if (loop.has_pending) return loop.pending;
  while (!Failed() && loop.position < loop.source.items().size()) {
    Value item = loop.source.items()[loop.position++];
    if (!budget().Step()) break;
    if (!loop.filtered) return item;
    const InScope scope(*this, loop.scope);
    Assign(loop.node->target, item);
    const bool chosen = !Failed() && Truth(Eval(*loop.node->filter));
    if (Failed()) break;
    if (chosen) return item;
  }
  return std::nullopt;
}

Interpreter::Flow Interpreter::RunSetBlock(const Stmt& stmt) {
  Text text(budget());
  Flow flow = Flow::kNext;
  {
    const InScope scope(*this, scope_);
    flow = Run(stmt.body, text);
  }
  if (Failed() || flow != Flow::kNext) return flow;
  Value value = Take(text);
  if (stmt.expr != nullptr && !Failed()) value = EvalFilter(*stmt.expr, &value);
  Assign(stmt.target, value);
  return flow;
}

Interpreter::Flow Interpreter::RunFilterBlock(const Stmt& stmt, Text& out) {
  Text text(budget());
  const InScope scope(*this, scope_);
  const Flow flow = Run(stmt.body, text);
  if (Failed() || flow != Flow::kNext) return flow;
  const Value value = Take(text);
  if (Failed()) return flow;
  const Value filtered = EvalFilter(*stmt.expr, &value);
  if (!Failed()) Print(*this, filtered, out);
  return flow;
}

Interpreter::Flow Interpreter::RunScope(const Stmt& stmt, Text& out) {
  std::vector<Value> values;
  for (const ExprPtr& expr : stmt.with_values) values.push_back(Eval(*expr));
  const InScope scope(*this, scope_);
  for (size_t i = 0; i < values.size(); ++i) Assign(stmt.with_targets[i], values[i]);
  return Failed() ? Flow::kNext : Run(stmt.body, out);
}

Value Interpreter::MakeMacro(const MacroNode& node) {
  CaptureScopes();
  if (!budget().Charge(sizeof(CallableObject))) return Value();
  auto macro = std::make_unique<CallableObject>();
  macro->budget = &budget();
  macro->charged = sizeof(CallableObject);
  macro->macro = &node;
  macro->scope = scope_;
  return Value::FromObject(Type::kCallable, macro.release());
}

void Interpreter::RunCallBlock(const Stmt& stmt, Text& out) {
  const Expr& call = *stmt.expr;
  const Value callee = Eval(*call.operands[0]);
  CallArgs args;
  EvalArguments(*call.arguments, args);
  args.named.emplace_back("caller", MakeMacro(*stmt.macro));
  if (Failed()) return;
  const Value value = Call(callee, args);
  if (!Failed()) Print(*this, value, out);
}

Value Interpreter::Call(const Value& callee, CallArgs& args) {
  if (Failed() || !budget().Step()) return Value();
  if (callee.is(Type::kLoop)) {
    const LoopObject& loop = callee.loop();
    if (loop.node == nullptr || !loop.node->recursive) {
      return Fail("The loop must have the 'recursive' marker to be called recursively.");
    }
    const auto [iterable] = Bind(*this, "loop", args, {"iterable"}, 1);
    if (Failed()) return Value();
    Text out(budget());
    Scope* const saved = std::exchange(scope_, loop.scope);
    RunFor(*loop.node, iterable, loop.depth0 + 1, out);
    scope_ = saved;
    return Failed() ? Value() : Take(out);
  }
  if (!callee.is(Type::kCallable)) {
    return FailFor(callee, "'{}' object is not callable", TypeName(callee.type()));
  }
  const CallableObject& callable = callee.callable();
  if (callable.macro != nullptr) return CallMacro(callable, args);
  if (callable.method != nullptr) return callable.method(*this, callable.receiver, args);
  return callable.function(*this, args);
}

Value Interpreter::CallMacro(const CallableObject& callable, CallArgs& args) {
  const Depth depth(*this);
  if (Failed()) return Value();
  const int32_t line_of_call = line();
  Text out(budget());
  {
    const InScope scope(*this, callable.scope);
    if (!BindParameters(*callable.macro, args)) return Value();
    Run(callable.macro->body, out);
  }
  if (Failed()) return Value();
  set_line(line_of_call);
  return Take(out);
}

bool Interpreter::BindParameters(const MacroNode& node, CallArgs& args) {
  const size_t count = node.parameters.size();
  const size_t first_default = count - node.defaults.size();
  const auto take_named = [this, &args](std::string_view name) {
    budget().Step(static_cast<int64_t>(args.named.size() / 4));
    const auto found = std::find_if(args.named.begin(), args.named.end(),
                                    [name](const auto& entry) { return entry.first == name; });
    Value value = Value::Missing();
    if (found != args.named.end()) {
      value = std::move(found->second);
      args.named.erase(found);
    }
    return value;
  };
  for (size_t i = 0; i < count; ++i) {
    Value value =
        i < args.positional.size() ? args.positional[i] : take_named(node.parameter_names[i]);
    if (value.is_missing()) {
      value =
          i >= first_default
              ? Eval(*node.defaults[i - first_default])
              : Value::Undefined(program_.symbol_names[static_cast<size_t>(node.parameters[i])]);
    }
    Set(node.parameters[i], std::move(value));
  }
  if (node.uses_caller && std::find(node.parameters.begin(), node.parameters.end(),
                                    program_.caller) == node.parameters.end()) {
    Set(program_.caller, take_named("caller"));
  }
  if (node.uses_kwargs) {
    auto kwargs = std::make_unique<DictObject>();
    for (auto& [name, value] : args.named) {
      kwargs->Set(String(name), std::move(value), &budget());
    }
    Set(program_.kwargs, MakeDict(std::move(kwargs), &budget()));
  } else if (!args.named.empty()) {
    Fail("macro '{}' takes no keyword argument '{}'", node.name, args.named[0].first);
  }
  if (node.uses_varargs) {
    std::vector<Value> rest;
    for (size_t i = count; i < args.positional.size(); ++i) rest.push_back(args.positional[i]);
    Set(program_.varargs, List(std::move(rest), Type::kTuple));
  } else if (args.positional.size() > count) {
    Fail("macro '{}' takes not more than {} argument(s)", node.name, count);
  }
  return !Failed();
}

}  // namespace tokamak::jinja
