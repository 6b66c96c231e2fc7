// The weights of a checkpoint by the names that Hugging Face gives them, whatever the file format.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "ops/weight_source.h"
#include "tensor/shape.h"
#include "tokamak/status.h"

namespace tokamak {

// For one thread, the one that loads; the weights that it returns are for any thread and stay valid
// without it.
class TensorSource {
 public:
  virtual ~TensorSource() = default;

  virtual bool Has(std::string_view name) const = 0;
  // The tensor "model.layers.7.self_attn.q_proj.weight", which must exist and have this shape
  // ([out features, in features]) and a type that holds weights. Marks it as used. `meaning` says
  // in messages where the expected shape comes from: "num_heads 9 × head_dim 64".
  virtual Result<std::shared_ptr<const WeightSource>> Find(std::string_view name,
                                                           const Shape& expected,
                                                           std::string_view meaning) = 0;
  Result<std::shared_ptr<const WeightSource>> Find(std::string_view name, const Shape& expected) {
    return Find(name, expected, {});
  }
  // Marks the tensors whose names start so as used: those that the model leaves out on purpose,
  // such as layers that only draft tokens.
  virtual void Skip(std::string_view prefix) = 0;
  // An error that lists the tensors that were never asked for: a model that leaves some out
  // computes something else than the checkpoint's author meant.
  virtual Status CheckAllUsed() const = 0;
};

}  // namespace tokamak
