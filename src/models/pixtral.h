// Pixtral's vision transformer (arXiv:2410.07073), for images of about their own size and aspect
// ratio. Reference: transformers, models/pixtral.
#pragma once

#include <cstdint>

#include "models/model.h"
#include "models/projector.h"
#include "nn/attention.h"
#include "nn/builder.h"
#include "nn/mlp.h"
#include "weights/config_reader.h"

namespace tokamak {

struct PixtralConfig {
  int32_t patch_size = 0;  // in pixels
  int32_t side = 0;        // patches of the largest image's width and height
  int32_t merge_size = 1;  // each square of merge_size x merge_size patches becomes a row
  nn::AttentionConfig attention;
  nn::MlpShape mlp;
  double theta = 0;
  int32_t num_layers = 0;
  int32_t used_layers = 0;  // the features are the output of the last of them
};

// Whether the vision_config of `outer` is Pixtral's.
bool HasPixtral(const ConfigReader& outer);
// Reads the vision_config of `outer`, and the field vision_feature_layer beside it, whose absence
// means `feature_layer`.
PixtralConfig ParsePixtral(ConfigReader& outer, int32_t merge_size, int32_t feature_layer);

// The part between the tower and the text model.
struct PixtralOutput {
  ProjectorConfig projector;
  bool merges = false;  // a norm, and a matrix for the patches of a square, before the projector
  float norm_eps = 0;   // of that norm
  int32_t hidden_size = 0;  // of the text model
  int32_t image_token = 0;
};

// Gives the model an image encoder of weights below vision_tower and multi_modal_projector. Errors
// of weights stay in load.status.
Status AddPixtral(Model& model, nn::WeightLoad& load, const PixtralConfig& c,
                  const PixtralOutput& output);

}  // namespace tokamak
