#include "images/processor.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <optional>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/json/json_reader.h"
#include "images/processors.h"

namespace tokamak {
namespace {

using Made = std::unique_ptr<const ImageProcessor>;

struct Kind {
  std::string_view name;
  // `outer`: processor_config.json.
  Made (*make)(const JsonReader& reader, const JsonReader& outer, int32_t max_patches);
};

constexpr Kind kKinds[] = {
    {"CLIPImageProcessor",
     [](const JsonReader& reader, const JsonReader&, int32_t) -> Made {
       return std::make_unique<SingleTileProcessor>(reader, SingleTileProcessor::Clip(), false);
     }},
    {"LlavaImageProcessor",
     [](const JsonReader& reader, const JsonReader&, int32_t) -> Made {
       return std::make_unique<SingleTileProcessor>(reader, SingleTileProcessor::Clip(), true);
     }},
    {"SiglipImageProcessor",
     [](const JsonReader& reader, const JsonReader&, int32_t) -> Made {
       return std::make_unique<SingleTileProcessor>(reader, SingleTileProcessor::Siglip(), false);
     }},
    {"Gemma3ImageProcessor",
     [](const JsonReader& reader, const JsonReader&, int32_t) -> Made {
       for (const char* const field : {"do_pan_and_scan", "do_center_crop"}) {
         if (!reader.BoolOr(field, false)) continue;
         reader[field].Fail(
             Unimplemented("{} is true, which is not implemented", reader[field].path()));
       }
       for (const char* const field : {"pan_and_scan_max_num_crops", "pan_and_scan_min_crop_size",
                                       "pan_and_scan_min_ratio_to_activate"}) {
         (void)reader.Has(field);
       }
       return std::make_unique<SingleTileProcessor>(reader, SingleTileProcessor::Gemma3(), false);
     }},
    {"LlavaNextImageProcessor",
     [](const JsonReader& reader, const JsonReader&, int32_t) -> Made {
       return std::make_unique<LlavaNextProcessor>(reader);
     }},
    {"Qwen2VLImageProcessor",
     [](const JsonReader& reader, const JsonReader&, int32_t max_patches) -> Made {
       return std::make_unique<Qwen2VlProcessor>(reader, max_patches, /*glm=*/false);
     }},
    {"Glm4vImageProcessor",
     [](const JsonReader& reader, const JsonReader&, int32_t max_patches) -> Made {
       return std::make_unique<Qwen2VlProcessor>(reader, max_patches, /*glm=*/true);
     }},
    {"PixtralImageProcessor",
     [](const JsonReader& reader, const JsonReader& outer, int32_t max_patches) -> Made {
       return std::make_unique<PixtralProcessor>(reader, outer, max_patches);
     }},
    {"MiniCPMV4_6ImageProcessor",
     [](const JsonReader& reader, const JsonReader&, int32_t max_patches) -> Made {
       return std::make_unique<MiniCpmVProcessor>(reader, max_patches);
     }},
};

std::string Describe(const JsonMismatch& mismatch) {
  if (mismatch.got == nullptr) return "is missing";
  return fmt::format("expected {}{}, got {}", mismatch.expected, mismatch.range,
                     mismatch.got->ToString());
}

Status CheckAllRead(const JsonReader& reader, const std::string& source, const std::string& type) {
  RETURN_IF_ERROR(reader.status());
  const std::vector<std::string> unread = reader.Unread();
  if (unread.empty()) return Status();
  return Unimplemented("{}: {} may change the result, but {} is implemented without", source,
                       fmt::join(unread, ", "), type);
}

// Several classes compute the same.
std::string_view KindOf(std::string_view type) {
  constexpr std::string_view kFast = "Fast";
  if (type == "CLIPFeatureExtractor") return "CLIPImageProcessor";
  if (type.ends_with(kFast)) type.remove_suffix(kFast.size());
  return type == "Glm46VImageProcessor" ? "Glm4vImageProcessor" : type;
}

// Reads a JSON file; null if it does not exist.
Result<JsonValue> ReadJsonIfAny(const std::string& path) {
  constexpr uint64_t kMaxBytes = 1 << 20;
  if (!FileExists(path)) return JsonValue();
  ASSIGN_OR_RETURN(const std::string text, ReadWholeFile(path, kMaxBytes));
  JsonError error;
  std::optional<JsonValue> json = JsonValue::Parse(text, {.distinct_names = true}, &error);
  if (!json) return DataLoss("{}: is not valid JSON at byte {}", path, error.byte);
  return *std::move(json);
}

}  // namespace

Result<std::unique_ptr<const ImageProcessor>> ReadImageProcessor(const JsonValue& config,
                                                                 const std::string& source,
                                                                 int32_t max_patches,
                                                                 const JsonValue& outer_config) {
  const JsonReader outer(outer_config, "processor_config.json: ", Describe,
                         JsonReader::Track::kAll);
  const JsonReader reader(config, source + ": ", Describe, JsonReader::Track::kAll);
  const std::string old_type = reader.StringOr("feature_extractor_type", "");
  const std::string type = old_type.empty() ? reader.String("image_processor_type")
                                            : reader.StringOr("image_processor_type", old_type);
  RETURN_IF_ERROR(reader.status());
  Made made;
  std::vector<std::string_view> names;
  for (const Kind& kind : kKinds) {
    names.push_back(kind.name);
    if (kind.name == KindOf(type)) made = kind.make(reader, outer, max_patches);
  }
  if (made == nullptr) {
    return Unimplemented("{}: image_processor_type is \"{}\"; implemented are {}", source, type,
                         fmt::join(names, ", "));
  }
  // These say what the values are for and how transformers computes them.
  for (const std::string_view name :
       {"_valid_processor_keys", "auto_map", "data_format", "device", "disable_grouping",
        "image_seq_length", "input_data_format", "processor_class", "return_tensors",
        "transformers_version"}) {
    (void)reader.Has(name);
  }
  if (!reader.BoolOr("do_convert_rgb", true)) {
    reader.Fail(Unimplemented("{}: do_convert_rgb is false; images are always converted", source));
  }
  RETURN_IF_ERROR(CheckAllRead(reader, source, type));
  if (!outer.uses().empty()) {
    // The first is `config`; the others have nothing to do with images.
    for (const std::string_view name : {"image_processor", "auto_map", "chat_template",
                                        "processor_class", "transformers_version"}) {
      (void)outer.Has(name);
    }
    RETURN_IF_ERROR(CheckAllRead(outer, "processor_config.json", type));
  }
  return made;
}

Result<std::unique_ptr<const ImageProcessor>> LoadImageProcessor(const std::string& directory,
                                                                 int32_t max_patches) {
  const std::string newer = directory + "/processor_config.json";
  const std::string older = directory + "/preprocessor_config.json";
  ASSIGN_OR_RETURN(const JsonValue all, ReadJsonIfAny(newer));
  if (const JsonValue* config = all.Find("image_processor"); config && !config->is_null()) {
    return ReadImageProcessor(*config, newer + ": image_processor", max_patches, all);
  }
  ASSIGN_OR_RETURN(const JsonValue config, ReadJsonIfAny(older));
  if (config.is_null()) {
    return NotFound(
        "{}: does not exist. It says how images are prepared; it belongs to the model's files",
        older);
  }
  return ReadImageProcessor(config, older, max_patches, all);
}

}  // namespace tokamak
