// The values that templates compute with: Python's, as far as chat templates can see them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "chat/jinja/budget.h"

namespace tokamak::jinja {

enum class Type : uint8_t {
  kNone,
  kBool,
  kInt,
  kFloat,
  // The values below refer to an object.
  kUndefined,  // may have no object
  kString,
  kBigInt,  // an integer beyond 64 bits, as digits; only printed and compared
  kList,
  kTuple,
  kDictKeys,  // results of dict.keys(), .values() and .items()
  kDictValues,
  kDictItems,
  kGenerator,  // result of a lazy filter; can be read once
  kRange,
  kDict,
  kNamespace,
  kCallable,
  kLoop,
};

// Python's name of a type, as in its error messages: "dict", "NoneType".
const char* TypeName(Type type);

// A value's object. Reference-counted without atomics: an object belongs to one thread at a time.
// Shared objects are the constants of a parsed template: the template owns them, they are not
// counted, and many threads read them.
struct Object {
  Object() = default;
  Object(const Object&) = delete;
  Object& operator=(const Object&) = delete;
  virtual ~Object() {
    if (budget != nullptr) budget->Release(charged);
  }

  uint32_t references = 0;
  bool shared = false;
  int32_t depth = 0;   // how deep objects nest inside it
  int32_t weight = 1;  // number of values in it, counting repeated ones each time; saturates
  Budget* budget = nullptr;
  size_t charged = 0;
};

struct StringObject;
struct ListObject;
struct RangeObject;
struct DictObject;
struct NamespaceObject;
struct CallableObject;
struct LoopObject;

// Maximum nesting of containers: the functions that walk them are recursive.
inline constexpr int32_t kMaxNesting = 200;

class Value {
 public:
  Value() : type_(Type::kUndefined) { data_.object = nullptr; }
  ~Value() { Drop(); }
  Value(const Value& other) : type_(other.type_), note_(other.note_), data_(other.data_) { Hold(); }
  Value(Value&& other) noexcept : type_(other.type_), note_(other.note_), data_(other.data_) {
    other.type_ = Type::kNone;
  }
  Value& operator=(Value other) noexcept {
    std::swap(type_, other.type_);
    std::swap(note_, other.note_);
    std::swap(data_, other.data_);
    return *this;
  }

  static Value None() { return Scalar(Type::kNone, 0); }
  static Value Bool(bool value) { return Scalar(Type::kBool, value ? 1 : 0); }
  static Value Int(int64_t value) { return Scalar(Type::kInt, value); }
  static Value Float(double value) {
    Value v = None();
    v.type_ = Type::kFloat;
    v.data_.number = value;
    return v;
  }
  // An argument that was not given, or a variable that was never set. Templates never see it.
  static Value Missing() {
    Value v;
    v.note_ = kMissingNote;
    return v;
  }
  // `name` (a string, or nothing) tells errors what is missing; `owner` is the type that it was
  // looked up in, kUndefined for variables.
  static Value Undefined(const Value& name, Type owner = Type::kUndefined);
  // An undefined value whose use is an error: an attribute that the sandbox withholds.
  static Value Unsafe(const Value& name, Type owner);
  // Charges `budget` if it is given. Undefined if the budget is exhausted.
  static Value String(std::string text, Budget* budget, bool markup = false);
  static Value String(std::string text) { return String(std::move(text), nullptr); }
  static Value BigInt(std::string digits);
  // `type`: any type that has a ListObject. Undefined if it nests too deeply.
  static Value List(std::vector<Value> items, Budget* budget, Type type = Type::kList);
  static Value List(std::vector<Value> items) { return List(std::move(items), nullptr); }
  // Takes a reference to the object, whose charge must be up to date.
  static Value FromObject(Type type, Object* object);

  Type type() const { return type_; }
  bool is(Type type) const { return type_ == type; }
  bool is_missing() const { return type_ == Type::kUndefined && note_ == kMissingNote; }
  bool is_undefined() const { return type_ == Type::kUndefined; }
  bool is_none() const { return type_ == Type::kNone; }
  bool is_string() const { return type_ == Type::kString; }
  bool is_dict() const { return type_ == Type::kDict; }
  // Whether its object is a ListObject.
  bool is_list_like() const { return type_ >= Type::kList && type_ <= Type::kGenerator; }
  // True, False and 64-bit integers: the operands of Python's integer operations.
  bool is_integral() const { return type_ == Type::kBool || type_ == Type::kInt; }
  bool is_number() const { return is_integral() || type_ == Type::kFloat; }

  int64_t integer() const { return data_.integer; }  // requires is_integral
  double number() const {                            // requires is_number
    return type_ == Type::kFloat ? data_.number : static_cast<double>(data_.integer);
  }
  std::string_view text() const;            // requires a string or kBigInt
  bool markup() const;                      // of a string: HTML that needs no escaping
  const std::vector<Value>& items() const;  // requires is_list_like
  StringObject& string() const;
  ListObject& list() const;
  RangeObject& range() const;
  DictObject& dict() const;
  NamespaceObject& name_space() const;
  CallableObject& callable() const;
  LoopObject& loop() const;
  // Null for scalars.
  Object* object() const { return type_ >= Type::kUndefined ? data_.object : nullptr; }
  // The error message for using this undefined value.
  std::string UndefinedMessage() const;

 private:
  static constexpr uint8_t kMissingNote = 255;
  static constexpr uint8_t kUnsafeNote = 128;  // added to the owner's type

  static Value Scalar(Type type, int64_t value) {
    Value v;
    v.type_ = type;
    v.data_.integer = value;
    return v;
  }
  void Hold() const {
    Object* o = object();
    if (o != nullptr && !o->shared) ++o->references;
  }
  void Drop() {
    Object* o = object();
    if (o != nullptr && !o->shared && --o->references == 0) delete o;
  }

  Type type_;
  uint8_t note_ = 0;
  union {
    int64_t integer;
    double number;
    Object* object;
  } data_;
};

struct StringObject : Object {
  std::string text;             // UTF-8
  mutable int64_t length = -1;  // in code points; -1: not counted yet
  bool markup = false;
};

struct ListObject : Object {
  std::vector<Value> items;
  size_t position = 0;  // generators: number of items already read
};

struct RangeObject : Object {
  int64_t start = 0, stop = 0, step = 1, length = 0;
};

// Keeps the order of insertion. Filled once, then only read.
struct DictObject : Object {
  std::vector<std::pair<Value, Value>> entries;
  // hash → index, for dictionaries that are long to search.
  std::unordered_multimap<size_t, size_t> index;

  // Null if the key is missing. Compares keys as Python does: 1 == 1.0 == True. Hashing and
  // comparing keys takes steps from `budget`, if given.
  const Value* Find(const Value& key, Budget* budget = nullptr) const;
  const Value* Find(std::string_view key, Budget* budget = nullptr) const;
  // Adds the key or replaces its value.
  void Set(Value key, Value value, Budget* budget = nullptr);
};

// {% set ns.x = ... %} changes it, so it can contain itself: the interpreter empties all namespaces
// at the end.
struct NamespaceObject : Object {
  std::vector<std::pair<std::string, Value>> attributes;
  // Null if the name is missing. The search is linear, and `budget` is charged for it.
  Value* Find(std::string_view name, Budget& budget);
};

// Makes a value of a filled dictionary. Undefined if it nests too deeply or if the budget is
// exhausted.
Value MakeDict(std::unique_ptr<DictObject> dict, Budget* budget);

// Python's ==; false for values that cannot be compared. Takes steps from `budget`, if given.
bool Equal(const Value& a, const Value& b, Budget* budget);
// False for what Python cannot hash (lists, dictionaries), and for tuples of thousands of values.
bool Hashable(const Value& value);
// Takes steps from `budget`, if given. Once that is exhausted, the result means nothing.
size_t Hash(const Value& value, Budget* budget);

}  // namespace tokamak::jinja
