// Random weights that depend on their names, for tests.
#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <string_view>

#include "weights/checkpoint.h"

namespace tokamak::testing {

// Has every tensor that is requested, in the requested shape. Values depend only on the seed, the
// name and the shape: sized to keep activations near 1, norm weights around 1, biases around 0.
class RandomTensors final : public TensorSource {
 public:
  explicit RandomTensors(uint64_t seed, DType matrix_dtype = DType::kF32)
      : seed_(seed), matrix_dtype_(matrix_dtype) {}

  bool Has(std::string_view name) const override { return optional.contains(std::string(name)); }
  Result<std::shared_ptr<const WeightSource>> Find(std::string_view name, const Shape& expected,
                                                   std::string_view meaning) override;
  void Skip(std::string_view) override {}
  Status CheckAllUsed() const override { return Status(); }

  // Names for which Has returns true. Models ask only for optional tensors.
  std::set<std::string> optional;

 private:
  const uint64_t seed_;
  const DType matrix_dtype_;
};

// A checkpoint of such weights for a config.json. CHECKs that it is valid.
Checkpoint MakeRandomCheckpoint(std::string_view config_json, uint64_t seed = 1,
                                DType matrix_dtype = DType::kF32);

}  // namespace tokamak::testing
