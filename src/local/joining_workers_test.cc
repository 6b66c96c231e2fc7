// Workers that the driver does not start: they join it, and those that do not fit are refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/child_process.h"
#include "base/testing/certificates.h"
#include "base/testing/free_port.h"
#include "local/testing/load_engine.h"
#include "local/testing/on_workers.h"
#include "local/worker.h"
#include "tokamak/engine.h"

namespace tokamak {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;

constexpr char kModel[] = "llama_odd.gguf";

class JoiningWorkers : public testing::Test {
 protected:
  void SetUp() override { ASSERT_NE(::mkdtemp(folder_.data()), nullptr); }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string socket() const { return "unix:" + folder_ + "/socket"; }
  EngineOptions Driver(const std::string& address) const {
    EngineOptions options = OnWorkers(kModel, 2);
    options.worker_program = "";
    options.worker_address = address;
    options.worker_join_seconds = 300;
    return options;
  }
  static WorkerOptions Worker(const std::string& address, int32_t rank) {
    return {.model = std::string(kGoldens) + kModel, .driver = address, .rank = rank};
  }
  static std::future<Result<std::unique_ptr<Engine>>> LoadMeanwhile(const EngineOptions& options) {
    return std::async(std::launch::async, [options] { return Engine::Load(options); });
  }
  static std::future<Status> Run(const WorkerOptions& options) {
    return std::async(std::launch::async, [options] { return RunWorker(options); });
  }
  static ChildProcess Start(const std::string& address, int32_t rank) {
    return *ChildProcess::Start(
        TOKAMAK_PROGRAM, {"worker", std::string(kGoldens) + kModel, "--driver", address, "--rank",
                          std::to_string(rank)});
  }
  static std::vector<int32_t> Greedy(Engine& engine) {
    return Answer(engine, MakeRequest({.temperature = 0})).token_ids;
  }
  static std::vector<int32_t> Expected() {
    const auto threads = Load(OnWorkers(kModel, 2, WorkerKind::kThreads));
    return threads == nullptr ? std::vector<int32_t>() : Greedy(*threads);
  }

  std::string folder_ = "/tmp/tokamak-joining-XXXXXX";
};

// Over TCP, with everything that can be wrong with a worker. Each is refused by name, and the
// others answer as if it had not come.
TEST_F(JoiningWorkers, OnlyThoseThatFitAreTaken) {
  const TestCertificates c;
  if (!c.is_there()) GTEST_SKIP() << "there is no openssl";
  ASSERT_TRUE(c.MakeAuthority("ours") && c.MakeAuthority("theirs") &&
              c.Make("driver", "ours", "DNS:localhost") && c.Make("worker", "ours", "DNS:w") &&
              c.Make("stranger", "theirs", "DNS:w"));
  const std::string address = "localhost:" + FreePort();
  EngineOptions driver = Driver(address);
  driver.worker_cert_file = c.Certificate("driver");
  driver.worker_key_file = c.Key("driver");
  driver.worker_ca_file = c.Certificate("ours");
  driver.worker_folder = folder_ + "/memory";
  const auto worker = [&](int32_t rank, const std::string& name = "worker") {
    WorkerOptions options = Worker(address, rank);
    options.cert = c.Certificate(name);
    options.key = c.Key(name);
    options.ca = c.Certificate("ours");
    options.folder = driver.worker_folder;
    return options;
  };
  auto loading = LoadMeanwhile(driver);

  EXPECT_THAT(RunWorker(worker(0, "stranger")).ToString(),
              HasSubstr("the driver there closes the connection"));
  WorkerOptions wrong = worker(0);
  wrong.ca = c.Certificate("theirs");
  EXPECT_THAT(RunWorker(wrong).ToString(), HasSubstr("certificate verify failed"));
  wrong = worker(0);
  wrong.cert = wrong.key = wrong.ca = "";
  EXPECT_THAT(RunWorker(wrong).ToString(), HasSubstr("TCP needs cert, key and ca"));
  EXPECT_THAT(RunWorker(worker(2)).ToString(),
              HasSubstr("a worker has the rank 2, but there are 2 ranks"));
  wrong = worker(0);
  wrong.model = std::string(kGoldens) + "llama_tied.gguf";
  EXPECT_THAT(RunWorker(wrong).ToString(),
              HasSubstr("has the model llama_tied, but this driver has llama_odd"));
  // Two of the same rank: the second is refused, and the first stays.
  std::vector<std::future<Status>> twins;
  for (int i = 0; i < 2; ++i) twins.push_back(Run(worker(0)));
  size_t refused = 0;
  while (twins[refused].wait_for(milliseconds(20)) != std::future_status::ready) refused ^= 1;
  EXPECT_THAT(twins[refused].get().ToString(), HasSubstr("two workers have the rank 0"));

  std::future<Status> last = Run(worker(1));
  Result<std::unique_ptr<Engine>> engine = loading.get();
  ASSERT_TRUE(engine.ok()) << engine.status().ToString();
  EXPECT_FALSE(std::filesystem::exists(driver.worker_folder + "/memory"));
  EXPECT_THAT(RunWorker(worker(1)).ToString(), HasSubstr("has workers for all ranks"));
  EXPECT_EQ(Greedy(**engine), Expected());
  engine->reset();
  EXPECT_EQ(twins[refused ^ 1].get().code(), StatusCode::kUnavailable);
  EXPECT_EQ(last.get().code(), StatusCode::kUnavailable);
}

TEST_F(JoiningWorkers, RanksThatAreMissingAreNamed) {
  EngineOptions driver = Driver(socket());
  driver.worker_join_seconds = 3;
  auto loading = LoadMeanwhile(driver);
  std::future<Status> worker = Run(Worker(socket(), 1));
  EXPECT_THAT(loading.get().status().ToString(),
              HasSubstr("within 3 s no worker has joined at " + socket() + " for these ranks: 0"));
  EXPECT_EQ(worker.get().code(), StatusCode::kUnavailable);
}

// The driver cannot start them again. Others may join in their place.
TEST_F(JoiningWorkers, ThoseThatAreLostMayJoinAgain) {
  EngineOptions driver = Driver(socket());
  driver.worker_load_timeout_seconds = 60;
  auto loading = LoadMeanwhile(driver);
  // One of two is refused, and the other dies before all ranks have joined.
  std::optional<ChildProcess> twins[2] = {Start(socket(), 0), Start(socket(), 0)};
  size_t refused = 0;
  for (; !twins[refused]->End(); refused ^= 1) std::this_thread::sleep_for(milliseconds(10));
  twins[refused ^ 1].reset();
  std::optional<ChildProcess> processes[2] = {Start(socket(), 0), Start(socket(), 1)};
  Result<std::unique_ptr<Engine>> engine = loading.get();
  ASSERT_TRUE(engine.ok()) << engine.status().ToString();
  const std::vector<int32_t> expected = Expected();
  EXPECT_EQ(Greedy(**engine), expected);

  Request endless = MakeRequest({.temperature = 0});
  endless.sampling.max_tokens = 300;
  Result<OutputStream> stream = (*engine)->Stream(endless);
  ASSERT_TRUE(stream.ok());
  (void)stream->Next();
  processes[1]->Kill();
  // The other one has no group any more, and ends.
  while (!processes[0]->End()) std::this_thread::sleep_for(milliseconds(10));
  for (int32_t rank : {0, 1}) {
    processes[rank].reset();
    processes[rank].emplace(Start(socket(), rank));
  }
  // If no step was in flight, the request goes on with the new workers.
  const std::vector<OutputChunk> chunks = stream->Collect();
  const Status& error = chunks[0].error;
  if (!error.ok()) {
    EXPECT_THAT(error.ToString(), HasSubstr("the connection to the worker of rank 1 has ended"));
  }
  EXPECT_EQ(Greedy(**engine), expected);
}

TEST_F(JoiningWorkers, HaveACudaGpuEach) {
  if (const std::string lack = LackOfGpus(2); !lack.empty()) GTEST_SKIP() << lack;
  EngineOptions driver = Driver(socket());
  driver.device = "cuda";
  driver.max_seqs = 1;
  auto loading = LoadMeanwhile(driver);
  const ChildProcess first = Start(socket(), 0), last = Start(socket(), 1);
  Result<std::unique_ptr<Engine>> engine = loading.get();
  ASSERT_TRUE(engine.ok()) << engine.status().ToString();
  EngineOptions threads = OnWorkers(kModel, 2, WorkerKind::kThreads);
  threads.device = "cuda";
  threads.max_seqs = 1;
  const Request request = MakeRequest({.temperature = 0}, 6);
  EXPECT_EQ(Answer(**engine, request).token_ids, Answer(*Load(threads), request).token_ids);
}

// Over a network, nothing else tells that the other side has gone. The engine then waits for
// another worker, until it ends itself.
TEST_F(JoiningWorkers, OneThatDoesNotAnswerIsLost) {
  const TestCertificates c;
  if (!c.is_there()) GTEST_SKIP() << "there is no openssl";
  ASSERT_TRUE(c.MakeAuthority("ours") && c.Make("both", "ours", "DNS:localhost"));
  const std::string address = "localhost:" + FreePort();
  EngineOptions driver = Driver(address);
  driver.tensor_parallel = 1;  // which needs no folder
  driver.worker_cert_file = c.Certificate("both");
  driver.worker_key_file = c.Key("both");
  driver.worker_ca_file = c.Certificate("ours");
  driver.worker_timeout_seconds = 600;
  driver.worker_join_seconds = 1e6;
  Result<ChildProcess> worker =
      ChildProcess::Start(TOKAMAK_PROGRAM, {"worker", std::string(kGoldens) + kModel, "--driver",
                                            address, "--rank", "0", "--cert", c.Certificate("both"),
                                            "--key", c.Key("both"), "--ca", c.Certificate("ours")});
  ASSERT_TRUE(worker.ok());
  Result<std::unique_ptr<Engine>> engine = Engine::Load(driver);
  ASSERT_TRUE(engine.ok()) << engine.status().ToString();
  EXPECT_EQ(Greedy(**engine).size(), 40u);
  ::kill(worker->pid(), SIGSTOP);
  const Result<std::vector<OutputChunk>> answer =
      (*engine)->Generate(MakeRequest({.temperature = 0}));
  ASSERT_TRUE(answer.ok());
  EXPECT_THAT((*answer)[0].error.ToString(),
              HasSubstr("the connection to the worker of rank 0 has ended"));
  while ((*engine)->stats().restarting.empty()) std::this_thread::sleep_for(milliseconds(10));
  engine->reset();
}

TEST_F(JoiningWorkers, TheFolderIsOfOneDriverAndOneUser) {
  EngineOptions driver = Driver(socket());
  driver.worker_join_seconds = 30;
  const auto error = [&] { return Engine::Load(driver).status().ToString(); };
  ::chmod(folder_.c_str(), 0750);
  EXPECT_THAT(error(), HasSubstr(folder_ + ": others may enter this folder; chmod 700 it"));
  ::chmod(folder_.c_str(), 0700);
  std::ofstream(folder_ + "/memory") << "left by a driver that was killed";
  auto loading = LoadMeanwhile(driver);
  while (!std::filesystem::exists(folder_ + "/socket"))
    std::this_thread::sleep_for(milliseconds(5));
  EXPECT_THAT(error(), HasSubstr(folder_ + ": another driver uses this folder"));
  // Nor does a worker believe what others may write.
  ::chmod(folder_.c_str(), 0755);
  std::future<Status> first = Run(Worker(socket(), 0)), second = Run(Worker(socket(), 1));
  EXPECT_THAT(loading.get().status().ToString(), HasSubstr("others may enter this folder"));
  EXPECT_FALSE(first.get().ok());
  EXPECT_FALSE(second.get().ok());
}

TEST_F(JoiningWorkers, OptionsThatDoNotFitAreNamed) {
  const auto error = [&](const std::string& address, auto spoil) {
    EngineOptions options = Driver(address);
    spoil(options);
    return Engine::Load(options).status().ToString();
  };
  EXPECT_THAT(error(socket(), [](EngineOptions& o) { o.workers = WorkerKind::kThreads; }),
              HasSubstr("worker_address: needs workers=processes"));
  EXPECT_THAT(error(socket(), [](EngineOptions& o) { o.threads = 2 * (o.data_parallel = 2); }),
              HasSubstr("data_parallel: workers that join are those of one replica"));
  EXPECT_THAT(error(socket(), [](EngineOptions& o) { o.worker_join_seconds = 0; }),
              HasSubstr("worker_join_seconds: must be in (0, 1e6], got 0"));
  EXPECT_THAT(error(socket(), [](EngineOptions& o) { o.worker_folder = "/tmp/x"; }),
              HasSubstr("worker_folder: is for HOST:PORT"));
  EXPECT_THAT(error("", [](EngineOptions& o) { o.worker_ca_file = "x"; }),
              HasSubstr("worker_ca_file: needs worker_address=HOST:PORT"));
  EXPECT_THAT(error("localhost:9", [](EngineOptions&) {}),
              HasSubstr("worker_folder: must name a folder, such as /dev/shm/NAME"));
  EXPECT_THAT(error("localhost:9", [this](EngineOptions& o) { o.worker_folder = folder_; }),
              HasSubstr("TCP needs worker_cert_file, worker_key_file and worker_ca_file"));
  EXPECT_THAT(error("nowhere", [this](EngineOptions& o) { o.worker_folder = folder_; }),
              HasSubstr("worker_address: must be unix:PATH or HOST:PORT, got \"nowhere\""));
}

}  // namespace
}  // namespace tokamak
