// Token embedding, and an output layer that may share its weight.
#pragma once

#include "nn/builder.h"
#include "nn/linear.h"
#include "nn/pass.h"

namespace tokamak::nn {

class Embedding {
 public:
  Embedding() = default;
  // Reads b.weight [vocab_size, hidden_size]. `tied`: the output layer uses it too. Looked-up rows
  // are multiplied by `scale`.
  Embedding(const Builder& b, int64_t vocab_size, int64_t hidden_size, bool tied, float scale = 1)
      : weight_(b.PackWeight({(b / "weight").Find(Shape{vocab_size, hidden_size})},
                             tied ? WeightUse::kTied : WeightUse::kEmbedding)),
        scale_(scale) {
    if (scale != 1) b.Needs(Capability::kEmbeddingScale);
  }

  // out: f32 [T, hidden_size].
  void Forward(Pass& pass, Tensor out) const {
    pass.ops.Run(Embed{.ids = pass.token_ids, .table = weight_.get(), .scale = scale_, .out = out},
                 pass.stream);
  }

  // The output layer that shares this weight. Requires `tied`.
  Linear OutputLayer() const { return Linear(weight_); }

 private:
  WeightPtr weight_;
  float scale_ = 1;
};

}  // namespace tokamak::nn
