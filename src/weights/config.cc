#include "weights/config.h"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <unordered_set>

#include "base/check.h"
#include "base/error.h"
#include "base/printable.h"

namespace tokamak {
namespace {

// Far beyond any real configuration.
constexpr size_t kMaxJsonBytes = size_t{16} << 20;
constexpr size_t kMaxDepth = 32;

// Builds a ConfigValue from parse events; keeps the first error.
class ConfigBuilder final : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit ConfigBuilder(const std::string& source) : source_(source) {}

  bool null() override { return Add(ConfigValue()); }
  bool boolean(bool value) override { return Add(value); }
  bool number_integer(int64_t value) override { return Add(value); }
  bool number_unsigned(uint64_t value) override {
    if (value > static_cast<uint64_t>(INT64_MAX)) return Add(static_cast<double>(value));
    return Add(static_cast<int64_t>(value));
  }
  bool number_float(double value, const std::string& text) override {
    if (!std::isfinite(value)) return Fail(fmt::format("the number {} is out of range", text));
    return Add(value);
  }
  bool string(std::string& value) override { return Add(std::move(value)); }
  bool binary(nlohmann::json::binary_t&) override { return Fail("unexpected binary value"); }
  bool start_object(size_t) override { return Push(ConfigValue(ConfigValue::Object())); }
  bool end_object() override { return Pop(); }
  bool start_array(size_t) override { return Push(ConfigValue(ConfigValue::Array())); }
  bool end_array() override { return Pop(); }
  bool key(std::string& name) override {
    if (!open_.back().names.insert(name).second) {
      return Fail(fmt::format("{} appears twice in one object", Quoted(name)));
    }
    open_.back().key = std::move(name);
    return true;
  }
  bool parse_error(size_t position, const std::string& token,
                   const nlohmann::detail::exception&) override {
    return Fail(fmt::format("at byte {}: malformed JSON at {}", position, Quoted(token)));
  }

  Result<ConfigValue> Take() {
    if (!status_.ok()) return status_;
    return std::move(root_);
  }

 private:
  struct Open {
    ConfigValue value;
    std::string key = {};  // of the current member
    std::unordered_set<std::string> names = {};
  };

  bool Fail(const std::string& message) {
    if (status_.ok()) status_ = InvalidArgument("{}: {}", source_, message);
    return false;
  }
  bool Push(ConfigValue value) {
    if (open_.size() == kMaxDepth) {
      return Fail(fmt::format("objects and arrays are nested more than {} levels deep", kMaxDepth));
    }
    open_.push_back({std::move(value)});
    return true;
  }
  bool Pop() {
    ConfigValue value = std::move(open_.back().value);
    open_.pop_back();
    return Add(std::move(value));
  }
  bool Add(ConfigValue value) {
    if (open_.empty()) {
      root_ = std::move(value);
    } else if (ConfigValue::Array* array = open_.back().value.AsArray()) {
      array->push_back(std::move(value));
    } else {
      // key() has checked that the name is new.
      open_.back().value.AsObject()->emplace_back(std::move(open_.back().key), std::move(value));
    }
    return true;
  }

  const std::string& source_;
  std::vector<Open> open_;
  ConfigValue root_;
  Status status_;
};

void Append(const ConfigValue& value, size_t max_bytes, std::string* out) {
  if (out->size() > max_bytes) return;
  if (value.is_null()) *out += "null";
  if (const std::optional<bool> b = value.AsBool()) *out += *b ? "true" : "false";
  if (const std::optional<int64_t> i = value.AsInt()) *out += fmt::format("{}", *i);
  if (const std::optional<double> d = value.AsDouble()) *out += fmt::format("{}", *d);
  if (const std::string* s = value.AsString()) *out += Quoted(*s, max_bytes);
  if (const ConfigValue::Array* array = value.AsArray()) {
    *out += '[';
    for (size_t i = 0; i < array->size() && out->size() <= max_bytes; ++i) {
      if (i > 0) *out += ", ";
      Append((*array)[i], max_bytes, out);
    }
    *out += ']';
  }
  if (const ConfigValue::Object* object = value.AsObject()) {
    *out += '{';
    for (size_t i = 0; i < object->size() && out->size() <= max_bytes; ++i) {
      if (i > 0) *out += ", ";
      *out += Quoted((*object)[i].first, max_bytes) + ": ";
      Append((*object)[i].second, max_bytes, out);
    }
    *out += '}';
  }
}

}  // namespace

std::optional<bool> ConfigValue::AsBool() const {
  if (kind_ != Kind::kBool) return std::nullopt;
  return int_ != 0;
}

std::optional<int64_t> ConfigValue::AsInt() const {
  if (kind_ != Kind::kInt) return std::nullopt;
  return int_;
}

std::optional<double> ConfigValue::AsDouble() const {
  if (kind_ != Kind::kDouble) return std::nullopt;
  return double_;
}

const ConfigValue* ConfigValue::Find(std::string_view name) const {
  const Object* object = AsObject();
  if (object == nullptr) return nullptr;
  for (const Member& member : *object) {
    if (member.first == name) return &member.second;
  }
  return nullptr;
}

void ConfigValue::Set(std::string_view name, ConfigValue value) {
  if (is_null()) *this = ConfigValue(Object());
  Object* object = AsObject();
  CHECK_MSG(object != nullptr, "only objects have members");
  for (Member& member : *object) {
    if (member.first == name) {
      member.second = std::move(value);
      return;
    }
  }
  object->emplace_back(std::string(name), std::move(value));
}

std::string ConfigValue::ToString(size_t max_bytes) const {
  std::string out;
  Append(*this, max_bytes, &out);
  if (out.size() > max_bytes + 10) out = out.substr(0, max_bytes) + "...";
  return out;
}

Result<ConfigValue> ParseConfigJson(std::string_view text, const std::string& source) {
  if (text.size() > kMaxJsonBytes) {
    return ResourceExhausted("{}: has {} bytes of JSON; at most {} are accepted", source,
                             text.size(), kMaxJsonBytes);
  }
  ConfigBuilder builder(source);
  nlohmann::json::sax_parse(text.begin(), text.end(), &builder);
  ASSIGN_OR_RETURN(ConfigValue value, builder.Take());
  if (value.AsObject() == nullptr) {
    return InvalidArgument("{}: must be a JSON object, got {}", source, value.ToString());
  }
  return value;
}

}  // namespace tokamak
