// Reading a request's JSON: types are checked, the first error names its path, and what nobody
// asked for is known afterwards.
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

// The body, which must be a JSON object. kInvalidArgument without a path otherwise.
Result<nlohmann::json> ParseBody(const std::string& body);

// "a fraction", "an object": for errors.
std::string DescribeJson(const nlohmann::json& value);

// The fields of one object. Remembers the first error and the names that were looked for. A field
// that is null counts as absent, as OpenAI has it.
class Fields {
 public:
  // `object` outlives it. `path` comes before the fields' names in errors; empty for the body.
  Fields(const nlohmann::json& object, std::string path);

  const Status& status() const { return status_; }
  std::string Path(std::string_view name) const;
  // Null when it is absent.
  const nlohmann::json* Find(const char* name);
  bool Has(const char* name) { return Find(name) != nullptr; }

  // `out` stays as it is when the field is absent or wrong.
  void Read(const char* name, bool& out);
  void Read(const char* name, std::string& out);
  void Read(const char* name, float& out);
  void Read(const char* name, int32_t& out);
  void Read(const char* name, std::optional<int32_t>& out);
  // A list; `read` takes (path, value) and is not called after an error.
  void ReadList(const char* name, size_t max,
                FunctionRef<void(const std::string&, const nlohmann::json&)> read);
  std::optional<int32_t> Int32(const std::string& path, const nlohmann::json& value);
  std::optional<float> Float(const std::string& path, const nlohmann::json& value);
  // A list of token ids, or nothing after an error.
  std::optional<std::vector<int32_t>> TokenIds(const std::string& path, const nlohmann::json& list);

  void Fail(std::string_view name, std::string_view message);
  void FailAt(const std::string& path, std::string_view message);
  // The error of an object within this one, if it has one.
  void Adopt(const Status& inner) {
    if (status_.ok()) status_ = inner;
  }
  void WrongType(const char* name, std::string_view wanted, const nlohmann::json& value);

  // The names that were looked for so far, in that order.
  const std::vector<std::string>& known() const { return known_; }
  // The object's names that were not.
  std::vector<std::string> Unknown() const;

 private:
  const nlohmann::json& object_;
  const std::string path_;
  Status status_;
  std::vector<std::string> known_;
};

}  // namespace tokamak
