// Strict reading of a model's configuration. A family reads every field that changes its results;
// nothing is guessed:
//
//   Result<Config> ParseConfig(ConfigReader reader) {
//     Config c;
//     c.hidden_size = reader.Int("hidden_size");
//     c.rope_theta = reader.NumberOr("rope_theta", 10000.0);  // absent means this, in the
//     reference reader.Expect("hidden_act", "silu"); return reader.Finish(c);
//   }
//
// A missing field, one of the wrong type or out of bounds, and a field that nobody read are errors
// that name the field by its path ("rope_scaling.factor"). The first error is kept and reading goes
// on with harmless values (the lower bound, an empty string), so a parser has no branches for it.
// Fields that never change a forward pass (token ids, versions, training options) need not be read.
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
// Sizes and counts. The upper bound keeps products of two in 64 bits and is beyond any real model.
inline constexpr IntRange Positive(int64_t max = int64_t{1} << 30) { return {1, max}; }
inline constexpr IntRange NonNegative(int64_t max = int64_t{1} << 30) { return {0, max}; }

struct NumberRange {
  double min, max;
};
inline constexpr NumberRange AnyNumber() { return {-1e30, 1e30}; }
inline constexpr NumberRange PositiveNumber() { return {1e-30, 1e30}; }

// Reads one object. Copies read the same object and share the error and the marks. `config` must
// outlive the reader. For one thread.
class ConfigReader {
 public:
  // `source` starts every message: the file's name.
  ConfigReader(const ConfigValue& config, std::string source);

  // Must be there, of this type.
  bool Bool(std::string_view name);
  int64_t Int(std::string_view name, IntRange range = Positive());
  double Number(std::string_view name, NumberRange range = PositiveNumber());
  std::string String(std::string_view name);
  std::vector<int64_t> Ints(std::string_view name, IntRange range = Positive());
  std::vector<double> Numbers(std::string_view name, NumberRange range = PositiveNumber());
  std::vector<std::string> Strings(std::string_view name);
  // Reads the members of an object; those left unread are errors of the whole.
  ConfigReader Object(std::string_view name);
  // As Object, of a model's whole configuration, of which this one is made: fields that never
  // change a forward pass need not be read there either.
  ConfigReader Part(std::string_view name);

  // From here on the field has this value where it is absent or null.
  void SetDefault(std::string_view name, ConfigValue value);

  // May be absent or null, which stands for the documented default of the reference.
  bool BoolOr(std::string_view name, bool absent);
  int64_t IntOr(std::string_view name, int64_t absent, IntRange range = Positive());
  double NumberOr(std::string_view name, double absent, NumberRange range = PositiveNumber());
  std::string StringOr(std::string_view name, std::string_view absent);
  // Not there and null are the same.
  bool Has(std::string_view name) const;
  // There, and null: where that is not what absence means.
  bool IsNull(std::string_view name) const;

  // The field must have this value; the Or forms accept its absence too.
  void Expect(std::string_view name, const ConfigValue& value);
  void ExpectOrAbsent(std::string_view name, const ConfigValue& value);
  // Marks fields that do not change the results of this family, whatever they say.
  void Ignore(std::initializer_list<std::string_view> names);

  // An error at a field, found by the caller: "config.json: head_dim: <message>".
  void Fail(std::string_view name, const std::string& message);
  bool ok() const;

  // What was done with a field so far, whether or not it is there; the last of these.
  enum class Use {
    kAsked,    // whether it is there
    kIgnored,  // whatever it says
    kRead,
    kFixed,   // it must have one value, or be absent
    kOpened,  // an object, whose members have paths of their own
  };
  using Uses = std::map<std::string, Use, std::less<>>;  // by path
  // For tests, which prove that what is read counts.
  const Uses& uses() const { return state_->uses; }

  // The first error, or that fields were left unread. Call on the outermost reader.
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
    std::set<std::string, std::less<>> parts = {""};           // with a dot behind, or empty
    std::map<std::string, ConfigValue, std::less<>> defaults;  // by path
  };

  ConfigReader(const ConfigValue& config, std::string path, std::shared_ptr<State> state);
  std::string Path(std::string_view name) const;
  // The field or its default; null when absent or null.
  const ConfigValue* Lookup(std::string_view name) const;
  void Mark(std::string_view name, Use use) const;
  // Marks the field and returns it; null when absent or null.
  const ConfigValue* Take(std::string_view name);
  // As Take, but absence is an error.
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
  std::string path_;  // of this object, with a dot behind, or empty
  std::shared_ptr<State> state_;
};

}  // namespace tokamak
