#include "chat/json.h"

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"

namespace tokamak {
namespace {

using jinja::DictObject;
using jinja::Value;
using Json = nlohmann::json;

constexpr size_t kMaxDepth = 100;

// Builds the value while the parser runs, from the inside out.
class Builder : public nlohmann::json_sax<Json> {
 public:
  Value Take() { return std::move(value_); }
  const Status& status() const { return status_; }

  bool null() override { return Add(Value::None()); }
  bool boolean(bool value) override { return Add(Value::Bool(value)); }
  bool number_integer(number_integer_t value) override { return Add(Value::Int(value)); }
  bool number_unsigned(number_unsigned_t value) override {
    return Add(value <= static_cast<uint64_t>(INT64_MAX) ? Value::Int(static_cast<int64_t>(value))
                                                         : Value::BigInt(std::to_string(value)));
  }
  bool number_float(number_float_t value, const string_t& text) override {
    // Integers beyond 64 bits come here too.
    if (text.find_first_of(".eE") == string_t::npos) return Add(Value::BigInt(text));
    return Add(Value::Float(value));
  }
  bool string(string_t& text) override { return Add(Value::String(std::move(text))); }
  bool binary(binary_t& /*bytes*/) override { return false; }

  bool start_object(size_t /*elements*/) override { return Open(std::make_unique<DictObject>()); }
  bool start_array(size_t /*elements*/) override { return Open(nullptr); }
  bool key(string_t& text) override {
    open_.back().key = std::move(text);
    return true;
  }
  bool end_object() override {
    Level level = Close();
    return Add(jinja::MakeDict(std::move(level.dict), nullptr));
  }
  bool end_array() override {
    Level level = Close();
    return Add(Value::List(std::move(level.items)));
  }
  bool parse_error(size_t position, const std::string& /*token*/,
                   const nlohmann::detail::exception& /*error*/) override {
    // The library's message repeats its input, which may be long and need not be text.
    status_ = InvalidArgument(
        "not valid JSON at byte {} (strings must be UTF-8 without lone surrogates)", position);
    return false;
  }

 private:
  struct Level {
    std::unique_ptr<DictObject> dict;  // null: a list
    std::vector<Value> items;
    std::string key;
  };

  bool Open(std::unique_ptr<DictObject> dict) {
    if (open_.size() == kMaxDepth) {
      status_ = InvalidArgument("the JSON nests deeper than {} levels", kMaxDepth);
      return false;
    }
    open_.push_back({std::move(dict), {}, {}});
    return true;
  }
  Level Close() {
    Level level = std::move(open_.back());
    open_.pop_back();
    return level;
  }
  bool Add(Value value) {
    if (open_.empty()) {
      value_ = std::move(value);
    } else if (Level& level = open_.back(); level.dict != nullptr) {
      level.dict->Set(Value::String(std::move(level.key)), std::move(value));
    } else {
      level.items.push_back(std::move(value));
    }
    return true;
  }

  std::vector<Level> open_;
  Value value_;
  Status status_;
};

}  // namespace

Result<Value> ParseJson(std::string_view text) {
  Builder builder;
  const bool parsed = Json::sax_parse(text.begin(), text.end(), &builder);
  if (!builder.status().ok()) return builder.status();
  if (!parsed) return InvalidArgument("not valid JSON");
  return builder.Take();
}

}  // namespace tokamak
