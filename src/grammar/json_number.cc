#include "grammar/json_number.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

namespace tokamak::grammar {

namespace {

constexpr size_t kMaxDigits = 400;  // a double has at most 309 before the point
constexpr int kMaxMultiple = 1000;
// Longer numbers might exceed a double, and parsers then refuse the answer: 10^308 is the largest
// power of ten of one. With an exponent: below 10^9 times 10^299.
constexpr uint32_t kMaxWhole = 308;
constexpr uint32_t kMaxWholeWithExponent = 9;

Expr Digits(ExprPool& pool, char first, char last) {
  return first > last ? kNothing
                      : pool.ByteRange(static_cast<uint8_t>(first), static_cast<uint8_t>(last));
}

// A digit above (or below) a digit of a limit.
Expr DigitBeyond(ExprPool& pool, char limit, bool above) {
  return above ? Digits(pool, static_cast<char>(limit + 1), '9')
               : Digits(pool, '0', static_cast<char>(limit - 1));
}

// "." and digits, or nothing.
Expr AnyFraction(ExprPool& pool) {
  return pool.Optional(
      pool.Concat(pool.Byte('.'), pool.Repeat(Digits(pool, '0', '9'), 1, kNoLimit)));
}

// Digits after the point from `at` on, as they follow digits equal to those of the limit. The
// fraction as a whole must be above (or below) the limit's, or equal to it unless `excluded`.
Expr RestOfFraction(ExprPool& pool, std::string_view limit, bool above, bool excluded) {
  const Expr digit = Digits(pool, '0', '9'), any = pool.Star(digit);
  // At the end of the limit: more digits are above it unless they are zeros.
  const Expr zeros = pool.Star(pool.Byte('0'));
  const Expr larger = pool.Concat({zeros, Digits(pool, '1', '9'), any});
  Expr rest = above ? pool.Or({larger, excluded ? kNothing : zeros}) : excluded ? kNothing : zeros;
  for (size_t i = limit.size(); i-- > 0;) {
    const char d = limit[i];
    // Ending here means zeros, which are below the limit: it has no trailing zeros.
    rest = pool.Or({pool.Concat(pool.Byte(static_cast<uint8_t>(d)), rest),
                    pool.Concat(DigitBeyond(pool, d, above), any), above ? kNothing : kEmpty});
  }
  return rest;
}

// Numbers without a sign that are above (or below) the limit. Meant to be intersected with the
// shape of a number, so leading zeros and the like do not matter.
Expr Beyond(ExprPool& pool, const Decimal& limit, bool above, bool excluded) {
  const Expr digit = Digits(pool, '0', '9'), fraction = AnyFraction(pool);
  const auto length = static_cast<uint32_t>(limit.whole.size());
  const Expr tail = RestOfFraction(pool, limit.fraction, above, excluded);
  // A point needs a digit after it; the shape sees to that.
  const bool may_end = limit.fraction.empty() ? !excluded : !above;
  Expr rest = pool.Or({pool.Concat(pool.Byte('.'), tail), may_end ? kEmpty : kNothing});
  for (uint32_t i = length; i-- > 0;) {
    const char d = limit.whole[i];
    rest = pool.Or({pool.Concat(pool.Byte(static_cast<uint8_t>(d)), rest),
                    pool.Concat({DigitBeyond(pool, d, above),
                                 pool.Repeat(digit, length - 1 - i, length - 1 - i), fraction})});
  }
  const Expr other_length = above        ? pool.Repeat(digit, length + 1, kNoLimit)
                            : length > 1 ? pool.Repeat(digit, 1, length - 1)
                                         : kNothing;
  return pool.Or({rest, pool.Concat(other_length, fraction)});
}

// A digit that is not 0, and others.
Expr DigitsUpTo(ExprPool& pool, uint32_t most) {
  return pool.Concat(Digits(pool, '1', '9'), pool.Repeat(Digits(pool, '0', '9'), 0, most - 1));
}

Expr Whole(ExprPool& pool, uint32_t most = kMaxWhole) {
  return pool.Or({pool.Byte('0'), DigitsUpTo(pool, most)});
}

Expr Exponent(ExprPool& pool) {
  const Expr digit = Digits(pool, '0', '9');
  return pool.Concat(
      {pool.OneOf("eE"), pool.Optional(pool.OneOf("+-")),
       pool.Or({pool.Repeat(digit, 1, 2), pool.Concat({Digits(pool, '0', '2'), digit, digit})})});
}

// Whole numbers that `divisor` divides, by the remainder of the digits so far.
Expr Multiples(ExprPool& pool, int divisor) {
  std::vector<Expr> rules;
  for (int r = 0; r < divisor; ++r) rules.push_back(pool.NewRule());
  const auto digits_from = [&](int remainder, char first) {
    std::vector<Expr> terms;
    for (char d = first; d <= '9'; ++d) {
      terms.push_back(pool.Concat(pool.Byte(static_cast<uint8_t>(d)),
                                  rules[(remainder * 10 + (d - '0')) % divisor]));
    }
    return terms;
  };
  for (int r = 0; r < divisor; ++r) {
    std::vector<Expr> terms = digits_from(r, '0');
    if (r == 0) terms.push_back(kEmpty);
    pool.SetRule(rules[r], pool.Or(std::move(terms)));
  }
  std::vector<Expr> terms = digits_from(0, '1');
  terms.push_back(pool.Byte('0'));
  return pool.Concat(pool.Optional(pool.Byte('-')), pool.Or(std::move(terms)));
}

// The shape of a multiple of a power of ten. Absent for other numbers.
std::optional<Expr> PowerOfTenShape(ExprPool& pool, const Decimal& multiple, bool whole) {
  const std::string digits = multiple.whole + multiple.fraction;
  if (multiple.negative ||
      std::count(digits.begin(), digits.end(), '0') + 1 != static_cast<int64_t>(digits.size()) ||
      digits.find('1') == std::string::npos) {
    return std::nullopt;
  }
  if (multiple.whole != "0") {
    const auto zeros = static_cast<uint32_t>(multiple.whole.size() - 1);
    if (zeros == 0) return Whole(pool);
    if (zeros >= kMaxWhole) return pool.Byte('0');
    return pool.Or({pool.Byte('0'), pool.Concat(DigitsUpTo(pool, kMaxWhole - zeros),
                                                pool.Repeat(pool.Byte('0'), zeros, zeros))});
  }
  if (whole) return Whole(pool);
  return pool.Concat(
      Whole(pool),
      pool.Optional(pool.Concat(pool.Byte('.'),
                                pool.Repeat(Digits(pool, '0', '9'), 1,
                                            static_cast<uint32_t>(multiple.fraction.size())))));
}

}  // namespace

std::optional<Decimal> Decimal::From(const JsonValue& value) {
  std::string text;
  if (const std::string* digits = value.AsBigInt()) {
    text = *digits;
  } else if (value.is_integer() || value.kind() == JsonValue::Kind::kDouble) {
    text = value.is_integer() ? value.Dump() : fmt::format("{}", *value.AsNumber());
  } else {
    return std::nullopt;
  }
  Decimal result;
  if (text[0] == '-') {
    result.negative = true;
    text.erase(0, 1);
  }
  int exponent = 0;
  if (const size_t e = text.find('e'); e != std::string::npos) {
    exponent = std::atoi(text.c_str() + e + 1);
    text.resize(e);
  }
  const size_t point = std::min(text.find('.'), text.size());
  std::string digits = text.substr(0, point);
  if (point < text.size()) digits += text.substr(point + 1);
  if (digits.size() > kMaxDigits || std::abs(exponent) > static_cast<int>(kMaxDigits)) {
    return std::nullopt;
  }
  const int place = static_cast<int>(point) + exponent;  // digits before the point
  if (place < 0) digits.insert(0, static_cast<size_t>(-place), '0');
  const auto before = static_cast<size_t>(std::max(place, 0));
  if (digits.size() < before) digits.append(before - digits.size(), '0');
  result.whole = digits.substr(0, before);
  result.fraction = digits.substr(before);
  result.whole.erase(0, std::min(result.whole.find_first_not_of('0'), result.whole.size()));
  if (result.whole.empty()) result.whole.assign(1, '0');
  result.fraction.erase(result.fraction.find_last_not_of('0') + 1);
  if (result.zero()) result.negative = false;
  return result;
}

int Compare(const Decimal& a, const Decimal& b) {
  if (a.negative != b.negative) return a.negative ? -1 : 1;
  int result = a.whole.size() < b.whole.size() ? -1 : a.whole.size() > b.whole.size() ? 1 : 0;
  if (result == 0) result = a.whole.compare(b.whole);
  if (result == 0) result = a.fraction.compare(b.fraction);
  return a.negative ? -result : result;
}

void NumberLimits::AtLeast(const Decimal& limit, bool excluded) {
  const int order = min ? Compare(limit, *min) : 1;
  above_min = order > 0 ? excluded : order == 0 ? above_min || excluded : above_min;
  if (order > 0) min = limit;
}

void NumberLimits::AtMost(const Decimal& limit, bool excluded) {
  const int order = max ? Compare(limit, *max) : -1;
  below_max = order < 0 ? excluded : order == 0 ? below_max || excluded : below_max;
  if (order < 0) max = limit;
}

std::optional<Expr> NumberExpr(ExprPool& pool, const NumberLimits& limits, bool whole) {
  const Expr minus = pool.Byte('-');
  if (limits.none()) {
    if (whole) return pool.Concat(pool.Optional(minus), Whole(pool));
    const Expr fraction = AnyFraction(pool);
    return pool.Concat(
        pool.Optional(minus),
        pool.Or({pool.Concat(Whole(pool), fraction),
                 pool.Concat({Whole(pool, kMaxWholeWithExponent), fraction, Exponent(pool)})}));
  }
  Expr shape = whole ? Whole(pool) : pool.Concat(Whole(pool), AnyFraction(pool));
  if (limits.multiple_of) {
    const Decimal& multiple = *limits.multiple_of;
    const std::optional<Expr> power = PowerOfTenShape(pool, multiple, whole);
    if (!power) {
      if (!multiple.fraction.empty() || multiple.negative || multiple.zero() || limits.min ||
          limits.max || multiple.whole.size() > 4 || std::stoi(multiple.whole) > kMaxMultiple) {
        return std::nullopt;
      }
      return Multiples(pool, std::stoi(multiple.whole));
    }
    shape = *power;
  }
  const auto magnitude = [&](const std::optional<Decimal>& low, bool low_excluded,
                             const std::optional<Decimal>& high, bool high_excluded) {
    std::vector<Expr> terms = {shape};
    if (low) terms.push_back(Beyond(pool, *low, true, low_excluded));
    if (high) terms.push_back(Beyond(pool, *high, false, high_excluded));
    return pool.And(terms);
  };
  std::vector<Expr> parts;
  if (!limits.max || !limits.max->negative) {
    const bool low = limits.min && !limits.min->negative;
    parts.push_back(
        magnitude(low ? limits.min : std::nullopt, limits.above_min, limits.max, limits.below_max));
  }
  if (!limits.min || limits.min->negative) {
    // -x is within [min, max] if x is within [-max, -min]. Zero has no sign here.
    std::optional<Decimal> low = Decimal(), high = limits.min;
    const bool negative_max = limits.max && limits.max->negative;
    if (negative_max) low = limits.max;
    low->negative = false;
    if (high) high->negative = false;
    parts.push_back(pool.Concat(
        minus, magnitude(low, negative_max ? limits.below_max : true, high, limits.above_min)));
  }
  return pool.Or(std::move(parts));
}

bool Within(const JsonValue& value, const NumberLimits& limits) {
  const std::optional<Decimal> decimal = Decimal::From(value);
  if (!decimal) return false;
  if (limits.min) {
    const int order = Compare(*decimal, *limits.min);
    if (order < 0 || (order == 0 && limits.above_min)) return false;
  }
  if (limits.max) {
    const int order = Compare(*decimal, *limits.max);
    if (order > 0 || (order == 0 && limits.below_max)) return false;
  }
  if (limits.multiple_of) {
    const double step =
        std::stod(fmt::format("{}.{}", limits.multiple_of->whole, limits.multiple_of->fraction));
    const double quotient = value.AsNumber().value_or(0) / step;
    return step != 0 && quotient == std::floor(quotient);
  }
  return true;
}

}  // namespace tokamak::grammar
