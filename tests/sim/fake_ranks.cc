#include "sim/fake_ranks.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <variant>

#include "base/error.h"

namespace tokamak::sim {

template <typename... Args>
void FakeRanks::Fail(const char* format, Args... args) {
  verdict_->Fail("ranks: " + fmt::format(fmt::runtime(format), args...));
}

FakeRanks::FakeRanks(const FakeRanksOptions& options, const FakeExecutorOptions& executor,
                     uint64_t seed, FakeExecutor* first, ManualClock* clock, Verdict* verdict)
    : options_(options),
      limits_(executor.limits),
      rng_(seed),
      clock_(clock),
      verdict_(verdict),
      ranks_(static_cast<size_t>(options.stage_size * executor.limits.stages)) {
  for (int32_t rank = first_drawing(); rank < size(); ++rank) {
    if (rank > first_drawing()) {
      executors_.push_back(std::make_unique<FakeExecutor>(executor, rng_.Next(), clock, verdict));
    }
    ranks_[static_cast<size_t>(rank)].executor =
        executors_.empty() ? first : executors_.back().get();
  }
}

bool FakeRanks::broken() const {
  return std::ranges::any_of(
      ranks_, [](const Rank& r) { return r.failed || r.gone || r.fails_at.has_value(); });
}

void FakeRanks::Push(Rank* rank, Out out) {
  const std::chrono::duration<double> late(rng_.Chance(30) ? options_.late_seconds * rng_.Unit()
                                                           : 0);
  out.ready = clock_->Now() + std::chrono::duration_cast<Duration>(late);
  // A message that is late holds back those behind it.
  if (!rank->out.empty()) out.ready = std::max(out.ready, rank->out.back().ready);
  rank->out.push_back(std::move(out));
}

// Messages from the driver.

void FakeRanks::Send(int32_t rank, std::string message) {
  Result<ToWorker> decoded = DecodeToWorker(message, limits_);
  if (!decoded.ok()) return Fail("{}", decoded.status().message());
  if (const auto* const step = std::get_if<StepInput>(&*decoded)) {
    if (rank == first_drawing() && on_submit) on_submit(*step);
  }
  if (!ranks_[static_cast<size_t>(rank)].gone) Take(rank, *std::move(decoded));
}

void FakeRanks::Take(int32_t rank, ToWorker message) {
  if (auto* const step = std::get_if<StepInput>(&message)) {
    TakeStep(rank, std::move(*step));
  } else if (auto* const masks = std::get_if<StepMasks>(&message)) {
    TakeMasks(rank, std::move(*masks));
  } else if (const auto* const taken = std::get_if<StepTaken>(&message)) {
    TakeTaken(rank, taken->number);
  } else if (std::holds_alternative<Quiesce>(message)) {
    TakeQuiesce(rank);
  } else if (std::holds_alternative<ResetRank>(message)) {
    TakeReset(rank);
  } else {
    Fail("rank {} was sent a message of type {}", rank, message.index());
  }
}

void FakeRanks::TakeStep(int32_t index, StepInput step) {
  Rank& rank = ranks_[static_cast<size_t>(index)];
  if (rank.failed) return;
  const uint64_t number = step.number;
  if (number != rank.next++) Fail("rank {} was sent step {} as its next", index, number);
  for (EncodeImage& image : step.encode) {  // only the first stage needs the pixels
    const EncodeImage whole = ImageOf(image.id);
    const bool sent = index < stage_size() ? image == whole : image.values.empty();
    if (!sent) Fail("rank {} was sent other pixels than it needs", index);
    image = whole;
  }
  if (rank.fails_at && number >= *rank.fails_at) return Stop(&rank);
  if (Chance(options_.failure_permille)) return FailAt(index, number);
  if (rank.executor == nullptr) return rank.steps.push_back(number);
  const bool masked = step.HasMaskedRows();
  if (!rank.executor->Submit(std::move(step)).ok() || !rank.executor->Sample(number).ok()) return;
  if (masked) {
    rank.masks_for = number;
  } else {
    Push(&rank, {.step = number});
  }
}

void FakeRanks::TakeMasks(int32_t index, StepMasks masks) {
  Rank& rank = ranks_[static_cast<size_t>(index)];
  if (rank.executor == nullptr) return Fail("rank {}, which draws nothing, got masks", index);
  if (rank.failed) return;
  if (rank.masks_for != masks.number) Fail("rank {} got masks of step {}", index, masks.number);
  rank.masks_for.reset();
  if (!rank.executor->SampleMasked(masks.number, std::move(masks.masks)).ok()) return;
  Push(&rank, {.step = masks.number});
}

void FakeRanks::TakeTaken(int32_t index, uint64_t number) {
  Rank& rank = ranks_[static_cast<size_t>(index)];
  if (rank.executor != nullptr) return Fail("rank {}, which draws, heard of its step", index);
  if (rank.failed) return;
  if (rank.steps.empty() || rank.steps.front() != number) {
    return Fail("step {} was taken back, which is not the oldest of rank {}", number, index);
  }
  rank.steps.pop_front();
}

void FakeRanks::TakeQuiesce(int32_t index) {
  Rank& rank = ranks_[static_cast<size_t>(index)];
  Forget(&rank);
  rank.failed = true;
  // The oldest steps may have been returned before, done or not.
  bool returned = true;
  std::deque<Out> out;
  for (Out& one : std::exchange(rank.out, {})) {
    if (one.step) {
      returned = returned && rng_.Chance(50);
      if (!returned) continue;
      one.bytes = OutputOf(index, *one.step);
      one.step.reset();
    }
    out.push_back(std::move(one));
  }
  rank.out = std::move(out);
  Push(&rank, {.bytes = EncodeToDriver(Quiet{})});
}

void FakeRanks::TakeReset(int32_t index) {
  Rank& rank = ranks_[static_cast<size_t>(index)];
  if (!rank.failed) Fail("rank {} is reset while it is not quiet", index);
  if (rng_.Chance(options_.restart_failure_percent)) {
    return Push(&rank, {.bytes = EncodeToDriver(Internal("injected at reset"))});
  }
  StartAgain(&rank);
  Push(&rank, {.bytes = EncodeToDriver(Quiet{})});
}

// Messages to the driver.

bool FakeRanks::Ready(const Rank& rank) const {
  const Out& out = rank.out.front();
  return out.ready <= clock_->Now() && (!out.step || rank.executor->Done(*out.step));
}

Result<std::optional<WorkerGroup::Message>> FakeRanks::Receive(
    std::chrono::steady_clock::time_point deadline) {
  const bool waits = deadline > std::chrono::steady_clock::now();
  std::vector<int32_t> from;
  for (int32_t rank = 0; rank < size(); ++rank) {
    const Rank& one = ranks_[static_cast<size_t>(rank)];
    if (!one.out.empty() && (waits || Ready(one))) from.push_back(rank);
  }
  if (from.empty()) {
    if (waits && !broken()) Fail("the driver waits for what no rank will send");
    return std::optional<Message>();
  }
  const int32_t index = from[static_cast<size_t>(rng_.In(0, std::ssize(from) - 1))];
  Rank& rank = ranks_[static_cast<size_t>(index)];
  Out out = std::move(rank.out.front());
  rank.out.pop_front();
  clock_->Set(std::max(clock_->Now(), out.ready));
  if (out.end) return Unavailable("injected: rank {} has died", index);
  if (out.step) {
    out.bytes = OutputOf(index, *out.step);
    num_overtaken_ += std::any_of(ranks_.begin() + first_drawing(), ranks_.end(),
                                  [&](const Rank& other) { return other.returned < *out.step; });
    rank.returned = *out.step + 1;
  }
  return std::optional<Message>({index, std::move(out.bytes)});
}

std::string FakeRanks::OutputOf(int32_t index, uint64_t number) {
  Result<StepOutput> output = ranks_[static_cast<size_t>(index)].executor->Wait(number);
  if (!output.ok()) return "";  // the executor says why
  if (index > first_drawing()) {
    for (RowOutput& row : output->rows) {
      row.logprobs.clear();
      row.prompt_logprobs.clear();
      row.candidates.clear();
    }
  }
  return EncodeToDriver(*std::move(output));
}

Status FakeRanks::Restart() {
  ++num_restarts_;
  const bool fails = rng_.Chance(options_.restart_failure_percent);
  for (Rank& rank : ranks_) {
    rank.out.clear();
    Forget(&rank);
    rank.gone = fails;
    if (!fails) StartAgain(&rank);
  }
  return fails ? Unavailable("injected at restart") : Status();
}

void FakeRanks::Forget(Rank* rank) {
  rank->steps.clear();
  rank->masks_for.reset();
  rank->fails_at.reset();
}

void FakeRanks::StartAgain(Rank* rank) {
  rank->failed = false;
  rank->next = rank->returned = 0;
  if (rank->executor == nullptr) return;
  rank->executor->Abandon();
  (void)rank->executor->Reset();
}

// Failures.

void FakeRanks::DieSometimes() {
  if (broken() || !Chance(options_.failure_permille)) return;
  const int32_t rank = rng_.In(0, size() - 1);
  ++num_failures_;
  Die(rank);
  for (Rank& other : ranks_) StopOthers(&other, other.next, Status());
}

void FakeRanks::FailAt(int32_t index, uint64_t number) {
  constexpr StatusCode kCodes[] = {StatusCode::kInternal, StatusCode::kUnavailable,
                                   StatusCode::kResourceExhausted, StatusCode::kDataLoss};
  Rank& rank = ranks_[static_cast<size_t>(index)];
  ++num_failures_;
  Status heard;  // by the others
  if (rng_.Chance(50)) {
    const Status error(kCodes[rng_.In(0, 3)], fmt::format("injected at step {}", number));
    rank.failed = true;
    Push(&rank, {.bytes = EncodeToDriver(error)});
    heard = error.WithContext(fmt::format("rank {}", index));
  } else if (rng_.Chance(60)) {
    Die(index);
  } else {
    rank.gone = true;
  }
  for (Rank& other : ranks_) StopOthers(&other, number, heard);
}

void FakeRanks::Die(int32_t index) {
  Rank& rank = ranks_[static_cast<size_t>(index)];
  rank.gone = true;
  Push(&rank, {.end = true});
  if (on_lost_) on_lost_();
}

void FakeRanks::StopOthers(Rank* rank, uint64_t number, const Status& error) {
  if (rank->failed || rank->gone || rank->fails_at) return;
  rank->fails_at = number + (rng_.Chance(50) ? 1 : 0);
  rank->error = error;
  if (rank->next > *rank->fails_at) Stop(rank);
}

void FakeRanks::Stop(Rank* rank) {
  std::erase_if(rank->out, [&](const Out& out) { return out.step >= rank->fails_at; });
  Forget(rank);
  if (rank->error.ok()) {
    rank->gone = true;  // it waits for the rank that has failed
  } else {
    rank->failed = true;
    Push(rank, {.bytes = EncodeToDriver(rank->error)});
  }
}

}  // namespace tokamak::sim
