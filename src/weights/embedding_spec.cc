#include "weights/embedding_spec.h"

#include <algorithm>

#include "base/error.h"
#include "base/file.h"
#include "base/option_names.h"
#include "base/printable.h"
#include "weights/config_reader.h"

namespace tokamak {
namespace {

struct Module {
  std::string type;  // after the last dot: "Pooling"
  std::string path;
};

// modules.json is an array, but ParseConfigJson wants an object: wraps it in one.
Result<std::vector<Module>> ReadModules(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string text, ReadWholeFile(path, kMaxConfigBytes));
  ASSIGN_OR_RETURN(const JsonValue config, ParseConfigJson("{\"modules\":" + text + "}", path));
  const JsonValue* value = config.Find("modules");
  const JsonValue::Array* list = value->AsArray();
  if (list == nullptr) return InvalidArgument("{}: expected an array of modules", path);
  std::vector<Module> modules;
  for (size_t i = 0; i < list->size(); ++i) {
    const JsonValue* type = (*list)[i].Find("type");
    const JsonValue* at = (*list)[i].Find("path");
    const std::string* type_name = type != nullptr ? type->AsString() : nullptr;
    const std::string* folder = at != nullptr ? at->AsString() : nullptr;
    if (type_name == nullptr || folder == nullptr) {
      return InvalidArgument("{}: [{}]: expected an object with a type and a path, got {}", path, i,
                             (*list)[i].ToString());
    }
    if (!type_name->starts_with("sentence_transformers.")) {
      return Unimplemented("{}: [{}].type: {} is code from the checkpoint, which is never run",
                           path, i, Quoted(*type_name));
    }
    modules.push_back({type_name->substr(type_name->find_last_of('.') + 1), *folder});
  }
  return modules;
}

// Requires a Transformer in the directory itself, a Pooling, and optionally a Normalize.
Status CheckModules(const std::string& path, const std::vector<Module>& modules) {
  constexpr const char* kExpected[] = {"Transformer", "Pooling", "Normalize"};
  for (size_t i = 0; i < modules.size(); ++i) {
    if (i < std::size(kExpected) && modules[i].type == kExpected[i]) continue;
    return Unimplemented(
        "{}: [{}].type: {} is not supported here; supported are a Transformer, a Pooling and a "
        "Normalize, in this order",
        path, i, Quoted(modules[i].type));
  }
  if (modules.size() < 2) return Unimplemented("{}: there is no Pooling module", path);
  if (!modules[0].path.empty()) {
    return Unimplemented("{}: [0].path: the model must be in the directory itself, not in {}", path,
                         Quoted(modules[0].path));
  }
  const std::string& folder = modules[1].path;
  if (folder.empty() || folder.find('/') != std::string::npos || folder.starts_with('.')) {
    return InvalidArgument("{}: [1].path: expected the name of a folder in the directory, got {}",
                           path, Quoted(folder));
  }
  return Status();
}

// Newer files name the mode; older ones have a flag for each.
Status ReadPooling(const std::string& path, EmbeddingSpec& spec) {
  ASSIGN_OR_RETURN(const JsonValue config, ReadConfigFile(path));
  ConfigReader reader(config, path);
  const char* size =
      reader.Has("embedding_dimension") ? "embedding_dimension" : "word_embedding_dimension";
  spec.hidden_size = reader.Int(size);
  constexpr std::pair<const char*, Pooling> kModes[] = {
      {"pooling_mode_mean_tokens", Pooling::kMean},
      {"pooling_mode_cls_token", Pooling::kCls},
      {"pooling_mode_lasttoken", Pooling::kLast}};
  int chosen = 0;
  for (const auto& [field, pooling] : kModes) {
    if (!reader.BoolOr(field, false)) continue;
    spec.pooling = pooling;
    ++chosen;
  }
  if (reader.Has("pooling_mode")) {
    std::string mode = reader.String("pooling_mode");
    if (mode == "lasttoken") mode = "last";
    const std::optional<Pooling> pooling = ParseOption<Pooling>(mode);
    if (!pooling || pooling == Pooling::kAuto)
      reader.Fail("pooling_mode", Quoted(mode) + " is not supported");
    spec.pooling = pooling.value_or(Pooling::kMean);
    ++chosen;
  }
  for (const char* field : {"pooling_mode_max_tokens", "pooling_mode_mean_sqrt_len_tokens",
                            "pooling_mode_weightedmean_tokens"}) {
    reader.ExpectOrAbsent(field, false);
  }
  if (!reader.BoolOr("include_prompt", true) && !spec.prompts.empty()) {
    reader.Fail("include_prompt", "false is not supported for a model with prompts");
  }
  RETURN_IF_ERROR(reader.Finish());
  if (chosen != 1) {
    return Unimplemented(
        "{}: {} supported pooling modes are set; exactly one of mean, cls and last token is needed",
        path, chosen);
  }
  return Status();
}

Status ReadPrompts(const std::string& path, EmbeddingSpec& spec) {
  ASSIGN_OR_RETURN(const JsonValue config, ReadConfigFile(path));
  ConfigReader reader(config, path);
  reader.Ignore({"__version__", "similarity_fn_name", "model_type"});
  reader.ExpectOrAbsent("truncate_dim", JsonValue());
  if (const JsonValue* prompts = config.Find("prompts"); prompts && !prompts->is_null()) {
    reader.Ignore({"prompts"});
    const JsonValue::Object* list = prompts->AsObject();
    if (list == nullptr) return InvalidArgument("{}: prompts: expected an object", path);
    for (const auto& [name, prompt] : *list) {
      const std::string* text = prompt.AsString();
      if (text == nullptr) {
        return InvalidArgument("{}: prompts.{}: expected a string, got {}", path, name,
                               prompt.ToString());
      }
      spec.prompts.emplace_back(name, *text);
    }
  }
  spec.default_prompt = reader.StringOr("default_prompt_name", "");
  const auto is_default = [&](const auto& prompt) { return prompt.first == spec.default_prompt; };
  if (!spec.default_prompt.empty() &&
      std::none_of(spec.prompts.begin(), spec.prompts.end(), is_default)) {
    reader.Fail("default_prompt_name",
                Quoted(spec.default_prompt) + " is not the name of one of the prompts");
  }
  return reader.Finish();
}

Status ReadLength(const std::string& folder, EmbeddingSpec& spec) {
  const std::string path = folder + "/sentence_bert_config.json";
  if (FileExists(path)) {
    ASSIGN_OR_RETURN(const JsonValue config, ReadConfigFile(path));
    ConfigReader reader(config, path);
    spec.max_tokens = reader.IntOr("max_seq_length", 0);
    reader.ExpectOrAbsent("do_lower_case", false);
    RETURN_IF_ERROR(reader.Finish());
  }
  // Otherwise the tokenizer's limit applies. Some files write 10^30 for no limit.
  const std::string tokenizer_path = folder + "/tokenizer_config.json";
  if (spec.max_tokens > 0 || !FileExists(tokenizer_path)) return Status();
  ASSIGN_OR_RETURN(const JsonValue config, ReadConfigFile(tokenizer_path));
  const JsonValue* length = config.Find("model_max_length");
  const std::optional<int64_t> tokens = length != nullptr ? length->AsInt() : std::nullopt;
  if (tokens && *tokens > 0 && *tokens < INT32_MAX) {
    spec.max_tokens = static_cast<int32_t>(*tokens);
  }
  return Status();
}

// Checkpoints do not specify this further; other engines read it the same way.
Status ReadDimensions(const JsonValue& config, const std::string& path, EmbeddingSpec& spec) {
  if (const JsonValue* any = config.Find("is_matryoshka"); any != nullptr) {
    if (!any->AsBool()) return InvalidArgument("{}: is_matryoshka: expected true or false", path);
    spec.any_dimensions = *any->AsBool();
  }
  const JsonValue* list = config.Find("matryoshka_dimensions");
  if (list == nullptr || list->is_null()) return Status();
  const JsonValue::Array* lengths = list->AsArray();
  if (lengths == nullptr) {
    return InvalidArgument("{}: matryoshka_dimensions: expected an array", path);
  }
  for (const JsonValue& length : *lengths) {
    const std::optional<int64_t> n = length.AsInt();
    if (!n || *n < 1 || *n > INT32_MAX) {
      return InvalidArgument("{}: matryoshka_dimensions: expected lengths of vectors, got {}", path,
                             length.ToString());
    }
    spec.dimensions.push_back(static_cast<int32_t>(*n));
  }
  spec.any_dimensions = false;  // the list is more precise
  std::sort(spec.dimensions.begin(), spec.dimensions.end());
  return Status();
}

}  // namespace

Result<std::optional<EmbeddingSpec>> ReadEmbeddingSpec(const std::string& folder,
                                                       const JsonValue& config) {
  const std::string path = folder + "/modules.json";
  if (!FileExists(path)) return std::optional<EmbeddingSpec>();
  ASSIGN_OR_RETURN(const std::vector<Module> modules, ReadModules(path));
  RETURN_IF_ERROR(CheckModules(path, modules));
  EmbeddingSpec spec;
  spec.normalize = modules.size() > 2;
  const std::string prompts = folder + "/config_sentence_transformers.json";
  if (FileExists(prompts)) RETURN_IF_ERROR(ReadPrompts(prompts, spec));
  RETURN_IF_ERROR(ReadPooling(folder + "/" + modules[1].path + "/config.json", spec));
  RETURN_IF_ERROR(ReadLength(folder, spec));
  RETURN_IF_ERROR(ReadDimensions(config, folder + "/config.json", spec));
  return std::optional(std::move(spec));
}

Result<std::optional<EmbeddingSpec>> ReadGgufEmbeddingSpec(const GgufFile& file,
                                                           const std::string& architecture) {
  const std::string field = architecture + ".pooling_type";
  if (!file.metadata().Has(field)) return std::optional<EmbeddingSpec>();
  ASSIGN_OR_RETURN(const int64_t type, file.metadata().Int(field));
  EmbeddingSpec spec;  // llama.cpp normalizes by default
  switch (type) {      // llama.cpp's enum llama_pooling_type
    case 0:
      return std::optional<EmbeddingSpec>();
    case 1:
      spec.pooling = Pooling::kMean;
      break;
    case 2:
      spec.pooling = Pooling::kCls;
      break;
    case 3:
      spec.pooling = Pooling::kLast;
      break;
    case 4:
      return Unimplemented("{}: {}: rerankers are not supported", file.name(), field);
    default:
      return Unimplemented("{}: {}: {} is not supported", file.name(), field, type);
  }
  return std::optional(spec);
}

}  // namespace tokamak
