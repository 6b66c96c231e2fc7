// From the features of a vision tower to rows for a language model: a small MLP (LLaVA 1.5,
// arXiv:2310.03744), or a matrix (LLaVA 1, arXiv:2304.08485).
#pragma once

#include <cstdint>

#include "nn/builder.h"
#include "nn/linear.h"
#include "nn/pass.h"
#include "weights/config_reader.h"

namespace tokamak {

struct ProjectorConfig {
  Activation activation = Activation::kGelu;
  bool bias = true;
};

// Reads projector_hidden_act and multimodal_projector_bias; `bias` is what its absence means.
ProjectorConfig ParseProjector(ConfigReader& reader, bool bias);

// linear_2(activation(linear_1(x))), or a single matrix if `b` is one. Immutable.
class Projector {
 public:
  Projector(const nn::Builder& b, const ProjectorConfig& c, int64_t num_features, int64_t size);

  // rows = the projection of features. f32 [R, num_features] and [R, size].
  void Forward(nn::Pass& pass, Tensor features, Tensor rows) const;

 private:
  const Activation activation_;
  const bool single_;
  nn::Linear first_, second_;
};

}  // namespace tokamak
