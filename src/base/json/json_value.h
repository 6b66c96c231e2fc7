// A JSON value, and the parser of all JSON that comes from a file, a client or a model.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace tokamak {

// Limits on a text.
struct JsonLimits {
  size_t max_bytes = SIZE_MAX;
  size_t max_depth = 100;  // nested objects and arrays
  // True: a name that repeats in one object is an error. False: its last value counts.
  bool distinct_names = false;
};

// Why a text was refused.
struct JsonError {
  enum Kind { kMalformed, kTooLong, kTooDeep, kRepeatedName, kOutOfRange /* of a double */ };
  Kind kind = kMalformed;
  size_t byte = 0;   // 1 for the first one
  std::string text;  // the repeated name, or the malformed token
};

// Members of an object keep their order and have distinct names. A value takes 16 bytes and what it
// points to, so that parsed vocabularies of 10 MB and more fit into memory.
class JsonValue {
 public:
  using Array = std::vector<JsonValue>;
  using Member = std::pair<std::string, JsonValue>;
  using Object = std::vector<Member>;

  // kUint is an integer beyond int64_t, kBigInt one beyond 64 bits.
  enum class Kind { kNull, kBool, kInt, kUint, kDouble, kBigInt, kString, kArray, kObject };

  JsonValue() = default;                                           // null
  JsonValue(bool value) : data_(value) {}                          // NOLINT
  JsonValue(int value) : data_(int64_t{value}) {}                  // NOLINT
  JsonValue(int64_t value) : data_(value) {}                       // NOLINT
  JsonValue(uint64_t value);                                       // NOLINT
  JsonValue(double value) : data_(value) {}                        // NOLINT
  JsonValue(const char* value) : JsonValue(std::string(value)) {}  // NOLINT
  JsonValue(std::string value);                                    // NOLINT
  JsonValue(Array value);                                          // NOLINT
  JsonValue(Object value);                                         // NOLINT
  static JsonValue BigInt(std::string digits);

  // Returns nullopt for malformed text and for text beyond the limits; `error`, if given, says why.
  static std::optional<JsonValue> Parse(std::string_view text, const JsonLimits& limits,
                                        JsonError* error = nullptr);

  Kind kind() const { return static_cast<Kind>(data_.index()); }
  bool is_null() const { return kind() == Kind::kNull; }
  bool is_integer() const { return kind() == Kind::kInt || kind() == Kind::kUint; }
  bool is_number() const { return kind() >= Kind::kInt && kind() <= Kind::kBigInt; }
  bool is_string() const { return kind() == Kind::kString; }
  bool is_array() const { return kind() == Kind::kArray; }
  bool is_object() const { return kind() == Kind::kObject; }

  // Absent if the value is of another kind. AsDouble also accepts integers that exceed int64_t.
  std::optional<bool> AsBool() const { return Scalar<bool>(); }
  std::optional<int64_t> AsInt() const { return Scalar<int64_t>(); }
  std::optional<uint64_t> AsUint() const;  // any integer of 0 and more
  std::optional<double> AsDouble() const;
  std::optional<double> AsNumber() const;  // of any number
  const std::string* AsString() const { return Pointer<std::string>(); }
  const std::string* AsBigInt() const;  // its digits
  const Array* AsArray() const { return Pointer<Array>(); }
  const Object* AsObject() const { return is_object() ? &Pointer<Members>()->list : nullptr; }

  // Number of elements or members; 0 if there are none.
  size_t size() const;
  // The member of an object; null if there is none or this is not an object.
  const JsonValue* Find(std::string_view name) const;
  JsonValue* Find(std::string_view name);
  // Adds or replaces a member of this object (a null value becomes an object). Returns false if it
  // has replaced one.
  bool Set(std::string name, JsonValue value);
  // Requires an array.
  void Append(JsonValue value);

  // Numbers of different kinds may be equal; the order of members does not matter.
  bool operator==(const JsonValue& other) const;

  // Compact JSON for messages, shortened to about `max_bytes`.
  std::string ToString(size_t max_bytes = 60) const;
  // All of it as JSON on one line. Replaces bytes that are not UTF-8 by U+FFFD.
  std::string Dump() const;

 private:
  // A pointer that copies what it points to.
  template <typename T>
  class Box {
   public:
    explicit Box(T value) : pointer_(std::make_unique<T>(std::move(value))) {}
    Box(const Box& other) : pointer_(std::make_unique<T>(*other.pointer_)) {}
    Box(Box&&) noexcept = default;
    Box& operator=(const Box& other) {
      pointer_ = std::make_unique<T>(*other.pointer_);
      return *this;
    }
    Box& operator=(Box&&) noexcept = default;
    T& operator*() const { return *pointer_; }

   private:
    std::unique_ptr<T> pointer_;
  };
  struct Digits {
    std::string text;
  };
  // Objects of many members have a hash table of their names.
  struct Members {
    Object list;
    std::vector<uint32_t> slots = {};  // index into `list` plus one; 0 is free
  };

  template <typename T>
  std::optional<T> Scalar() const {
    const T* value = std::get_if<T>(&data_);
    return value == nullptr ? std::nullopt : std::optional(*value);
  }
  template <typename T>
  T* Pointer() const {
    const Box<T>* box = std::get_if<Box<T>>(&data_);
    return box == nullptr ? nullptr : &**box;
  }
  static size_t IndexOf(const Members& members, std::string_view name);
  static void Index(Members& members, size_t member);

  std::variant<std::monostate, bool, int64_t, uint64_t, double, Box<Digits>, Box<std::string>,
               Box<Array>, Box<Members>>
      data_;
};

}  // namespace tokamak
