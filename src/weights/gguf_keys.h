// Reads a GGUF file's metadata as the fields of a configuration. Internal to weights/.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <string_view>

#include "base/function_ref.h"
#include "base/json/json_value.h"
#include "tokamak/status.h"
#include "weights/gguf.h"

namespace tokamak {

// Reads keys below "<architecture>.", keeps the first error and records which keys were read.
class GgufKeyReader {
 public:
  GgufKeyReader(const GgufFile& file, std::string_view architecture)
      : file_(file), prefix_(std::string(architecture) + ".") {}

  bool Has(const char* key) const { return file_.metadata().Has(prefix_ + key); }
  bool HasTensor(const char* name) const { return file_.FindTensor(name) != nullptr; }

  JsonValue Int(const char* key);
  // For arithmetic; 0 after an error.
  int64_t Size(const char* key);
  JsonValue IntOr(const char* key, JsonValue absent);
  JsonValue Bool(const char* key);
  bool BoolOr(const char* key, bool absent);
  JsonValue Number(const char* key);
  JsonValue String(const char* key);
  // Arrays.
  JsonValue Bools(const char* key);
  JsonValue Ints(const char* key);
  JsonValue Numbers(const char* key);
  // If the key exists, it must have this value. Others are not implemented.
  void ExpectNumber(const char* key, double expected);
  // Warns that the key is missing and what is done `instead`.
  void WarnOfMissing(const char* key, const std::string& instead);
  void Ignore(const char* key) { read_.insert(prefix_ + key); }

  void Unsupported(const char* key, const std::string& value, const std::string& supported);
  void Fail(Status status) {
    if (status_.ok()) status_ = std::move(status);
  }
  // The first error; or one that lists the keys that were not read.
  Status Finish() const;

 private:
  using Convert = FunctionRef<JsonValue(const GgufValue& value)>;  // null: of another type
  // Returns the value, or null after an error. An array with one value per layer counts as that
  // value if all are equal.
  JsonValue Value(const char* key, const char* kind, Convert convert);
  // The values of an array, or null after an error.
  template <typename T>
  JsonValue List(const char* key, Result<std::vector<T>> values);

  const GgufFile& file_;
  const std::string prefix_;
  std::set<std::string, std::less<>> read_;
  Status status_;
};

}  // namespace tokamak
