// The tests of `value is test`.
#include "chat/jinja/arguments.h"
#include "chat/jinja/unicode.h"

namespace tokamak::jinja {
namespace {

template <bool (*predicate)(const Value&)>
bool Plain(Runtime& rt, const Value& input, CallArgs& args) {
  BindNothing(rt, "test", args);
  return predicate(input);
}

template <Operator op>
bool Comparison(Runtime& rt, const Value& input, CallArgs& args) {
  const auto [other] = Bind(rt, "test", args, {"other"}, 1);
  return !rt.Failed() && Compare(rt, op, input, other);
}

bool HasRest(Runtime& rt, const Value& input, const Value& number, int64_t rest) {
  const Value modulo = Arithmetic(rt, Operator::kModulo, input, number);
  return !rt.Failed() && Equal(modulo, Value::Int(rest), nullptr);
}

bool Odd(Runtime& rt, const Value& input, CallArgs& args) {
  BindNothing(rt, "odd", args);
  return HasRest(rt, input, Value::Int(2), 1);
}
bool Even(Runtime& rt, const Value& input, CallArgs& args) {
  BindNothing(rt, "even", args);
  return HasRest(rt, input, Value::Int(2), 0);
}
bool DivisibleBy(Runtime& rt, const Value& input, CallArgs& args) {
  const auto [number] = Bind(rt, "divisibleby", args, {"num"}, 1);
  return !rt.Failed() && HasRest(rt, input, number, 0);
}

bool SameAs(Runtime& rt, const Value& input, CallArgs& args) {
  const auto [other] = Bind(rt, "sameas", args, {"other"}, 1);
  if (input.type() != other.type()) return false;
  if (input.object() != nullptr) return input.object() == other.object();
  return Equal(input, other, nullptr);
}

// Whether there is a cased letter and all of them have this case.
template <bool upper>
bool InCase(Runtime& rt, const Value& input, CallArgs& args) {
  BindNothing(rt, upper ? "upper" : "lower", args);
  const Value text = ToStr(rt, input);
  if (rt.Failed() || !rt.budget().StepBytes(text.text().size() * 8)) return false;
  bool found = false;
  for (size_t i = 0; i < text.text().size();) {
    const char32_t c = NextCodePoint(text.text(), i);
    if (upper ? IsLower(c) : IsUpper(c)) return false;
    found |= upper ? IsUpper(c) : IsLower(c);
  }
  return found;
}

bool IsFilter(Runtime& rt, const Value& input, CallArgs& args) {
  BindNothing(rt, "filter", args);
  return input.is_string() && FindFilter(input.text()) != nullptr;
}
bool IsTest(Runtime& rt, const Value& input, CallArgs& args) {
  BindNothing(rt, "test", args);
  return input.is_string() && FindTest(input.text()) != nullptr;
}

bool Defined(const Value& v) { return !v.is_undefined(); }
bool Undefined(const Value& v) { return v.is_undefined(); }
bool None(const Value& v) { return v.is_none(); }
bool Boolean(const Value& v) { return v.is(Type::kBool); }
bool True(const Value& v) { return v.is(Type::kBool) && v.integer() != 0; }
bool False(const Value& v) { return v.is(Type::kBool) && v.integer() == 0; }
bool Integer(const Value& v) { return v.is(Type::kInt) || v.is(Type::kBigInt); }
bool IsFloat(const Value& v) { return v.is(Type::kFloat); }
bool Number(const Value& v) { return v.is_number() || v.is(Type::kBigInt); }
bool IsText(const Value& v) { return v.is_string(); }
bool Mapping(const Value& v) { return v.is_dict(); }
bool Sequence(const Value& v) {
  return v.is_string() || v.is_dict() || v.is_undefined() || v.is(Type::kList) ||
         v.is(Type::kTuple) || v.is(Type::kRange);
}
bool Callable(const Value& v) {
  return v.is(Type::kCallable) || v.is(Type::kLoop) || v.is_undefined();
}
bool Escaped(const Value& v) { return v.is_string() && v.markup(); }

}  // namespace

std::span<const Named<Test>> Tests() {
  static constexpr Named<Test> kTests[] = {
      {"!=", Comparison<Operator::kNotEqual>},
      {"<", Comparison<Operator::kLess>},
      {"<=", Comparison<Operator::kLessEqual>},
      {"==", Comparison<Operator::kEqual>},
      {">", Comparison<Operator::kGreater>},
      {">=", Comparison<Operator::kGreaterEqual>},
      {"boolean", Plain<Boolean>},
      {"callable", Plain<Callable>},
      {"defined", Plain<Defined>},
      {"divisibleby", DivisibleBy},
      {"eq", Comparison<Operator::kEqual>},
      {"equalto", Comparison<Operator::kEqual>},
      {"escaped", Plain<Escaped>},
      {"even", Even},
      {"false", Plain<False>},
      {"filter", IsFilter},
      {"float", Plain<IsFloat>},
      {"ge", Comparison<Operator::kGreaterEqual>},
      {"greaterthan", Comparison<Operator::kGreater>},
      {"gt", Comparison<Operator::kGreater>},
      {"in", Comparison<Operator::kIn>},
      {"integer", Plain<Integer>},
      {"iterable", Plain<IsIterable>},
      {"le", Comparison<Operator::kLessEqual>},
      {"lessthan", Comparison<Operator::kLess>},
      {"lower", InCase<false>},
      {"lt", Comparison<Operator::kLess>},
      {"mapping", Plain<Mapping>},
      {"ne", Comparison<Operator::kNotEqual>},
      {"none", Plain<None>},
      {"number", Plain<Number>},
      {"odd", Odd},
      {"sameas", SameAs},
      {"sequence", Plain<Sequence>},
      {"string", Plain<IsText>},
      {"test", IsTest},
      {"true", Plain<True>},
      {"undefined", Plain<Undefined>},
      {"upper", InCase<true>},
  };
  return kTests;
}

Test FindTest(std::string_view name) { return FindNamed(Tests(), name); }

}  // namespace tokamak::jinja
