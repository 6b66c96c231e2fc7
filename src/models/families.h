// The model families: one function each, in the file of its name. registry.cc lists them.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "base/error.h"
#include "models/decoder.h"
#include "models/model.h"
#include "models/registry.h"
#include "nn/builder.h"
#include "weights/config_reader.h"

namespace tokamak {

// Reads a checkpoint's configuration strictly into the decoder's.
using ParseDecoderFamily = Result<DecoderConfig>(ConfigReader config);

ParseDecoderFamily ParseDeepseekV2, ParseDeepseekV3;
ParseDecoderFamily ParseErnie45;
ParseDecoderFamily ParseExaone4;
ParseDecoderFamily ParseGemma2, ParseGemma3;
ParseDecoderFamily ParseGlm4, ParseGlm4Moe;
ParseDecoderFamily ParseGptOss;
ParseDecoderFamily ParseLlama;
ParseDecoderFamily ParseMistral, ParseMixtral;
ParseDecoderFamily ParseMpt;
ParseDecoderFamily ParseOlmo2;
ParseDecoderFamily ParsePhi3;
ParseDecoderFamily ParseQwen2, ParseQwen2Moe;
ParseDecoderFamily ParseQwen3, ParseQwen3Moe;
ParseDecoderFamily ParseSmolLm3;
// The text model of Qwen2-VL. Leaves Finish to the caller: published configurations have other
// fields beside these.
DecoderConfig ParseQwen2VlText(ConfigReader& reader);
DecoderConfig ParseQwen3VlText(ConfigReader& reader, bool experts);  // of Qwen3-VL
DecoderConfig ParseQwen35Text(ConfigReader& reader);                 // of Qwen3.5
// The outer field of Qwen's models that see.
int32_t ParseQwenImageToken(ConfigReader& outer, const DecoderConfig& text);
// The same of GLM-4.1V and of GLM-4.5V.
DecoderConfig ParseGlm4vText(ConfigReader& text);
DecoderConfig ParseGlm4vMoeText(ConfigReader& text);

// Creates a family's model: parses `config` and builds the layers, whose errors stay in
// load.status.
using CreateModel = Result<std::unique_ptr<Model>>(ConfigReader config, nn::WeightLoad& load,
                                                   const LoadOptions& options);

CreateModel CreateBert;
CreateModel CreateGemma3Vision;
CreateModel CreateGlm4v, CreateGlm4vMoe;
CreateModel CreateLlava, CreateLlavaNext;
CreateModel CreateMiniCpmV;
CreateModel CreateMistral3;
CreateModel CreateQwen35, CreateQwen35Vl;
CreateModel CreateQwen2Vl, CreateQwen25Vl, CreateQwen3Vl, CreateQwen3VlMoe;

template <ParseDecoderFamily Parse>
Result<std::unique_ptr<Model>> CreateDecoder(ConfigReader config, nn::WeightLoad& load,
                                             const LoadOptions& options) {
  ASSIGN_OR_RETURN(DecoderConfig c, Parse(std::move(config)));
  return MakeDecoder(std::move(c), load, options);
}

}  // namespace tokamak
