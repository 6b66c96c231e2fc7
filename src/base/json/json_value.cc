#include "base/json/json_value.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <random>

#include "base/check.h"
#include "base/hash.h"
#include "base/printable.h"

namespace tokamak {
namespace {

constexpr size_t kHashedFrom = 16;  // members

// Differs in every process, so that no client can choose names that collide.
size_t HashName(std::string_view name) {
  static const uint64_t kSeed = std::random_device()();
  return Hash64(name.data(), name.size(), kSeed);
}

void Print(const JsonValue& value, size_t max_bytes, std::string* out) {
  if (out->size() > max_bytes) return;
  if (value.is_null()) *out += "null";
  if (const std::optional<bool> b = value.AsBool()) *out += *b ? "true" : "false";
  if (const std::optional<int64_t> i = value.AsInt()) *out += fmt::format("{}", *i);
  if (const std::optional<double> d = value.AsDouble()) *out += fmt::format("{}", *d);
  if (const std::string* s = value.AsString()) *out += Quoted(*s, max_bytes);
  if (const JsonValue::Array* array = value.AsArray()) {
    *out += '[';
    for (size_t i = 0; i < array->size() && out->size() <= max_bytes; ++i) {
      if (i > 0) *out += ", ";
      Print((*array)[i], max_bytes, out);
    }
    *out += ']';
  }
  if (const JsonValue::Object* object = value.AsObject()) {
    *out += '{';
    for (size_t i = 0; i < object->size() && out->size() <= max_bytes; ++i) {
      if (i > 0) *out += ", ";
      *out += Quoted((*object)[i].first, max_bytes) + ": ";
      Print((*object)[i].second, max_bytes, out);
    }
    *out += '}';
  }
}

}  // namespace

JsonValue::JsonValue(uint64_t value) : data_(value) {
  if (value <= static_cast<uint64_t>(INT64_MAX)) data_ = static_cast<int64_t>(value);
}
JsonValue::JsonValue(std::string value) : data_(Box<std::string>(std::move(value))) {}
JsonValue::JsonValue(Array value) : data_(Box<Array>(std::move(value))) {}
JsonValue::JsonValue(Object value) : data_(Box<Members>(Members())) {
  for (Member& member : value) Set(member.first, std::move(member.second));
}

JsonValue JsonValue::BigInt(std::string digits) {
  JsonValue value;
  value.data_ = Box<Digits>({std::move(digits)});
  return value;
}

std::optional<uint64_t> JsonValue::AsUint() const {
  if (const int64_t* value = std::get_if<int64_t>(&data_)) {
    return *value < 0 ? std::nullopt : std::optional(static_cast<uint64_t>(*value));
  }
  return Scalar<uint64_t>();
}

std::optional<double> JsonValue::AsDouble() const {
  if (const uint64_t* value = std::get_if<uint64_t>(&data_)) return static_cast<double>(*value);
  if (const std::string* digits = AsBigInt()) {
    double value = 0;
    std::from_chars(digits->data(), digits->data() + digits->size(), value);
    return value;
  }
  return Scalar<double>();
}

std::optional<double> JsonValue::AsNumber() const {
  if (const int64_t* value = std::get_if<int64_t>(&data_)) return static_cast<double>(*value);
  return AsDouble();
}

const std::string* JsonValue::AsBigInt() const {
  const Digits* digits = Pointer<Digits>();
  return digits == nullptr ? nullptr : &digits->text;
}

size_t JsonValue::size() const {
  if (const Array* array = AsArray()) return array->size();
  return is_object() ? AsObject()->size() : 0;
}

void JsonValue::Index(Members& members, size_t member) {
  const size_t mask = members.slots.size() - 1;
  size_t slot = HashName(members.list[member].first) & mask;
  while (members.slots[slot] != 0) slot = (slot + 1) & mask;
  members.slots[slot] = static_cast<uint32_t>(member + 1);
}

// Returns the number of members if there is none of this name.
size_t JsonValue::IndexOf(const Members& members, std::string_view name) {
  const Object& list = members.list;
  if (members.slots.empty()) {
    size_t i = 0;
    while (i < list.size() && list[i].first != name) ++i;
    return i;
  }
  const size_t mask = members.slots.size() - 1;
  for (size_t slot = HashName(name) & mask; members.slots[slot] != 0; slot = (slot + 1) & mask) {
    const size_t i = members.slots[slot] - 1;
    if (list[i].first == name) return i;
  }
  return list.size();
}

JsonValue* JsonValue::Find(std::string_view name) {
  Members* members = Pointer<Members>();
  const size_t i = members == nullptr ? 0 : IndexOf(*members, name);
  return members == nullptr || i == members->list.size() ? nullptr : &members->list[i].second;
}
const JsonValue* JsonValue::Find(std::string_view name) const {
  return const_cast<JsonValue*>(this)->Find(name);
}

bool JsonValue::Set(std::string name, JsonValue value) {
  if (is_null()) *this = JsonValue(Object());
  CHECK_MSG(is_object(), "only objects have members");
  if (JsonValue* found = Find(name)) {
    *found = std::move(value);
    return false;
  }
  Members& members = *Pointer<Members>();
  members.list.emplace_back(std::move(name), std::move(value));
  const size_t count = members.list.size();
  if (count >= kHashedFrom && 2 * count > members.slots.size()) {
    members.slots.assign(4 * std::bit_ceil(count), 0);
    for (size_t i = 0; i < count; ++i) Index(members, i);
  } else if (!members.slots.empty()) {
    Index(members, count - 1);
  }
  return true;
}

void JsonValue::Append(JsonValue value) { Pointer<Array>()->push_back(std::move(value)); }

bool JsonValue::operator==(const JsonValue& other) const {
  if (kind() != other.kind()) {
    return is_number() && other.is_number() && AsNumber() == other.AsNumber();
  }
  if (is_array()) return *AsArray() == *other.AsArray();
  if (is_string()) return *AsString() == *other.AsString();
  if (!is_object()) {
    return AsInt() == other.AsInt() && AsUint() == other.AsUint() && AsBool() == other.AsBool() &&
           AsDouble() == other.AsDouble();
  }
  return size() == other.size() &&
         std::all_of(AsObject()->begin(), AsObject()->end(), [&](const Member& member) {
           const JsonValue* same = other.Find(member.first);
           return same != nullptr && *same == member.second;
         });
}

std::string JsonValue::ToString(size_t max_bytes) const {
  std::string out;
  Print(*this, max_bytes, &out);
  if (out.size() > max_bytes + 10) out = out.substr(0, max_bytes) + "...";
  return out;
}

}  // namespace tokamak
