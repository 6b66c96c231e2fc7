// Reads a request's JSON: checks types, reports the first error with its path, and remembers which
// fields nobody read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/function_ref.h"
#include "tokamak/status.h"

namespace tokamak {

// Parses a body, which must be a JSON object. The message of an error has no path.
Result<nlohmann::json> ParseBody(const std::string& body);

// Returns "a fraction", "an object" and so on, for errors.
std::string DescribeJson(const nlohmann::json& value);

// The fields of one JSON object. Remembers the first error and the names that were looked up. A
// field that is null counts as absent, as in OpenAI's API.
class Fields {
 public:
  // `object` outlives it. `path` precedes the names of fields in errors; empty for the body.
  Fields(const nlohmann::json& object, std::string path);

  const Status& status() const { return status_; }
  std::string Path(std::string_view name) const;
  // Returns null if the field is absent.
  const nlohmann::json* Find(const char* name);
  bool Has(const char* name) { return Find(name) != nullptr; }

  // These keep `out` if the field is absent or wrong.
  void Read(const char* name, bool& out);
  void Read(const char* name, std::string& out);
  void Read(const char* name, float& out);
  void Read(const char* name, int32_t& out);
  void Read(const char* name, std::optional<int32_t>& out);
  // Reads a list: calls `read` with path and value of each entry until there is an error.
  void ReadList(const char* name, size_t max,
                FunctionRef<void(const std::string&, const nlohmann::json&)> read);
  std::optional<int32_t> Int32(const std::string& path, const nlohmann::json& value);
  std::optional<float> Float(const std::string& path, const nlohmann::json& value);
  // Returns token ids, or nullopt after an error.
  std::optional<std::vector<int32_t>> TokenIds(const std::string& path, const nlohmann::json& list);

  void Fail(std::string_view name, std::string_view message);
  void FailAt(const std::string& path, std::string_view message);
  // Takes over the first error of an object within this one.
  void Adopt(const Status& inner) {
    if (status_.ok()) status_ = inner;
  }
  void WrongType(const char* name, std::string_view wanted, const nlohmann::json& value);

  // Names that were looked up so far, in that order.
  const std::vector<std::string>& known() const { return known_; }
  // Names of the object that were not looked up.
  std::vector<std::string> Unknown() const;

 private:
  const nlohmann::json& object_;
  const std::string path_;
  Status status_;
  std::vector<std::string> known_;
};

}  // namespace tokamak
