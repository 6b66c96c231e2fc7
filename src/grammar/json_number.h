// Numbers of JSON within limits, as expressions over their decimal digits.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/json/json_value.h"
#include "grammar/expr.h"

namespace tokamak::grammar {

// A decimal number: the sign, digits before the point without leading zeros, digits after it
// without trailing ones. Zero has the digit "0" and no sign.
struct Decimal {
  bool negative = false;
  std::string whole = "0";
  std::string fraction = {};

  // Absent if the value is not a number, or has more than 400 digits.
  static std::optional<Decimal> From(const JsonValue& value);
  bool zero() const { return whole == "0" && fraction.empty(); }
};
// Below, equal or above: negative, 0 or positive.
int Compare(const Decimal& a, const Decimal& b);

struct NumberLimits {
  std::optional<Decimal> min, max;
  bool above_min = false, below_max = false;  // the limit itself is excluded
  std::optional<Decimal> multiple_of = {};

  bool none() const { return !min && !max && !multiple_of; }
  // Keeps the stricter limit.
  void AtLeast(const Decimal& limit, bool excluded);
  void AtMost(const Decimal& limit, bool excluded);
};

// Whole numbers have no fraction and no exponent; others have no exponent if there are limits. None
// exceeds a double, apart from multiples of whole numbers that are no powers of ten.
// Absent if a multiple is asked for that is not supported: powers of ten are, and whole numbers up
// to 1,000 if there are no other limits.
std::optional<Expr> NumberExpr(ExprPool& pool, const NumberLimits& limits, bool whole);

// Whether a number is within the limits; multiples are judged in double precision.
bool Within(const JsonValue& value, const NumberLimits& limits);

}  // namespace tokamak::grammar
