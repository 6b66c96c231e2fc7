// Reads JSON that others wrote, strictly: a value of the wrong type or out of bounds is an error
// that names its path ("messages[2].role"), and members that nobody read can be listed. After the
// first error, which is the one that counts, reading goes on with harmless values (the lower bound,
// an empty string), so callers need no error branches:
//
//   Config ReadConfig(const JsonReader& reader) {
//     Config c;
//     c.hidden_size = reader.Int("hidden_size");
//     c.rope_theta = reader.NumberOr("rope_theta", 10000.0);  // the reference's default
//     if (const JsonReader rope = reader["rope"]; rope.present()) c.factor = rope.Number("factor");
//     return c;
//   }
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/function_ref.h"
#include "base/json/json_value.h"
#include "tokamak/status.h"

namespace tokamak {

// Inclusive bounds.
struct IntRange {
  int32_t min, max;
};
// Sizes and counts. The upper bound exceeds any real model and keeps products of two within 64
// bits.
inline constexpr IntRange Positive(int32_t max = 1 << 30) { return {1, max}; }
inline constexpr IntRange NonNegative(int32_t max = 1 << 30) { return {0, max}; }

struct NumberRange {
  double min, max;
};
inline constexpr NumberRange AnyNumber() { return {-1e30, 1e30}; }
inline constexpr NumberRange PositiveNumber() { return {1e-30, 1e30}; }

// A value that is not as expected.
struct JsonMismatch {
  std::string_view expected;  // "a string", "an integer"
  std::string range;          // " from 1 to 5", or empty
  bool right_type;            // the type is right, but the value is out of range
  const JsonValue* got;       // null if it is a member that is absent or null
};

// Returns the text of a message after the path. Messages about files and requests differ in words.
using JsonWording = std::string (*)(const JsonMismatch& mismatch);

// How a member was used so far, whether it is present or not. If it was used in several ways, the
// last of them in this list counts.
enum class JsonUse {
  kAsked,    // Has or IsNull
  kIgnored,  // its value does not matter
  kRead,
  kFixed,   // must have one value, or be absent
  kOpened,  // an object; its members have their own paths
};

// A value, or the place of a member that is absent or null. Copies and the readers of members share
// the first error and the uses. The value must outlive the reader. Not thread-safe.
class JsonReader {
 public:
  using Use = JsonUse;
  using Uses = std::map<std::string, Use, std::less<>>;  // by path
  // Which members' uses are remembered. kNone costs nothing.
  enum class Track { kNone, kOutermost, kAll };

  // `prefix` starts every message.
  JsonReader(const JsonValue& value, std::string prefix, JsonWording wording, Track track);

  bool ok() const { return state_->status.ok(); }
  const Status& status() const { return state_->status; }
  const Uses& uses() const { return state_->uses; }
  std::string path() const { return state_->prefix + path_; }

  // False if absent or null.
  bool present() const { return !is_null(); }
  // Null if absent.
  const JsonValue& value() const;
  bool is_null() const { return value().is_null(); }
  bool is_string() const { return value().is_string(); }
  bool is_array() const { return value().is_array(); }
  bool is_object() const { return value().is_object(); }

  // Absent if there is no such member or this is not an object.
  JsonReader operator[](std::string_view name) const;
  // Requires an array with this element.
  JsonReader operator[](size_t i) const;
  // Number of elements; 0 and an error if this is not an array.
  size_t Size() const;
  // Calls `read` with each element until there is an error. Records an error if this is present but
  // not an array, or has more than `max` elements.
  void ForEach(size_t max, FunctionRef<void(const JsonReader&)> read) const;

  // The value must have this type.
  bool Bool() const;
  int64_t Int(int64_t min, int64_t max) const;
  double Number(std::optional<NumberRange> range = std::nullopt) const;
  float Float() const;
  std::string String() const;
  int32_t Int32() const { return static_cast<int32_t>(Int(INT32_MIN, INT32_MAX)); }
  std::vector<int32_t> Int32s() const;

  // The member must exist.
  bool Bool(std::string_view name) const { return (*this)[name].Bool(); }
  int32_t Int(std::string_view name, IntRange range = Positive()) const {
    return static_cast<int32_t>((*this)[name].Int(range.min, range.max));
  }
  double Number(std::string_view name, NumberRange range = PositiveNumber()) const {
    return (*this)[name].Number(range);
  }
  std::string String(std::string_view name) const { return (*this)[name].String(); }
  std::vector<int32_t> Ints(std::string_view name, IntRange range = Positive()) const;
  std::vector<double> Numbers(std::string_view name, NumberRange range = PositiveNumber()) const;
  std::vector<std::string> Strings(std::string_view name) const;

  // The member may be absent or null.
  bool BoolOr(std::string_view name, bool absent) const;
  int32_t IntOr(std::string_view name, int32_t absent, IntRange range = Positive()) const;
  double NumberOr(std::string_view name, double absent, NumberRange range = PositiveNumber()) const;
  std::string StringOr(std::string_view name, std::string_view absent) const;
  // These keep `out` if the member is absent or null.
  void Read(std::string_view name, bool& out) const;
  void Read(std::string_view name, std::string& out) const;
  void Read(std::string_view name, float& out) const;
  void Read(std::string_view name, int32_t& out) const;
  void Read(std::string_view name, std::optional<int32_t>& out) const;
  // False also for null.
  bool Has(std::string_view name) const;
  // True if the member is present and null. For members where that differs from absence.
  bool IsNull(std::string_view name) const;

  // Names of members that were not read, in alphabetical order.
  std::vector<std::string> Unread() const;
  // Records an error if there is a member besides these: it might change the result. Null counts
  // as absent.
  void Only(std::initializer_list<std::string_view> names) const;

  // Record an error at this place, or at a member.
  void Bad(std::string_view expected) const;
  void Fail(const std::string& message) const;
  void Fail(std::string_view name, const std::string& message) const;
  void Fail(Status status) const;

 protected:
  struct State {
    std::string prefix;
    JsonWording wording;
    Track track;
    Status status = {};
    Uses uses = {};
    std::map<std::string, JsonValue, std::less<>> defaults = {};  // by path
  };

  JsonReader(const JsonValue* value, std::string path, std::shared_ptr<State> state)
      : value_(value), path_(std::move(path)), state_(std::move(state)) {}
  std::string PathOf(std::string_view name) const;
  // The member or its default; null if absent or null.
  const JsonValue* Lookup(std::string_view name) const;
  void Mark(std::string_view name, Use use) const;
  void Mismatch(std::string_view expected, const std::string& range, bool right_type) const;

  const JsonValue* value_;
  std::string path_;  // empty for the outermost value
  std::shared_ptr<State> state_;
};

}  // namespace tokamak
