#include "runner/graph_runner.h"

#include <algorithm>
#include <vector>

#include "base/check.h"
#include "base/error.h"

namespace tokamak {
namespace {

// Decode steps of more rows are not captured: the host is no longer what they wait for.
constexpr int32_t kLargestGraph = 512;

Tensor RunModel(const Model& model, nn::Pass& pass) {
  return model.Logits(pass, model.Forward(pass));
}

class EagerRunner final : public GraphRunner {
 public:
  std::string_view name() const override { return "eager"; }
  std::span<const int32_t> sizes() const override { return {}; }
  Status Capture(const Model&, nn::Pass&) override { return Status(); }
  int32_t PaddedRows(int32_t rows) const override { return rows; }
  Tensor Decode(const Model& model, nn::Pass& pass) override { return RunModel(model, pass); }
};

class CapturedRunner final : public GraphRunner {
 public:
  // Steps of the ladder grow with the size, so that padding stays below a quarter.
  explicit CapturedRunner(int32_t max_rows) {
    const int32_t largest = std::min(max_rows, kLargestGraph);
    for (int32_t size = 1; size < largest;) {
      sizes_.push_back(size);
      size += size < 4 ? size : std::max(4, size / 4 / 4 * 4);
    }
    sizes_.push_back(largest);
  }

  std::string_view name() const override { return "graph"; }
  std::span<const int32_t> sizes() const override { return sizes_; }

  Status Capture(const Model& model, nn::Pass& pass) override {
    // Once for real: what the backend makes on first use is there then.
    (void)RunModel(model, pass);
    pass.arena.Reset();
    Tensor logits;
    ASSIGN_OR_RETURN(std::unique_ptr<Graph> graph,
                     pass.ops.Capture(pass.stream, [&] { logits = RunModel(model, pass); }));
    graphs_.push_back({std::move(graph), logits});
    return Status();
  }

  int32_t PaddedRows(int32_t rows) const override {
    const size_t i = IndexOf(rows);
    return i < graphs_.size() ? sizes_[i] : rows;
  }

  Tensor Decode(const Model& model, nn::Pass& pass) override {
    const auto rows = static_cast<int32_t>(pass.num_tokens());
    const size_t i = IndexOf(rows);
    if (i >= graphs_.size()) return RunModel(model, pass);
    CHECK(sizes_[i] == rows);
    pass.ops.Launch(*graphs_[i].graph, pass.stream);
    return graphs_[i].logits;
  }

 private:
  struct Captured {
    std::unique_ptr<Graph> graph;
    Tensor logits;
  };

  // Of the smallest graph with room for so many rows.
  size_t IndexOf(int32_t rows) const {
    return static_cast<size_t>(std::lower_bound(sizes_.begin(), sizes_.end(), rows) -
                               sizes_.begin());
  }

  std::vector<int32_t> sizes_;
  std::vector<Captured> graphs_;  // one per size
};

}  // namespace

Result<std::unique_ptr<GraphRunner>> MakeGraphRunner(const std::string& name, const Ops& ops,
                                                     int32_t max_rows) {
  const bool graphs = name == "graph" || (name == "auto" && ops.has_graphs());
  if (!graphs && name != "eager" && name != "auto") {
    return InvalidArgument("--executor: must be auto, eager or graph, got \"{}\"", name);
  }
  if (graphs && !ops.has_graphs()) {
    return Unimplemented("--executor graph: {} has no graphs; use eager or auto", ops.name());
  }
  std::unique_ptr<GraphRunner> made;
  if (graphs) {
    made = std::make_unique<CapturedRunner>(max_rows);
  } else {
    made = std::make_unique<EagerRunner>();
  }
  return made;
}

}  // namespace tokamak
