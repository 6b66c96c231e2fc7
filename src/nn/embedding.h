// Token embedding and output layer, which may share one weight. Each rank has a shard of the
// vocabulary (arXiv:1909.08053, section 3).
#pragma once

#include <vector>

#include "nn/builder.h"
#include "nn/linear.h"
#include "nn/pass.h"

namespace tokamak::nn {

class Embedding {
 public:
  Embedding() = default;
  // Reads b.weight [vocab_size, hidden_size]. `tied`: the output layer uses it too. Looked-up rows
  // are multiplied by `scale`.
  Embedding(const Builder& b, int64_t vocab_size, int64_t hidden_size, bool tied, float scale = 1);

  // out: f32 [T, hidden_size].
  void Forward(Pass& pass, Tensor out) const;

 private:
  friend class OutputLayer;

  WeightPtr weight_;
  float scale_ = 1;
  int64_t first_id_ = 0;  // of this rank
  int64_t vocab_size_ = 0;
  bool is_divided_ = false;
};

// Immutable.
class OutputLayer {
 public:
  // Reads b.weight [vocab_size, hidden_size].
  OutputLayer(const Builder& b, int64_t vocab_size, int64_t hidden_size);
  // Shares the embedding's weight. Requires its `tied`.
  OutputLayer(const Builder& b, const Embedding& embedding);

  // The type of hidden states that it takes.
  DType activation() const { return linear_.activation(); }
  // f32 [R, vocab_size], the same on every rank.
  Tensor Logits(Pass& pass, Tensor hidden) const;
  // Whether Argmax may be called.
  bool has_argmax(const Ops& ops) const { return columns_.size() == 1 && ops.has_linear_argmax(); }
  // The largest logit of each row, of one rank alone.
  void Argmax(Pass& pass, Tensor hidden, const ArgmaxLogits& out) const {
    linear_.ForwardArgmax(pass, hidden, out);
  }

 private:
  Linear linear_;                    // of this rank's shard
  std::vector<IndexRange> columns_;  // the shard of each rank
};

}  // namespace tokamak::nn
