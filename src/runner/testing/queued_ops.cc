#include "runner/testing/queued_ops.h"

#include <algorithm>
#include <deque>
#include <functional>
#include <optional>
#include <random>
#include <utility>
#include <vector>

#include "base/check.h"

namespace tokamak::testing {
namespace {

struct Task {
  std::function<bool()> ready;  // empty: always
  std::function<void()> run;
};

struct Queue {
  std::deque<Task> tasks;
  std::vector<Task>* recording = nullptr;
};

// Keeps the queue until its work is done, even if the stream is dropped earlier.
struct Handle final : Stream {
  std::shared_ptr<Queue> queue;
};

struct QueuedEvent final : Event {
  int64_t recorded = 0;
  // Outlives the event, which may be destroyed before its markers run.
  std::shared_ptr<int64_t> reached = std::make_shared<int64_t>(0);
};

struct QueuedGraph final : Graph {
  std::vector<Task> tasks;
};

// All streams of a backend.
class Queues {
 public:
  explicit Queues(uint64_t seed) : random_(seed) {}

  std::unique_ptr<Stream> MakeStream() {
    auto handle = std::make_unique<Handle>();
    handle->queue = std::make_shared<Queue>();
    queues_.push_back(handle->queue);
    return handle;
  }

  static Queue& Of(Stream& stream) { return *static_cast<Handle&>(stream).queue; }

  void Add(Stream& stream, std::function<void()> run, std::function<bool()> ready = {}) {
    Queue& queue = Of(stream);
    Task task{std::move(ready), std::move(run)};
    if (queue.recording != nullptr) {
      queue.recording->push_back(std::move(task));
      return;
    }
    queue.tasks.push_back(std::move(task));
    while (random_() % 4 == 0 && Advance()) {
    }
  }

  // Runs one task of some stream. Returns false if none can run.
  bool Advance() {
    std::vector<Queue*> able;
    for (const auto& queue : queues_) {
      if (queue->tasks.empty()) continue;
      const Task& task = queue->tasks.front();
      if (!task.ready || task.ready()) able.push_back(queue.get());
    }
    if (able.empty()) return false;
    Queue& chosen = *able[random_() % able.size()];
    const Task task = std::move(chosen.tasks.front());
    chosen.tasks.pop_front();
    task.run();
    return true;
  }

  template <typename Done>
  void AdvanceUntil(const Done& done) {
    while (!done()) CHECK_MSG(Advance(), "the streams wait for each other");
  }

 private:
  std::mt19937_64 random_;
  std::vector<std::shared_ptr<Queue>> queues_;
};

class QueuedPlan final : public AttentionPlan {
 public:
  QueuedPlan(std::unique_ptr<AttentionPlan> inner, Queues& queues, Stream& inner_stream)
      : inner_(std::move(inner)), queues_(queues), inner_stream_(inner_stream) {}

  // Copies the host arrays, which may change once the call returns.
  void Fill(const AttentionBatch& batch, Stream& stream) override {
    struct Kept {
      std::vector<int32_t> query_start_loc, seq_lens;
      std::vector<BatchRows> bidirectional;
    };
    const auto kept =
        std::make_shared<Kept>(Kept{{batch.query_start_loc.begin(), batch.query_start_loc.end()},
                                    {batch.seq_lens.begin(), batch.seq_lens.end()},
                                    {batch.bidirectional.begin(), batch.bidirectional.end()}});
    AttentionBatch copy = batch;
    copy.query_start_loc = kept->query_start_loc;
    copy.seq_lens = kept->seq_lens;
    copy.bidirectional = kept->bidirectional;
    queues_.Add(stream, [this, copy, kept] {
      kept_ = kept;
      inner_->Fill(copy, inner_stream_);
    });
  }

  const AttentionPlan* inner() const { return inner_.get(); }

 private:
  const std::unique_ptr<AttentionPlan> inner_;
  Queues& queues_;
  Stream& inner_stream_;
  std::shared_ptr<void> kept_;  // data that the inner plan's batch refers to
};

class QueuedSampler final : public Sampler {
 public:
  QueuedSampler(std::unique_ptr<Sampler> inner, Queues& queues, Stream& inner_stream,
                const QueuedDevice& device)
      : inner_(std::move(inner)), queues_(queues), inner_stream_(inner_stream), device_(device) {}

  void Admit(SequenceSlotId slot, const SamplingParams& params, int32_t choice,
             std::span<const TokenId> tokens, int32_t num_prompt, Stream& stream) override {
    queues_.Add(stream, [=, this, tokens = std::vector<TokenId>(tokens.begin(), tokens.end())] {
      inner_->Admit(slot, params, choice, tokens, num_prompt, inner_stream_);
    });
  }
  void FillTokens(Tensor token_ids, std::span<const TokenFill> fills, Stream& stream) override {
    queues_.Add(stream, [=, this] { inner_->FillTokens(token_ids, fills, inner_stream_); });
  }
  void Sample(Tensor logits, std::span<const SampleRow> rows, std::span<const TokenMask> masks,
              std::span<SampleResult> results, Stream& stream) override {
    queues_.Add(stream, [=, this] {
      inner_->Sample(logits, rows, masks, results, inner_stream_);
      if (device_.on_draw) device_.on_draw(rows);
    });
  }
  void Propose(Tensor logits, std::span<const ProposalRow> rows, int32_t number,
               double least_logprob, std::span<SampleResult> results, Stream& stream) override {
    queues_.Add(stream, [=, this] {
      inner_->Propose(logits, rows, number, least_logprob, results, inner_stream_);
    });
  }
  void FillProposals(Tensor token_ids, std::span<const TokenFill> fills, int32_t number,
                     Stream& stream) override {
    queues_.Add(stream,
                [=, this] { inner_->FillProposals(token_ids, fills, number, inner_stream_); });
  }
  bool has_candidates() const override { return inner_->has_candidates(); }
  void Score(Tensor logits, std::span<const TokenId> tokens, int32_t top,
             std::span<SampleResult> results, Stream& stream) override {
    queues_.Add(stream, [=, this] { inner_->Score(logits, tokens, top, results, inner_stream_); });
  }

 private:
  const std::unique_ptr<Sampler> inner_;
  Queues& queues_;
  Stream& inner_stream_;
  const QueuedDevice& device_;
};

class QueuedOps final : public Ops {
 public:
  QueuedOps(std::unique_ptr<Ops> inner, uint64_t seed, const QueuedDevice& device)
      : device_(device),
        inner_(std::move(inner)),
        inner_stream_(inner_->MakeStream()),
        queues_(seed) {}

  std::string_view name() const override { return inner_->name(); }
  Capabilities capabilities() const override { return device_.capabilities; }
  RankInfo rank() const override { return inner_->rank(); }
  std::optional<int64_t> FreeDeviceMemory() override { return device_.free_bytes; }
  Result<Buffer> Allocate(size_t bytes, MemoryKind kind) override {
    return inner_->Allocate(bytes, kind);
  }
  Result<std::unique_ptr<PackedWeight>> PackWeight(const WeightSpec& spec) override {
    return inner_->PackWeight(spec);
  }
  Result<std::unique_ptr<PackedStack>> PackStack(std::span<const WeightSpec> members) override {
    return inner_->PackStack(members);
  }
  Result<std::unique_ptr<AttentionPlan>> MakeAttentionPlan(const AttentionShape& shape) override {
    Result<std::unique_ptr<AttentionPlan>> plan = inner_->MakeAttentionPlan(shape);
    if (!plan.ok()) return plan.status();
    return std::unique_ptr<AttentionPlan>(
        std::make_unique<QueuedPlan>(*std::move(plan), queues_, *inner_stream_));
  }
  Result<std::unique_ptr<Sampler>> MakeSampler(const SamplerShape& shape) override {
    Result<std::unique_ptr<Sampler>> sampler = inner_->MakeSampler(shape);
    if (!sampler.ok()) return sampler.status();
    return std::unique_ptr<Sampler>(
        std::make_unique<QueuedSampler>(*std::move(sampler), queues_, *inner_stream_, device_));
  }

  void FinishWork() {
    while (queues_.Advance()) {
    }
  }

  std::unique_ptr<Stream> MakeStream() override { return queues_.MakeStream(); }
  Status Synchronize(Stream& stream) override {
    queues_.AdvanceUntil([&] { return queues_.Of(stream).tasks.empty(); });
    return inner_->Synchronize(*inner_stream_);
  }
  std::unique_ptr<Event> MakeEvent() override { return std::make_unique<QueuedEvent>(); }
  void Record(Event& event, Stream& stream) override {
    auto& queued = static_cast<QueuedEvent&>(event);
    const int64_t count = ++queued.recorded;
    queues_.Add(stream, [count, reached = queued.reached] { *reached = count; });
  }
  bool Reached(const Event& event) override {
    const auto& queued = static_cast<const QueuedEvent&>(event);
    return *queued.reached == queued.recorded;
  }
  Status Await(Event& event) override {
    queues_.AdvanceUntil([&] { return Reached(event); });
    return inner_->Synchronize(*inner_stream_);
  }
  void WaitFor(Stream& stream, const Event& event) override {
    const auto& queued = static_cast<const QueuedEvent&>(event);
    const int64_t count = queued.recorded;
    queues_.Add(
        stream, [] {}, [count, reached = queued.reached] { return *reached >= count; });
  }

  bool has_graphs() const override { return true; }
  Result<std::unique_ptr<Graph>> Capture(Stream& stream, FunctionRef<void()> run) override {
    auto graph = std::make_unique<QueuedGraph>();
    queues_.Of(stream).recording = &graph->tasks;
    run();
    queues_.Of(stream).recording = nullptr;
    return std::unique_ptr<Graph>(std::move(graph));
  }
  void Launch(const Graph& graph, Stream& stream) override {
    if (device_.on_launch) device_.on_launch();
    for (const Task& task : static_cast<const QueuedGraph&>(graph).tasks) {
      queues_.Add(stream, task.run, task.ready);
    }
  }

  void CopyToDevice(void* device, const void* host, size_t bytes, Stream& stream) override {
    CHECK_MSG(queues_.Of(stream).recording == nullptr, "a copy from the host in a graph");
    queues_.Add(stream, [=, this] { inner_->CopyToDevice(device, host, bytes, *inner_stream_); });
  }
  void CopyToHost(void* host, const void* device, size_t bytes, Stream& stream) override {
    CHECK_MSG(queues_.Of(stream).recording == nullptr, "a copy to the host in a graph");
    queues_.Add(stream, [=, this] { inner_->CopyToHost(host, device, bytes, *inner_stream_); });
  }

  void Run(const Embed& op, Stream& stream) override { Later(op, stream); }
  void Run(const AddRmsNorm& op, Stream& stream) override {
    const std::optional<Tensor> x = Keep(op.x);
    queues_.Add(stream, [=, this]() mutable {
      AddRmsNorm now = op;
      now.x = Kept(x);
      inner_->Run(now, *inner_stream_);
    });
  }
  void Run(const Linear& op, Stream& stream) override { Later(op, stream); }
  void Run(const GatedActivation& op, Stream& stream) override { Later(op, stream); }
  void Run(const RopeAndStore& op, Stream& stream) override {
    const std::optional<Tensor> q_norm = Keep(op.q_norm);
    const std::optional<Tensor> k_norm = Keep(op.k_norm);
    const std::optional<RopeTable> rope = op.rope ? std::optional(*op.rope) : std::nullopt;
    queues_.Add(stream, [=, this] {
      RopeAndStore now = op;
      now.rope = rope ? &*rope : nullptr;
      now.q_norm = Kept(q_norm);
      now.k_norm = Kept(k_norm);
      inner_->Run(now, *inner_stream_);
    });
  }
  void Run(const Attention& op, Stream& stream) override {
    Attention inner = op;
    inner.plan = static_cast<const QueuedPlan*>(op.plan)->inner();
    Later(inner, stream);
  }
  void Run(const GatherRows& op, Stream& stream) override { Later(op, stream); }
  void Run(const CopyRows& op, Stream& stream) override { Later(op, stream); }
  void Run(const ScatterElements& op, Stream& stream) override { Later(op, stream); }
  void Run(const CopyRanges& op, Stream& stream) override {
    using Ranges = std::vector<CopyRanges::Range>;
    queues_.Add(stream,
                [this, bytes = op.bytes, ranges = Ranges(op.ranges.begin(), op.ranges.end())] {
                  inner_->Run(CopyRanges{.ranges = ranges, .bytes = bytes}, *inner_stream_);
                });
  }
  void Run(const AllReduce& op, Stream& stream) override { Later(op, stream); }
  void Run(const AllGather& op, Stream& stream) override {
    using Columns = std::vector<IndexRange>;
    queues_.Add(stream, [this, op, columns = Columns(op.columns.begin(), op.columns.end())] {
      AllGather now = op;
      now.columns = columns;
      inner_->Run(now, *inner_stream_);
    });
  }
  void Run(const AddResidual& op, Stream& stream) override { Later(op, stream); }
  void Run(const Softcap& op, Stream& stream) override { Later(op, stream); }
  void Run(const Clamp& op, Stream& stream) override { Later(op, stream); }
  void Run(const Activate& op, Stream& stream) override { Later(op, stream); }
  void Run(const AddLayerNorm& op, Stream& stream) override {
    const std::optional<Tensor> x = Keep(op.x);
    queues_.Add(stream, [=, this]() mutable {
      AddLayerNorm now = op;
      now.x = Kept(x);
      inner_->Run(now, *inner_stream_);
    });
  }
  void Run(const Convert& op, Stream& stream) override { Later(op, stream); }
  void Run(const RouteTokens& op, Stream& stream) override { Later(op, stream); }
  void Run(const GroupedLinear& op, Stream& stream) override { Later(op, stream); }
  void Run(const NormAndConvert& op, Stream& stream) override {
    const std::optional<Tensor> x = Keep(op.norm.x);
    queues_.Add(stream, [=, this]() mutable {
      NormAndConvert now = op;
      now.norm.x = Kept(x);
      inner_->Run(now, *inner_stream_);
    });
  }
  void Run(const GateUp& op, Stream& stream) override { Later(op, stream); }
  void Run(const GateUpExperts& op, Stream& stream) override { Later(op, stream); }
  void Run(const CombineExperts& op, Stream& stream) override { Later(op, stream); }
  void Run(const HeadLinear& op, Stream& stream) override { Later(op, stream); }
  void Run(const LatentAttention& op, Stream& stream) override {
    LatentAttention inner = op;
    inner.plan = static_cast<const QueuedPlan*>(op.plan)->inner();
    Later(inner, stream);
  }
  void Run(const CausalConv& op, Stream& stream) override { Later(op, stream); }
  void Run(const GatedDelta& op, Stream& stream) override { Later(op, stream); }
  void Run(const GateOutput& op, Stream& stream) override {
    const std::optional<Tensor> norm = Keep(op.norm);
    queues_.Add(stream, [=, this] {
      GateOutput now = op;
      now.norm = Kept(norm);
      inner_->Run(now, *inner_stream_);
    });
  }

 private:
  template <typename Op>
  void Later(const Op& op, Stream& stream) {
    queues_.Add(stream, [this, op] { inner_->Run(op, *inner_stream_); });
  }
  static std::optional<Tensor> Keep(const Tensor* tensor) {
    return tensor == nullptr ? std::nullopt : std::optional<Tensor>(*tensor);
  }
  static const Tensor* Kept(const std::optional<Tensor>& tensor) {
    return tensor ? &*tensor : nullptr;
  }

  const QueuedDevice device_;
  const std::unique_ptr<Ops> inner_;
  const std::unique_ptr<Stream> inner_stream_;
  Queues queues_;
};

}  // namespace

std::unique_ptr<Ops> MakeQueuedOps(std::unique_ptr<Ops> inner, uint64_t seed,
                                   const QueuedDevice& device) {
  return std::make_unique<QueuedOps>(std::move(inner), seed, device);
}

void FinishQueuedWork(Ops& queued) { static_cast<QueuedOps&>(queued).FinishWork(); }

}  // namespace tokamak::testing
