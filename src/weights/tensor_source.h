// A checkpoint's weights by their Hugging Face names, whatever the file format.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "ops/weight_source.h"
#include "tensor/shape.h"
#include "tokamak/status.h"

namespace tokamak {

// Not thread-safe; used by the loading thread. The returned weights are thread-safe and outlive it.
class TensorSource {
 public:
  virtual ~TensorSource() = default;

  virtual bool Has(std::string_view name) const = 0;
  // Returns the tensor, e.g. "model.layers.7.self_attn.q_proj.weight", and marks it as used. It
  // must exist with this shape ([out features, in features]) and a type that holds weights.
  // `meaning` explains the expected shape in messages: "num_heads 9 × head_dim 64".
  virtual Result<std::shared_ptr<const WeightSource>> Find(std::string_view name,
                                                           const Shape& expected,
                                                           std::string_view meaning) = 0;
  Result<std::shared_ptr<const WeightSource>> Find(std::string_view name, const Shape& expected) {
    return Find(name, expected, {});
  }
  // Marks tensors with this name prefix as used. Meant for tensors that the model leaves out on
  // purpose, such as layers that only draft tokens.
  virtual void Skip(std::string_view prefix) = 0;
  // An error that lists the tensors that were never used. A model that leaves some unused computes
  // something other than what was trained.
  virtual Status CheckAllUsed() const = 0;
};

}  // namespace tokamak
