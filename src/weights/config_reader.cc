#include "weights/config_reader.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.h"

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
    "is_composition",
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

std::string Describe(const JsonMismatch& mismatch) {
  if (mismatch.got == nullptr) return "is missing; this architecture needs it";
  return fmt::format("expected {}{}, got {}", mismatch.expected, mismatch.range,
                     mismatch.got->ToString());
}

// Numbers are equal if they print alike: 1 and 1.0 do.
std::string Text(const JsonValue& value) {
  const std::optional<int64_t> i = value.AsInt();
  return i ? JsonValue(static_cast<double>(*i)).ToString(4096) : value.ToString(4096);
}

void Match(const JsonReader& got, const JsonValue& expected) {
  if (Text(got.value()) == Text(expected)) return;
  got.Fail(fmt::format("is {}, but this architecture is implemented only for {}",
                       got.value().ToString(), expected.ToString()));
}

}  // namespace

ConfigReader::ConfigReader(const JsonValue& config, const std::string& source)
    : JsonReader(config, source + ": ", Describe, Track::kAll) {
  if (!config.is_object()) {
    JsonReader::Fail(InvalidArgument("{}: the configuration must be an object", source));
  }
}

ConfigReader ConfigReader::Object(std::string_view name) const {
  const JsonReader object = (*this)[name];
  Mark(name, Use::kOpened);
  if (!object.is_object()) object.Bad("an object");
  return ConfigReader(object, parts_);
}

ConfigReader ConfigReader::Part(std::string_view name) const {
  parts_->insert(PathOf(name) + ".");
  return Object(name);
}

void ConfigReader::SetDefault(std::string_view name, JsonValue value) {
  state_->defaults.insert_or_assign(PathOf(name), std::move(value));
}

void ConfigReader::Expect(std::string_view name, const JsonValue& value) const {
  const JsonReader got = (*this)[name];
  Mark(name, Use::kFixed);
  if (!got.present()) return got.Bad("");
  Match(got, value);
}
void ConfigReader::ExpectOrAbsent(std::string_view name, const JsonValue& value) const {
  const JsonReader got = (*this)[name];
  Mark(name, Use::kFixed);
  if (got.present()) Match(got, value);
}

void ConfigReader::Ignore(std::initializer_list<std::string_view> names) const {
  for (std::string_view name : names) Mark(name, Use::kIgnored);
}

void ConfigReader::CollectUnread(const JsonValue& object, const std::string& prefix,
                                 std::vector<std::string>* unread) const {
  for (const auto& [name, value] : *object.AsObject()) {
    const std::string path = prefix + name;
    if (value.is_null()) continue;
    const auto use = state_->uses.find(path);
    if (use == state_->uses.end() || use->second == Use::kAsked) {
      const bool known = (parts_->contains(prefix) && Contains(kWithoutEffect, name)) ||
                         (prefix.empty() && Contains(kReadElsewhere, name));
      if (!known) unread->push_back(fmt::format("{} ({})", path, value.ToString()));
    } else if (use->second == Use::kOpened && value.AsObject() != nullptr) {
      CollectUnread(value, path + ".", unread);
    }
  }
}

Status ConfigReader::Finish() const {
  if (!ok()) return status();
  std::vector<std::string> unread;
  CollectUnread(value(), path_.empty() ? "" : path_ + ".", &unread);
  if (unread.empty()) return Status();
  const size_t shown = std::min<size_t>(unread.size(), 10);
  return Unimplemented(
      "{}this version does not know the fields {}{}. They may change what the model computes, so "
      "they are not ignored.",
      state_->prefix, fmt::join(unread.begin(), unread.begin() + static_cast<long>(shown), ", "),
      shown < unread.size() ? fmt::format(" and {} more", unread.size() - shown) : "");
}

}  // namespace tokamak
