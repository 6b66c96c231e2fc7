// Parses and prints with nlohmann's library, whose header is slow to compile.
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "base/json/json_value.h"

namespace tokamak {
namespace {

using Ordered = nlohmann::ordered_json;

// Builds the value from parse events.
class Builder final : public nlohmann::json_sax<nlohmann::json> {
 public:
  Builder(const JsonLimits& limits, JsonError& error) : limits_(limits), error_(error) {}
  JsonValue Take() { return std::move(root_); }

  bool null() override { return Add(JsonValue()); }
  bool boolean(bool value) override { return Add(value); }
  bool number_integer(int64_t value) override { return Add(value); }
  bool number_unsigned(uint64_t value) override { return Add(value); }
  bool number_float(double value, const std::string& text) override {
    // Integers beyond 64 bits come here too.
    const bool integer = text.find_first_of(".eE") == std::string::npos;
    return Add(integer ? JsonValue::BigInt(text) : JsonValue(value));
  }
  bool string(std::string& value) override { return Add(std::move(value)); }
  bool binary(nlohmann::json::binary_t&) override { return false; }
  bool start_object(size_t) override { return Push(JsonValue::Object()); }
  bool end_object() override { return Pop(); }
  bool start_array(size_t) override { return Push(JsonValue::Array()); }
  bool end_array() override { return Pop(); }
  bool key(std::string& name) override {
    open_.back().key = std::move(name);
    const bool repeated = limits_.distinct_names && open_.back().value.Find(open_.back().key);
    return !repeated || Fail(JsonError::kRepeatedName, 0, open_.back().key);
  }
  bool parse_error(size_t position, const std::string& token,
                   const nlohmann::detail::exception& error) override {
    constexpr int kNumberOutOfRange = 406;
    return Fail(error.id == kNumberOutOfRange ? JsonError::kOutOfRange : JsonError::kMalformed,
                position, token);
  }

 private:
  struct Open {
    JsonValue value;
    std::string key = {};  // of the current member
  };

  bool Fail(JsonError::Kind kind, size_t byte, const std::string& text) {
    error_ = {kind, byte, text};
    return false;
  }
  bool Push(JsonValue value) {
    if (open_.size() == limits_.max_depth) return Fail(JsonError::kTooDeep, 0, "");
    open_.push_back({std::move(value)});
    return true;
  }
  bool Pop() {
    JsonValue value = std::move(open_.back().value);
    open_.pop_back();
    return Add(std::move(value));
  }
  bool Add(JsonValue value) {
    if (open_.empty()) {
      root_ = std::move(value);
    } else if (open_.back().value.is_array()) {
      open_.back().value.Append(std::move(value));
    } else {
      open_.back().value.Set(std::move(open_.back().key), std::move(value));
    }
    return true;
  }

  const JsonLimits& limits_;
  JsonError& error_;
  std::vector<Open> open_;
  JsonValue root_;
};

std::string DumpScalar(const Ordered& value) {
  return value.dump(-1, ' ', false, Ordered::error_handler_t::replace);
}

void DumpTo(const JsonValue& value, std::string& out) {
  switch (value.kind()) {
    case JsonValue::Kind::kNull:
      out += "null";
      break;
    case JsonValue::Kind::kBool:
      out += *value.AsBool() ? "true" : "false";
      break;
    case JsonValue::Kind::kInt:
      out += std::to_string(*value.AsInt());
      break;
    case JsonValue::Kind::kUint:
      out += std::to_string(*value.AsUint());
      break;
    case JsonValue::Kind::kDouble:
      out += DumpScalar(*value.AsDouble());
      break;
    case JsonValue::Kind::kBigInt:
      out += *value.AsBigInt();
      break;
    case JsonValue::Kind::kString:
      out += DumpScalar(*value.AsString());
      break;
    case JsonValue::Kind::kArray: {
      const char* before = "[";
      for (const JsonValue& element : *value.AsArray()) {
        out += std::exchange(before, ",");
        DumpTo(element, out);
      }
      out += value.size() == 0 ? "[]" : "]";
      break;
    }
    case JsonValue::Kind::kObject: {
      const char* before = "{";
      for (const auto& [name, member] : *value.AsObject()) {
        out += std::exchange(before, ",");
        out += DumpScalar(name);
        out += ':';
        DumpTo(member, out);
      }
      out += value.size() == 0 ? "{}" : "}";
      break;
    }
  }
}

}  // namespace

std::optional<JsonValue> JsonValue::Parse(std::string_view text, const JsonLimits& limits,
                                          JsonError* error) {
  JsonError unused;
  JsonError& why = error == nullptr ? unused : *error;
  if (text.size() > limits.max_bytes) {
    why = {JsonError::kTooLong, 0, ""};
    return std::nullopt;
  }
  Builder builder(limits, why);
  if (!nlohmann::json::sax_parse(text.begin(), text.end(), &builder)) return std::nullopt;
  return builder.Take();
}

std::string JsonValue::Dump() const {
  std::string out;
  DumpTo(*this, out);
  return out;
}

}  // namespace tokamak
