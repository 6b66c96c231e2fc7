#include "weights/config_reader.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.h"
#include "base/printable.h"

namespace tokamak {
namespace {

// Fields that no forward pass depends on: bookkeeping, token ids (the tokenizer has its own),
// training and generation options that old versions of transformers wrote into config.json.
constexpr std::string_view kWithoutEffect[] = {
    "_attn_implementation_autoset",
    "_name_or_path",
    "architectures",
    "attention_dropout",
    "auto_map",
    "bos_token_id",
    "decoder_start_token_id",
    "dtype",
    "embd_pdrop",
    "eos_token_id",
    "finetuning_task",
    "forced_bos_token_id",
    "forced_eos_token_id",
    "hidden_dropout",
    "id2label",
    "initializer_range",
    "is_llama_config",
    "label2id",
    "num_return_sequences",
    "output_attentions",
    "output_hidden_states",
    "pad_token_id",
    "prefix",
    "problem_type",
    "resid_pdrop",
    "return_dict",
    "return_dict_in_generate",
    "sep_token_id",
    "task_specific_params",
    "tokenizer_class",
    "torch_dtype",
    "transformers.js_config",
    "transformers_version",
    "unsloth_fixed",
    "use_cache",
};
static_assert(std::is_sorted(std::begin(kWithoutEffect), std::end(kWithoutEffect)));

// Outermost fields read elsewhere: by the code that opens weights, and by weights/embedding_spec.h.
constexpr std::string_view kReadElsewhere[] = {"is_matryoshka", "matryoshka_dimensions",
                                               "quantization_config"};

template <size_t n>
bool Contains(const std::string_view (&names)[n], std::string_view name) {
  return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

}  // namespace

ConfigReader::ConfigReader(const ConfigValue& config, std::string source)
    : ConfigReader(config, "", std::make_shared<State>()) {
  state_->source = std::move(source);
  if (config.AsObject() == nullptr) {
    state_->status = InvalidArgument("{}: the configuration must be an object", state_->source);
  }
}

ConfigReader::ConfigReader(const ConfigValue& config, std::string path,
                           std::shared_ptr<State> state)
    : config_(&config), path_(std::move(path)), state_(std::move(state)) {}

bool ConfigReader::ok() const { return state_->status.ok(); }

std::string ConfigReader::Path(std::string_view name) const { return path_ + std::string(name); }

void ConfigReader::Fail(std::string_view name, const std::string& message) {
  if (ok()) state_->status = InvalidArgument("{}: {}: {}", state_->source, Path(name), message);
}

const ConfigValue* ConfigReader::Lookup(std::string_view name) const {
  const ConfigValue* value = config_->Find(name);
  if (value != nullptr && !value->is_null()) return value;
  const auto found = state_->defaults.find(Path(name));
  return found == state_->defaults.end() ? nullptr : &found->second;
}

void ConfigReader::SetDefault(std::string_view name, ConfigValue value) {
  state_->defaults.insert_or_assign(Path(name), std::move(value));
}

void ConfigReader::Mark(std::string_view name, Use use) const {
  Use& place = state_->uses.try_emplace(Path(name), use).first->second;
  place = std::max(place, use);
}

const ConfigValue* ConfigReader::Take(std::string_view name) {
  Mark(name, Use::kRead);
  return Lookup(name);
}

const ConfigValue* ConfigReader::Require(std::string_view name) {
  const ConfigValue* value = Take(name);
  if (value == nullptr) Fail(name, "is missing; this architecture needs it");
  return value;
}

bool ConfigReader::Has(std::string_view name) const {
  Mark(name, Use::kAsked);
  return Lookup(name) != nullptr;
}

bool ConfigReader::IsNull(std::string_view name) const {
  Mark(name, Use::kAsked);
  const ConfigValue* value = config_->Find(name);
  return value != nullptr && value->is_null();
}

void ConfigReader::WrongType(std::string_view name, const char* expected, const ConfigValue& got) {
  Fail(name, fmt::format("expected {}, got {}", expected, got.ToString()));
}

bool ConfigReader::ToBool(std::string_view name, const ConfigValue& value) {
  if (const std::optional<bool> b = value.AsBool()) return *b;
  WrongType(name, "true or false", value);
  return false;
}

int64_t ConfigReader::ToInt(std::string_view name, const ConfigValue& value, IntRange range) {
  const std::optional<int64_t> i = value.AsInt();
  if (i && range.min <= *i && *i <= range.max) return *i;
  Fail(name, fmt::format("expected an integer from {} to {}, got {}", range.min, range.max,
                         value.ToString()));
  return range.min;
}

double ConfigReader::ToNumber(std::string_view name, const ConfigValue& value, NumberRange range) {
  double number = 0;
  if (const std::optional<double> d = value.AsDouble()) {
    number = *d;
  } else if (const std::optional<int64_t> i = value.AsInt()) {
    number = static_cast<double>(*i);
  } else {
    WrongType(name, "a number", value);
    return range.min;
  }
  if (range.min <= number && number <= range.max) return number;
  Fail(name, fmt::format("expected a number from {} to {}, got {}", range.min, range.max,
                         value.ToString()));
  return range.min;
}

std::string ConfigReader::ToText(std::string_view name, const ConfigValue& value) {
  if (const std::string* text = value.AsString()) return *text;
  WrongType(name, "a string", value);
  return "";
}

template <typename T, typename Convert>
std::vector<T> ConfigReader::ToArray(std::string_view name, const char* expected, Convert convert) {
  std::vector<T> out;
  const ConfigValue* value = Require(name);
  if (value == nullptr) return out;
  const ConfigValue::Array* array = value->AsArray();
  if (array == nullptr) {
    WrongType(name, expected, *value);
    return out;
  }
  out.reserve(array->size());
  for (size_t i = 0; i < array->size(); ++i) {
    out.push_back(convert(fmt::format("{}[{}]", name, i), (*array)[i]));
  }
  return out;
}

bool ConfigReader::Bool(std::string_view name) {
  const ConfigValue* value = Require(name);
  return value != nullptr && ToBool(name, *value);
}
int64_t ConfigReader::Int(std::string_view name, IntRange range) {
  const ConfigValue* value = Require(name);
  return value == nullptr ? range.min : ToInt(name, *value, range);
}
double ConfigReader::Number(std::string_view name, NumberRange range) {
  const ConfigValue* value = Require(name);
  return value == nullptr ? range.min : ToNumber(name, *value, range);
}
std::string ConfigReader::String(std::string_view name) {
  const ConfigValue* value = Require(name);
  return value == nullptr ? "" : ToText(name, *value);
}
std::vector<int64_t> ConfigReader::Ints(std::string_view name, IntRange range) {
  return ToArray<int64_t>(name, "an array of integers",
                          [&](const std::string& element, const ConfigValue& value) {
                            return ToInt(element, value, range);
                          });
}
std::vector<double> ConfigReader::Numbers(std::string_view name, NumberRange range) {
  return ToArray<double>(name, "an array of numbers",
                         [&](const std::string& element, const ConfigValue& value) {
                           return ToNumber(element, value, range);
                         });
}
std::vector<std::string> ConfigReader::Strings(std::string_view name) {
  return ToArray<std::string>(
      name, "an array of strings",
      [&](const std::string& element, const ConfigValue& value) { return ToText(element, value); });
}

ConfigReader ConfigReader::Object(std::string_view name) {
  static const ConfigValue kEmpty{ConfigValue::Object()};
  const ConfigValue* value = Require(name);
  if (value != nullptr && value->AsObject() == nullptr) WrongType(name, "an object", *value);
  Mark(name, Use::kOpened);
  const bool usable = value != nullptr && value->AsObject() != nullptr;
  return ConfigReader(usable ? *value : kEmpty, Path(name) + ".", state_);
}

ConfigReader ConfigReader::Part(std::string_view name) {
  state_->parts.insert(Path(name) + ".");
  return Object(name);
}

bool ConfigReader::BoolOr(std::string_view name, bool absent) {
  const ConfigValue* value = Take(name);
  return value == nullptr ? absent : ToBool(name, *value);
}
int64_t ConfigReader::IntOr(std::string_view name, int64_t absent, IntRange range) {
  const ConfigValue* value = Take(name);
  return value == nullptr ? absent : ToInt(name, *value, range);
}
double ConfigReader::NumberOr(std::string_view name, double absent, NumberRange range) {
  const ConfigValue* value = Take(name);
  return value == nullptr ? absent : ToNumber(name, *value, range);
}
std::string ConfigReader::StringOr(std::string_view name, std::string_view absent) {
  const ConfigValue* value = Take(name);
  return value == nullptr ? std::string(absent) : ToText(name, *value);
}

void ConfigReader::Match(std::string_view name, const ConfigValue& got,
                         const ConfigValue& expected) {
  // 1 and 1.0 are the same number.
  const auto text = [](const ConfigValue& value) {
    const std::optional<int64_t> i = value.AsInt();
    return i ? ConfigValue(static_cast<double>(*i)).ToString(4096) : value.ToString(4096);
  };
  if (text(got) != text(expected)) {
    Fail(name, fmt::format("is {}, but this architecture is implemented only for {}",
                           got.ToString(), expected.ToString()));
  }
}
void ConfigReader::Expect(std::string_view name, const ConfigValue& value) {
  Mark(name, Use::kFixed);
  if (const ConfigValue* got = Require(name)) Match(name, *got, value);
}
void ConfigReader::ExpectOrAbsent(std::string_view name, const ConfigValue& value) {
  Mark(name, Use::kFixed);
  if (const ConfigValue* got = Take(name)) Match(name, *got, value);
}

void ConfigReader::Ignore(std::initializer_list<std::string_view> names) {
  for (std::string_view name : names) Mark(name, Use::kIgnored);
}

void ConfigReader::CollectUnread(const ConfigValue& object, const std::string& prefix,
                                 std::vector<std::string>* unread) const {
  for (const auto& [name, value] : *object.AsObject()) {
    const std::string path = prefix + name;
    if (value.is_null()) continue;
    const auto use = state_->uses.find(path);
    if (use == state_->uses.end() || use->second == Use::kAsked) {
      const bool known = (state_->parts.contains(prefix) && Contains(kWithoutEffect, name)) ||
                         (prefix.empty() && Contains(kReadElsewhere, name));
      if (!known) unread->push_back(fmt::format("{} ({})", path, value.ToString()));
    } else if (use->second == Use::kOpened && value.AsObject() != nullptr) {
      CollectUnread(value, path + ".", unread);
    }
  }
}

Status ConfigReader::Finish() const {
  if (!ok()) return state_->status;
  std::vector<std::string> unread;
  CollectUnread(*config_, path_, &unread);
  if (unread.empty()) return Status();
  const size_t shown = std::min<size_t>(unread.size(), 10);
  return Unimplemented(
      "{}: this version does not know the fields {}{}. They may change what the model computes, so "
      "they are not ignored.",
      state_->source, fmt::join(unread.begin(), unread.begin() + static_cast<long>(shown), ", "),
      shown < unread.size() ? fmt::format(" and {} more", unread.size() - shown) : "");
}

}  // namespace tokamak
