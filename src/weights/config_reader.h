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

#include <initializer_list>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/json/json_reader.h"
#include "tokamak/status.h"
#include "weights/config.h"

namespace tokamak {

// Reads one object of a configuration.
class ConfigReader : public JsonReader {
 public:
  // `source`, the file's name, starts every message.
  ConfigReader(const JsonValue& config, const std::string& source);

  // Reads the members of an object. Finish also covers members left unread.
  ConfigReader Object(std::string_view name) const;
  // Object for a model's whole configuration inside this one: there too, fields that never change a
  // forward pass need not be read.
  ConfigReader Part(std::string_view name) const;

  // From here on, the field has this value if it is absent or null.
  void SetDefault(std::string_view name, JsonValue value);

  // The field must have this value. The Or form also accepts its absence.
  void Expect(std::string_view name, const JsonValue& value) const;
  void ExpectOrAbsent(std::string_view name, const JsonValue& value) const;
  // Marks fields whose values do not change the results of this family.
  void Ignore(std::initializer_list<std::string_view> names) const;

  // Returns the first error, or an error if fields were left unread. Call on the outermost reader.
  Status Finish() const;
  template <typename T>
  Result<T> Finish(T value) const {
    Status status = Finish();
    if (!status.ok()) return status;
    return value;
  }

 private:
  using Prefixes = std::set<std::string, std::less<>>;

  ConfigReader(const JsonReader& reader, std::shared_ptr<Prefixes> parts)
      : JsonReader(reader), parts_(std::move(parts)) {}
  void CollectUnread(const JsonValue& object, const std::string& prefix,
                     std::vector<std::string>* unread) const;

  // The paths of whole configurations, each with a dot at its end; "" is the outermost one.
  std::shared_ptr<Prefixes> parts_ = std::make_shared<Prefixes>(Prefixes{""});
};

}  // namespace tokamak
