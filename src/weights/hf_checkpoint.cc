#include "weights/hf_checkpoint.h"

#include <algorithm>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/printable.h"
#include "weights/config_reader.h"
#include "weights/fp8_blocks.h"
#include "weights/safetensors.h"
#include "weights/safetensors_tensors.h"
#include "weights/text_model.h"

namespace tokamak {
namespace {

bool IsTrue(const JsonValue& config, std::string_view name) {
  const JsonValue* value = config.Find(name);
  return value != nullptr && value->AsBool().value_or(false);
}

// Fields that change what transformers generates but have no effect here, with the number that
// turns each off. Fields that matter only with beams (length_penalty, early_stopping) are not
// listed.
struct NotDone {
  std::string_view name;
  double off = 0;
};
constexpr NotDone kNotDone[] = {
    {"bad_words_ids"},
    {"begin_suppress_tokens"},
    {"constraints"},
    {"dola_layers"},
    {"encoder_no_repeat_ngram_size"},
    {"encoder_repetition_penalty", 1},
    {"epsilon_cutoff"},
    {"eta_cutoff"},
    {"exponential_decay_length_penalty"},
    {"force_words_ids"},
    {"forced_bos_token_id", -1},
    {"forced_decoder_ids"},
    {"forced_eos_token_id", -1},
    {"frequency_penalty"},
    {"guidance_scale", 1},
    {"max_length", -1},
    {"max_time", -1},
    {"min_length"},
    {"min_new_tokens"},
    {"no_repeat_ngram_size"},
    {"num_beams", 1},
    {"num_return_sequences", 1},
    {"penalty_alpha"},
    {"presence_penalty"},
    {"sequence_bias"},
    {"stop_strings"},
    {"suppress_tokens"},
    {"token_healing"},
    {"top_h", 1},
    {"watermarking_config"},
};

// Whether the value has no effect in transformers either.
bool IsOff(const JsonValue& value, double off) {
  if (value.is_null()) return true;
  if (const std::optional<bool> b = value.AsBool()) return !*b;
  if (const std::optional<double> number = value.AsNumber()) return *number == off;
  return !value.is_string() && value.size() == 0;
}

void ReadNumber(const JsonReader& field, double min, double max, std::optional<float>* out) {
  if (!field.present()) return;
  const std::optional<double> number = field.value().AsNumber();
  if (!number || *number < min || *number > max) {
    return field.Bad(fmt::format("a number from {} to {}", min, max));
  }
  *out = static_cast<float>(*number);
}

void ReadInt(const JsonReader& field, int64_t min, std::optional<int32_t>* out) {
  if (field.present()) *out = static_cast<int32_t>(field.Int(min, INT32_MAX));
}

void ReadIds(const JsonReader& field, std::vector<int32_t>* out) {
  if (!field.present()) return;
  const JsonValue::Array one = {field.value()};
  const JsonValue::Array* list = field.value().AsArray();
  for (const JsonValue& item : list != nullptr ? *list : one) {
    const std::optional<int64_t> id = item.AsInt();
    if (!id || *id < 0 || *id > INT32_MAX) return field.Bad("a token id or a list of them");
    out->push_back(static_cast<int32_t>(*id));
  }
  std::sort(out->begin(), out->end());
  out->erase(std::unique(out->begin(), out->end()), out->end());
}

}  // namespace

Result<GenerationDefaults> ParseGenerationConfig(const JsonValue& config,
                                                 const std::string& source) {
  const ConfigReader reader(config, source);
  GenerationDefaults defaults;
  SamplingDefaults& sampling = defaults.sampling;
  ReadNumber(reader["temperature"], 0, 1e6, &sampling.temperature);
  ReadNumber(reader["top_p"], 1e-6, 1, &sampling.top_p);
  ReadNumber(reader["min_p"], 0, 1, &sampling.min_p);
  ReadNumber(reader["typical_p"], 1e-6, 1, &sampling.typical_p);
  ReadNumber(reader["repetition_penalty"], 1e-6, 1e6, &sampling.repetition_penalty);
  ReadInt(reader["top_k"], -1, &sampling.top_k);
  // Asks for the most likely token, whatever the other fields say.
  if (!reader.BoolOr("do_sample", true)) sampling.temperature = 0;
  if (sampling.top_k == -1) sampling.top_k = 0;  // other engines' "off"
  ReadInt(reader["max_new_tokens"], 1, &sampling.max_tokens);
  ReadIds(reader["eos_token_id"], &defaults.eos_token_ids);
  RETURN_IF_ERROR(reader.status());
  for (const NotDone& field : kNotDone) {
    const JsonValue* value = config.Find(field.name);
    if (value != nullptr && !IsOff(*value, field.off)) {
      defaults.without_effect.emplace_back(field.name);
    }
  }
  return defaults;
}

Result<Checkpoint> OpenHfCheckpoint(const std::string& folder) {
  const std::string config_path = folder + "/config.json";
  if (!FileExists(config_path)) {
    return NotFound("{}: has no config.json, so it is not a Hugging Face model directory", folder);
  }
  ASSIGN_OR_RETURN(JsonValue config, ReadConfigFile(config_path));
  ASSIGN_OR_RETURN(const bool fp8_blocks, HasFp8Blocks(config, config_path));
  ASSIGN_OR_RETURN(std::shared_ptr<const SafetensorsModel> model,
                   SafetensorsModel::OpenDirectory(folder));
  Checkpoint checkpoint;
  checkpoint.source = config_path;
  checkpoint.directory = folder;
  ASSIGN_OR_RETURN(checkpoint.architecture, ArchitectureOf(config, config_path));
  const std::optional<TextModelNames> text_model = FindTextModel(config, *model);
  for (const StoredTensor& tensor : model->tensors()) {
    const int times = tensor.type_name == kFp8TypeName ? 2 : 1;  // converted to bf16
    checkpoint.weight_bytes += static_cast<int64_t>(tensor.bytes.value_or(0)) * times;
  }
  checkpoint.tensors = MakeSafetensorsTensors(
      folder, model, {.tied = IsTrue(config, "tie_word_embeddings"), .fp8_blocks = fp8_blocks});
  if (text_model) {
    checkpoint.tensors = MakeTextModelTensors(std::move(checkpoint.tensors), *text_model);
  }
  checkpoint.safetensors = std::move(model);

  const std::string generation_path = folder + "/generation_config.json";
  if (FileExists(generation_path)) {
    ASSIGN_OR_RETURN(const JsonValue generation, ReadConfigFile(generation_path));
    ASSIGN_OR_RETURN(checkpoint.generation, ParseGenerationConfig(generation, generation_path));
    for (const std::string& field : checkpoint.generation.without_effect) {
      LogWarning("{}: {} is not supported and has no effect: {}", generation_path, field,
                 generation.Find(field)->ToString());
    }
  }
  // Older checkpoints have end tokens only in config.json, at the top or in text_config.
  const JsonValue* end = config.Find("eos_token_id");
  if (const JsonValue* text = config.Find("text_config"); text && (!end || end->is_null())) {
    end = text->Find("eos_token_id");
  }
  if (checkpoint.generation.eos_token_ids.empty() && end != nullptr) {
    JsonValue only;
    only.Set("eos_token_id", *end);
    ASSIGN_OR_RETURN(GenerationDefaults ends, ParseGenerationConfig(only, config_path));
    checkpoint.generation.eos_token_ids = std::move(ends.eos_token_ids);
  }
  ASSIGN_OR_RETURN(checkpoint.embedding, ReadEmbeddingSpec(folder, config));
  checkpoint.config = std::move(config);
  return checkpoint;
}

}  // namespace tokamak
