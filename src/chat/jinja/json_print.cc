#include <algorithm>
#include <cmath>

#include "chat/jinja/operators.h"
#include "chat/jinja/print.h"
#include "chat/jinja/unicode.h"

namespace tokamak::jinja {
namespace {

// The characters with an escape of their own, and what stands for them behind the backslash.
constexpr std::string_view kNamed = "\"\\\n\r\t\f\b", kNames = "\"\\nrtfb";

void AppendEscape(char32_t c, std::string& out) {
  const auto unit = [&out](uint32_t code) { out += fmt::format("\\u{:04x}", code); };
  if (c < 0x10000) return unit(c);
  unit(0xD800 + ((c - 0x10000) >> 10));
  unit(0xDC00 + ((c - 0x10000) & 0x3FF));
}

bool PrintJsonString(std::string_view text, bool ensure_ascii, Text& out) {
  std::string json = "\"";
  if (!out.budget().StepBytes(text.size() * 4)) return false;
  for (size_t i = 0; i < text.size();) {
    const size_t start = i;
    const auto plain = [](char c) { return c >= ' ' && c < 0x7F && c != '"' && c != '\\'; };
    while (i < text.size() && plain(text[i])) ++i;
    if (i > start) {
      if (!out.Append(json) || !out.Append(text.substr(start, i - start))) return false;
      json.clear();
      continue;
    }
    const char32_t c = NextCodePoint(text, i);
    const size_t named = c < 0x80 ? kNamed.find(static_cast<char>(c)) : kNamed.npos;
    if (named != kNamed.npos) {
      json += '\\';
      json += kNames[named];
    } else if (c < 0x20 || (ensure_ascii && c > 0x7E)) {
      AppendEscape(c, json);
    } else {
      json += text.substr(start, i - start);
    }
    if (json.size() > 4096) {
      if (!out.Append(json)) return false;
      json.clear();
    }
  }
  json += '"';
  return out.Append(json);
}

std::string JsonFloat(double number) {
  if (std::isnan(number)) return "NaN";
  if (std::isinf(number)) return number < 0 ? "-Infinity" : "Infinity";
  return FloatRepr(number);
}

// Returns the JSON of what is neither a string nor a container; nullopt for other values.
std::optional<std::string> JsonScalar(const Value& value) {
  switch (value.type()) {
    case Type::kNone:
      return "null";
    case Type::kBool:
      return value.integer() != 0 ? "true" : "false";
    case Type::kInt:
      return std::to_string(value.integer());
    case Type::kBigInt:
      return std::string(value.text());
    case Type::kFloat:
      return JsonFloat(value.number());
    default:
      return std::nullopt;
  }
}

class JsonPrinter {
 public:
  JsonPrinter(Runtime& rt, const JsonStyle& style, Text& out) : rt_(rt), style_(style), out_(out) {}

  bool Print(const Value& value) {
    if (!rt_.budget().Step()) return false;
    if (const std::optional<std::string> scalar = JsonScalar(value)) return out_.Append(*scalar);
    switch (value.type()) {
      case Type::kString:
        return PrintJsonString(value.text(), style_.ensure_ascii, out_);
      case Type::kList:
      case Type::kTuple:
        return PrintList(value.items());
      case Type::kDict:
        return PrintDict(value.dict());
      default:
        rt_.Fail("Object of type {} is not JSON serializable", TypeName(value.type()));
        return false;
    }
  }

 private:
  bool PrintList(const std::vector<Value>& items) {
    if (items.empty()) return out_.Append("[]");
    if (!out_.Append('[')) return false;
    ++level_;
    for (size_t i = 0; i < items.size(); ++i) {
      if (!StartItem(i == 0) || !Print(items[i])) return false;
    }
    --level_;
    return EndItems() && out_.Append(']');
  }

  bool PrintDict(const DictObject& dict) {
    if (dict.entries.empty()) return out_.Append("{}");
    std::vector<const std::pair<Value, Value>*> entries;
    for (const auto& entry : dict.entries) entries.push_back(&entry);
    if (style_.sort_keys && !Sort(entries)) return false;
    if (!out_.Append('{')) return false;
    ++level_;
    for (size_t i = 0; i < entries.size(); ++i) {
      if (!StartItem(i == 0) || !PrintKey(entries[i]->first)) return false;
      if (!out_.Append(style_.key_separator) || !Print(entries[i]->second)) return false;
    }
    --level_;
    return EndItems() && out_.Append('}');
  }

  bool PrintKey(const Value& key) {
    if (key.is_string()) return PrintJsonString(key.text(), style_.ensure_ascii, out_);
    const std::optional<std::string> scalar = JsonScalar(key);
    if (scalar) return PrintJsonString(*scalar, style_.ensure_ascii, out_);
    rt_.Fail("keys must be str, int, float, bool or None, not {}", TypeName(key.type()));
    return false;
  }

  bool Sort(std::vector<const std::pair<Value, Value>*>& entries) {
    return StableSort(rt_, entries, [this](const auto* a, const auto* b) {
      return Less(rt_, a->first, b->first);
    });
  }

  bool StartItem(bool first) {
    if (!first && !out_.Append(style_.item_separator)) return false;
    return !style_.pretty || NewLine();
  }
  bool EndItems() { return !style_.pretty || NewLine(); }
  bool NewLine() { return out_.Append('\n') && out_.AppendTimes(style_.indent, level_); }

  Runtime& rt_;
  const JsonStyle& style_;
  Text& out_;
  int64_t level_ = 0;
};

}  // namespace

bool PrintJson(Runtime& rt, const Value& value, const JsonStyle& style, Text& out) {
  return JsonPrinter(rt, style, out).Print(value) && !rt.Failed();
}

}  // namespace tokamak::jinja
