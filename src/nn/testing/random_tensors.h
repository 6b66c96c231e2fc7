// Weights made up from their names, for tests.
#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <string_view>

#include "weights/checkpoint.h"

namespace tokamak::testing {

// Every tensor that is asked for exists, with the asked shape and values that depend on the seed,
// its name and shape alone: of a size that keeps activations near 1, norm weights around 1, biases
// around 0.
class RandomTensors final : public TensorSource {
 public:
  explicit RandomTensors(uint64_t seed, DType matrix_dtype = DType::kF32)
      : seed_(seed), matrix_dtype_(matrix_dtype) {}

  bool Has(std::string_view name) const override { return optional.contains(std::string(name)); }
  Result<std::shared_ptr<const WeightSource>> Find(std::string_view name, const Shape& expected,
                                                   std::string_view meaning) override;
  void Skip(std::string_view) override {}
  Status CheckAllUsed() const override { return Status(); }

  // Names that Has answers for; models ask it for optional tensors only.
  std::set<std::string> optional;

 private:
  const uint64_t seed_;
  const DType matrix_dtype_;
};

// A checkpoint of such weights for a config.json; a bad one is a CHECK.
Checkpoint MakeRandomCheckpoint(std::string_view config_json, uint64_t seed = 1,
                                DType matrix_dtype = DType::kF32);

}  // namespace tokamak::testing
