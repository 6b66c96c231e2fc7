// The vision transformers of CLIP (arXiv:2103.00020) and SigLIP (arXiv:2303.15343): an image of a
// fixed size is cut into patches, which are the tokens of a sequence. References: transformers,
// models/clip and models/siglip.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "models/layer.h"
#include "nn/attention.h"
#include "nn/builder.h"
#include "nn/linear.h"
#include "nn/mlp.h"
#include "nn/norm.h"
#include "weights/config_reader.h"

namespace tokamak {

struct VisionTowerConfig {
  int32_t image_size = 0;  // width and height, in pixels
  int32_t patch_size = 0;
  bool clip = true;  // else SigLIP, which has no class token, no norm before the layers, and biases
                     // of the patch embedding
  nn::NormConfig norm;
  nn::AttentionConfig attention;
  nn::MlpShape mlp;
  int32_t num_layers = 0;
  // The hidden states that become features, side by side: 0 is the first layer's input, i the
  // output of layer i - 1. At least one. Layers behind the last of them are not loaded.
  std::vector<int32_t> feature_layers;
  // If above 0, features are for ForwardSquares instead: the last layer's output, normalized once
  // more, of squares with so many patches per side. It divides grid(). The patches of a square are
  // tokens that follow each other, row by row, as are the squares.
  int32_t square = 0;

  int32_t grid() const { return image_size / patch_size; }  // patches per side
  int32_t square_patches() const { return square * square; }
  // The i-th patch among the tokens, counted row by row.
  int32_t PatchAt(int32_t i) const {
    if (square == 0) return i;
    const int32_t index = i / square_patches(), place = i % square_patches();
    const int32_t y = index / (grid() / square) * square + place / square;
    const int32_t x = index % (grid() / square) * square + place % square;
    return y * grid() + x;
  }
  int32_t class_tokens() const { return clip ? 1 : 0; }
  int32_t num_tokens() const { return class_tokens() + grid() * grid(); }
  int32_t patch_values() const { return 3 * patch_size * patch_size; }
  int32_t num_features() const {
    return attention.hidden_size * static_cast<int32_t>(feature_layers.size());
  }
};

// Reads the vision_config of `outer`, without feature_layers. `absent`: the model_type of a
// vision_config that has none.
VisionTowerConfig ParseVisionTower(ConfigReader& outer, const char* absent = "clip_vision_model");

// Reads the fields of a vision_config with this class's, CLIP's or SigLIP's, defaults.
VisionTowerConfig ParseVisionFields(ConfigReader& vision, bool clip);

// Reads vision_feature_layer, one or several hidden states of a tower, which count from its end if
// they are negative: VisionTowerConfig::feature_layers. `absent`: the value if there is none.
std::vector<int32_t> ParseFeatureLayers(ConfigReader& outer, int32_t num_layers, int32_t absent);

// The activation that transformers has by this name; a failure of `reader` if there is none here.
Activation ParseVisionActivation(ConfigReader& reader, const char* field, const char* absent);

// The convolution over patches, whose weight has the shape `stored`, as one product: [stored[0],
// values of a patch].
nn::Linear MakePatchEmbedding(const nn::Builder& b, const Shape& stored, bool bias);
// h = the embeddings of patches, f32 [T, values of a patch].
void EmbedPatches(nn::Pass& pass, const nn::Linear& embedding, Tensor patches, Tensor h);

// The pixel values of an image: [3, height, width].
struct Pixels {
  const float* values = nullptr;
  size_t height = 0, width = 0;
};
// Writes the patch of size x size pixels at (left, top); returns the end of what it wrote.
float* UnfoldPatch(const Pixels& image, size_t top, size_t left, size_t size, float* out);

// Immutable.
class VisionTower {
 public:
  // Reads the weights below b (or b.vision_model, as older checkpoints have it) and marks those
  // that are not needed as used.
  VisionTower(const nn::Builder& b, const VisionTowerConfig& config);

  // The patch of each token of `tiles`, [tiles, 3, image_size, image_size]: [tiles · num_tokens,
  // patch_values], with zeros for class tokens.
  void Unfold(std::span<const float> tiles, std::span<float> patches) const;

  // Runs the layers over patches, f32 [T, patch_values]; pass.positions count the tokens of a tile.
  // Writes the features of pass.logit_rows: f32 [R, num_features].
  void Forward(nn::Pass& pass, Tensor patches, Tensor features) const;
  // The same with VisionTowerConfig::square. Returns the features of the squares that begin with
  // pass.logit_rows, side by side: f32 [R, square_patches · hidden_size]. This and what it needs
  // stay allocated in the pass's arena.
  Tensor ForwardSquares(nn::Pass& pass, Tensor patches) const;

 private:
  // h = embeddings of patches and positions.
  void Embed(nn::Pass& pass, Tensor patches, Tensor h) const;

  const VisionTowerConfig config_;
  nn::Linear patch_embedding_;
  nn::OwnedTensor positions_;  // f32 [num_tokens, hidden_size], the class embedding included
  nn::Norm pre_norm_;          // CLIP's
  nn::Norm post_norm_;         // only with squares
  std::vector<PreNorm> layers_;
};

}  // namespace tokamak
