// Reading JSON that someone else wrote: a value with its place, and the first error of all.
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

// A value of a JsonDocument, which must outlive it. Getters note an error at this place and return
// something harmless.
class JsonNode {
 public:
  const std::string& path() const { return path_; }
  bool ok() const { return status_->ok(); }
  bool is_null() const;
  bool is_object() const;

  // Whether there is such a member, and it is not null.
  bool Has(const char* name) const;
  // The member, or null.
  JsonNode operator[](const char* name) const;
  // An element; `i` < Size().
  JsonNode operator[](size_t i) const;
  // Elements of an array; 0, and an error, when it is none.
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

  // For long lists and objects, without an error: false when the element is something else.
  bool StringPairAt(size_t i, std::string* first, std::string* second) const;
  bool StringAndNumberAt(size_t i, std::string* text, double* number) const;
  // A member of an object in a list.
  bool StringMemberAt(size_t i, const char* name, std::string* text) const;
  int64_t IntMemberAt(size_t i, const char* name) const;  // -1: no natural number
  // How many elements or members there are, and a member that is an integer, or -1.
  size_t Count() const;
  int64_t IntOf(const std::string& name) const;
  // Calls `on_member` with each member of an object and its integer, or -1.
  void ForEachInt(FunctionRef<void(const std::string&, int64_t)> on_member) const;

  // Another member than these, with a value, is an error: it may change what the text becomes.
  void Only(std::initializer_list<std::string_view> names) const;
  void Bad(const std::string& expected) const;
  void Unsupported(std::string_view what) const;
  void Fail(Status status) const;

 private:
  friend class JsonDocument;
  // `json`: a nlohmann::json, whose header is too heavy for this one.
  JsonNode(const void* json, std::string path, Status* status)
      : json_(json), path_(std::move(path)), status_(status) {}

  const void* json_;
  std::string path_;
  Status* status_;
};

class JsonDocument {
 public:
  // Refuses what is not a well-formed object, too long or nested too deep. `source` starts every
  // place.
  static Result<JsonDocument> Parse(std::string_view text, const std::string& source);
  JsonDocument(JsonDocument&&) noexcept;
  JsonDocument& operator=(JsonDocument&&) noexcept;
  ~JsonDocument();

  JsonNode root();
  // The first error that a node noted.
  const Status& status() const;

 private:
  struct Impl;
  explicit JsonDocument(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace tokamak
