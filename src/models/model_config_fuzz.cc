// Reads bytes as config.json and builds its model, with weights that are never read, on the
// counting backend.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "models/registry.h"
#include "ops/count/count_ops.h"
#include "weights/checkpoint.h"

namespace tokamak {
namespace {

// Limits a run's time: elements that are read, and tensors.
using Budget = std::shared_ptr<int64_t>;
constexpr int64_t kBudget = int64_t{1} << 21;
constexpr int64_t kTensorCost = 1000;  // in elements

Status Spend(const Budget& budget, int64_t cost) {
  if (cost > *budget) return ResourceExhausted("enough for one run");
  *budget -= cost;
  return Status();
}

class Zeros final : public WeightSource {
 public:
  Zeros(std::string_view name, const Shape& shape, Budget budget)
      : name_(name), shape_(shape), budget_(std::move(budget)) {}

  const std::string& name() const override { return name_; }
  DType dtype() const override { return DType::kF32; }
  const Shape& shape() const override { return shape_; }
  Status ReadRows(int64_t begin, int64_t end, std::byte* destination) const override {
    RETURN_IF_ERROR(Spend(budget_, shape_.cols() * (end - begin)));
    const size_t bytes = RowBytes(dtype(), shape_.cols()) * static_cast<size_t>(end - begin);
    std::fill_n(destination, bytes, std::byte{0});
    return Status();
  }

 private:
  const std::string name_;
  const Shape shape_;
  const Budget budget_;
};

// Has every tensor that is requested, until the budget is spent.
class AnyTensors final : public TensorSource {
 public:
  bool Has(std::string_view) const override { return false; }
  Result<std::shared_ptr<const WeightSource>> Find(std::string_view name, const Shape& expected,
                                                   std::string_view) override {
    RETURN_IF_ERROR(Spend(budget_, kTensorCost));
    return std::shared_ptr<const WeightSource>(std::make_shared<Zeros>(name, expected, budget_));
  }
  void Skip(std::string_view) override {}
  Status CheckAllUsed() const override { return Status(); }

 private:
  const Budget budget_ = std::make_shared<int64_t>(kBudget);
};

void Load(const Checkpoint& dummy, Task task) {
  const std::unique_ptr<Ops> ops = MakeCountOps();
  LoadOptions options;
  options.task = task;
  (void)LoadModel(dummy, *ops, options);
}

}  // namespace
}  // namespace tokamak

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tokamak;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  Result<JsonValue> config = ParseConfigJson(text, "config.json");
  if (!config.ok()) return 0;
  Result<Checkpoint> dummy = MakeDummyCheckpoint(*std::move(config), "config.json");
  if (!dummy.ok()) return 0;
  for (const Task task : {Task::kGenerate, Task::kEmbed}) {
    dummy->tensors = std::make_shared<AnyTensors>();
    Load(*dummy, task);
  }
  return 0;
}
