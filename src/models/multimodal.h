// Multimodal models, of which the text model runs: what their configurations have around that of
// the text model.
#pragma once

#include "models/decoder.h"
#include "weights/config_reader.h"

namespace tokamak {

// The text model's configuration, of a model of this type.
ConfigReader OpenTextConfig(ConfigReader& outer, const char* model_type);

// Reads the outer tie_word_embeddings, which decides for the reference, whatever text_config says:
// the output is tied to the embeddings unless this is false or an output is stored.
void ParseOuterTie(ConfigReader& outer, DecoderConfig& c);

}  // namespace tokamak
