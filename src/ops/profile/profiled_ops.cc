#include "ops/profile/profiled_ops.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/mutex.h"

namespace tokamak {
namespace {

using Clock = std::chrono::steady_clock;

// The beginning or end of an operation. On a device it is an event. In main memory it is the time,
// because there work is done when the call returns.
struct Mark {
  std::unique_ptr<Event> event;  // null in main memory
  Clock::time_point time;
};

struct Span {
  const char* op = nullptr;
  bool starts_step = false;
  Mark begin, end;
};

enum Kind : size_t { kDecode, kPrefill, kMixed };
constexpr std::array<const char*, 3> kKindNames = {"decode", "prefill", "mixed"};

Kind KindOf(const AttentionBatch& batch) {
  bool one = false, several = false;
  for (int32_t s = 0; s < batch.num_seqs(); ++s) {
    const auto seq = static_cast<size_t>(s);
    if (batch.seq_lens[seq] == 0) continue;  // padding
    const int32_t tokens = batch.query_start_loc[seq + 1] - batch.query_start_loc[seq];
    (tokens == 1 ? one : several) = true;
  }
  return !several ? kDecode : one ? kMixed : kPrefill;
}

// The spans of one backend. A span is open until the host finds it completed.
class Recorder {
 public:
  Recorder(Ops& inner, bool keep_events) : inner_(inner), keep_events_(keep_events) {}

  template <typename Work>
  void Run(const char* op, Stream& stream, const Work& work) {
    if (capturing) return work();  // graphs hold no events; a Launch is one operation
    computing_ = &stream;
    Time(op, stream, work);
  }

  // The upload of a step's batch. Other copies, which load weights or swap blocks, use streams that
  // compute nothing.
  template <typename Work>
  void Upload(Stream& stream, const Work& work) {
    if (capturing || &stream != computing_) return work();
    Time("upload", stream, work);
  }

  // Notes the kind of the step whose attention is being planned.
  void NoteBatch(const AttentionBatch& batch) {
    last_kind_ = KindOf(batch);
    if (!open_kinds_.empty()) open_kinds_.back() = last_kind_;
  }
  // Later work on the stream that computes belongs to another step.
  void EndStep(const Stream& stream) {
    if (&stream == computing_) in_step_ = false;
  }

  // Adds the completed spans to the profile.
  void Settle() {
    while (!open_.empty() && Done(open_.front().end)) {
      if (open_.front().starts_step) {
        kind_ = open_kinds_.front();
        open_kinds_.pop_front();
      }
      Add(std::move(open_.front()));
      open_.pop_front();
    }
  }

  // Notes that the engine thread has waited for a step, whether or not a later one is submitted.
  void NoteWait(Clock::time_point begin, Clock::time_point end) EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    if (waited_) {
      const auto seconds = [](auto duration) {
        return std::chrono::duration<double>(duration).count();
      };
      kinds_[last_kind_].steps.host_seconds += seconds(end - *waited_);
      kinds_[last_kind_].steps.host_waiting_seconds += seconds(end - begin);
    }
    waited_ = Clock::now();
  }

  Profile Take() EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    Profile profile = std::exchange(events_, {});
    Keep(profile, std::exchange(step_, {}));
    for (size_t kind = 0; kind < kinds_.size(); ++kind) {
      Total total = std::exchange(kinds_[kind], {});
      if (total.steps.count == 0) continue;
      Profile::Steps& steps = profile.steps.emplace_back(std::move(total.steps));
      steps.kind = kKindNames[kind];
      for (auto& [name, op] : total.ops) steps.ops.push_back(std::move(op));
      std::sort(steps.ops.begin(), steps.ops.end(),
                [](const auto& a, const auto& b) { return a.seconds > b.seconds; });
    }
    waited_.reset();  // the engine may be idle until the next step
    return profile;
  }

  bool capturing = false;

 private:
  template <typename Work>
  void Time(const char* op, Stream& stream, const Work& work) {
    const bool starts_step = !std::exchange(in_step_, true);
    if (starts_step) open_kinds_.push_back(kMixed);
    Span span{.op = op, .starts_step = starts_step, .begin = MakeMark(), .end = MakeMark()};
    Note(span.begin, stream);
    work();
    Note(span.end, stream);
    open_.push_back(std::move(span));
  }

  Mark MakeMark() {
    if (spare_.empty()) return {.event = inner_.MakeTimedEvent(), .time = {}};
    Mark mark = std::move(spare_.back());
    spare_.pop_back();
    return mark;
  }

  void Note(Mark& mark, Stream& stream) {
    if (mark.event != nullptr) {
      inner_.Record(*mark.event, stream);
    } else {
      mark.time = Clock::now();
    }
  }

  bool Done(const Mark& mark) { return mark.event == nullptr || inner_.Reached(*mark.event); }

  double Seconds(const Mark& from, const Mark& to) {
    if (from.event != nullptr) return inner_.SecondsBetween(*from.event, *to.event);
    return std::chrono::duration<double>(to.time - from.time).count();
  }

  void Add(Span span) EXCLUDES(mutex_) {
    const double seconds = Seconds(span.begin, span.end);
    const double gap = have_last_ ? std::max(0.0, Seconds(last_, span.begin)) : 0;
    {
      MutexLock lock(mutex_);
      Total& total = kinds_[kind_];
      Profile::Steps& steps = total.steps;
      Profile::Op& op = total.ops[span.op];
      op.name = span.op;
      ++op.calls;
      op.seconds += seconds;
      if (span.starts_step) Keep(events_, std::exchange(step_, {}));
      now_ += gap;
      if (span.starts_step) step_ = {.name = "step", .begin_seconds = now_, .end_seconds = now_};
      Keep(events_, {.name = span.op, .begin_seconds = now_, .end_seconds = now_ + seconds});
      now_ += seconds;
      step_.end_seconds = now_;
      steps.busy_seconds += seconds;
      if (span.starts_step) {
        ++steps.count;
        steps.between_steps_seconds += gap;
        steps.longest_gap_seconds = std::max(steps.longest_gap_seconds, gap);
      } else {
        steps.inside_steps_seconds += gap;
      }
    }
    spare_.push_back(std::move(span.begin));
    if (have_last_) spare_.push_back(std::move(last_));
    last_ = std::move(span.end);
    have_last_ = true;
  }

  void Keep(Profile& profile, const Profile::Event& event) REQUIRES(mutex_) {
    if (!keep_events_ || *event.name == '\0') return;
    if (profile.events.size() < Profile::kMaxEvents) {
      profile.events.push_back(event);
    } else {
      ++profile.dropped_events;
    }
  }

  Ops& inner_;
  struct Total {
    Profile::Steps steps;  // without their ops
    std::map<std::string, Profile::Op> ops;
  };

  const bool keep_events_;
  const Stream* computing_ = nullptr;  // the stream of the last operation
  bool in_step_ = false;               // whether a step of `computing_` has begun
  Kind last_kind_ = kMixed;            // of the step submitted last
  std::deque<Kind> open_kinds_;        // of steps whose first span is open
  Kind kind_ = kMixed;                 // of the span added last
  std::deque<Span> open_;
  std::vector<Mark> spare_;
  Mark last_;  // the end of the span added last
  bool have_last_ = false;
  Mutex mutex_;
  Profile events_ GUARDED_BY(mutex_);       // only its events are used
  Profile::Event step_ GUARDED_BY(mutex_);  // the step in progress; its name is empty between steps
  double now_ GUARDED_BY(mutex_) = 0;       // the end of the span added last
  std::array<Total, kKindNames.size()> kinds_ GUARDED_BY(mutex_);
  std::optional<Clock::time_point> waited_ GUARDED_BY(mutex_);  // end of the last wait
};

class ProfiledPlan final : public AttentionPlan {
 public:
  ProfiledPlan(std::unique_ptr<AttentionPlan> inner, Recorder& recorder)
      : inner_(std::move(inner)), recorder_(recorder) {}

  void Fill(const AttentionBatch& batch, Stream& stream) override {
    recorder_.Run("plan", stream, [&] { inner_->Fill(batch, stream); });
    recorder_.NoteBatch(batch);
  }
  BatchRows AttendedRows(int64_t num_rows) const override { return inner_->AttendedRows(num_rows); }
  const AttentionPlan* inner() const { return inner_.get(); }

 private:
  const std::unique_ptr<AttentionPlan> inner_;
  Recorder& recorder_;
};

class ProfiledSampler final : public Sampler {
 public:
  ProfiledSampler(std::unique_ptr<Sampler> inner, Recorder& recorder)
      : inner_(std::move(inner)), recorder_(recorder) {}

  void Admit(SequenceSlotId slot, const SamplingParams& params, int32_t choice,
             std::span<const TokenId> tokens, int32_t num_prompt, Stream& stream) override {
    recorder_.Run("admit", stream,
                  [&] { inner_->Admit(slot, params, choice, tokens, num_prompt, stream); });
  }
  void FillTokens(Tensor token_ids, std::span<const TokenFill> fills, Stream& stream) override {
    recorder_.Run("fill_tokens", stream, [&] { inner_->FillTokens(token_ids, fills, stream); });
  }
  void Sample(Tensor logits, std::span<const SampleRow> rows, std::span<const TokenMask> masks,
              std::span<SampleResult> results, Stream& stream) override {
    recorder_.Run("sample", stream, [&] { inner_->Sample(logits, rows, masks, results, stream); });
  }
  bool has_candidates() const override { return inner_->has_candidates(); }
  bool IsGreedy(const SampleRow& row) const override { return inner_->IsGreedy(row); }
  void SampleGreedy(const ArgmaxLogits& argmax, std::span<const SampleRow> rows,
                    std::span<SampleResult> results, Stream& stream) override {
    recorder_.Run("sample", stream, [&] { inner_->SampleGreedy(argmax, rows, results, stream); });
  }
  void Propose(Tensor logits, std::span<const ProposalRow> rows, int32_t number,
               double least_logprob, std::span<SampleResult> results, Stream& stream) override {
    recorder_.Run("propose", stream,
                  [&] { inner_->Propose(logits, rows, number, least_logprob, results, stream); });
  }
  void FillProposals(Tensor token_ids, std::span<const TokenFill> fills, int32_t number,
                     Stream& stream) override {
    recorder_.Run("fill_tokens", stream,
                  [&] { inner_->FillProposals(token_ids, fills, number, stream); });
  }
  void Score(Tensor logits, std::span<const TokenId> tokens, int32_t top,
             std::span<SampleResult> results, Stream& stream) override {
    recorder_.Run("score", stream, [&] { inner_->Score(logits, tokens, top, results, stream); });
  }

 private:
  const std::unique_ptr<Sampler> inner_;
  Recorder& recorder_;
};

class ProfiledOpsImpl final : public ProfiledOps {
 public:
  ProfiledOpsImpl(std::unique_ptr<Ops> inner, bool keep_events)
      : inner_(std::move(inner)), recorder_(*inner_, keep_events) {}

  Profile Take() override { return recorder_.Take(); }

  std::string_view name() const override { return inner_->name(); }
  Capabilities capabilities() const override { return inner_->capabilities(); }
  RankInfo rank() const override { return inner_->rank(); }
  std::optional<int64_t> FreeDeviceMemory() override { return inner_->FreeDeviceMemory(); }
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
    Result<std::unique_ptr<AttentionPlan>> made = inner_->MakeAttentionPlan(shape);
    if (!made.ok()) return made;
    return std::unique_ptr<AttentionPlan>(
        std::make_unique<ProfiledPlan>(*std::move(made), recorder_));
  }
  Result<std::unique_ptr<Sampler>> MakeSampler(const SamplerShape& shape) override {
    Result<std::unique_ptr<Sampler>> made = inner_->MakeSampler(shape);
    if (!made.ok()) return made;
    std::unique_ptr<Sampler> sampler =
        std::make_unique<ProfiledSampler>(*std::move(made), recorder_);
    return sampler;
  }

  std::unique_ptr<Stream> MakeStream() override { return inner_->MakeStream(); }
  Status Synchronize(Stream& stream) override {
    recorder_.EndStep(stream);
    return Settled(inner_->Synchronize(stream));
  }
  std::unique_ptr<Event> MakeEvent() override { return inner_->MakeEvent(); }
  std::unique_ptr<Event> MakeTimedEvent() override { return inner_->MakeTimedEvent(); }
  double SecondsBetween(const Event& from, const Event& to) override {
    return inner_->SecondsBetween(from, to);
  }
  void Record(Event& event, Stream& stream) override {
    recorder_.EndStep(stream);
    inner_->Record(event, stream);
  }
  bool Reached(const Event& event) override { return inner_->Reached(event); }
  Status Await(Event& event) override {
    const auto begin = Clock::now();
    Status status = inner_->Await(event);
    const auto end = Clock::now();
    status = Settled(std::move(status));
    recorder_.NoteWait(begin, end);
    return status;
  }
  void WaitFor(Stream& stream, const Event& event) override { inner_->WaitFor(stream, event); }

  bool has_graphs() const override { return inner_->has_graphs(); }
  Result<std::unique_ptr<Graph>> Capture(Stream& stream, FunctionRef<void()> run) override {
    recorder_.capturing = true;
    Result<std::unique_ptr<Graph>> graph = inner_->Capture(stream, run);
    recorder_.capturing = false;
    return graph;
  }
  void Launch(const Graph& graph, Stream& stream) override {
    recorder_.Run("graph", stream, [&] { inner_->Launch(graph, stream); });
  }

  void CopyToDevice(void* device, const void* host, size_t bytes, Stream& stream) override {
    recorder_.Upload(stream, [&] { inner_->CopyToDevice(device, host, bytes, stream); });
  }
  void CopyToHost(void* host, const void* device, size_t bytes, Stream& stream) override {
    inner_->CopyToHost(host, device, bytes, stream);
  }

  void Run(const Embed& op, Stream& stream) override { Timed("embed", op, stream); }
  void Run(const AddRmsNorm& op, Stream& stream) override { Timed("add_rms_norm", op, stream); }
  void Run(const Linear& op, Stream& stream) override { Timed("linear", op, stream); }
  void Run(const GatedActivation& op, Stream& stream) override {
    Timed("gated_activation", op, stream);
  }
  void Run(const RopeAndStore& op, Stream& stream) override { Timed("rope_and_store", op, stream); }
  void Run(const Attention& op, Stream& stream) override {
    Attention inner = op;
    inner.plan = static_cast<const ProfiledPlan*>(op.plan)->inner();
    Timed("attention", inner, stream);
  }
  void Run(const GatherRows& op, Stream& stream) override { Timed("gather_rows", op, stream); }
  void Run(const CopyRows& op, Stream& stream) override { Timed("copy_rows", op, stream); }
  void Run(const ScatterElements& op, Stream& stream) override {
    Timed("scatter_elements", op, stream);
  }
  void Run(const CopyRanges& op, Stream& stream) override { Timed("copy_ranges", op, stream); }
  void Run(const AllReduce& op, Stream& stream) override { Timed("all_reduce", op, stream); }
  void Run(const AllGather& op, Stream& stream) override { Timed("all_gather", op, stream); }
  void Run(const Send& op, Stream& stream) override { Timed("send", op, stream); }
  void Run(const Receive& op, Stream& stream) override { Timed("receive", op, stream); }
  bool has_linear_argmax() const override { return inner_->has_linear_argmax(); }
  void Run(const LinearArgmax& op, Stream& stream) override { Timed("largest_output", op, stream); }
  void Run(const AddResidual& op, Stream& stream) override { Timed("add_residual", op, stream); }
  void Run(const Softcap& op, Stream& stream) override { Timed("softcap", op, stream); }
  void Run(const AddLayerNorm& op, Stream& stream) override { Timed("add_layer_norm", op, stream); }
  void Run(const Clamp& op, Stream& stream) override { Timed("clamp", op, stream); }
  void Run(const Activate& op, Stream& stream) override { Timed("activate", op, stream); }
  void Run(const Convert& op, Stream& stream) override { Timed("convert", op, stream); }
  void Run(const RouteTokens& op, Stream& stream) override { Timed("route_tokens", op, stream); }
  void Run(const GroupedLinear& op, Stream& stream) override {
    Timed("grouped_linear", op, stream);
  }
  void Run(const NormAndConvert& op, Stream& stream) override {
    Timed("norm_and_convert", op, stream);
  }
  void Run(const GateUp& op, Stream& stream) override { Timed("gate_up", op, stream); }
  void Run(const GateUpExperts& op, Stream& stream) override {
    Timed("gate_up_experts", op, stream);
  }
  void Run(const CombineExperts& op, Stream& stream) override {
    Timed("combine_experts", op, stream);
  }
  void Run(const HeadLinear& op, Stream& stream) override { Timed("head_linear", op, stream); }
  void Run(const LatentAttention& op, Stream& stream) override {
    LatentAttention inner = op;
    inner.plan = static_cast<const ProfiledPlan*>(op.plan)->inner();
    Timed("latent_attention", inner, stream);
  }
  void Run(const CausalConv& op, Stream& stream) override { Timed("causal_conv", op, stream); }
  void Run(const GatedDelta& op, Stream& stream) override { Timed("gated_delta", op, stream); }
  void Run(const GateOutput& op, Stream& stream) override { Timed("gate_output", op, stream); }

 private:
  template <typename Op>
  void Timed(const char* name, const Op& op, Stream& stream) {
    recorder_.Run(name, stream, [&] { inner_->Run(op, stream); });
  }
  Status Settled(Status status) {
    if (status.ok()) recorder_.Settle();
    return status;
  }

  const std::unique_ptr<Ops> inner_;
  Recorder recorder_;
};

}  // namespace

std::unique_ptr<ProfiledOps> MakeProfiledOps(std::unique_ptr<Ops> inner, bool keep_events) {
  return std::make_unique<ProfiledOpsImpl>(std::move(inner), keep_events);
}

}  // namespace tokamak
