#include "chat/jinja/value.h"

#include <algorithm>

#include "base/hash.h"
#include "base/random_bits.h"
#include "chat/jinja/callable.h"

namespace tokamak::jinja {
namespace {

constexpr size_t kIndexFrom = 8;   // entries of a dictionary
constexpr size_t kEntryBytes = 4;  // charged for passing over an entry of a namespace

// Charges an object's cost to the budget; false if it is exhausted.
bool Pay(Object& object, size_t bytes, Budget* budget) {
  if (budget == nullptr) return true;
  if (!budget->Charge(bytes)) return false;
  object.budget = budget;
  object.charged = bytes;
  return true;
}

constexpr int32_t kMaxKeyWeight = 4096;
constexpr int32_t kMaxWeight = 1 << 29;  // two of them still fit an int32_t

// Updates depth and weight for a value that `container` holds.
void Contain(Object& container, const Value& value) {
  const Object* object = value.object();
  if (object == nullptr) return;
  container.depth = std::max(container.depth, object->depth + 1);
  container.weight = std::min(container.weight + object->weight, kMaxWeight);
}

bool EqualItems(const std::vector<Value>& a, const std::vector<Value>& b, Budget* budget) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    if (!Equal(a[i], b[i], budget)) return false;
  }
  return true;
}

// Random and secret. An attacker who could compute hashes could send keys that all fall into one
// bucket of a dictionary's index, and walking a bucket is not charged to the budget.
uint64_t HashSeed() {
  static const uint64_t seed = RandomBits();
  return seed;
}

size_t HashText(std::string_view text) { return Hash64(text.data(), text.size(), HashSeed()); }

// Equal numbers get equal hashes: -0.0 becomes 0.0.
size_t HashNumber(double number) {
  number += 0.0;
  return Hash64(&number, sizeof(number), HashSeed());
}

bool EqualDicts(const DictObject& a, const DictObject& b, Budget* budget) {
  if (a.entries.size() != b.entries.size()) return false;
  for (const auto& [key, value] : a.entries) {
    const Value* other = b.Find(key, budget);
    if (other == nullptr || !Equal(value, *other, budget)) return false;
  }
  return true;
}

}  // namespace

const char* TypeName(Type type) {
  // In the order of Type.
  static constexpr const char* kNames[] = {
      "NoneType",  "bool",  "int",   "float",     "Undefined",   "str",
      "int",       "list",  "tuple", "dict_keys", "dict_values", "dict_items",
      "generator", "range", "dict",  "Namespace", "function",    "LoopContext"};
  return kNames[static_cast<size_t>(type)];
}

Value Value::FromObject(Type type, Object* object) {
  Value v;
  v.type_ = type;
  v.data_.object = object;
  v.Hold();
  return v;
}

Value Value::Undefined(const Value& name, Type owner) {
  Value v = name.is_string() ? name : Value();
  v.type_ = Type::kUndefined;
  v.note_ = static_cast<uint8_t>(owner);
  return v;
}

Value Value::Unsafe(const Value& name, Type owner) {
  Value v = Undefined(name, owner);
  v.note_ += kUnsafeNote;
  return v;
}

Value Value::String(std::string text, Budget* budget, bool markup) {
  auto object = std::make_unique<StringObject>();
  if (!Pay(*object, sizeof(StringObject) + text.size(), budget)) return Value();
  object->text = std::move(text);
  object->markup = markup;
  return FromObject(Type::kString, object.release());
}

Value Value::BigInt(std::string digits) {
  auto object = std::make_unique<StringObject>();
  object->text = std::move(digits);
  return FromObject(Type::kBigInt, object.release());
}

Value Value::List(std::vector<Value> items, Budget* budget, Type type) {
  auto object = std::make_unique<ListObject>();
  if (!Pay(*object, sizeof(ListObject) + items.size() * sizeof(Value), budget)) return Value();
  object->weight = static_cast<int32_t>(std::min<size_t>(items.size() + 1, kMaxWeight));
  for (const Value& item : items) Contain(*object, item);
  if (object->depth > kMaxNesting) {
    if (budget != nullptr) budget->Exhaust("its lists nest too deeply");
    return Value();
  }
  object->items = std::move(items);
  return FromObject(type, object.release());
}

Value MakeDict(std::unique_ptr<DictObject> dict, Budget* budget) {
  // The entry's key and value, and its node in the index.
  const size_t entry_bytes = 2 * sizeof(Value) + 48;
  if (!Pay(*dict, sizeof(DictObject) + dict->entries.size() * entry_bytes, budget)) return Value();
  for (const auto& [key, value] : dict->entries) {
    Contain(*dict, key);
    Contain(*dict, value);
  }
  if (dict->depth > kMaxNesting) {
    if (budget != nullptr) budget->Exhaust("its dictionaries nest too deeply");
    return Value();
  }
  return Value::FromObject(Type::kDict, dict.release());
}

std::string_view Value::text() const { return string().text; }
bool Value::markup() const { return string().markup; }
const std::vector<Value>& Value::items() const { return list().items; }
StringObject& Value::string() const { return static_cast<StringObject&>(*data_.object); }
ListObject& Value::list() const { return static_cast<ListObject&>(*data_.object); }
RangeObject& Value::range() const { return static_cast<RangeObject&>(*data_.object); }
DictObject& Value::dict() const { return static_cast<DictObject&>(*data_.object); }
NamespaceObject& Value::name_space() const { return static_cast<NamespaceObject&>(*data_.object); }
CallableObject& Value::callable() const { return static_cast<CallableObject&>(*data_.object); }
LoopObject& Value::loop() const { return static_cast<LoopObject&>(*data_.object); }

std::string Value::UndefinedMessage() const {
  if (data_.object == nullptr || note_ == kMissingNote) return "the value is undefined";
  const std::string& name = string().text;
  if (note_ >= kUnsafeNote) {
    const char* owner = TypeName(static_cast<Type>(note_ - kUnsafeNote));
    return "access to attribute '" + name + "' of '" + owner + "' object is unsafe";
  }
  const auto owner = static_cast<Type>(note_);
  if (owner == Type::kUndefined) return "'" + name + "' is undefined";
  if (owner == Type::kNone) return "'None' has no attribute '" + name + "'";
  return std::string("'") + TypeName(owner) + " object' has no attribute '" + name + "'";
}

const Value* DictObject::Find(const Value& key, Budget* budget) const {
  if (key.is_string()) return Find(key.text(), budget);
  if (index.empty()) {
    for (const auto& [k, v] : entries) {
      if (Equal(k, key, budget)) return &v;
    }
    return nullptr;
  }
  const auto [begin, end] = index.equal_range(Hash(key, budget));
  for (auto it = begin; it != end; ++it) {
    if (Equal(entries[it->second].first, key, budget)) return &entries[it->second].second;
  }
  return nullptr;
}

const Value* DictObject::Find(std::string_view key, Budget* budget) const {
  // Charges for hashing the key or for a few comparisons; short keys are free.
  const auto pays = [&] { return budget == nullptr || budget->Step(BytesSteps(key.size())); };
  const auto matches = [key](const Value& k) { return k.is_string() && k.text() == key; };
  if (!pays()) return nullptr;
  if (index.empty()) {
    for (const auto& [k, v] : entries) {
      if (matches(k)) return &v;
    }
    return nullptr;
  }
  const auto [begin, end] = index.equal_range(HashText(key));
  for (auto it = begin; it != end; ++it) {
    if (matches(entries[it->second].first)) return &entries[it->second].second;
    if (budget != nullptr && !budget->StepBytes(key.size())) return nullptr;
  }
  return nullptr;
}

void DictObject::Set(Value key, Value value, Budget* budget) {
  if (const Value* found = Find(key, budget)) {
    const_cast<Value&>(*found) = std::move(value);
    return;
  }
  entries.emplace_back(std::move(key), std::move(value));
  if (entries.size() == kIndexFrom) {
    for (size_t i = 0; i < entries.size(); ++i) index.emplace(Hash(entries[i].first, budget), i);
  } else if (entries.size() > kIndexFrom) {
    index.emplace(Hash(entries.back().first, budget), entries.size() - 1);
  }
}

Value* NamespaceObject::Find(std::string_view name, Budget& budget) {
  size_t bytes = 0;
  for (auto& [key, value] : attributes) {
    bytes += key.size() == name.size() ? kEntryBytes + name.size() : kEntryBytes;
    if (key == name) return budget.Step(BytesSteps(bytes)) ? &value : nullptr;
  }
  budget.Step(BytesSteps(bytes));
  return nullptr;
}

bool Equal(const Value& a, const Value& b, Budget* budget) {
  if (budget != nullptr && !budget->Step()) return false;
  if (a.is_number() && b.is_number()) {
    if (a.is_integral() && b.is_integral()) return a.integer() == b.integer();
    return a.number() == b.number();
  }
  if (a.type() != b.type()) return false;
  switch (a.type()) {
    case Type::kNone:
    case Type::kUndefined:
      return true;
    case Type::kString:
    case Type::kBigInt:
      if (a.text().size() != b.text().size()) return false;
      if (budget != nullptr && !budget->StepBytes(a.text().size())) return false;
      return a.text() == b.text();
    case Type::kList:
    case Type::kTuple:
    case Type::kDictKeys:
    case Type::kDictItems:
      return EqualItems(a.items(), b.items(), budget);
    case Type::kRange:
      return a.range().length == b.range().length &&
             (a.range().length == 0 || a.range().start == b.range().start) &&
             (a.range().length < 2 || a.range().step == b.range().step);
    case Type::kDict:
      return EqualDicts(a.dict(), b.dict(), budget);
    default:
      return a.object() == b.object();
  }
}

bool Hashable(const Value& value) {
  switch (value.type()) {
    case Type::kList:
    case Type::kDict:
    case Type::kDictKeys:
    case Type::kDictItems:
      return false;
    case Type::kTuple:
      if (value.object()->weight > kMaxKeyWeight) return false;
      for (const Value& item : value.items()) {
        if (!Hashable(item)) return false;
      }
      return true;
    default:
      return true;
  }
}

size_t Hash(const Value& value, Budget* budget) {
  switch (value.type()) {
    case Type::kBool:
    case Type::kInt:
      return HashNumber(static_cast<double>(value.integer()));
    case Type::kFloat:
      return HashNumber(value.number());
    case Type::kString:
      if (budget != nullptr && !budget->StepBytes(value.text().size())) return 0;
      return HashText(value.text());
    case Type::kTuple: {
      size_t hash = value.items().size();
      for (const Value& item : value.items()) {
        if (budget != nullptr && !budget->Step()) return 0;
        hash = hash * 1000003 + Hash(item, budget);
      }
      return hash;
    }
    default:
      return static_cast<size_t>(value.type());
  }
}

}  // namespace tokamak::jinja
