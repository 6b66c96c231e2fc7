#include "tokenizer/json_node.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "base/error.h"
#include "tokenizer/utf8.h"

namespace tokamak {
namespace {

using Json = nlohmann::json;

constexpr size_t kMaxBytes = size_t{256} << 20;
constexpr int kMaxDepth = 64;

const Json kNull;

const Json& Value(const void* json) { return *static_cast<const Json*>(json); }

// Checked before a parser builds the value.
bool TooDeep(std::string_view text) {
  int depth = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      if (c == '"') in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '{' || c == '[') {
      if (++depth > kMaxDepth) return true;
    } else if (c == '}' || c == ']') {
      --depth;
    }
  }
  return false;
}

// -1 if it is not a non-negative integer.
int64_t Natural(const Json& json) {
  if (!json.is_number_unsigned()) return -1;
  const auto value = json.get<uint64_t>();
  return value > static_cast<uint64_t>(INT64_MAX) ? -1 : static_cast<int64_t>(value);
}

}  // namespace

bool JsonNode::is_null() const { return Value(json_).is_null(); }
bool JsonNode::is_object() const { return Value(json_).is_object(); }

bool JsonNode::Has(const char* name) const {
  const Json& json = Value(json_);
  if (!json.is_object()) return false;
  const auto it = json.find(name);
  return it != json.end() && !it->is_null();
}

JsonNode JsonNode::operator[](const char* name) const {
  std::string path = path_;
  if (!path.ends_with(": ")) path += '.';
  path += name;
  const Json& json = Value(json_);
  const auto it = json.is_object() ? json.find(name) : json.end();
  const bool found = json.is_object() && it != json.end();
  return {found ? &*it : &kNull, std::move(path), status_};
}

JsonNode JsonNode::operator[](size_t i) const {
  return {&Value(json_)[i], fmt::format("{}[{}]", path_, i), status_};
}

size_t JsonNode::Size() const {
  if (Value(json_).is_array()) return Value(json_).size();
  Bad("an array");
  return 0;
}

std::string JsonNode::String() const {
  if (Value(json_).is_string()) return Value(json_).get<std::string>();
  Bad("a string");
  return "";
}

bool JsonNode::Bool() const {
  if (Value(json_).is_boolean()) return Value(json_).get<bool>();
  Bad("true or false");
  return false;
}

int64_t JsonNode::Int(int64_t min, int64_t max) const {
  const Json& json = Value(json_);
  const bool negative = json.is_number_integer() && !json.is_number_unsigned();
  const int64_t value = negative ? json.get<int64_t>() : Natural(json);
  if (json.is_number_integer() && min <= value && value <= max) return value;
  Bad(fmt::format("an integer from {} to {}", min, max));
  return min;
}

double JsonNode::Number() const {
  if (Value(json_).is_number()) return Value(json_).get<double>();
  Bad("a number");
  return 0;
}

bool JsonNode::StringPairAt(size_t i, std::string* first, std::string* second) const {
  const Json& item = Value(json_)[i];
  if (!item.is_array() || item.size() != 2 || !item[0].is_string() || !item[1].is_string()) {
    return false;
  }
  *first = item[0].get<std::string>();
  *second = item[1].get<std::string>();
  return true;
}

bool JsonNode::StringAndNumberAt(size_t i, std::string* text, double* number) const {
  const Json& item = Value(json_)[i];
  if (!item.is_array() || item.size() != 2 || !item[0].is_string() || !item[1].is_number()) {
    return false;
  }
  *text = item[0].get<std::string>();
  *number = item[1].get<double>();
  return true;
}

bool JsonNode::StringMemberAt(size_t i, const char* name, std::string* text) const {
  const Json& item = Value(json_)[i];
  const auto it = item.is_object() ? item.find(name) : item.end();
  if (!item.is_object() || it == item.end() || !it->is_string()) return false;
  *text = it->get_ref<const std::string&>();
  return true;
}

int64_t JsonNode::IntMemberAt(size_t i, const char* name) const {
  const Json& item = Value(json_)[i];
  if (!item.is_object()) return -1;
  const auto it = item.find(name);
  return it == item.end() ? -1 : Natural(*it);
}

size_t JsonNode::Count() const { return Value(json_).size(); }

int64_t JsonNode::IntOf(const std::string& name) const {
  const Json& json = Value(json_);
  if (!json.is_object()) return -1;
  const auto it = json.find(name);
  return it == json.end() ? -1 : Natural(*it);
}

void JsonNode::ForEachInt(FunctionRef<void(const std::string&, int64_t)> on_member) const {
  if (!is_object()) return Bad("an object");
  for (const auto& [name, value] : Value(json_).items()) on_member(name, Natural(value));
}

void JsonNode::Only(std::initializer_list<std::string_view> names) const {
  if (!is_object()) return Bad("an object");
  for (const auto& [name, value] : Value(json_).items()) {
    if (value.is_null()) continue;
    bool known = false;
    for (const std::string_view allowed : names) known |= allowed == name;
    if (!known) Fail(Unimplemented("{}: \"{}\" is not supported", path_, ToValidUtf8(name)));
  }
}

void JsonNode::Bad(const std::string& expected) const {
  Fail(InvalidArgument("{}: expected {}", path_, expected));
}

void JsonNode::Unsupported(std::string_view what) const {
  Fail(Unimplemented("{}: \"{}\" is not supported", path_, ToValidUtf8(what.substr(0, 100))));
}

void JsonNode::Fail(Status status) const {
  if (status_->ok()) *status_ = std::move(status);
}

struct JsonDocument::Impl {
  Json json;
  std::string path;
  Status status;
};

JsonDocument::JsonDocument(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
JsonDocument::JsonDocument(JsonDocument&&) noexcept = default;
JsonDocument& JsonDocument::operator=(JsonDocument&&) noexcept = default;
JsonDocument::~JsonDocument() = default;

Result<JsonDocument> JsonDocument::Parse(std::string_view text, const std::string& source) {
  if (text.size() > kMaxBytes || TooDeep(text)) {
    return ResourceExhausted(
        "{}: has {} bytes of JSON, or is nested too deep; at most {} bytes and {} levels are "
        "supported",
        source, text.size(), kMaxBytes, kMaxDepth);
  }
  auto impl = std::make_unique<Impl>();
  impl->json = Json::parse(text.begin(), text.end(), nullptr, /*allow_exceptions=*/false);
  if (!impl->json.is_object()) {
    return InvalidArgument("{}: is not a well-formed JSON object", source);
  }
  impl->path = source + ": ";
  return JsonDocument(std::move(impl));
}

JsonNode JsonDocument::root() { return {&impl_->json, impl_->path, &impl_->status}; }
const Status& JsonDocument::status() const { return impl_->status; }

}  // namespace tokamak
