// The part of the interpreter that filters, tests, methods and operators use: the budget, errors,
// and calls back into the template.
#pragma once

#include <fmt/core.h>

#include <array>
#include <ctime>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "chat/jinja/budget.h"
#include "chat/jinja/callable.h"
#include "chat/jinja/value.h"

namespace tokamak::jinja {

struct CallArgs {
  std::vector<Value> positional;
  std::vector<std::pair<std::string_view, Value>> named;  // the names must outlive the call
  Value named_owner;  // the dictionary that owns some of the names
};

// Errors are sticky: the first one is kept and Failed() stays true. After that every operation may
// return any value, usually Undefined, and the interpreter unwinds.
class Runtime {
 public:
  Runtime(const Limits& limits, const std::tm& now) : budget_(limits), now_(now) {}
  virtual ~Runtime() = default;

  Budget& budget() { return budget_; }
  bool Failed() const { return failed_ || budget_.exhausted() != nullptr; }
  // Records the error with the current line. Returns Undefined, for `return rt.Fail(...)`.
  template <typename... Args>
  Value Fail(fmt::format_string<Args...> format, Args&&... args) {
    return FailWith(fmt::format(format, std::forward<Args>(args)...));
  }
  Value FailWith(std::string message);
  // The same for a value of the wrong type. If it is undefined, the error names what is missing.
  template <typename... Args>
  Value FailFor(const Value& value, fmt::format_string<Args...> format, Args&&... args) {
    if (value.is_undefined()) return FailWith(value.UndefinedMessage());
    return Fail(format, std::forward<Args>(args)...);
  }
  // Records an error that the template raised with raise_exception.
  Value Raise(std::string message);

  // Returns a value of the namespace and keeps it, because namespaces can contain themselves.
  virtual Value KeepNamespace(std::unique_ptr<NamespaceObject> names) = 0;
  // Calls a macro, a method or a function.
  virtual Value Call(const Value& callee, CallArgs& args) = 0;
  // The next item of a loop; nullopt at its end. May evaluate the loop's filter.
  virtual std::optional<Value> NextItem(LoopObject& loop) = 0;

  Value String(std::string text, bool markup = false) {
    return Value::String(std::move(text), &budget_, markup);
  }
  Value String(std::string_view text, bool markup = false) {
    return Value::String(std::string(text), &budget_, markup);
  }
  Value Take(Text& text, bool markup = false) { return String(text.Take(), markup); }
  Value List(std::vector<Value> items, Type type = Type::kList) {
    return Value::List(std::move(items), &budget_, type);
  }
  const std::tm& now() const { return now_; }

  void set_line(int32_t line) { line_ = line; }
  int32_t line() const { return line_; }

 protected:
  bool failed_ = false;
  bool raised_ = false;  // by the template
  std::string message_;
  int32_t message_line_ = 0;

 private:
  Budget budget_;
  const std::tm now_;
  int32_t line_ = 0;
};

// Returns the arguments in the order of `names`, however they were given; Missing for absent ones.
// The first `required` are mandatory. Fails as Python does if `function` does not accept them.
template <size_t n>
std::array<Value, n> Bind(Runtime& rt, const char* function, CallArgs& args,
                          const char* const (&names)[n], size_t required = 0) {
  std::array<Value, n> out;
  out.fill(Value::Missing());
  if (args.positional.size() > n) {
    rt.Fail("{}() takes at most {} arguments ({} given)", function, n, args.positional.size());
    return out;
  }
  for (size_t i = 0; i < args.positional.size(); ++i) out[i] = std::move(args.positional[i]);
  for (auto& [name, value] : args.named) {
    size_t i = 0;
    while (i < n && name != names[i]) ++i;
    if (i == n) {
      rt.Fail("{}() got an unexpected keyword argument '{}'", function, name);
    } else if (!out[i].is_missing()) {
      rt.Fail("{}() got multiple values for argument '{}'", function, name);
    } else {
      out[i] = std::move(value);
    }
  }
  for (size_t i = 0; i < required; ++i) {
    if (out[i].is_missing()) rt.Fail("{}() is missing its argument '{}'", function, names[i]);
  }
  return out;
}
// Fails if a function without parameters got arguments.
inline void BindNothing(Runtime& rt, const char* function, const CallArgs& args) {
  if (!args.positional.empty() || !args.named.empty()) {
    rt.Fail("{}() takes no arguments", function);
  }
}

using Filter = Value (*)(Runtime& rt, const Value& input, CallArgs& args);
using Test = bool (*)(Runtime& rt, const Value& input, CallArgs& args);

template <typename Function>
using Named = std::pair<std::string_view, Function>;

// All filters (by the type of their results), tests, methods and functions that templates can use.
std::span<const Named<Filter>> TextFilters();
std::span<const Named<Filter>> ListFilters();
std::span<const Named<Test>> Tests();
std::span<const Named<Method>> MethodsOf(Type type);
std::span<const Named<Method>> StringMethods();
std::span<const Named<GlobalFunction>> Globals();

// Null if there is none of this name.
template <typename Function>
Function FindNamed(std::span<const Named<Function>> functions, std::string_view name) {
  for (const auto& [key, function] : functions) {
    if (key == name) return function;
  }
  return nullptr;
}
Filter FindFilter(std::string_view name);
Test FindTest(std::string_view name);
Method FindMethod(Type type, std::string_view name);
GlobalFunction FindGlobal(std::string_view name);

}  // namespace tokamak::jinja
