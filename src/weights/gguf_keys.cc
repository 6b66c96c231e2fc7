#include "weights/gguf_keys.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <optional>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "base/printable.h"

namespace tokamak {
namespace {

template <typename T>
JsonValue OrNull(const std::optional<T>& value) {
  return value ? JsonValue(*value) : JsonValue();
}

}  // namespace

JsonValue GgufKeyReader::Int(const char* key) {
  return Value(key, "an integer", [](const GgufValue& v) { return OrNull(v.Int()); });
}

int64_t GgufKeyReader::Size(const char* key) {
  constexpr int64_t kMost = 1 << 30;
  const int64_t value = Int(key).AsInt().value_or(0);
  if (0 <= value && value <= kMost) return value;
  Unsupported(key, fmt::format("{}", value), fmt::format("at most {} is supported", kMost));
  return 0;
}

JsonValue GgufKeyReader::IntOr(const char* key, JsonValue absent) {
  return Has(key) ? Int(key) : std::move(absent);
}

JsonValue GgufKeyReader::Bool(const char* key) {
  return Value(key, "a bool", [](const GgufValue& v) { return OrNull(v.Bool()); });
}

bool GgufKeyReader::BoolOr(const char* key, bool absent) {
  return Has(key) ? Bool(key).AsBool().value_or(absent) : absent;
}

JsonValue GgufKeyReader::Number(const char* key) {
  return Value(key, "a number", [](const GgufValue& v) { return OrNull(v.Number()); });
}

JsonValue GgufKeyReader::String(const char* key) {
  return Value(key, "a string", [](const GgufValue& v) {
    const std::optional<std::string_view> text = v.String();
    return text ? JsonValue(std::string(*text)) : JsonValue();
  });
}

JsonValue GgufKeyReader::Bools(const char* key) {
  return List(key, file_.metadata().Bools(prefix_ + key));
}

JsonValue GgufKeyReader::Ints(const char* key) {
  return List(key, file_.metadata().Ints(prefix_ + key));
}

JsonValue GgufKeyReader::Numbers(const char* key) {
  return List(key, file_.metadata().Numbers(prefix_ + key));
}

void GgufKeyReader::ExpectNumber(const char* key, double expected) {
  if (!Has(key)) return;
  const std::optional<double> value = Number(key).AsDouble();
  if (!value || *value == expected) return;
  Unsupported(key, fmt::format("{}", *value), fmt::format("only {} is supported", expected));
}

void GgufKeyReader::WarnOfMissing(const char* key, const std::string& instead) {
  LogWarning("{}: the metadata has no {}: {}", file_.name(), Quoted(prefix_ + key), instead);
}

void GgufKeyReader::Unsupported(const char* key, const std::string& value,
                                const std::string& supported) {
  Fail(Unimplemented("{}: metadata {} is {}; {}", file_.name(), Quoted(prefix_ + key), value,
                     supported));
}

Status GgufKeyReader::Finish() const {
  RETURN_IF_ERROR(status_);
  std::vector<std::string> unread;
  for (const auto& entry : file_.metadata().entries()) {
    if (entry.key.starts_with(prefix_) && !read_.contains(entry.key) && unread.size() < 10) {
      unread.push_back(Quoted(entry.key));
    }
  }
  if (unread.empty()) return Status();
  return Unimplemented(
      "{}: this version does not know the metadata {}. They may change what the model computes, so "
      "they are not ignored.",
      file_.name(), fmt::join(unread, ", "));
}

JsonValue GgufKeyReader::Value(const char* key, const char* kind, Convert convert) {
  const std::string full = prefix_ + key;
  read_.insert(full);
  const GgufValue* value = file_.metadata().Find(full);
  if (value == nullptr) {
    Fail(NotFound("{}: the metadata has no {}; this architecture needs it", file_.name(),
                  Quoted(full)));
    return {};
  }
  GgufValue first = *value;
  if (value->is_array() && value->size() > 0) first = value->Element(0);
  JsonValue converted = convert(first);
  if (converted.is_null()) {
    Fail(DataLoss("{}: metadata {} has type {}, expected {}", file_.name(), Quoted(full),
                  Name(value->type()), kind));
    return {};
  }
  for (uint64_t i = 1; value->is_array() && i < value->size(); ++i) {
    if (convert(value->Element(i)) == converted) continue;
    Fail(Unimplemented("{}: metadata {} differs between layers, which is not supported",
                       file_.name(), Quoted(full)));
    return {};
  }
  return converted;
}

template <typename T>
JsonValue GgufKeyReader::List(const char* key, Result<std::vector<T>> values) {
  Ignore(key);
  if (!values.ok()) {
    Fail(values.status());
    return {};
  }
  JsonValue::Array list;
  for (const T value : *values) list.emplace_back(value);
  return JsonValue(std::move(list));
}

}  // namespace tokamak
