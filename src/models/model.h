// A loaded model: weights plus the forward pass of its family.
#pragma once

#include <memory>
#include <optional>
#include <utility>

#include "base/check.h"
#include "models/image_encoder.h"
#include "nn/model_spec.h"
#include "nn/pass.h"

namespace tokamak {

// Immutable after loading; independent of the backend. Used by one runner.
class Model {
 public:
  virtual ~Model() = default;

  const ModelSpec& spec() const { return spec_; }
  void set_spec(ModelSpec spec) { spec_ = std::move(spec); }  // ends loading

  // Runs all layers over the pass's tokens and writes their cache entries. Returns the final
  // normalized hidden states of pass.logit_rows: [R, hidden], in the type that Logits takes, or f32
  // if loaded to embed. On a stage of a pipeline before the last: the residual stream of all
  // tokens, f32 [T, hidden], for pass.hidden of the next. Only this result stays allocated in
  // pass.arena.
  virtual Tensor Forward(nn::Pass& pass) const = 0;

  // f32 [rows, vocab_size] for any rows of Forward's result. Unavailable if loaded to embed, and on
  // stages of a pipeline before the last.
  virtual Tensor Logits(nn::Pass& /*pass*/, Tensor /*hidden*/) const {
    CHECK_MSG(false, "the model was loaded to embed");
    return {};
  }

  // The argmax of Logits, in the pass's arena, if it costs less; else none.
  virtual std::optional<ArgmaxLogits> Argmax(nn::Pass& /*pass*/, Tensor /*hidden*/) const {
    return std::nullopt;
  }

  // Turns images into rows for nn::Pass::image_rows. Null if the model does not see. On later
  // stages of a pipeline it has no weights, and cannot run.
  const ImageEncoder* image_encoder() const { return image_encoder_.get(); }
  void set_image_encoder(std::unique_ptr<const ImageEncoder> encoder) {
    image_encoder_ = std::move(encoder);
  }

 private:
  ModelSpec spec_;
  std::unique_ptr<const ImageEncoder> image_encoder_;
};

}  // namespace tokamak
