#include "executor/remote.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "executor/ranks_agree.h"
#include "executor/serve_rank.h"
#include "executor/testing/fake_rank.h"
#include "rpc/worker_messages.h"

namespace tokamak {
namespace {

using SteadyClock = std::chrono::steady_clock;
using std::chrono::milliseconds;
using testing::HasSubstr;

// The workers are threads of this process, and messages go through inboxes alone.
class ThreadGroup final : public WorkerGroup {
 public:
  explicit ThreadGroup(int32_t size, int32_t stages = 1) : size_(size), stages_(stages) { Start(); }
  ~ThreadGroup() override { Stop(); }

  int32_t size() const override { return size_; }
  void Send(int32_t rank, std::string message) override {
    ++sent;
    workers[static_cast<size_t>(rank)]->inbox.Push({0, std::move(message)});
  }
  Result<std::optional<Message>> Receive(SteadyClock::time_point deadline) override {
    std::optional<Incoming> incoming = driver->Take(deadline);
    if (!incoming) return std::optional<Message>();
    if (!incoming->message.ok()) return Unavailable("rank {} is dead", incoming->stream);
    return std::optional<Message>({incoming->stream, *std::move(incoming->message)});
  }
  void OnLost(const std::function<void()>& wake) override { on_lost = wake; }
  bool CanReset() const override { return can_reset; }
  Status Restart() override {
    ++restarts;
    RETURN_IF_ERROR(std::exchange(restart_error, Status()));
    Stop();
    Start();
    return Status();
  }
  void Die(int32_t rank) {
    driver->Push({rank, Unavailable("")});
    if (on_lost) on_lost();
  }

  struct RankThread {
    std::unique_ptr<FakeRank> fake;
    Inbox inbox;
    std::thread thread;
  };
  std::vector<std::unique_ptr<RankThread>> workers;
  std::unique_ptr<Inbox> driver;
  bool can_reset = true;
  int restarts = 0;
  Status restart_error;  // of the next
  int sent = 0;          // messages to all ranks
  std::function<void()> on_lost;
  std::atomic<int64_t> num_stats = 0;  // messages from all ranks

 private:
  void Start() {
    driver = std::make_unique<Inbox>();
    auto group = MakeThreadGroup(
        {.size = size_ / stages_, .stages = stages_, .timeout = std::chrono::seconds(20)});
    for (int32_t rank = 0; rank < size_; ++rank) {
      auto worker = std::make_unique<RankThread>();
      worker->fake = std::make_unique<FakeRank>(std::move((*group)[static_cast<size_t>(rank)]));
      worker->fake->fixed.stages = stages_;
      worker->thread = std::thread([this, rank, to = worker.get()] {
        (void)ServeRank(*to->fake, to->fake->communicator.get(), to->inbox,
                        [this, rank](std::string message) {
                          num_stats += message[0] == EncodeToDriver(RankStats())[0];
                          driver->Push({rank, std::move(message)});
                        });
      });
      workers.push_back(std::move(worker));
    }
  }
  void Stop() {
    for (const auto& worker : workers) {
      worker->fake->communicator->Abort(Unavailable("the test ends"));
      worker->inbox.Push({0, Unavailable("the test ends")});
    }
    for (const auto& worker : workers) worker->thread.join();
    workers.clear();
  }

  const int32_t size_;
  const int32_t stages_;
};

struct Fixture {
  explicit Fixture(int32_t size, std::chrono::milliseconds timeout = std::chrono::seconds(30),
                   int32_t stages = 1) {
    auto made = std::make_unique<ThreadGroup>(size, stages);
    group = made.get();
    std::vector<ExecutorLimits> limits;
    for (const auto& worker : group->workers) limits.push_back(worker->fake->limits());
    executor = MakeRemoteExecutor(std::move(made), *JoinLimits(limits), timeout);
  }
  Result<StepOutput> Step(uint64_t number, bool masked = false) {
    StepInput step{.number = number, .rows = {{.slot = 1, .num_tokens = 1, .sample = true}}};
    step.rows[0].masked = masked;
    RETURN_IF_ERROR(executor->Submit(step));
    RETURN_IF_ERROR(executor->Sample(number));
    if (masked) RETURN_IF_ERROR(executor->SampleMasked(number, std::vector<TokenMask>(1)));
    return executor->Wait(number);
  }
  FakeRank& fake(size_t rank) { return *group->workers[rank]->fake; }

  ThreadGroup* group;
  std::unique_ptr<Executor> executor;
};

TEST(RemoteExecutor, GivesEveryStepToEveryRank) {
  Fixture f(3);
  EXPECT_EQ(f.executor->limits().cache.block_bytes, 100 + 101 + 102);
  const Result<StepOutput> output = f.Step(4);
  ASSERT_TRUE(output.ok()) << output.status().ToString();
  EXPECT_EQ(output->rows[0].tokens, std::vector<TokenId>{12});
  ASSERT_TRUE(f.Step(5, /*masked=*/true).ok());
  for (size_t rank = 0; rank < 3; ++rank) EXPECT_EQ(f.fake(rank).calls, "s4S4D4W4s5S5M5/1D5W5");
}

TEST(RemoteExecutor, SeveralStepsMayBeInFlight) {
  Fixture f(2);
  for (uint64_t number = 0; number < 3; ++number) {
    ASSERT_TRUE(f.executor->Submit({.number = number}).ok());
    ASSERT_TRUE(f.executor->Sample(number).ok());
  }
  for (uint64_t number = 0; number < 3; ++number) {
    while (!f.executor->Done(number)) std::this_thread::yield();
    EXPECT_EQ(f.executor->Wait(number)->number, number);
  }
}

// Two stages of two ranks. The first gets no masks, and ends a step when it has been taken back.
TEST(RemoteExecutor, OfStagesTheLastDraws) {
  Fixture f(4, std::chrono::seconds(30), /*stages=*/2);
  for (uint64_t number = 0; number < 3; ++number) {
    ASSERT_TRUE(f.executor->Submit({.number = number}).ok());
    ASSERT_TRUE(f.executor->Sample(number).ok());
  }
  for (uint64_t number = 0; number < 3; ++number) {
    const Result<StepOutput> output = f.executor->Wait(number);
    ASSERT_TRUE(output.ok()) << output.status().ToString();
    EXPECT_EQ(output->number, number);
    EXPECT_EQ(output->rows[0].tokens[0], static_cast<TokenId>(2 * number));  // of two ranks
  }
  const Result<StepOutput> last = f.Step(3, /*masked=*/true);
  ASSERT_TRUE(last.ok()) << last.status().ToString();
  EXPECT_EQ(last->rows[0].tokens, std::vector<TokenId>{3 + 3});  // the sum of two ranks
  ASSERT_TRUE(f.executor->Reset().ok());                         // waits for all
  for (size_t rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(f.fake(rank).calls, "s0S0s1S1s2S2W0W1W2s3S3W3R");
    EXPECT_THAT(f.fake(2 + rank).calls, HasSubstr("s3S3M3/1D3W3R"));
  }
  f.fake(3).difference = 1;
  EXPECT_EQ(f.Step(0).status().message(), "rank 3 drew other tokens in step 0 than rank 2");
}

// The last stage never draws, so the driver does not take the step back.
TEST(RemoteExecutor, AnEarlierStageReportsAnErrorOfItsDevice) {
  Fixture f(2, std::chrono::seconds(30), /*stages=*/2);
  StepInput step{.rows = {{.slot = 1, .num_tokens = 1, .sample = true}}};
  step.rows[0].masked = true;
  ASSERT_TRUE(f.executor->Submit(step).ok());
  ASSERT_TRUE(f.executor->Sample(0).ok());
  EXPECT_FALSE(f.executor->Done(0));
  f.fake(0).broken = true;
  while (!f.executor->Done(0)) std::this_thread::yield();
  EXPECT_EQ(f.executor->Wait(0).status().message(), "rank 0: the fake's device is broken");
}

// The same as with ranks as threads: whichever rank fails, all others end at once, and go on after
// Reset.
TEST(RemoteExecutor, OneRanksErrorIsTheErrorOfTheStep) {
  for (size_t bad = 0; bad < 3; ++bad) {
    Fixture f(3);
    ASSERT_TRUE(f.Step(0).ok());
    f.fake(bad).fail_at = 1;
    const Result<StepOutput> output = f.Step(1);
    EXPECT_EQ(output.status().code(), StatusCode::kResourceExhausted);
    EXPECT_EQ(output.status().message(), "rank " + std::to_string(bad) + ": the fake has enough");
    EXPECT_FALSE(f.Step(2).ok());
    ASSERT_TRUE(f.executor->Reset().ok());
    const Result<StepOutput> again = f.Step(5);
    ASSERT_TRUE(again.ok()) << again.status().ToString();
    EXPECT_EQ(again->rows[0].tokens, std::vector<TokenId>{15});
    EXPECT_EQ(f.group->restarts, 0);
  }
}

TEST(RemoteExecutor, ADeadWorkerIsTheErrorOfTheStepAndResetStartsTheGroupAgain) {
  Fixture f(2);
  ASSERT_TRUE(f.Step(0).ok());
  f.group->Die(1);
  const Result<StepOutput> output = f.Step(1);
  EXPECT_EQ(output.status().message(), "rank 1 is dead");
  EXPECT_EQ(f.executor->Submit({.number = 2}).message(), "rank 1 is dead");
  ASSERT_TRUE(f.executor->Reset().ok());
  EXPECT_EQ(f.group->restarts, 1);
  ASSERT_TRUE(f.Step(0).ok());
}

// Workers on GPUs are such workers.
TEST(RemoteExecutor, WorkersThatCannotGoOnAfterAnErrorStartAgain) {
  Fixture f(2);
  f.group->can_reset = false;
  f.fake(1).fail_at = 1;
  EXPECT_EQ(f.Step(1).status().message(), "rank 1: the fake has enough");
  const int sent = f.group->sent;
  ASSERT_TRUE(f.executor->Reset().ok());
  EXPECT_EQ(f.group->restarts, 1);
  EXPECT_EQ(f.group->sent, sent);  // they were asked for nothing
  ASSERT_TRUE(f.Step(0).ok());
}

// The limit is ten times what was expected, but at least the 300 ms.
TEST(RemoteExecutor, AWorkerThatHangsIsLost) {
  for (const auto& [expected, limit] : {std::pair(0.01, "0.3 s"), std::pair(0.05, "0.5 s")}) {
    Fixture f(2, std::chrono::milliseconds(300));
    ASSERT_TRUE(f.Step(0).ok());
    // Both ranks wait for masks that nobody sends.
    StepInput step{.number = 1, .rows = {{.slot = 1, .num_tokens = 1, .sample = true}}};
    ASSERT_TRUE(f.executor->Submit(step).ok());
    step.number = 2;
    step.rows[0].masked = true;
    ASSERT_TRUE(f.executor->Submit(step).ok());
    ASSERT_TRUE(f.executor->Wait(1).ok());
    f.executor->Expect(expected);
    EXPECT_EQ(f.executor->Wait(2).status().message(),
              std::string("rank 0 has not finished step 2 within ") + limit);
    ASSERT_TRUE(f.executor->Reset().ok());
    EXPECT_EQ(f.group->restarts, 1);
    ASSERT_TRUE(f.Step(0).ok());
  }
}

TEST(RemoteExecutor, WorkersThatCouldNotStartAreAskedForNothing) {
  Fixture f(2, milliseconds(300));
  f.fake(0).fail_at = 1;
  f.fake(1).delay = std::chrono::seconds(1);
  EXPECT_THAT(f.Step(1).status().message(), HasSubstr("the fake has enough"));
  f.group->restart_error = Unavailable("no memory");
  EXPECT_EQ(f.executor->Reset().message(), "no memory");  // rank 1 has not answered
  const int sent = f.group->sent;
  EXPECT_TRUE(f.executor->Reset().ok());
  EXPECT_EQ(f.group->sent, sent);
  EXPECT_EQ(f.group->restarts, 2);
}

TEST(RemoteExecutor, AWorkerThatDiesWhileNoStepIsInFlightIsReported) {
  Fixture f(2);
  int calls = 0;
  f.executor->OnLost([&calls] { ++calls; });
  ASSERT_TRUE(f.Step(0).ok());
  EXPECT_TRUE(f.executor->Lost().ok());
  f.group->Die(0);
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(f.executor->Lost().message(), "rank 0 is dead");
  ASSERT_TRUE(f.executor->Reset().ok());
  EXPECT_TRUE(f.executor->Lost().ok());
  ASSERT_TRUE(f.Step(0).ok());
}

TEST(RemoteExecutor, RanksThatDrawDifferentTokensAreAnError) {
  Fixture f(2);
  f.fake(1).difference = 1;
  const Result<StepOutput> output = f.Step(7);
  EXPECT_EQ(output.status().code(), StatusCode::kInternal);
  EXPECT_EQ(output.status().message(), "rank 1 drew other tokens in step 7 than rank 0");
  ASSERT_TRUE(f.executor->Reset().ok());
  EXPECT_EQ(f.group->restarts, 0);
}

TEST(RemoteExecutor, AWorkerThatSaysWhatItShouldNotIsLost) {
  const std::pair<std::string, const char*> cases[] = {
      {"garbage", "rank 1: message to a driver: byte 0: is 103, which is not below 9"},
      {EncodeToDriver(StepOutput{.number = 9}), "rank 1 returned step 9, which is not its next"},
      {EncodeToDriver(Loading{}), "rank 1 sent news of loading while it runs steps"}};
  for (const auto& [message, error] : cases) {
    Fixture f(2);
    f.group->driver->Push({1, message});
    EXPECT_EQ(f.Step(0).status().message(), error);
    ASSERT_TRUE(f.executor->Reset().ok());
    EXPECT_EQ(f.group->restarts, 1);
  }
}

// With the first step, then ten times a second at most, whether the rank draws or not.
TEST(RemoteExecutor, HasWhatRanksMeasure) {
  for (const int32_t stages : {1, 2}) {
    const SteadyClock::time_point start = SteadyClock::now();
    Fixture f(4, std::chrono::seconds(30), stages);
    for (int32_t rank = 0; rank < 4; ++rank) {
      f.fake(static_cast<size_t>(rank)).stats = {
          {.steps = 10 + rank, .step_seconds = 1, .wait_seconds = 0.5}};
      const RankStats none{.stage = rank / (4 / stages), .rank = rank};
      EXPECT_EQ(f.executor->rank_stats()[static_cast<size_t>(rank)], none);
    }
    for (uint64_t number = 0; number < 300; ++number) ASSERT_TRUE(f.Step(number).ok());
    ASSERT_TRUE(f.executor->Reset().ok());  // takes all messages
    for (int32_t rank = 0; rank < 4; ++rank) {
      RankStats expected = f.fake(static_cast<size_t>(rank)).stats[0];
      expected.rank = rank;
      expected.stage = rank / (4 / stages);
      EXPECT_EQ(f.executor->rank_stats()[static_cast<size_t>(rank)], expected);
    }
    EXPECT_LE(f.group->num_stats, 4 * (1 + (SteadyClock::now() - start) / milliseconds(100)));
  }
}

// A rank sends only what the driver uses.
TEST(ServeRank, RefusesWhatNoDriverSends) {
  auto group = MakeThreadGroup({.size = 1});
  FakeRank fake(std::move(group->front()));
  const auto serve = [&](std::string message) {
    Inbox inbox;
    inbox.Push({0, std::move(message)});
    inbox.Push({0, Unavailable("the end")});
    std::string sent;
    const Status status =
        ServeRank(fake, nullptr, inbox, [&](const std::string& out) { sent += out; });
    return std::string(status.message()) + " / " + sent;
  };
  EXPECT_EQ(serve("garbage"), "message to a worker: byte 0: is 103, which is not below 9 / ");
  EXPECT_EQ(serve(EncodeToWorker(StartRank{})),
            "the driver sent a message of type 1 while this rank runs steps / ");
  EXPECT_THAT(serve(EncodeToWorker(StepTaken{3})),
              HasSubstr("the driver has taken back step 3, which is not the oldest here"));
  EXPECT_THAT(serve(EncodeToWorker(StepMasks{.number = 3})),
              HasSubstr("masks came for step 3, which waits for none"));
}

Incoming OneRow(uint64_t number) {
  return {0, EncodeToWorker(StepInput{.number = number,
                                      .rows = {{.slot = 1, .num_tokens = 1, .sample = true}}})};
}

// Returns the calls of a rank of the last stage, to which the driver has sent three steps before it
// takes the first.
std::string CallsOfThreeSteps(bool done, int32_t stages) {
  auto group = MakeThreadGroup({.size = 1, .stages = stages});
  FakeRank fake(std::move(group->back()));
  fake.done = [done] { return done; };
  Inbox inbox;
  for (const uint64_t number : {1, 2, 3}) inbox.Push(OneRow(number));
  inbox.Push({0, Unavailable("the end")});
  const Status status = ServeRank(fake, fake.communicator.get(), inbox, [](const std::string&) {});
  EXPECT_EQ(status.message(), "the end");
  return fake.calls;
}

TEST(ServeRank, AnOutputOfACpuDoesNotWaitForTheNextStep) {
  EXPECT_EQ(CallsOfThreeSteps(/*done=*/true, /*stages=*/1), "s1S1D1W1s2S2D2W2s3S3D3W3");
}

TEST(ServeRank, AGpuGetsTheNextStepsWhileItComputes) {
  EXPECT_EQ(CallsOfThreeSteps(/*done=*/false, /*stages=*/1), "s1S1D1s2S2D1s3S3D1");
}

TEST(ServeRank, AGpuGetsAStepThatComesWhileItComputes) {
  auto group = MakeThreadGroup({.size = 1});
  FakeRank fake(std::move(group->front()));
  Inbox inbox;
  inbox.Push(OneRow(1));
  int asked = 0;
  fake.done = [&] {
    ++asked;
    if (asked == 2) inbox.Push(OneRow(2));
    if (asked == 3) inbox.Push({0, Unavailable("the end")});
    return false;
  };
  EXPECT_EQ(ServeRank(fake, nullptr, inbox, [](const std::string&) {}).message(), "the end");
  EXPECT_EQ(fake.calls, "s1S1D1D1s2S2D1");
}

// The step behind may have to wait for an earlier stage, and that for the oldest step's draws.
TEST(ServeRank, AGpuOfAPipelineGetsOneStepWhileItComputes) {
  EXPECT_EQ(CallsOfThreeSteps(/*done=*/false, /*stages=*/2), "s1S1D1s2S2W1D2s3S3W2D3");
}

}  // namespace
}  // namespace tokamak
