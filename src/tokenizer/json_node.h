// Reads untrusted JSON: each value knows its place, and the document keeps the first error.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>

#include "base/function_ref.h"
#include "tokamak/status.h"

namespace tokamak {

// A value of a JsonDocument, which must outlive it. On a mismatch, getters record an error at this
// place and return something harmless.
class JsonNode {
 public:
  const std::string& path() const { return path_; }
  bool ok() const { return status_->ok(); }
  bool is_null() const;
  bool is_object() const;

  // Whether the member exists and is not null.
  bool Has(const char* name) const;
  // The member, or null.
  JsonNode operator[](const char* name) const;
  // Requires `i` < Size().
  JsonNode operator[](size_t i) const;
  // Number of elements; 0 and an error if this is not an array.
  size_t Size() const;

  std::string String() const;
  bool Bool() const;
  int64_t Int(int64_t min, int64_t max) const;
  double Number() const;
  bool BoolOr(const char* name, bool absent) const {
    return Has(name) ? (*this)[name].Bool() : absent;
  }
  std::string StringOr(const char* name, const char* absent) const {
    return Has(name) ? (*this)[name].String() : absent;
  }

  // For long lists and objects. Return false, without an error, if the element is something else.
  bool StringPairAt(size_t i, std::string* first, std::string* second) const;
  bool StringAndNumberAt(size_t i, std::string* text, double* number) const;
  // A member of element `i`, an object.
  bool StringMemberAt(size_t i, const char* name, std::string* text) const;
  int64_t IntMemberAt(size_t i, const char* name) const;  // -1: not a natural number
  size_t Count() const;                                   // elements or members
  // The member's value, or -1 if it is not a natural number.
  int64_t IntOf(const std::string& name) const;
  // Calls `on_member` with each member's name and IntOf.
  void ForEachInt(FunctionRef<void(const std::string&, int64_t)> on_member) const;

  // Any other member with a value is an error, because it might change the text.
  void Only(std::initializer_list<std::string_view> names) const;
  void Bad(const std::string& expected) const;
  void Unsupported(std::string_view what) const;
  void Fail(Status status) const;

 private:
  friend class JsonDocument;
  // `json` is a nlohmann::json, whose header is too heavy to include here.
  JsonNode(const void* json, std::string path, Status* status)
      : json_(json), path_(std::move(path)), status_(status) {}

  const void* json_;
  std::string path_;
  Status* status_;
};

class JsonDocument {
 public:
  // Refuses text that is not a well-formed object, too long or nested too deeply. `source` starts
  // each place in messages.
  static Result<JsonDocument> Parse(std::string_view text, const std::string& source);
  JsonDocument(JsonDocument&&) noexcept;
  JsonDocument& operator=(JsonDocument&&) noexcept;
  ~JsonDocument();

  JsonNode root();
  // The first error that any node recorded.
  const Status& status() const;

 private:
  struct Impl;
  explicit JsonDocument(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace tokamak
