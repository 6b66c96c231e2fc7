#include "models/multimodal.h"

namespace tokamak {

ConfigReader OpenTextConfig(ConfigReader& outer, const char* model_type) {
  ConfigReader text = outer.Part("text_config");
  text.ExpectOrAbsent("model_type", model_type);
  return text;
}

void ParseOuterTie(ConfigReader& outer, DecoderConfig& c) {
  c.tied_unless_stored = outer.BoolOr("tie_word_embeddings", true);
  if (!c.tied_unless_stored) c.tie_word_embeddings = false;
}

}  // namespace tokamak
