// Ranks as worker processes, behind the public Engine. They run the program that was built beside
// this test.
#include <dirent.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/version.h"
#include "local/fingerprint.h"
#include "local/testing/load_engine.h"
#include "local/testing/on_workers.h"
#include "rpc/message_stream.h"
#include "rpc/worker_messages.h"
#include "tokamak/engine.h"
#include "weights/checkpoint.h"

namespace tokamak {
namespace {

using testing::AllOf;
using testing::AnyOf;
using testing::HasSubstr;

// The processes that this one has started and that run.
std::set<pid_t> Children() {
  std::set<pid_t> children;
  DIR* const proc = ::opendir("/proc");
  while (const dirent* const entry = ::readdir(proc)) {
    const pid_t pid = std::atoi(entry->d_name);
    std::ifstream file("/proc/" + std::string(entry->d_name) + "/stat");
    std::string text;
    if (pid <= 0 || !std::getline(file, text)) continue;
    std::istringstream fields(text.substr(text.rfind(')') + 1));
    char state = 0;
    pid_t parent = 0;
    fields >> state >> parent;
    if (parent == ::getpid() && state != 'Z') children.insert(pid);
  }
  ::closedir(proc);
  return children;
}

// Compares an engine with workers with one whose ranks are threads: what they say of themselves,
// and greedy and sampled answers.
void ExpectTheSame(Engine* processes, Engine* threads, int32_t max_tokens = 40) {
  ASSERT_TRUE(threads != nullptr && processes != nullptr);
  EXPECT_EQ(processes->system_fingerprint(), threads->system_fingerprint());
  EXPECT_EQ(processes->model().backend, threads->model().backend);
  EXPECT_EQ(processes->model().device, threads->model().device);
  EXPECT_EQ(processes->model().threads, threads->model().threads);
  EXPECT_EQ(processes->model().weight_bytes, threads->model().weight_bytes);
  EXPECT_EQ(processes->model().kv_token_bytes, threads->model().kv_token_bytes);
  EXPECT_EQ(processes->model().token_macs, threads->model().token_macs);
  EXPECT_EQ(processes->stats().total_blocks, threads->stats().total_blocks);
  for (const SamplingParams& sampling :
       {SamplingParams{.temperature = 0}, SamplingParams{.temperature = 1, .seed = 7},
        SamplingParams{.temperature = 1, .top_p = 0.8, .seed = 9}}) {
    const OutputChunk expected = Answer(*threads, MakeRequest(sampling, max_tokens));
    const OutputChunk got = Answer(*processes, MakeRequest(sampling, max_tokens));
    EXPECT_EQ(expected.token_ids.size(), static_cast<size_t>(max_tokens));
    EXPECT_EQ(got.token_ids, expected.token_ids) << threads->model().name;
    EXPECT_EQ(got.logprobs, expected.logprobs) << threads->model().name;
  }
}

// With drafts, of several kinds of models.
TEST(Workers, AnswerAsRanksThatAreThreads) {
  for (const char* model : {"llama_odd.gguf", "qwen3_moe_128.gguf", "hf/gemma2_odd"}) {
    for (const int32_t ranks : {1, 2}) {
      const auto threads = Load(OnWorkers(model, ranks, WorkerKind::kThreads));
      const auto processes = Load(OnWorkers(model, ranks));
      EXPECT_EQ(Children().size(), static_cast<size_t>(ranks));
      ExpectTheSame(processes.get(), threads.get());
    }
  }
  EXPECT_TRUE(Children().empty());
}

// The bits of one stage, which is a thread.
TEST(Workers, MayBeStagesOfAPipeline) {
  for (const char* model : {"llama_odd.gguf", "qwen3_moe_odd.gguf", "hf/gemma2_odd"}) {
    for (const int32_t ranks : {1, 2}) {
      const auto one = Load(OnWorkers(model, ranks, WorkerKind::kThreads));
      const auto stages = Load(OnWorkers(model, ranks, WorkerKind::kProcesses, 2));
      ASSERT_TRUE(one != nullptr && stages != nullptr);
      EXPECT_EQ(Children().size(), static_cast<size_t>(2 * ranks));
      EXPECT_EQ(stages->stats().total_blocks, one->stats().total_blocks);
      std::vector<OutputStream> streams;
      for (int32_t i = 0; i < 6; ++i) {  // together, so that both stages work
        Request request = MakeRequest({.temperature = i % 2 == 0 ? 0.0f : 1.0f, .seed = 5});
        request.token_ids.push_back(i);
        streams.push_back(*stages->Stream(request));
      }
      for (int32_t i = 0; i < 6; ++i) {
        Request request = MakeRequest({.temperature = i % 2 == 0 ? 0.0f : 1.0f, .seed = 5});
        request.token_ids.push_back(i);
        const OutputChunk expected = Answer(*one, request);
        const OutputChunk got = std::move(streams[static_cast<size_t>(i)].Collect()[0]);
        EXPECT_TRUE(got.error.ok()) << got.error.ToString();
        EXPECT_EQ(got.token_ids, expected.token_ids) << model << " " << ranks;
        EXPECT_EQ(got.logprobs, expected.logprobs) << model << " " << ranks;
      }
      const std::vector<RankStats> stats = stages->stats().ranks;
      ASSERT_EQ(stats.size(), static_cast<size_t>(2 * ranks));
      for (const RankStats& rank : stats) {
        EXPECT_EQ(rank.stage, rank.rank / ranks);
        EXPECT_GT(rank.steps, 0) << rank.rank;
        EXPECT_GT(rank.received_bytes, 0) << rank.rank;
      }
    }
  }
}

// Each replica has a group of its own, and gives the bits of one whose ranks are threads.
TEST(Workers, MayBeReplicasOfSeveralRanks) {
  for (const char* model : {"llama_odd.gguf", "qwen3_moe_128.gguf", "hf/gemma2_odd"}) {
    const auto alone = Load(OnWorkers(model, 1, WorkerKind::kThreads));
    const auto one = Load(OnWorkers(model, 2, WorkerKind::kThreads));
    EngineOptions options = OnWorkers(model, 2);
    options.data_parallel = 2;
    options.threads = 4;
    const auto two = Load(options);
    ASSERT_TRUE(alone != nullptr && one != nullptr && two != nullptr);
    EXPECT_EQ(Children().size(), 4u);
    std::vector<OutputStream> streams;
    const auto request = [](int32_t i) {
      Request made = MakeRequest({.temperature = i % 2 == 0 ? 0.0f : 1.0f, .seed = 5});
      made.token_ids.push_back(i);
      return made;
    };
    for (int32_t i = 0; i < 6; ++i) streams.push_back(*two->Stream(request(i)));
    for (int32_t i = 0; i < 6; ++i) {
      const OutputChunk expected = Answer(*one, request(i));
      const OutputChunk got = std::move(streams[static_cast<size_t>(i)].Collect()[0]);
      EXPECT_TRUE(got.error.ok()) << got.error.ToString();
      EXPECT_EQ(got.token_ids, expected.token_ids) << model;
      EXPECT_EQ(got.logprobs, expected.logprobs) << model;
      EXPECT_EQ(got.token_ids, Answer(*alone, request(i)).token_ids) << model;
    }
    for (const EngineStats& replica : two->replica_stats()) EXPECT_GT(replica.steps, 0);
    const std::vector<RankStats> stats = two->stats().ranks;
    ASSERT_EQ(stats.size(), 4u);
    for (const RankStats& rank : stats) EXPECT_GT(rank.received_bytes, 0) << rank.rank;
  }
}

// The driver prepares images without having the model's weights.
TEST(Workers, SeeImages) {
  for (const char* model : {"hf/qwen2_vl_odd", "hf/pixtral_odd"}) {
    std::vector<std::vector<int32_t>> answers;
    for (const WorkerKind workers : {WorkerKind::kThreads, WorkerKind::kProcesses}) {
      const auto engine = Load(OnWorkers(model, 2, workers));
      ASSERT_NE(engine, nullptr);
      ASSERT_TRUE(engine->model().images.has_value());
      Request request = MakeRequest({.temperature = 0});
      request.sampling.max_tokens = 12;
      request.token_ids = {5, engine->model().images->placeholder_id, 9};
      request.images.push_back(
          {.bytes = ReadWholeFile(kGoldens + std::string("images/rgb.png"), 1 << 20).value()});
      answers.push_back(Answer(*engine, request).token_ids);
    }
    EXPECT_EQ(answers[0].size(), 12u);
    EXPECT_EQ(answers[1], answers[0]) << model;
  }
}

// Kills the first worker, then the last, and the first again.
void ExpectRestarts(const EngineOptions& options, int32_t max_tokens = 40) {
  const auto engine = Load(options);
  ASSERT_NE(engine, nullptr);
  const auto ranks =
      static_cast<size_t>(options.tensor_parallel) * static_cast<size_t>(options.pipeline_parallel);
  const Request request = MakeRequest({.temperature = 0}, max_tokens);
  const std::vector<int32_t> expected = Answer(*engine, request).token_ids;
  for (int round = 0; round < 3; ++round) {
    const std::set<pid_t> before = Children();
    ASSERT_EQ(before.size(), ranks);
    Result<OutputStream> stream = engine->Stream(MakeRequest({.temperature = 0}, 300));
    ASSERT_TRUE(stream.ok());
    (void)stream->Next();
    ::kill(round % 2 == 0 ? *before.begin() : *before.rbegin(), SIGKILL);
    const OutputChunk answer = std::move(stream->Collect()[0]);
    // If no step was in flight, the request goes on with the new workers.
    if (answer.error.ok()) {
      EXPECT_EQ(answer.finish_reason, FinishReason::kLength);
    } else {
      EXPECT_THAT(answer.error.ToString(), HasSubstr("has ended: signal 9 (Killed)"));
    }
    EXPECT_EQ(Answer(*engine, request).token_ids, expected);
    const std::set<pid_t> after = Children();
    EXPECT_EQ(after.size(), ranks);
    for (const pid_t pid : before) EXPECT_FALSE(after.contains(pid));
  }
  EXPECT_TRUE(engine->health().ok());
}

TEST(Workers, AKilledWorkerIsTheErrorOfItsRequestsAndTheGroupStartsAgain) {
  ExpectRestarts(OnWorkers("llama_odd.gguf", 2));
}

// A program in the place of the workers'. The arguments are those of `tokamak worker`.
class FakeProgram {
 public:
  explicit FakeProgram(const std::string& script) {
    std::ofstream(path_) << "#!/bin/sh\n" << script << "\n";
    ::chmod(path_.c_str(), 0700);
  }
  ~FakeProgram() { std::remove(path_.c_str()); }
  const std::string& path() const { return path_; }
  std::string Error(double load_timeout_seconds = 300, int32_t ranks = 2) const {
    EngineOptions options = OnWorkers("llama_odd.gguf", ranks);
    options.worker_program = path_;
    options.worker_load_timeout_seconds = load_timeout_seconds;
    const auto engine = Engine::Load(options);
    return engine.ok() ? "" : engine.status().ToString();
  }

 private:
  const std::string path_ = testing::TempDir() + "/worker_" + std::to_string(::getpid());
};

TEST(Workers, AreRefusedByName) {
  const std::string worker = "shift 2; exec " TOKAMAK_PROGRAM " worker " + std::string(kGoldens);
  // The same name and architecture, but other weights.
  const std::string folder = testing::TempDir() + "/other";
  ::mkdir(folder.c_str(), 0700);
  std::string bytes = ReadWholeFile(kGoldens + std::string("llama_odd.gguf"), 1 << 24).value();
  for (size_t i = bytes.size() * 3 / 4; i < bytes.size(); ++i) bytes[i] ^= 1;
  std::ofstream(folder + "/llama_odd.gguf", std::ios::binary) << bytes;
  EXPECT_THAT(
      FakeProgram("shift 2; exec " TOKAMAK_PROGRAM " worker " + folder + "/llama_odd.gguf \"$@\"")
          .Error(),
      HasSubstr("has other weights of llama_odd than this driver"));
  EXPECT_THAT(FakeProgram(worker + "llama_tied.gguf \"$@\"").Error(),
              HasSubstr("has the model llama_tied, but this driver has llama_odd"));
  EXPECT_THAT(FakeProgram(worker + "none.gguf \"$@\"").Error(), HasSubstr("none.gguf"));
  EXPECT_THAT(
      FakeProgram("exec " TOKAMAK_PROGRAM " worker \"$2\" --rank 5 --driver \"$8\"").Error(),
      HasSubstr("a worker has the rank 5, but there are 2 ranks"));
  EXPECT_THAT(FakeProgram("exit 3").Error(), HasSubstr("ended before it connected: exit code 3"));
  std::remove((folder + "/llama_odd.gguf").c_str());
  ::rmdir(folder.c_str());
  EXPECT_TRUE(Children().empty());
}

// Rank 0 connects two seconds after it starts. Rank 1 has connected when it dies or stops.
TEST(Workers, MayDieOrHangWhileTheyStart) {
  const auto error = [](const std::string& end, double load_timeout_seconds) {
    return FakeProgram("if [ $6 = 0 ]; then sleep 2; else (sleep 1; " + end +
                       " $$) & fi\nexec " TOKAMAK_PROGRAM " \"$@\"")
        .Error(load_timeout_seconds);
  };
  EXPECT_THAT(error("kill -9", 20), AllOf(HasSubstr("rank 1"), HasSubstr("signal 9 (Killed)")));
  EXPECT_THAT(error("kill -STOP", 4),
              HasSubstr("the worker of rank 1 has made no progress for 4.0 s while loading"));
  EXPECT_THAT(FakeProgram("exec sleep 15").Error(0.5),
              HasSubstr("the worker of rank 0 has not connected within 0.5 s"));
  EXPECT_TRUE(Children().empty());
}

// The test is the worker: the program that the driver starts only writes down where to connect.
TEST(Workers, MayLoadForLongIfTheyMakeProgress) {
  const std::string path = testing::TempDir() + "/address_" + std::to_string(::getpid());
  std::thread worker([&path] {
    std::string address;
    for (int i = 0; address.empty() && i < 1000; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      std::getline(std::ifstream(path) >> std::ws, address);
    }
    Inbox inbox;
    auto client = MessageClient::Connect({address}, std::chrono::seconds(10), &inbox);
    ASSERT_TRUE(client.ok()) << client.status().ToString();
    Hello hello{.version = VersionText(), .model = "llama_odd"};
    hello.weights = *CheckpointHash(*OpenCheckpoint(kGoldens + std::string("llama_odd.gguf")));
    (*client)->Send(EncodeToDriver(hello));
    for (int i = 0; i < 8; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(500));
      (*client)->Send(EncodeToDriver(Loading{0.1 * i}));
    }
    (*client)->Send(EncodeToDriver(ResourceExhausted("the test has enough")));
    (*client)->Finish();
  });
  EXPECT_THAT(FakeProgram("echo \"$8\" >" + path + "; exec sleep 100").Error(3, 1),
              HasSubstr("rank 0: the test has enough"));
  worker.join();
  std::remove(path.c_str());
}

TEST(Workers, OtherReplicasTakeTheRequestsWhileOneStartsAgain) {
  EngineOptions options = OnWorkers("llama_odd.gguf", 1);
  options.threads = options.data_parallel = 2;
  options.worker_load_timeout_seconds = 20;
  const auto engine = Load(options);
  ASSERT_NE(engine, nullptr);
  const std::vector<int32_t> expected = Answer(*engine, MakeRequest({.temperature = 0})).token_ids;
  const auto restarting = [&engine] {
    const std::vector<EngineStats> replicas = engine->replica_stats();
    return std::ranges::count_if(replicas, [](const auto& r) { return !r.restarting.empty(); });
  };
  const std::set<pid_t> before = Children();
  ASSERT_EQ(before.size(), 2u);
  ::kill(*before.begin(), SIGKILL);
  pid_t again = 0;
  while (again == 0) {
    for (const pid_t pid : Children()) again = before.contains(pid) ? again : pid;
  }
  ::kill(again, SIGSTOP);
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(Answer(*engine, MakeRequest({.temperature = 0})).token_ids, expected);
  }
  EXPECT_EQ(restarting(), 1);
  EXPECT_EQ(engine->stats().restarting, "");
  ::kill(again, SIGCONT);
  while (restarting() > 0) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(Answer(*engine, MakeRequest({.temperature = 0})).token_ids, expected);
  }
  EXPECT_EQ(Children().size(), 2u);
}

TEST(Workers, LoadErrorsNameTheCause) {
  const auto error = [](auto spoil) {
    EngineOptions options = OnWorkers("llama_odd.gguf", 2);
    spoil(options);
    const auto engine = Engine::Load(options);
    return engine.ok() ? "" : engine.status().ToString();
  };
  EXPECT_THAT(error([](EngineOptions& o) { o.worker_program = ""; }),
              HasSubstr("worker_program: must name the tokamak program"));
  EXPECT_THAT(error([](EngineOptions& o) { o.worker_program = "/no/program"; }),
              HasSubstr("/no/program: cannot be started"));
  EXPECT_THAT(error([](EngineOptions& o) { o.worker_timeout_seconds = 0; }),
              HasSubstr("worker_timeout_seconds: must be in [0.1, 1e6], got 0"));
  EXPECT_THAT(error([](EngineOptions& o) { o.worker_load_timeout_seconds = -1; }),
              HasSubstr("worker_load_timeout_seconds: must be in [0.1, 1e6], got -1"));
  EXPECT_THAT(error([](EngineOptions& o) { o.profile = true; }),
              HasSubstr("profile: does not work with workers=processes"));
  EXPECT_THAT(error([](EngineOptions& o) { o.tensor_parallel = o.threads = 64; }),
              HasSubstr("cannot be divided among 64 ranks"));
  EXPECT_THAT(error([](EngineOptions& o) {
                o.device = "cuda";
                o.mla = MlaForm::kAuto;
              }),
              HasSubstr("mla=auto: the driver does not know what suits its workers' GPUs"));
}

constexpr int32_t kOnGpus = 6;  // tokens, because emulated GPUs are slow

EngineOptions OnGpus(int32_t ranks, WorkerKind workers = WorkerKind::kProcesses,
                     int32_t max_seqs = 1, int32_t stages = 1) {
  EngineOptions options = OnWorkers("llama_odd.gguf", ranks, workers, stages);
  options.device = "cuda";
  options.threads = std::max(2, ranks * stages);
  options.max_seqs = max_seqs;  // 1: there are few graphs to make
  options.num_blocks = 0;       // what the GPUs have room for
  return options;
}

// A library in place of the CUDA backend acts as GPUs. Workers open it; where it says so, this
// process as well.
class WorkersOnFakeGpus : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(std::filesystem::exists(library_)) << library_;
    Set("TOKAMAK_CUDA_LIBRARY", "/no/library");
  }
  void TearDown() override {
    for (const std::string& name : set_) ::unsetenv(name.c_str());
  }
  void Set(const std::string& name, const std::string& value) {
    ::setenv(name.c_str(), value.c_str(), 1);
    set_.insert(name);
  }
  EngineOptions Options(int32_t ranks) const {
    EngineOptions options = OnGpus(ranks, WorkerKind::kProcesses, 4);
    options.worker_program = program_.path();
    return options;
  }

  const std::string library_ =
      std::filesystem::read_symlink("/proc/self/exe").parent_path() / "libtokamak_fake_gpu.so";
  const FakeProgram program_{"export TOKAMAK_CUDA_LIBRARY=" + library_ +
                             "; exec " TOKAMAK_PROGRAM " \"$@\""};
  std::set<std::string> set_;
};

TEST_F(WorkersOnFakeGpus, AnswerAsARankThatIsAThread) {
  std::vector<int64_t> blocks;
  for (const char* const bytes : {"4000000", "1000000000"}) {
    Set("TOKAMAK_FAKE_GPU_BYTES", bytes);
    Set("TOKAMAK_CUDA_LIBRARY", "/no/library");
    const auto processes = Load(Options(1));
    Set("TOKAMAK_CUDA_LIBRARY", library_);
    const auto threads = Load(OnGpus(1, WorkerKind::kThreads, 4));
    ExpectTheSame(processes.get(), threads.get());
    ASSERT_NE(processes, nullptr);
    blocks.push_back(processes->stats().total_blocks);
  }
  EXPECT_LT(blocks[0], blocks[1]);  // the worker's GPU decides
}

TEST_F(WorkersOnFakeGpus, StartAgain) { ExpectRestarts(Options(1)); }

TEST_F(WorkersOnFakeGpus, HaveOneEachAndAreRefusedBeforeAWeightIsRead) {
  int weights_read = 0;
  const auto error = [&](int32_t ranks, int32_t replicas) {
    EngineOptions options = Options(ranks);
    options.device = "cuda:3";
    options.threads = options.data_parallel = replicas;
    options.threads *= ranks;
    options.on_load_progress = [&](double) { ++weights_read; };
    return Engine::Load(options).status().ToString();
  };
  Set("TOKAMAK_FAKE_GPUS", "4");
  EXPECT_THAT(error(2, 1), AnyOf(HasSubstr("rank 0: device=cuda:3: GPUs 3 to 4 of 4"),
                                 HasSubstr("rank 1: device=cuda:4: GPUs 4 to 4 of 4")));
  EXPECT_THAT(error(1, 3), HasSubstr("rank 0: device=cuda:3: GPUs 3 to 5 of 4"));
  EXPECT_EQ(weights_read, 0);
  // The GPU of the second replica is broken.
  Set("TOKAMAK_FAKE_GPUS", "5");
  Set("TOKAMAK_FAKE_GPU_BROKEN", "4");
  EXPECT_THAT(error(1, 2), HasSubstr("rank 0: device=cuda:4: GPU 4 is broken"));
  // The GPUs have too little memory.
  Set("TOKAMAK_FAKE_GPU_BYTES", "1000");
  weights_read = 0;
  EXPECT_THAT(error(1, 2), HasSubstr("rank 0: "));
  EXPECT_EQ(weights_read, 0);
}

// Each with a GPU of its own.
TEST(CudaWorkers, AnswerAsRanksThatAreThreads) {
  if (const std::string lack = LackOfGpus(2); !lack.empty()) GTEST_SKIP() << lack;
  for (const auto& [ranks, stages] : {std::pair{1, 1}, std::pair{2, 1}, std::pair{1, 2}}) {
    SCOPED_TRACE(fmt::format("{} ranks, {} stages", ranks, stages));
    const auto threads = Load(OnGpus(ranks, WorkerKind::kThreads, 1, stages));
    const auto processes = Load(OnGpus(ranks, WorkerKind::kProcesses, 1, stages));
    ExpectTheSame(processes.get(), threads.get(), kOnGpus);
    ASSERT_NE(processes, nullptr);
    const std::vector<RankStats> stats = processes->stats().ranks;
    ASSERT_EQ(stats.size(), static_cast<size_t>(ranks * stages));
    for (const RankStats& rank : stats) EXPECT_GT(rank.steps, 0) << rank.rank;
  }
}

// The other worker's GPU waits for the killed one's values.
TEST(CudaWorkers, StartAgain) {
  if (const std::string lack = LackOfGpus(2); !lack.empty()) GTEST_SKIP() << lack;
  ExpectRestarts(OnGpus(2), kOnGpus);
  ExpectRestarts(OnGpus(1, WorkerKind::kProcesses, 1, 2), kOnGpus);
}

// The first worker of a rank gets an error of CUDA, after which it cannot go on. How soon depends
// on how often it asks whether its GPU is done.
void ExpectRestartAfterError(EngineOptions options, int32_t rank) {
  const Request request = MakeRequest({.temperature = 0}, kOnGpus);
  options.workers = WorkerKind::kThreads;
  const std::vector<int32_t> expected = Answer(*Load(options), request).token_ids;
  options.workers = WorkerKind::kProcesses;
  const std::string mark = testing::TempDir() + "/failed_" + std::to_string(::getpid());
  const FakeProgram program(
      "if [ $6 = " + std::to_string(rank) + " ] && ! [ -e " + mark + " ]; then touch " + mark +
      "; export TOKAMAK_CUDA_FAIL_CALL=1500; fi\nexec " TOKAMAK_PROGRAM " \"$@\"");
  options.worker_program = program.path();
  const auto engine = Load(options);
  ASSERT_NE(engine, nullptr);
  std::string error;
  for (int i = 0; i < 200 && error.empty(); ++i) {
    Result<std::vector<OutputChunk>> answer = engine->Generate(request);
    ASSERT_TRUE(answer.ok());
    if (!(*answer)[0].error.ok()) error = (*answer)[0].error.ToString();
  }
  EXPECT_THAT(error, AllOf(HasSubstr(fmt::format("rank {}: ", rank)),
                           HasSubstr("an error injected by fail_call")));
  EXPECT_EQ(Answer(*engine, request).token_ids, expected);
  EXPECT_EQ(Children().size(), 2u);
  std::remove(mark.c_str());
}

TEST(CudaWorkers, AnErrorOfAGpuIsThatOfTheRequestAndTheGroupStartsAgain) {
  if (const std::string lack = LackOfGpus(2); !lack.empty()) GTEST_SKIP() << lack;
  ExpectRestartAfterError(OnGpus(2), 1);
  // The second stage's GPU waits for the first's, which has the error.
  ExpectRestartAfterError(OnGpus(1, WorkerKind::kProcesses, 1, 2), 0);
}

TEST(CudaWorkers, NeedAGpuEach) {
  if (const std::string lack = LackOfGpus(1); !lack.empty()) GTEST_SKIP() << lack;
  EngineOptions options = OnGpus(2);
  options.device = "cuda:1000";
  EXPECT_THAT(Engine::Load(options).status().ToString(),
              AnyOf(HasSubstr("so rank 0 has none"),
                    HasSubstr("rank 1: device=cuda:1001: no usable NVIDIA GPU: device 1001 was")));
}

}  // namespace
}  // namespace tokamak
