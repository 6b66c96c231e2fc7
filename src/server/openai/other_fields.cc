#include "server/openai/other_fields.h"

#include <algorithm>

#include "base/error.h"
#include "base/function_ref.h"
#include "server/openai/json_fields.h"
#include "server/transport/http.h"

namespace tokamak {
namespace {

constexpr size_t kMaxKeyInErrors = 64;

bool IsOneOf(const JsonValue& value, const char* values) {
  if (values == nullptr) return false;
  const JsonValue list = *JsonValue::Parse(values, {});
  return std::find(list.AsArray()->begin(), list.AsArray()->end(), value) != list.AsArray()->end();
}

bool IsAllowed(const OtherField& field, const JsonValue& value) {
  const bool off = value.is_null() || (field.rule == FieldRule::kRefused && IsOff(value));
  return off || IsOneOf(value, field.values);
}

// Calls `visit` with path and value of each field of `value` that `name` matches.
void Visit(const JsonValue& value, std::string_view name, const std::string& path,
           FunctionRef<void(const std::string&, const JsonValue&)> visit) {
  const std::string key(name.substr(0, name.find_first_of(".[")));
  const JsonValue* found = value.Find(key);
  if (found == nullptr) return;
  const std::string here = path.empty() ? key : path + "." + key;
  const std::string_view rest = name.substr(key.size());
  if (rest.empty()) return visit(here, *found);
  if (rest.front() == '.') return Visit(*found, rest.substr(1), here, visit);
  if (!found->is_array()) return;
  for (size_t i = 0; i < found->size(); ++i) {
    Visit((*found->AsArray())[i], rest.substr(3), fmt::format("{}[{}]", here, i),
          visit);  // past "[]."
  }
}

Status Refusal(const std::string& path, const OtherField& field) {
  std::string message = "is not supported";
  if (!field.text.empty()) message += fmt::format(": {}", field.text);
  message += "; leave it out";
  const std::string_view values = field.values == nullptr ? "[]" : field.values;
  if (values != "[]") message += fmt::format(", or give one of {}", values);
  return InvalidArgument("{}: {}", path, message);
}

Status GivenTwice(const std::string& name, const std::string& other) {
  return InvalidArgument("{}: is another name of \"{}\", which is given too; give one of them",
                         name, other);
}

// Sets body[to] to the value of a field with another name, unless both are present and differ.
Status Move(JsonValue& body, const std::string& to, JsonValue value, const std::string& spelled,
            FieldSpellings& spellings) {
  if (value.is_null()) return Status();
  const JsonValue* given = body.Find(to);
  if (given == nullptr || given->is_null()) {
    spellings.by_name.insert_or_assign(to, spelled);
  } else if (*given != value) {
    return GivenTwice(spelled, spellings.Apply(to));
  }
  body.Set(to, std::move(value));
  spellings.taken.erase(to);
  return Status();
}

// Returns body[name], which may be null, and leaves null.
JsonValue Take(JsonValue& body, const std::string& name, FieldSpellings& spellings) {
  JsonValue* found = body.Find(name);
  if (found == nullptr) return JsonValue();
  spellings.taken.insert(name);
  return std::exchange(*found, JsonValue());
}

Status Unpack(JsonValue& body, const std::string& name, FieldSpellings& spellings) {
  JsonValue inner = Take(body, name, spellings);
  if (IsOff(inner)) return Status();
  if (!inner.is_object()) {
    return InvalidArgument("{}: must be an object, not {}", name, DescribeJson(inner));
  }
  for (const auto& [key, value] : *inner.AsObject()) {
    const std::string spelled = spellings.Apply(name) + "." + key.substr(0, kMaxKeyInErrors);
    RETURN_IF_ERROR(Move(body, key, value, spelled, spellings));
  }
  return Status();
}

Status Rename(JsonValue& body, const OtherField& field, FieldSpellings& spellings) {
  const std::string name(field.name), to(field.text);
  JsonValue value = Take(body, name, spellings);
  const std::string spelled = spellings.Apply(name);
  if (field.rule == FieldRule::kUnlimited && value == -1) {
    const JsonValue* given = body.Find(to);
    if (given != nullptr && !given->is_null()) return GivenTwice(spelled, spellings.Apply(to));
    spellings.unlimited_tokens = true;
    return Status();
  }
  return Move(body, to, std::move(value), spelled, spellings);
}

Status TakeOne(JsonValue& body, const OtherField& field, FieldSpellings& spellings) {
  const bool inside = field.name.find('.') != std::string_view::npos;
  if (field.rule == FieldRule::kRefused || field.rule == FieldRule::kOnly) {
    Status status;
    Visit(body, field.name, "", [&](const std::string& path, const JsonValue& value) {
      if (status.ok() && !IsAllowed(field, value)) status = Refusal(path, field);
    });
    if (!status.ok()) return spellings.Apply(status);
  }
  if (field.rule == FieldRule::kIgnored) {
    bool on = false;
    Visit(body, field.name, "",
          [&](const std::string&, const JsonValue& value) { on = on || !IsOff(value); });
    if (on) spellings.ignored.emplace_back(field.name);
  }
  if (!inside) Take(body, std::string(field.name), spellings);
  return Status();
}

}  // namespace

bool IsOff(const JsonValue& value) {
  if (value.is_number()) return value == 0;
  if (value.is_string()) return value.AsString()->empty();
  return value.AsBool() ? !*value.AsBool() : value.size() == 0;  // null is empty
}

Status FieldSpellings::Apply(const Status& status) const {
  const std::string_view message = status.message();
  const size_t name = message.find_first_of(":.[ ");
  if (status.ok() || name == std::string_view::npos || message[name] == ' ') return status;
  size_t end = std::min(message.find_first_of(": "), message.size());
  for (;; end = message.find_last_of(".[", end - 1)) {
    const auto found = by_name.find(message.substr(0, end));
    if (found != by_name.end()) {
      return Status(status.code(), found->second + std::string(message.substr(end)));
    }
    if (end <= name) return status;
  }
}

std::string FieldSpellings::Apply(const std::string& name) const {
  const auto found = by_name.find(name);
  return found == by_name.end() ? name : found->second;
}

std::vector<std::string> FieldSpellings::Ignored(const std::vector<std::string>& unknown) const {
  std::vector<std::string> names = ignored;
  for (const std::string& name : unknown) {
    if (!taken.contains(name)) names.push_back(Apply(name));
  }
  return names;
}

Result<FieldSpellings> TakeOtherFields(RequestKind request, JsonValue& body) {
  FieldSpellings spellings;
  const auto each = [&](FunctionRef<Status(const OtherField&)> take) {
    for (const OtherField& field : OtherFieldTable()) {
      if ((field.requests & request) == 0) continue;
      RETURN_IF_ERROR(take(field));
    }
    return Status();
  };
  // Fields within "options" may have another name or be refused, so objects are unpacked first.
  RETURN_IF_ERROR(each([&](const OtherField& field) {
    if (field.rule != FieldRule::kWithin) return Status();
    return Unpack(body, std::string(field.name), spellings);
  }));
  RETURN_IF_ERROR(each([&](const OtherField& field) {
    const bool renamed = field.rule == FieldRule::kRenamed || field.rule == FieldRule::kUnlimited;
    if (field.rule == FieldRule::kWithin) return Status();
    return renamed ? Rename(body, field, spellings) : TakeOne(body, field, spellings);
  }));
  return spellings;
}

std::string IgnoredFieldList(const std::vector<std::string>& names) {
  constexpr size_t kMaxNames = 16, kMaxBytes = 480, kMaxNameBytes = 64;
  std::string list;
  size_t shown = 0;
  for (; shown < names.size() && shown < kMaxNames; ++shown) {
    std::string name = names[shown].substr(0, kMaxNameBytes);
    for (char& c : name) {
      const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
      const bool digit = c >= '0' && c <= '9';
      if (!letter && !digit && std::string_view("_.-[]").find(c) == std::string_view::npos) c = '?';
    }
    if (list.size() + name.size() + 2 > kMaxBytes) break;
    list += (shown == 0 ? "" : ", ") + (name.empty() ? "?" : name);
  }
  if (shown < names.size()) list += fmt::format(", and-{}-more", names.size() - shown);
  return list;
}

std::vector<std::pair<std::string, std::string>> IgnoredFieldHeaders(
    const std::vector<std::string>& names) {
  if (names.empty()) return {};
  return {{kIgnoredFieldsHeader, IgnoredFieldList(names)}};
}

}  // namespace tokamak
