#include "chat/jinja/operators.h"

#include <cmath>

#include "chat/jinja/format.h"
#include "chat/jinja/print.h"
#include "chat/jinja/search.h"
#include "chat/jinja/unicode.h"

namespace tokamak::jinja {
namespace {

// In the order of Operator.
constexpr std::string_view kSymbols[] = {
    "+", "-", "*", "/", "//", "%", "**", "==", "!=", "<", "<=", ">", ">=", "in", "not in"};
std::string_view Symbol(Operator op) { return kSymbols[static_cast<size_t>(op)]; }

Value TooLarge(Runtime& rt) { return rt.Fail("an integer does not fit in 64 bits"); }

Value PowerOfInts(Runtime& rt, int64_t base, int64_t exponent) {
  if (exponent < 0) {
    if (base == 0) return rt.Fail("zero cannot be raised to a negative power");
    return Value::Float(std::pow(static_cast<double>(base), static_cast<double>(exponent)));
  }
  int64_t result = 1;
  while (exponent > 0) {
    if ((exponent & 1) != 0 && __builtin_mul_overflow(result, base, &result)) return TooLarge(rt);
    exponent >>= 1;
    if (exponent > 0 && __builtin_mul_overflow(base, base, &base)) return TooLarge(rt);
  }
  return Value::Int(result);
}

Value IntArithmetic(Runtime& rt, Operator op, int64_t a, int64_t b) {
  int64_t result = 0;
  switch (op) {
    case Operator::kAdd:
      return __builtin_add_overflow(a, b, &result) ? TooLarge(rt) : Value::Int(result);
    case Operator::kSubtract:
      return __builtin_sub_overflow(a, b, &result) ? TooLarge(rt) : Value::Int(result);
    case Operator::kMultiply:
      return __builtin_mul_overflow(a, b, &result) ? TooLarge(rt) : Value::Int(result);
    case Operator::kPower:
      return PowerOfInts(rt, a, b);
    default:
      break;
  }
  if (b == 0) return rt.Fail("division by zero");
  if (op == Operator::kDivide) {
    return Value::Float(static_cast<double>(a) / static_cast<double>(b));
  }
  if (b == -1) {  // the smallest integer has no negation
    if (op == Operator::kModulo) return Value::Int(0);
    return __builtin_sub_overflow(int64_t{0}, a, &result) ? TooLarge(rt) : Value::Int(result);
  }
  const int64_t quotient = a / b, rest = a % b;
  const bool below = rest != 0 && (rest < 0) != (b < 0);  // Python rounds down
  if (op == Operator::kModulo) return Value::Int(below ? rest + b : rest);
  return Value::Int(below ? quotient - 1 : quotient);
}

Value FloatArithmetic(Runtime& rt, Operator op, double a, double b) {
  switch (op) {
    case Operator::kAdd:
      return Value::Float(a + b);
    case Operator::kSubtract:
      return Value::Float(a - b);
    case Operator::kMultiply:
      return Value::Float(a * b);
    case Operator::kPower: {
      if (a == 0 && b < 0) return rt.Fail("zero cannot be raised to a negative power");
      const double power = std::pow(a, b);
      if (std::isnan(power) && !std::isnan(a) && !std::isnan(b)) {
        return rt.Fail("the result of a power is a complex number");
      }
      if (std::isinf(power) && std::isfinite(a) && std::isfinite(b)) {
        return rt.Fail("the result of a power is too large");
      }
      return Value::Float(power);
    }
    default:
      break;
  }
  if (b == 0) return rt.Fail("division by zero");
  if (op == Operator::kDivide) return Value::Float(a / b);
  double rest = std::fmod(a, b);
  if (rest != 0) {
    if ((rest < 0) != (b < 0)) rest += b;
  } else {
    rest = std::copysign(0.0, b);
  }
  if (op == Operator::kModulo) return Value::Float(rest);
  const double quotient = (a - rest) / b;
  if (quotient == 0) return Value::Float(std::copysign(0.0, a / b));
  const double floor = std::floor(quotient);
  return Value::Float(quotient - floor > 0.5 ? floor + 1 : floor);
}

Value Unsupported(Runtime& rt, Operator op, const Value& a, const Value& b) {
  if (a.is_undefined()) return rt.FailWith(a.UndefinedMessage());
  if (b.is_undefined()) return rt.FailWith(b.UndefinedMessage());
  if (a.is(Type::kBigInt) || b.is(Type::kBigInt)) return TooLarge(rt);
  if (op == Operator::kAdd && a.is_string()) {
    return rt.Fail("can only concatenate str (not \"{}\") to str", TypeName(b.type()));
  }
  return rt.Fail("unsupported operand types for {}: '{}' and '{}'", Symbol(op), TypeName(a.type()),
                 TypeName(b.type()));
}

Value AddStrings(Runtime& rt, const Value& a, const Value& b) {
  const bool markup = a.markup() || b.markup();
  const Value left = markup ? EscapeHtml(rt, a) : a;
  const Value right = markup ? EscapeHtml(rt, b) : b;
  if (rt.Failed()) return Value();
  Text out(rt.budget());
  if (!out.Append(left.text()) || !out.Append(right.text())) return Value();
  return rt.Take(out, markup);
}

bool IsSequence(const Value& value) { return value.is(Type::kList) || value.is(Type::kTuple); }

Value AddLists(Runtime& rt, const Value& a, const Value& b) {
  const size_t size = a.items().size() + b.items().size();
  if (!rt.budget().StepBytes(size * sizeof(Value))) return Value();
  std::vector<Value> items;
  items.reserve(size);
  items.insert(items.end(), a.items().begin(), a.items().end());
  items.insert(items.end(), b.items().begin(), b.items().end());
  return rt.List(std::move(items), a.type());
}

Value Repeat(Runtime& rt, const Value& value, int64_t times) {
  if (value.is_string()) {
    Text out(rt.budget());
    if (!out.AppendTimes(value.text(), times)) return Value();
    return rt.Take(out, value.markup());
  }
  const std::vector<Value>& source = value.items();
  std::vector<Value> items;
  if (times > 0 && !source.empty()) {
    const size_t room = rt.budget().limits().memory_bytes / sizeof(Value);
    if (static_cast<uint64_t>(times) > room / source.size()) {
      rt.budget().Exhaust("it needs too much memory");
      return Value();
    }
    const size_t size = source.size() * static_cast<size_t>(times);
    if (!rt.budget().StepBytes(size * sizeof(Value))) return Value();
    items.reserve(size);
    for (int64_t i = 0; i < times; ++i) items.insert(items.end(), source.begin(), source.end());
  }
  return rt.List(std::move(items), value.type());
}

int CompareItems(Runtime& rt, const std::vector<Value>& a, const std::vector<Value>& b) {
  const size_t shared = std::min(a.size(), b.size());
  for (size_t i = 0; i < shared; ++i) {
    if (Equal(a[i], b[i], &rt.budget())) continue;
    return Less(rt, a[i], b[i]) ? -1 : 1;
  }
  return a.size() < b.size() ? -1 : a.size() > b.size() ? 1 : 0;
}

template <typename T>
bool Ordered(Operator op, T a, T b) {
  switch (op) {
    case Operator::kLess:
      return a < b;
    case Operator::kLessEqual:
      return a <= b;
    case Operator::kGreater:
      return a > b;
    default:
      return a >= b;
  }
}

bool CompareOrder(Runtime& rt, Operator op, const Value& a, const Value& b) {
  if (!rt.budget().Step()) return false;
  if (a.is_integral() && b.is_integral()) return Ordered(op, a.integer(), b.integer());
  if (a.is_number() && b.is_number()) return Ordered(op, a.number(), b.number());
  if (a.is_string() && b.is_string()) {
    if (!rt.budget().StepBytes(std::min(a.text().size(), b.text().size()))) return false;
    return Ordered(op, a.text(), b.text());  // UTF-8 sorts like its code points
  }
  if (IsSequence(a) && a.type() == b.type()) {
    return Ordered(op, CompareItems(rt, a.items(), b.items()), 0);
  }
  rt.FailFor(a.is_undefined() ? a : b, "'{}' not supported between instances of '{}' and '{}'",
             Symbol(op), TypeName(a.type()), TypeName(b.type()));
  return false;
}

}  // namespace

bool Truth(const Value& value) {
  switch (value.type()) {
    case Type::kNone:
    case Type::kUndefined:
      return false;
    case Type::kBool:
    case Type::kInt:
      return value.integer() != 0;
    case Type::kFloat:
      return value.number() != 0;
    case Type::kString:
      return !value.text().empty();
    case Type::kList:
    case Type::kTuple:
    case Type::kDictKeys:
    case Type::kDictValues:
    case Type::kDictItems:
      return !value.items().empty();
    case Type::kRange:
      return value.range().length > 0;
    case Type::kDict:
      return !value.dict().entries.empty();
    default:
      return true;
  }
}

Value Arithmetic(Runtime& rt, Operator op, const Value& a, const Value& b) {
  if (a.is_integral() && b.is_integral()) {
    return IntArithmetic(rt, op, a.integer(), b.integer());
  }
  if (a.is_number() && b.is_number()) return FloatArithmetic(rt, op, a.number(), b.number());
  if (op == Operator::kAdd) {
    if (a.is_string() && b.is_string()) return AddStrings(rt, a, b);
    if (IsSequence(a) && a.type() == b.type()) return AddLists(rt, a, b);
  }
  if (op == Operator::kMultiply) {
    if ((a.is_string() || IsSequence(a)) && b.is_integral()) return Repeat(rt, a, b.integer());
    if ((b.is_string() || IsSequence(b)) && a.is_integral()) return Repeat(rt, b, a.integer());
  }
  if (op == Operator::kModulo && a.is_string()) return FormatPercent(rt, a, b);
  return Unsupported(rt, op, a, b);
}

Value Negate(Runtime& rt, const Value& value) {
  if (value.is(Type::kFloat)) return Value::Float(-value.number());
  if (value.is_integral()) return IntArithmetic(rt, Operator::kSubtract, 0, value.integer());
  return rt.FailFor(value, "bad operand type for unary -: '{}'", TypeName(value.type()));
}

bool Less(Runtime& rt, const Value& a, const Value& b) {
  return CompareOrder(rt, Operator::kLess, a, b);
}

bool Compare(Runtime& rt, Operator op, const Value& a, const Value& b) {
  switch (op) {
    case Operator::kEqual:
      return Equal(a, b, &rt.budget());
    case Operator::kNotEqual:
      return !Equal(a, b, &rt.budget());
    case Operator::kIn:
      return Contains(rt, b, a);
    case Operator::kNotIn:
      return !Contains(rt, b, a);
    default:
      return CompareOrder(rt, op, a, b);
  }
}

bool Contains(Runtime& rt, const Value& container, const Value& item) {
  if (container.is_string()) {
    if (item.is_string()) {
      if (item.text().empty()) return true;
      Matches<> matches(rt.budget(), container.text(), item.text());
      return matches.Next() != matches.kNone;
    }
    rt.Fail("'in <string>' requires string as left operand, not {}", TypeName(item.type()));
    return false;
  }
  if (container.is_dict()) {
    if (!Hashable(item)) {
      rt.Fail("unhashable type: '{}'", TypeName(item.type()));
      return false;
    }
    return container.dict().Find(item, &rt.budget()) != nullptr;
  }
  if (!IsIterable(container)) {
    rt.Fail("argument of type '{}' is not iterable", TypeName(container.type()));
    return false;
  }
  const Value items = Iterate(rt, container);
  if (rt.Failed() || items.is_undefined()) return false;
  for (const Value& candidate : items.items()) {
    if (Equal(candidate, item, &rt.budget())) return true;
    if (rt.Failed()) return false;
  }
  return false;
}

}  // namespace tokamak::jinja
