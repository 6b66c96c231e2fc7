// Schemas that hold together, merged into what they ask of each type.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json/json_value.h"
#include "grammar/json_number.h"
#include "tokamak/status.h"

namespace tokamak::grammar {

// Types as bits. A number is whole or has a fraction.
enum JsonType : uint8_t {
  kNull = 1,
  kBoolean = 2,
  kInteger = 4,
  kFraction = 8,
  kString = 16,
  kArray = 32,
  kObject = 64,
  kAllTypes = 127,
};

// Schemas that a value must fit all together, by their places in the document.
using Schemas = std::vector<const JsonValue*>;

// The rules of one schema. A name that is not in `properties` and matches none of `patterns` falls
// under `additional`.
struct ObjectRules {
  const JsonValue* properties = nullptr;
  const JsonValue* patterns = nullptr;
  const JsonValue* additional = nullptr;
};
struct ArrayRules {
  const JsonValue* prefix = nullptr;
  const JsonValue* items = nullptr;
};

struct Merged {
  uint64_t work = 0;  // in units of about 10 ns
  uint64_t max_work = UINT64_MAX;
  uint8_t types = kAllTypes;
  std::optional<std::vector<const JsonValue*>> values;  // of enum and const
  NumberLimits numbers;
  uint64_t min_length = 0, max_length = UINT32_MAX;
  std::vector<const JsonValue*> patterns;
  std::vector<const JsonValue*> formats;
  std::vector<const JsonValue*> forbidden;  // strings, from "not"
  std::vector<ObjectRules> objects;
  std::vector<std::string> required;
  Schemas names;  // of properties
  uint64_t min_properties = 0, max_properties = UINT32_MAX;
  std::vector<ArrayRules> arrays;
  uint64_t min_items = 0, max_items = UINT32_MAX;
  const JsonValue* unique_items = nullptr;
  // One schema of each list must fit as well. The flag: exactly one.
  std::vector<std::pair<const JsonValue*, bool>> choices;

  bool limits_strings() const {
    return min_length > 0 || max_length < UINT32_MAX || !patterns.empty() || !formats.empty() ||
           !forbidden.empty();
  }
  bool limits_containers() const {
    return !objects.empty() || !arrays.empty() || !names.empty() || !required.empty() ||
           min_items > 0 || max_items < UINT32_MAX || min_properties > 0 ||
           max_properties < UINT32_MAX || unique_items != nullptr;
  }
};

// The document and its references.
class SchemaDocument {
 public:
  explicit SchemaDocument(const JsonValue& root);

  // Merges `schemas` and what they refer to with $ref and allOf. Fails if that takes more work.
  Result<Merged> Merge(const Schemas& schemas, uint64_t max_work) const;
  // "$.properties.a" for a value of the document.
  std::string PathOf(const JsonValue* place) const;
  // An error at a keyword of a schema.
  Status Refuse(const JsonValue* schema, std::string_view keyword, std::string_view why) const;

 private:
  Status Add(const JsonValue* schema, Merged& merged, Schemas& pending) const;
  Status AddKeyword(const JsonValue* schema, const std::string& keyword, const JsonValue& value,
                    Merged& merged, Schemas& pending) const;
  Status AddNumber(const JsonValue* schema, std::string_view keyword, const JsonValue& value,
                   Merged& merged) const;
  Status AddNot(const JsonValue* schema, const JsonValue& value, Merged& merged) const;
  Status AddCount(const JsonValue* schema, std::string_view keyword, const JsonValue& value,
                  uint64_t& low, uint64_t& high) const;
  Status AddTypes(const JsonValue* schema, const JsonValue& value, Merged& merged) const;
  Result<const JsonValue*> Resolve(const JsonValue* schema, const JsonValue& reference) const;

  void FindAnchors();

  const JsonValue& root_;
  std::map<std::string, const JsonValue*, std::less<>> anchors_;
  bool reference_alone_ = false;  // drafts up to 7 ignore what stands beside $ref
};

// For each value whether it equals one of `others`. Adds to `work` what that takes, and stops where
// this exceeds `max_work`.
std::vector<bool> Among(const std::vector<const JsonValue*>& values,
                        const std::vector<const JsonValue*>& others, uint64_t max_work,
                        uint64_t& work);

inline constexpr std::string_view kTooMuchWork = "makes the schema too large; simplify it";

// A schema that every value fits.
bool IsTrue(const JsonValue& value);
// Whether one of the schemas is false, so that no value fits all of them.
bool AnyIsFalse(const Schemas& schemas);

// The bit of a value's type.
uint8_t TypeOf(const JsonValue& value);

}  // namespace tokamak::grammar
