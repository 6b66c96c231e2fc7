#include "images/processor.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/json/json_reader.h"
#include "images/processors.h"

namespace tokamak {
namespace {

using Made = std::unique_ptr<const ImageProcessor>;

struct Kind {
  std::string_view name;
  Made (*make)(const JsonReader& reader);
};

constexpr Kind kKinds[] = {
    {"CLIPImageProcessor",
     [](const JsonReader& reader) -> Made {
       return std::make_unique<SingleTileProcessor>(reader, SingleTileProcessor::Clip(), false);
     }},
    {"LlavaImageProcessor",
     [](const JsonReader& reader) -> Made {
       return std::make_unique<SingleTileProcessor>(reader, SingleTileProcessor::Clip(), true);
     }},
    {"SiglipImageProcessor",
     [](const JsonReader& reader) -> Made {
       return std::make_unique<SingleTileProcessor>(reader, SingleTileProcessor::Siglip(), false);
     }},
    {"LlavaNextImageProcessor",
     [](const JsonReader& reader) -> Made { return std::make_unique<LlavaNextProcessor>(reader); }},
    {"Qwen2VLImageProcessor",
     [](const JsonReader& reader) -> Made { return std::make_unique<Qwen2VlProcessor>(reader); }},
};

std::string Describe(const JsonMismatch& mismatch) {
  if (mismatch.got == nullptr) return "is missing";
  return fmt::format("expected {}{}, got {}", mismatch.expected, mismatch.range,
                     mismatch.got->ToString());
}

// Names of classes that compute the same have other endings.
std::string_view WithoutSuffix(std::string_view type) {
  constexpr std::string_view kFast = "Fast";
  if (type == "CLIPFeatureExtractor") return "CLIPImageProcessor";
  if (type.ends_with(kFast)) type.remove_suffix(kFast.size());
  return type;
}

}  // namespace

Result<std::unique_ptr<const ImageProcessor>> ReadImageProcessor(const JsonValue& config,
                                                                 const std::string& source) {
  const JsonReader reader(config, source + ": ", Describe, JsonReader::Track::kAll);
  const std::string old_type = reader.StringOr("feature_extractor_type", "");
  const std::string type = old_type.empty() ? reader.String("image_processor_type")
                                            : reader.StringOr("image_processor_type", old_type);
  RETURN_IF_ERROR(reader.status());
  Made made;
  std::vector<std::string_view> names;
  for (const Kind& kind : kKinds) {
    names.push_back(kind.name);
    if (kind.name == WithoutSuffix(type)) made = kind.make(reader);
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
  RETURN_IF_ERROR(reader.status());
  if (const std::vector<std::string> unread = reader.Unread(); !unread.empty()) {
    return Unimplemented("{}: {} may change the result, but {} is implemented without", source,
                         fmt::join(unread, ", "), type);
  }
  return made;
}

}  // namespace tokamak
