// A model's configuration as a value: config.json, or a translation to it from another format.
// Families read it through ConfigReader (weights/config_reader.h).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tokamak/status.h"

namespace tokamak {

// A JSON value. Members of an object keep their order and have distinct names.
class ConfigValue {
 public:
  using Array = std::vector<ConfigValue>;
  using Member = std::pair<std::string, ConfigValue>;
  using Object = std::vector<Member>;

  ConfigValue() = default;                                                             // null
  ConfigValue(bool value) : kind_(Kind::kBool), int_(value ? 1 : 0) {}                 // NOLINT
  ConfigValue(int value) : kind_(Kind::kInt), int_(value) {}                           // NOLINT
  ConfigValue(int64_t value) : kind_(Kind::kInt), int_(value) {}                       // NOLINT
  ConfigValue(double value) : kind_(Kind::kDouble), double_(value) {}                  // NOLINT
  ConfigValue(const char* value) : kind_(Kind::kString), string_(value) {}             // NOLINT
  ConfigValue(std::string value) : kind_(Kind::kString), string_(std::move(value)) {}  // NOLINT
  ConfigValue(Array value) : kind_(Kind::kArray), array_(std::move(value)) {}          // NOLINT
  ConfigValue(Object value) : kind_(Kind::kObject), object_(std::move(value)) {}       // NOLINT

  bool is_null() const { return kind_ == Kind::kNull; }
  // Absent if the value is of another kind. An integer is not a double.
  std::optional<bool> AsBool() const;
  std::optional<int64_t> AsInt() const;
  std::optional<double> AsDouble() const;
  const std::string* AsString() const { return kind_ == Kind::kString ? &string_ : nullptr; }
  const Array* AsArray() const { return kind_ == Kind::kArray ? &array_ : nullptr; }
  Array* AsArray() { return kind_ == Kind::kArray ? &array_ : nullptr; }
  const Object* AsObject() const { return kind_ == Kind::kObject ? &object_ : nullptr; }
  Object* AsObject() { return kind_ == Kind::kObject ? &object_ : nullptr; }

  // The member of an object; null if there is none or this is not an object.
  const ConfigValue* Find(std::string_view name) const;
  // Adds or replaces a member of this object (a null value becomes an object).
  void Set(std::string_view name, ConfigValue value);

  // Compact JSON for messages, shortened to about `max_bytes`.
  std::string ToString(size_t max_bytes = 60) const;

 private:
  enum class Kind { kNull, kBool, kInt, kDouble, kString, kArray, kObject };

  // Plain members instead of a std::variant, for which g++ 12 gives false warnings.
  Kind kind_ = Kind::kNull;
  int64_t int_ = 0;  // also a bool
  double double_ = 0;
  std::string string_;
  Array array_;
  Object object_;
};

// Parses JSON text whose outermost value is an object. Refuses malformed, too deeply nested and too
// large text, duplicate names in an object, and numbers that are not finite. `source` names the
// text in messages.
Result<ConfigValue> ParseConfigJson(std::string_view text, const std::string& source);

}  // namespace tokamak
