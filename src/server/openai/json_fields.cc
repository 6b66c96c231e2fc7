#include "server/openai/json_fields.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "server/openai/request_limits.h"

namespace tokamak {
namespace {

using Json = nlohmann::json;

}  // namespace

Result<Json> ParseBody(const std::string& body) {
  RETURN_IF_ERROR(CheckJsonShape(body));
  // The parser would take a NUL for the end, and ignore what follows.
  if (const size_t at = body.find('\0'); at != std::string::npos) {
    return InvalidArgument("the body is not valid JSON at byte {}: it has a NUL byte there",
                           at + 1);
  }
  try {
    Json json = Json::parse(body);
    if (!json.is_object()) return InvalidArgument("the body must be a JSON object");
    return json;
  } catch (const Json::parse_error& error) {
    // error.what() repeats the input, which may be long or binary.
    return InvalidArgument(
        "the body is not valid JSON at byte {} (strings must be UTF-8 without lone surrogates, "
        "numbers finite)",
        error.byte);
  } catch (const Json::exception&) {  // a number beyond the range of double
    return InvalidArgument("the body is not valid JSON: a number is out of range");
  }
}

std::string DescribeJson(const Json& value) {
  if (value.is_number_float()) {
    const auto number = value.get<double>();
    return number == std::trunc(number) && std::abs(number) > 1e15 ? "a number of more than 64 bits"
                                                                   : "a fraction";
  }
  if (value.is_number()) return "an integer";
  if (value.is_boolean()) return "a boolean";
  if (value.is_object()) return "an object";
  if (value.is_array()) return "an array";
  return value.is_string() ? "a string" : "null";
}

Fields::Fields(const Json& object, std::string path) : object_(object), path_(std::move(path)) {}

std::string Fields::Path(std::string_view name) const {
  return path_.empty() ? std::string(name) : fmt::format("{}.{}", path_, name);
}

const Json* Fields::Find(const char* name) {
  if (std::find(known_.begin(), known_.end(), name) == known_.end()) known_.emplace_back(name);
  const auto found = object_.find(name);
  return found == object_.end() || found->is_null() ? nullptr : &*found;
}

void Fields::Read(const char* name, bool& out) {
  const Json* value = Find(name);
  if (value == nullptr) return;
  if (!value->is_boolean()) return WrongType(name, "true or false", *value);
  out = value->get<bool>();
}

void Fields::Read(const char* name, std::string& out) {
  const Json* value = Find(name);
  if (value == nullptr) return;
  if (!value->is_string()) return WrongType(name, "a string", *value);
  out = value->get<std::string>();
}

void Fields::Read(const char* name, float& out) {
  const Json* value = Find(name);
  if (value == nullptr) return;
  if (const std::optional<float> number = Float(Path(name), *value)) out = *number;
}

void Fields::Read(const char* name, int32_t& out) {
  const Json* value = Find(name);
  if (value == nullptr) return;
  if (const std::optional<int32_t> number = Int32(Path(name), *value)) out = *number;
}

void Fields::Read(const char* name, std::optional<int32_t>& out) {
  const Json* value = Find(name);
  if (value == nullptr) return;
  if (const std::optional<int32_t> number = Int32(Path(name), *value)) out = number;
}

void Fields::ReadList(const char* name, size_t max,
                      FunctionRef<void(const std::string&, const Json&)> read) {
  const Json* value = Find(name);
  if (value == nullptr) return;
  if (!value->is_array()) return WrongType(name, "an array", *value);
  if (value->size() > max) return Fail(name, fmt::format("has more than {} entries", max));
  for (size_t i = 0; i < value->size() && status_.ok(); ++i) {
    read(fmt::format("{}[{}]", Path(name), i), (*value)[i]);
  }
}

std::optional<int32_t> Fields::Int32(const std::string& path, const Json& value) {
  if (!value.is_number_integer()) {
    FailAt(path, fmt::format("must be an integer, not {}", DescribeJson(value)));
    return std::nullopt;
  }
  const bool fits = value.is_number_unsigned()
                        ? value.get<uint64_t>() <= std::numeric_limits<int32_t>::max()
                        : value.get<int64_t>() >= std::numeric_limits<int32_t>::min();
  if (!fits) {
    FailAt(path, fmt::format("{} is out of range", value.dump()));
    return std::nullopt;
  }
  return value.get<int32_t>();
}

std::optional<float> Fields::Float(const std::string& path, const Json& value) {
  if (!value.is_number()) {
    FailAt(path, "must be a number, not " + DescribeJson(value));
    return std::nullopt;
  }
  const auto number = static_cast<float>(value.get<double>());
  if (!std::isfinite(number)) {
    FailAt(path, fmt::format("{} is out of range", value.dump()));
    return std::nullopt;
  }
  return number;
}

std::optional<std::vector<int32_t>> Fields::TokenIds(const std::string& path, const Json& list) {
  std::vector<int32_t> ids;
  ids.reserve(list.size());
  for (size_t i = 0; i < list.size(); ++i) {
    const auto id = Int32(fmt::format("{}[{}]", path, i), list[i]);
    if (!id) return std::nullopt;
    ids.push_back(*id);
  }
  return ids;
}

void Fields::Fail(std::string_view name, std::string_view message) {
  if (status_.ok()) status_ = InvalidArgument("{}: {}", Path(name), message);
}

void Fields::FailAt(const std::string& path, std::string_view message) {
  if (status_.ok()) status_ = InvalidArgument("{}: {}", path, message);
}

void Fields::WrongType(const char* name, std::string_view wanted, const Json& value) {
  Fail(name, fmt::format("must be {}, not {}", wanted, DescribeJson(value)));
}

std::vector<std::string> Fields::Unknown() const {
  std::vector<std::string> unknown;
  for (const auto& [name, value] : object_.items()) {
    if (std::find(known_.begin(), known_.end(), name) == known_.end()) unknown.push_back(name);
  }
  return unknown;
}

}  // namespace tokamak
