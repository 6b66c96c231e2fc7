// The decoder that families share: an embedding, layers, a final norm and an output layer. A
// family's file reads its configuration and says what a layer is made of (models/layer.h).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>
#include <vector>

#include "base/function_ref.h"
#include "models/image_encoder.h"
#include "models/layer.h"
#include "models/model.h"
#include "models/registry.h"
#include "nn/attention.h"
#include "nn/builder.h"
#include "nn/mla.h"
#include "nn/mlp.h"
#include "nn/moe.h"
#include "nn/norm.h"
#include "nn/rope.h"

namespace tokamak {

struct DecoderConfig;

// How a layer differs from the others.
struct DecoderLayer {
  int32_t window = 0;  // keys that a query sees, its own included; 0: all
  // Index into DecoderConfig::ropes; kNoRope: queries and keys do not rotate.
  static constexpr int kNoRope = -1;
  int rope = 0;
  bool experts = false;  // an MoE layer
  bool linear = false;   // linear attention, with a state instead of keys and values
};

// A family makes a layer of these parts, by their names in the checkpoint, with the sizes of the
// configuration.
struct LayerBuilder {
  const DecoderConfig& config;
  const DecoderLayer& layer;
  nn::Builder at;
  const nn::Rope* rope;  // null: none
  MlaForm mla_form;

  nn::Norm Norm(std::string_view name) const;
  SublayerPtr Attention(std::string_view name, const nn::AttentionExtras& extras = {}) const;
  SublayerPtr LatentAttention(std::string_view name, nn::MlaConfig mla) const;
  // The experts in MoE layers, else the MLP.
  SublayerPtr FeedForward(std::string_view name) const;
};

using MakeLayer = std::function<Layer(const LayerBuilder& b)>;

// Layers that several families have, in the file of the first.
MakeLayer LlamaLayer(const nn::AttentionExtras& extras = {}, const char* feed_forward = "mlp");
MakeLayer Olmo2Layer(const nn::AttentionExtras& extras);

// A checkpoint's names for the parts of the model outside its layers.
struct DecoderNames {
  std::string_view model = "model";
  std::string_view embedding = "embed_tokens";
  std::string_view layers = "layers";
  std::string_view final_norm = "norm";
};

struct DecoderConfig {
  int32_t vocab_size = 0;
  int32_t hidden_size = 0;
  nn::NormConfig norm;  // of the residual stream
  bool tie_word_embeddings = false;
  // The output is tied exactly if the checkpoint stores no output matrix, whatever
  // tie_word_embeddings says.
  bool tied_unless_stored = false;
  float embedding_scale = 1;
  float logit_softcap = 0;  // 0: none
  // At least one, unless all layers have kNoRope; then max_positions is the context.
  std::vector<nn::RopeSpec> ropes;
  int32_t max_positions = 0;
  nn::AttentionConfig attention;  // of all layers, but for the window
  nn::MlpShape mlp;
  nn::MoeShape moe;  // in MoE layers instead
  std::vector<DecoderLayer> layers;
  MakeLayer layer = LlamaLayer();
  // After each of so many first layers, an image's rows are added to the hidden states of its
  // tokens: the first hidden_size values of a row are in place of the embedding, the next are for
  // the first layer, and so on. arXiv:2406.04334. Requires mRoPE.
  int32_t deepstack_layers = 0;
  DecoderNames names = {};
  int32_t mtp_layers = 0;  // multi-token prediction layers, stored after the others; not loaded
};

// Errors of weights stay in load.status.
Result<std::unique_ptr<Model>> MakeDecoder(DecoderConfig config, nn::WeightLoad& load,
                                           const LoadOptions& options);
// Gives the model what `make` makes from weights of `load`, whose spec notes their bytes.
// `image_token`: the placeholder of a row.
void AddImageEncoder(Model& model, nn::WeightLoad& load, int32_t image_token,
                     FunctionRef<std::unique_ptr<ImageEncoder>()> make);

}  // namespace tokamak
