// Tests recording and replaying of simulated schedules.
#include "engine/replay.h"
#include "base/testing/manual_clock.h"

#include <gtest/gtest.h>

#include <unistd.h>

#include <filesystem>

#include "base/file.h"
#include "base/log.h"
#include "sim/simulation.h"

namespace tokamak::sim {
namespace {

class ReplayTest : public ::testing::Test {
 protected:
  void TearDown() override { std::filesystem::remove(path_); }

  void Record(uint64_t seed, int32_t depth) {
    ScheduleOptions options;
    options.seed = seed;
    options.depth = depth;
    options.record_path = path_;
    Simulation simulation(options);
    EXPECT_EQ(simulation.Run(), "");
    stats_ = simulation.stats();
    executor_options_ = simulation.executor_options();
  }
  std::string Bytes() {
    auto bytes = ReadWholeFile(path_, 1 << 28);
    EXPECT_TRUE(bytes.ok());
    return *bytes;
  }
  Result<ReplayReport> ReplayBytes(const std::string& bytes, Executor* executor) {
    auto reader = RecordReader::Open("test", bytes);
    if (!reader.ok()) return reader.status();
    ReplayOptions options;
    options.executor = executor;
    options.on_arrival = [](const ArrivalEvent& event, Arrival* arrival) {
      const SamplingParams& p = arrival->sampling;
      for (int32_t i = 0; event.has_decoders && i < p.n; ++i) {
        arrival->decoders.push_back(
            std::make_unique<LetterDecoder>(p.stop.empty() ? "" : p.stop[0]));
      }
      arrival->constraints = MakeConstraints(p);
    };
    return Replay(std::move(*reader), options);
  }

  void SetUp() override { SetLogLevel(LogLevel::kOff); }

  const std::string path_ = (std::filesystem::temp_directory_path() /
                             ("tokamak_replay_test_" + std::to_string(::getpid())))
                                .string();
  ScheduleStats stats_;
  FakeExecutorOptions executor_options_;
};

TEST_F(ReplayTest, RepeatsEveryScheduleFromTheRecordAlone) {
  int64_t failures = 0;
  ScheduleStats total;
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE(seed);
    Record(seed, 0);
    const auto report = ReplayBytes(Bytes(), nullptr);
    ASSERT_TRUE(report.ok()) << report.status().ToString();
    EXPECT_GE(report->steps, stats_.steps);
    EXPECT_EQ(report->requests, stats_.requests + stats_.refused);
    failures += report->failures;
    total.Add(stats_);
  }
  EXPECT_GT(total.unhealthy[static_cast<size_t>(RowHealth::kNoCandidate)], 0);
  EXPECT_GT(total.forks, 0);
  EXPECT_GT(total.with_state, 0);
  EXPECT_GT(failures, 0) << "no schedule had executor errors: the test proves less than it should";
}

TEST_F(ReplayTest, RecomputesEveryTokenOnARealExecutor) {
  int replayed = 0;
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    SCOPED_TRACE(seed);
    Record(seed, 0);
    if (stats_.failures > 0) continue;
    ManualClock clock;
    Verdict verdict;
    executor_options_.failure_permille = 0;
    FakeExecutor executor(executor_options_, /*seed=*/99, &clock, &verdict);
    const auto report = ReplayBytes(Bytes(), &executor);
    ASSERT_TRUE(report.ok()) << report.status().ToString();
    EXPECT_TRUE(verdict.ok()) << verdict.what();
    EXPECT_EQ(executor.num_steps(), stats_.steps);
    ++replayed;
  }
  EXPECT_GT(replayed, 10);
}

TEST_F(ReplayTest, NamesTheStepWhereAnotherModelDiffers) {
  Record(3, 2);
  ManualClock clock;
  Verdict verdict;
  executor_options_.model.vocab -= 1;  // same limits, different distribution
  executor_options_.failure_permille = 0;
  FakeExecutor executor(executor_options_, 99, &clock, &verdict);
  const auto report = ReplayBytes(Bytes(), &executor);
  ASSERT_FALSE(report.ok());
  EXPECT_EQ(report.status().code(), StatusCode::kInternal);
  EXPECT_NE(report.status().message().find("recorded"), std::string::npos)
      << report.status().ToString();
}

TEST_F(ReplayTest, RefusesAnExecutorWithOtherLimits) {
  Record(3, 2);
  ManualClock clock;
  Verdict verdict;
  executor_options_.limits.cache.num_device_blocks += 1;
  FakeExecutor executor(executor_options_, 99, &clock, &verdict);
  EXPECT_EQ(ReplayBytes(Bytes(), &executor).status().code(), StatusCode::kInvalidArgument);
}

TEST_F(ReplayTest, ARecordHasEverythingOfAnArrivalThatDecidesItsSteps) {
  const auto image = std::make_shared<const EncodeImage>(
      EncodeImage{.id = 9, .shape = {2}, .num_rows = 2, .values = {0.5F, -3}});
  Arrival arrival;
  arrival.id = 7;
  arrival.prompt = {3, 1, 4, 1};
  arrival.images = {
      {.span = {.position = 1, .image = 9, .num_rows = 1}, .image = image},
      {.span = {.position = 3, .image = 9, .first_row = 1, .num_rows = 1}, .image = image}};
  arrival.sampling.temperature = 0.25F;
  arrival.sampling.seed = 11;
  arrival.eos_ids = {2};
  arrival.priority = -1;
  arrival.client = "someone";
  arrival.cache_root = "salt";
  arrival.speculate = false;
  {
    auto writer = RecordWriter::Create(path_, RecordHeader{});
    ASSERT_TRUE(writer.ok()) << writer.status().ToString();
    (*writer)->WriteArrival(arrival);
  }
  const std::string bytes = Bytes();
  auto reader = RecordReader::Open("test", bytes);
  ASSERT_TRUE(reader.ok()) << reader.status().ToString();
  const Arrival read = std::get<ArrivalEvent>(reader->Next().value().value()).arrival;
  EXPECT_EQ(read.id, arrival.id);
  EXPECT_EQ(read.prompt, arrival.prompt);
  ASSERT_EQ(read.images.size(), 2u);
  EXPECT_EQ(read.images[0].span, arrival.images[0].span);
  EXPECT_EQ(read.images[1].span, arrival.images[1].span);
  EXPECT_EQ(*read.images[0].image, *image);
  EXPECT_EQ(read.images[1].image, read.images[0].image);  // was written once
  EXPECT_EQ(read.sampling, arrival.sampling);
  EXPECT_EQ(read.eos_ids, arrival.eos_ids);
  EXPECT_EQ(read.priority, arrival.priority);
  EXPECT_EQ(read.client, arrival.client);
  EXPECT_EQ(read.cache_root, arrival.cache_root);
  EXPECT_EQ(read.speculate, arrival.speculate);
}

TEST_F(ReplayTest, RefusesRecordsWithStepsOfAnotherVersion) {
  RecordHeader header;
  header.step_version = kStepVersion + 1;
  ASSERT_TRUE(RecordWriter::Create(path_, header).ok());
  const Status status = ReplayBytes(Bytes(), nullptr).status();
  EXPECT_EQ(status.code(), StatusCode::kUnimplemented);
  EXPECT_NE(status.message().find("step version " + std::to_string(kStepVersion + 1)),
            std::string::npos)
      << status.message();
}

// Fuzzing would get no further than the version of an older one.
TEST_F(ReplayTest, ASeedOfTheFuzzerIsOfThisVersion) {
  const std::string path = TOKAMAK_SOURCE_DIR "/tests/fuzz/corpus/record_fuzz/record";
  EXPECT_TRUE(ReplayBytes(ReadWholeFile(path, 100'000).value(), nullptr).ok());
}

TEST_F(ReplayTest, ATruncatedRecordReplaysUpToItsLastCompleteEvent) {
  Record(5, 4);
  const std::string bytes = Bytes();
  EXPECT_EQ(ReplayBytes(bytes.substr(0, bytes.size() - 1), nullptr).status().code(),
            StatusCode::kDataLoss);
}

TEST_F(ReplayTest, DetectsEveryFlippedByte) {
  Record(7, 1);
  const std::string bytes = Bytes().substr(0, 3000);
  for (size_t i = 0; i < bytes.size(); i += 7) {
    std::string corrupted = bytes;
    corrupted[i] = static_cast<char>(corrupted[i] ^ 0x10);
    auto reader = RecordReader::Open("test", corrupted);
    Status status = reader.status();
    while (status.ok()) {
      auto event = reader->Next();
      status = event.status();
      if (event.ok() && !*event) break;
    }
    EXPECT_FALSE(status.ok()) << "byte " << i;
  }
}

}  // namespace
}  // namespace tokamak::sim
