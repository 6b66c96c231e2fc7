// Strict reading of a model's configuration. A family reads every field that changes its results,
// and nothing is guessed:
//
//   Result<Config> ParseConfig(ConfigReader reader) {
//     Config c;
//     c.hidden_size = reader.Int("hidden_size");
//     c.rope_theta = reader.NumberOr("rope_theta", 10000.0);  // the reference's default
//     reader.Expect("hidden_act", "silu");
//     return reader.Finish(c);
//   }
//
// A field that is missing, of the wrong type, out of bounds or never read is an error, which names
// its path ("rope_scaling.factor"). After the first error, reading goes on with harmless values
// (the lower bound, an empty string), so parsers need no error branches. Fields that never change a
// forward pass (token ids, versions, training options) need not be read.
#pragma once

#include <fmt/core.h>

#include <cstdint>
#include <initializer_list>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "tokamak/status.h"
#include "weights/config.h"

namespace tokamak {

// Inclusive bounds.
struct IntRange {
  int64_t min, max;
};
// Sizes and counts. The upper bound exceeds any real model and keeps products of two within 64
// bits.
inline constexpr IntRange Positive(int64_t max = int64_t{1} << 30) { return {1, max}; }
inline constexpr IntRange NonNegative(int64_t max = int64_t{1} << 30) { return {0, max}; }

struct NumberRange {
  double min, max;
};
inline constexpr NumberRange AnyNumber() { return {-1e30, 1e30}; }
inline constexpr NumberRange PositiveNumber() { return {1e-30, 1e30}; }

// Reads one object. Copies share the object, the error and the marks. `config` must outlive the
// reader. Not thread-safe.
class ConfigReader {
 public:
  // `source`, the file's name, starts every message.
  ConfigReader(const ConfigValue& config, std::string source);

  // The field must exist and have this type.
  bool Bool(std::string_view name);
  int64_t Int(std::string_view name, IntRange range = Positive());
  double Number(std::string_view name, NumberRange range = PositiveNumber());
  std::string String(std::string_view name);
  std::vector<int64_t> Ints(std::string_view name, IntRange range = Positive());
  std::vector<double> Numbers(std::string_view name, NumberRange range = PositiveNumber());
  std::vector<std::string> Strings(std::string_view name);
  // Reads the members of an object. Finish also covers members left unread.
  ConfigReader Object(std::string_view name);
  // Object for a model's whole configuration inside this one: there too, fields that never change a
  // forward pass need not be read.
  ConfigReader Part(std::string_view name);

  // From here on, the field has this value if it is absent or null.
  void SetDefault(std::string_view name, ConfigValue value);

  // The field may be absent or null, which means the reference's documented default.
  bool BoolOr(std::string_view name, bool absent);
  int64_t IntOr(std::string_view name, int64_t absent, IntRange range = Positive());
  double NumberOr(std::string_view name, double absent, NumberRange range = PositiveNumber());
  std::string StringOr(std::string_view name, std::string_view absent);
  // False also for null.
  bool Has(std::string_view name) const;
  // True if the field is present and null. For fields where that differs from absence.
  bool IsNull(std::string_view name) const;

  // The field must have this value. The Or form also accepts its absence.
  void Expect(std::string_view name, const ConfigValue& value);
  void ExpectOrAbsent(std::string_view name, const ConfigValue& value);
  // Marks fields whose values do not change the results of this family.
  void Ignore(std::initializer_list<std::string_view> names);

  // Records an error at a field: "config.json: head_dim: <message>".
  void Fail(std::string_view name, const std::string& message);
  bool ok() const;

  // How a field was used so far, present or not. If in several ways, the last one listed here
  // counts.
  enum class Use {
    kAsked,    // Has or IsNull
    kIgnored,  // its value does not matter
    kRead,
    kFixed,   // must have one value, or be absent
    kOpened,  // an object; its members have their own paths
  };
  using Uses = std::map<std::string, Use, std::less<>>;  // by path
  // For tests, which check that whatever is read has an effect.
  const Uses& uses() const { return state_->uses; }

  // Returns the first error, or an error if fields were left unread. Call on the outermost reader.
  Status Finish() const;
  template <typename T>
  Result<T> Finish(T value) const {
    Status status = Finish();
    if (!status.ok()) return status;
    return value;
  }

 private:
  struct State {
    std::string source;
    Status status;
    Uses uses;
    std::set<std::string, std::less<>> parts = {""};           // each ends in a dot, or is empty
    std::map<std::string, ConfigValue, std::less<>> defaults;  // by path
  };

  ConfigReader(const ConfigValue& config, std::string path, std::shared_ptr<State> state);
  std::string Path(std::string_view name) const;
  // The field or its default; null if absent or null.
  const ConfigValue* Lookup(std::string_view name) const;
  void Mark(std::string_view name, Use use) const;
  // Marks the field and returns it; null if absent or null.
  const ConfigValue* Take(std::string_view name);
  // Take, but absence is an error.
  const ConfigValue* Require(std::string_view name);
  void WrongType(std::string_view name, const char* expected, const ConfigValue& got);
  bool ToBool(std::string_view name, const ConfigValue& value);
  int64_t ToInt(std::string_view name, const ConfigValue& value, IntRange range);
  double ToNumber(std::string_view name, const ConfigValue& value, NumberRange range);
  std::string ToText(std::string_view name, const ConfigValue& value);
  template <typename T, typename Convert>
  std::vector<T> ToArray(std::string_view name, const char* expected, Convert convert);
  void Match(std::string_view name, const ConfigValue& got, const ConfigValue& expected);
  void CollectUnread(const ConfigValue& object, const std::string& prefix,
                     std::vector<std::string>* unread) const;

  const ConfigValue* config_;
  std::string path_;  // of this object: ends in a dot, or empty
  std::shared_ptr<State> state_;
};

}  // namespace tokamak
