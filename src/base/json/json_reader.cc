#include "base/json/json_reader.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace tokamak {

JsonReader::JsonReader(const JsonValue& value, std::string prefix, JsonWording wording, Track track)
    : JsonReader(&value, "",
                 std::make_shared<State>(
                     State{.prefix = std::move(prefix), .wording = wording, .track = track})) {}

std::string JsonReader::PathOf(std::string_view name) const {
  std::string path = path_;
  if (!path.empty()) path += '.';
  path += name;
  return path;
}

const JsonValue& JsonReader::value() const {
  static const JsonValue kNull;
  return value_ == nullptr ? kNull : *value_;
}

const JsonValue* JsonReader::Lookup(std::string_view name) const {
  const JsonValue* found = value().Find(name);
  if (found != nullptr && !found->is_null()) return found;
  if (state_->defaults.empty()) return nullptr;
  const auto known = state_->defaults.find(PathOf(name));
  return known == state_->defaults.end() ? nullptr : &known->second;
}

void JsonReader::Mark(std::string_view name, Use use) const {
  if (state_->track == Track::kNone) return;
  if (state_->track == Track::kOutermost && !path_.empty()) return;
  Use& place = state_->uses.try_emplace(PathOf(name), use).first->second;
  place = std::max(place, use);
}

JsonReader JsonReader::operator[](std::string_view name) const {
  Mark(name, Use::kRead);
  return {Lookup(name), PathOf(name), state_};
}

JsonReader JsonReader::operator[](size_t i) const {
  return {&(*value().AsArray())[i], fmt::format("{}[{}]", path_, i), state_};
}

size_t JsonReader::Size() const {
  if (!is_array()) Bad("an array");
  return is_array() ? value().size() : 0;
}

void JsonReader::ForEach(size_t max, FunctionRef<void(const JsonReader&)> read) const {
  const size_t size = present() ? Size() : 0;
  if (size > max) return Fail(fmt::format("has more than {} entries", max));
  for (size_t i = 0; i < size && ok(); ++i) read((*this)[i]);
}

bool JsonReader::Bool() const {
  const std::optional<bool> flag = value().AsBool();
  if (!flag) Bad("true or false");
  return flag.value_or(false);
}

int64_t JsonReader::Int(int64_t min, int64_t max) const {
  const std::optional<int64_t> number = value().AsInt();
  if (number && min <= *number && *number <= max) return *number;
  Mismatch("an integer", fmt::format(" from {} to {}", min, max), value().is_integer());
  return min;
}

double JsonReader::Number(std::optional<NumberRange> range) const {
  const std::optional<double> number = value().AsNumber();
  const bool within = number && (!range || (range->min <= *number && *number <= range->max));
  if (within) return *number;
  const bool bounded = number && range;
  Mismatch("a number", bounded ? fmt::format(" from {} to {}", range->min, range->max) : "",
           number.has_value());
  return range ? range->min : 0;
}

float JsonReader::Float() const {
  const auto number = static_cast<float>(Number());
  if (!std::isfinite(number)) Mismatch("a number", "", true);
  return number;
}

std::string JsonReader::String() const {
  if (const std::string* text = value().AsString()) return *text;
  Bad("a string");
  return "";
}

std::vector<int32_t> JsonReader::Int32s() const {
  std::vector<int32_t> numbers;
  const size_t size = Size();
  numbers.reserve(size);
  for (size_t i = 0; i < size && ok(); ++i) {
    const std::optional<int64_t> number = (*value().AsArray())[i].AsInt();
    const bool fits = number && INT32_MIN <= *number && *number <= INT32_MAX;
    numbers.push_back(fits ? static_cast<int32_t>(*number) : (*this)[i].Int32());
  }
  return numbers;
}

namespace {

template <typename T, typename Read>
std::vector<T> ReadArray(const JsonReader& list, const char* expected, Read read) {
  std::vector<T> out;
  if (!list.is_array()) {
    list.Bad(expected);
    return out;
  }
  for (size_t i = 0; i < list.Size(); ++i) out.push_back(read(list[i]));
  return out;
}

}  // namespace

std::vector<int32_t> JsonReader::Ints(std::string_view name, IntRange range) const {
  return ReadArray<int32_t>((*this)[name], "an array of integers", [&](const JsonReader& element) {
    return static_cast<int32_t>(element.Int(range.min, range.max));
  });
}
std::vector<double> JsonReader::Numbers(std::string_view name, NumberRange range) const {
  return ReadArray<double>((*this)[name], "an array of numbers",
                           [&](const JsonReader& element) { return element.Number(range); });
}
std::vector<std::string> JsonReader::Strings(std::string_view name) const {
  return ReadArray<std::string>((*this)[name], "an array of strings",
                                [&](const JsonReader& element) { return element.String(); });
}

bool JsonReader::BoolOr(std::string_view name, bool absent) const {
  const JsonReader member = (*this)[name];
  return member.present() ? member.Bool() : absent;
}
int32_t JsonReader::IntOr(std::string_view name, int32_t absent, IntRange range) const {
  const JsonReader member = (*this)[name];
  return member.present() ? static_cast<int32_t>(member.Int(range.min, range.max)) : absent;
}
double JsonReader::NumberOr(std::string_view name, double absent, NumberRange range) const {
  const JsonReader member = (*this)[name];
  return member.present() ? member.Number(range) : absent;
}
std::string JsonReader::StringOr(std::string_view name, std::string_view absent) const {
  const JsonReader member = (*this)[name];
  return member.present() ? member.String() : std::string(absent);
}

void JsonReader::Read(std::string_view name, bool& out) const { out = BoolOr(name, out); }
void JsonReader::Read(std::string_view name, std::string& out) const {
  if (const JsonReader member = (*this)[name]; member.present()) out = member.String();
}
void JsonReader::Read(std::string_view name, float& out) const {
  if (const JsonReader member = (*this)[name]; member.present()) out = member.Float();
}
void JsonReader::Read(std::string_view name, int32_t& out) const {
  if (const JsonReader member = (*this)[name]; member.present()) out = member.Int32();
}
void JsonReader::Read(std::string_view name, std::optional<int32_t>& out) const {
  if (const JsonReader member = (*this)[name]; member.present()) out = member.Int32();
}

bool JsonReader::Has(std::string_view name) const {
  Mark(name, Use::kAsked);
  return Lookup(name) != nullptr;
}

bool JsonReader::IsNull(std::string_view name) const {
  Mark(name, Use::kAsked);
  const JsonValue* member = value().Find(name);
  return member != nullptr && member->is_null();
}

std::vector<std::string> JsonReader::Unread() const {
  std::vector<std::string> names;
  if (!is_object()) return names;
  for (const auto& [name, member] : *value().AsObject()) {
    if (!state_->uses.contains(PathOf(name))) names.push_back(name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

void JsonReader::Only(std::initializer_list<std::string_view> names) const {
  if (!is_object()) return Bad("an object");
  const std::string* unknown = nullptr;
  for (const auto& [name, member] : *value().AsObject()) {
    const bool known = std::find(names.begin(), names.end(), name) != names.end();
    if (!known && !member.is_null() && (unknown == nullptr || name < *unknown)) unknown = &name;
  }
  if (unknown != nullptr) Fail(Unimplemented("{}: \"{}\" is not supported", path(), *unknown));
}

void JsonReader::Mismatch(std::string_view expected, const std::string& range,
                          bool right_type) const {
  if (ok()) Fail(state_->wording({expected, range, right_type, value_}));
}

void JsonReader::Bad(std::string_view expected) const { Mismatch(expected, "", false); }

void JsonReader::Fail(const std::string& message) const {
  if (ok()) state_->status = InvalidArgument("{}: {}", path(), message);
}

void JsonReader::Fail(std::string_view name, const std::string& message) const {
  JsonReader(nullptr, PathOf(name), state_).Fail(message);
}

void JsonReader::Fail(Status status) const {
  if (ok()) state_->status = std::move(status);
}

}  // namespace tokamak
