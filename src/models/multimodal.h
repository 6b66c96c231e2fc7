// Configurations of multimodal models, of which only the text model runs.
#pragma once

#include "models/decoder.h"
#include "weights/config_reader.h"

namespace tokamak {

// Opens the text model's configuration. Its model_type, if any, must be this one.
ConfigReader OpenTextConfig(ConfigReader& outer, const char* model_type);

// Reads the outer tie_word_embeddings. As in the reference, it overrides text_config: the output is
// tied to the embeddings unless the field is false or an output matrix is stored.
void ParseOuterTie(ConfigReader& outer, DecoderConfig& c);

}  // namespace tokamak
