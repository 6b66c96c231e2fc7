// The part of a model that sees: a vision tower, and a projector to the language model's hidden
// size. It turns an image into rows, which take the place of the embeddings of placeholder tokens.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "nn/cache_layout.h"
#include "nn/pass.h"
#include "tensor/tensor.h"
#include "tokamak/status.h"

namespace tokamak {

// One image as its processor prepared it (PreparedImage in images/processor.h).
struct ImageView {
  std::span<const int32_t> shape = {};  // of the values
  std::span<const float> values = {};
  int32_t grid_height = 0, grid_width = 0;
  int32_t image_height = 0, image_width = 0;  // in pixels, before it was prepared
};

// How an image goes through the tower.
struct ImageLayout {
  // In place of a token: the row is the encoder's newline.
  static constexpr int32_t kNewline = -1;

  // Tokens per sequence. A token sees all tokens of its sequence and no others.
  std::vector<int32_t> sequence_lens = {};
  // [tokens]: as in nn::Pass.
  std::vector<int32_t> positions = {};
  // The rows for the language model: each a token of the image, or kNewline.
  std::vector<int32_t> rows = {};
  // For layers of ImageScope::kWindow: tokens per window, which take the place of sequences. A
  // window is part of one sequence.
  std::vector<int32_t> window_lens = {};
  // Per dimension [tokens]: as in nn::Pass. ImageEncoderSpec::rope_dimensions of them.
  std::vector<std::vector<int32_t>> rope_positions = {};
  // [tokens · ImageEncoderSpec::position_taps]: rows of a table of positions, whose weighted sum is
  // the token's.
  std::vector<int32_t> position_rows = {};
  std::vector<float> position_weights = {};
  // With mRoPE: the grid that the rows are, row by row.
  int32_t grid_height = 0, grid_width = 0;

  int32_t num_tokens() const { return static_cast<int32_t>(positions.size()); }
};

struct ImageEncoderSpec {
  int32_t patch_size = 0;  // values of a token's patch
  // Values of a row: the language model's hidden_size, times 1 + DecoderConfig::deepstack_layers.
  int32_t row_size = 0;
  int32_t max_sequence_len = 0;  // tokens
  int32_t max_image_tokens = 0;  // of the tower, for one image
  int32_t max_image_rows = 0;    // for one image
  int32_t tokens_per_row = 1;    // at least, if there are no newlines
  // Tokens that follow each other and become one inside the tower. Layers of ImageScope::kMerged
  // and pass.logit_rows count those that are left. Divides every sequence.
  int32_t merged_tokens = 1;
  int32_t rope_dimensions = 0;  // of positions in the tower; 0: they are not used
  int32_t position_taps = 0;    // ImageLayout::position_rows per token
  // Sequences may be shorter; passes have room for max_tokens / min_sequence_len of them. 0: all
  // have max_sequence_len tokens.
  int32_t min_sequence_len = 0;
  // With windows: their tokens; T tokens in S sequences have at most T / tokens_per_window + S
  // windows. 0: there are none.
  int32_t max_window_len = 0, tokens_per_window = 0;
  // Attention of the tower's layers, which is not causal. The layers of a group can share one
  // layer's memory, because keys and values are not read again once the next layer begins.
  nn::CacheLayout cache = {};
};

// Immutable after loading. Layout and Unfold are thread-safe.
class ImageEncoder {
 public:
  virtual ~ImageEncoder() = default;

  const ImageEncoderSpec& spec() const { return spec_; }
  void set_cache(nn::CacheLayout cache) { spec_.cache = std::move(cache); }

  // kInvalidArgument if the image is not of a shape that the tower takes: then
  // preprocessor_config.json does not fit config.json. Reads no values.
  virtual Result<ImageLayout> Layout(const ImageView& image) const = 0;
  // Writes the patch of each token: [num_tokens, patch_size]. Requires that Layout accepts the
  // image.
  virtual void Unfold(const ImageView& image, std::span<float> patches) const = 0;

  // Encodes T tokens of whole sequences. patches: f32 [T, patch_size]. Returns a row for each of
  // pass.logit_rows, f32 [R, row_size]; only this stays allocated in pass.arena. The pass has
  // positions, groups, kv_layers and logit_rows; rope_positions, position_rows and position_weights
  // if the layouts have them.
  virtual Tensor Forward(nn::Pass& pass, Tensor patches) const = 0;
  // f32 [1, row_size]; empty if no layout has a newline.
  virtual Tensor newline() const { return {}; }

 protected:
  ImageEncoderSpec spec_;
};

}  // namespace tokamak
