#include "models/projector.h"

#include "models/vision_tower.h"

namespace tokamak {

ProjectorConfig ParseProjector(ConfigReader& reader, bool bias) {
  return {.activation = ParseVisionActivation(reader, "projector_hidden_act", "gelu"),
          .bias = reader.BoolOr("multimodal_projector_bias", bias)};
}

Projector::Projector(const nn::Builder& b, const ProjectorConfig& c, int64_t num_features,
                     int64_t size)
    : activation_(c.activation), single_((b / "weight").Has()) {
  first_ = nn::Linear::Replicated(single_ ? b : b / "linear_1", size, num_features, c.bias);
  b.Needs(Capability::kConvert);
  if (single_) return;
  second_ = nn::Linear::Replicated(b / "linear_2", size, size, c.bias);
  b.Needs(Capability::kActivate);
  b.Needs(NeedsOf(activation_));
}

void Projector::Forward(nn::Pass& pass, Tensor features, Tensor rows) const {
  const ArenaScope scope(pass.arena);
  Tensor x = pass.arena.Allocate(first_.activation(), features.shape);
  pass.ops.Run(Convert{.x = features, .out = x}, pass.stream);
  if (single_) return first_.Forward(pass, x, rows);
  Tensor inner = pass.arena.Allocate(first_.output(), rows.shape);
  first_.Forward(pass, x, inner);
  Tensor activated = pass.arena.Allocate(second_.activation(), rows.shape);
  pass.ops.Run(Activate{.x = inner, .activation = activation_, .out = activated}, pass.stream);
  second_.Forward(pass, activated, rows);
}

}  // namespace tokamak
