// Python's operators on values, as far as the sandbox of chat templates allows them.
#pragma once

#include <string_view>
#include <vector>

#include "chat/jinja/runtime.h"

namespace tokamak::jinja {

enum class Operator : uint8_t {
  kAdd,
  kSubtract,
  kMultiply,
  kDivide,
  kFloorDivide,
  kModulo,
  kPower,
  kEqual,
  kNotEqual,
  kLess,
  kLessEqual,
  kGreater,
  kGreaterEqual,
  kIn,
  kNotIn,
};

bool Truth(const Value& value);
// For kAdd ... kPower.
Value Arithmetic(Runtime& rt, Operator op, const Value& a, const Value& b);
Value Negate(Runtime& rt, const Value& value);
// For the comparisons.
bool Compare(Runtime& rt, Operator op, const Value& a, const Value& b);
bool Less(Runtime& rt, const Value& a, const Value& b);
bool Contains(Runtime& rt, const Value& container, const Value& item);

// len(value); -1 after an error.
int64_t Length(Runtime& rt, const Value& value);
bool HasLength(const Value& value);
// Returns `count` characters of a string, starting with number `start`. They must exist.
std::string_view Characters(Runtime& rt, const Value& string, int64_t start, int64_t count);
bool IsIterable(const Value& value);
// Returns the items of iter(value) as a value with items(), and uses up a generator. Undefined
// after an error.
Value Iterate(Runtime& rt, const Value& value);

// value[key] and value.name: Undefined if it does not exist.
Value GetItem(Runtime& rt, const Value& value, const Value& key);
Value GetAttribute(Runtime& rt, const Value& value, const Value& name);
// value[start:stop:step]; Missing and None are omitted bounds.
Value GetSlice(Runtime& rt, const Value& value, const Value& start, const Value& stop,
               const Value& step);
// range(start, stop, step).
Value MakeRange(Runtime& rt, int64_t start, int64_t stop, int64_t step);
// loop.length; may evaluate the loop's filter for all items.
int64_t LoopLength(Runtime& rt, LoopObject& loop);

// Whether an attribute is a method that would change the value, which the sandbox forbids.
bool ChangesIt(Type type, std::string_view name);

// Stable for any `less`, even one that fails or is inconsistent. False after an error.
template <typename T, typename Less>
bool StableSort(Runtime& rt, std::vector<T>& items, Less less) {
  std::vector<T> other(items.size());
  for (size_t width = 1; width < items.size(); width *= 2) {
    for (size_t begin = 0; begin < items.size(); begin += 2 * width) {
      const size_t middle = std::min(begin + width, items.size());
      const size_t end = std::min(begin + 2 * width, items.size());
      size_t a = begin, b = middle;
      for (size_t i = begin; i < end; ++i) {
        if (!rt.budget().Step()) return false;
        const bool take_b = a == middle || (b < end && less(items[b], items[a]));
        if (rt.Failed()) return false;
        other[i] = std::move(items[take_b ? b++ : a++]);
      }
    }
    items.swap(other);
  }
  return true;
}

}  // namespace tokamak::jinja
