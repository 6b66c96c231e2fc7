#include "local/worker.h"

#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/version.h"
#include "executor/in_process.h"
#include "executor/measured.h"
#include "executor/serve_rank.h"
#include "local/fingerprint.h"
#include "local/load_ranks.h"
#include "local/load_steps.h"
#include "local/memory_estimate.h"
#include "local/worker_folder.h"
#include "rpc/worker_messages.h"
#include "weights/checkpoint.h"

namespace tokamak {
namespace {

using SteadyClock = std::chrono::steady_clock;

constexpr std::chrono::seconds kConnectSeconds{60};

class Worker {
 public:
  Worker(const WorkerOptions& options, MessageClient& client, Inbox& inbox,
         std::atomic<bool>& running)
      : options_(options), client_(client), inbox_(inbox), running_(running) {}

  Status Run();

 private:
  void Send(const ToDriver& message) { client_.Send(EncodeToDriver(message)); }
  // Takes the next message, which must be a `Message`, or returns the driver's refusal.
  template <typename Message>
  Result<Message> Take();
  Status Greet(const Checkpoint& checkpoint);
  Result<LoadedRank> Load(const Checkpoint& checkpoint, const LoadRank& load);
  // The rank's backend. On a GPU, checks that the model fits.
  Result<std::unique_ptr<Ops>> MakeBackend(const Checkpoint& checkpoint, const LoadRank& load,
                                           const std::shared_ptr<Communicator>& communicator);

  const WorkerOptions& options_;
  MessageClient& client_;
  Inbox& inbox_;
  std::atomic<bool>& running_;  // does not look into the inbox all the time
};

template <typename Message>
Result<Message> Worker::Take() {
  std::optional<Incoming> incoming = inbox_.Take(SteadyClock::time_point::max());
  RETURN_IF_ERROR(incoming->message.status());
  ASSIGN_OR_RETURN(ToWorker message, DecodeToWorker(*incoming->message, {}));
  if (const auto* const refusal = std::get_if<Status>(&message)) return *refusal;
  if (auto* const expected = std::get_if<Message>(&message)) return std::move(*expected);
  return Internal("the driver sent a message of type {} before rank {} was ready for it",
                  message.index(), options_.rank);
}

Status Worker::Greet(const Checkpoint& checkpoint) {
  Hello hello;
  hello.version = VersionText();
  hello.model = NameOf(checkpoint);
  ASSIGN_OR_RETURN(hello.weights, CheckpointHash(checkpoint));
  hello.rank = options_.rank;
  Send(hello);
  return Status();
}

Result<std::unique_ptr<Ops>> Worker::MakeBackend(
    const Checkpoint& checkpoint, const LoadRank& load,
    const std::shared_ptr<Communicator>& communicator) {
  const EngineOptions& options = load.options;
  if (load.num_gpus == 0) return MakeRankOps(options, options_.rank, communicator);
  Result<std::unique_ptr<Ops>> ops =
      MakeGpuOps(options, load.gpu, load.num_gpus, ThreadsPerRank(options), communicator);
  if (!ops.ok()) return ops.status().WithContext("device=" + options.device);
  RETURN_IF_ERROR(CheckFitsOnDevice(checkpoint, options, Task::kGenerate,
                                    (*ops)->FreeDeviceMemory().value_or(0),
                                    CountedGpu(**ops, options.precise)));
  return ops;
}

Result<LoadedRank> Worker::Load(const Checkpoint& checkpoint, const LoadRank& load) {
  EngineOptions options = load.options;
  RETURN_IF_ERROR(CheckOptions(options));
  const int32_t ranks = RanksPerReplica(options);
  if (options_.rank >= ranks) {
    return InvalidArgument("rank: must be below {}, the number of ranks, got {}", ranks,
                           options_.rank);
  }
  LoadedRank rank = {.ops = nullptr, .model = nullptr};
  if (ranks > 1) {
    const SharedMemoryOptions group = GroupOptions(options);
    const std::string folder = SocketFolder(options_.driver).value_or(options_.folder);
    if (folder.empty()) {
      return InvalidArgument("folder: must name the driver's folder, because there are {} ranks",
                             ranks);
    }
    ASSIGN_OR_RETURN(Buffer memory, WorkerFolder::MapMemory(folder, SharedMemoryBytes(group)));
    rank.communicator = MakeSharedMemoryCommunicator(group, options_.rank, std::move(memory));
  }
  ASSIGN_OR_RETURN(rank.ops, MakeBackend(checkpoint, load, rank.communicator));
  Loading reported;
  SteadyClock::time_point next;
  options.on_load_progress = [&](double fraction) {
    // Once a second even if the fraction does not grow, because the size of dummy weights is not
    // known: a worker that says nothing counts as lost.
    if (fraction < reported.fraction + 0.01 && SteadyClock::now() < next) return;
    Send(reported = {fraction});
    next = SteadyClock::now() + std::chrono::seconds(1);
  };
  ASSIGN_OR_RETURN(rank.model, LoadWeights(checkpoint, *rank.ops, options, Task::kGenerate));
  const ModelSpec& spec = rank.model->spec();
  Send(Loaded{.backend = std::string(rank.ops->name()),
              .weight_bytes = spec.weight_bytes,
              .expert_bytes = spec.expert_bytes,
              .image_weight_bytes = spec.image_weight_bytes});
  return rank;
}

Status Worker::Run() {
  EngineOptions options;
  LoadedRank rank = {.ops = nullptr, .model = nullptr};
  {
    ASSIGN_OR_RETURN(const DType dummy_dtype, ParseDummyType(options_.dummy_dtype));
    ASSIGN_OR_RETURN(
        const Checkpoint checkpoint,
        OpenCheckpoint(options_.model, {.dummy_dtype = dummy_dtype, .mmproj = options_.mmproj}));
    RETURN_IF_ERROR(Greet(checkpoint));
    ASSIGN_OR_RETURN(LoadRank load, Take<LoadRank>());
    running_ = true;
    load.options.device = load.num_gpus == 0 ? "cpu" : fmt::format("cuda:{}", load.gpu);
    ASSIGN_OR_RETURN(rank, Load(checkpoint, load));
    options = std::move(load.options);
  }
  const RunnerShape shape = MakeRunnerShape(options, *rank.model);
  RETURN_IF_ERROR(Take<ConnectRank>().status());
  RETURN_IF_ERROR(TryExchanges(rank, shape));
  Send(Connected{rank.ops->FreeDeviceMemory().value_or(0)});
  ASSIGN_OR_RETURN(const StartRank start, Take<StartRank>());
  const RunnerMemory memory{start.arena_bytes, start.num_device_blocks, start.num_host_blocks};
  ASSIGN_OR_RETURN(
      std::unique_ptr<Executor> executor,
      MakeInProcessExecutor(std::move(rank.ops), std::move(rank.model), shape, memory));
  executor = MeasureRank(std::move(executor), rank.communicator);
  Send(executor->limits());
  return ServeRank(*executor, rank.communicator.get(), inbox_,
                   [this](std::string message) { client_.Send(std::move(message)); });
}

}  // namespace

Status RunWorker(const WorkerOptions& options) {
  ASSIGN_OR_RETURN(const Endpoint driver, MakeEndpoint("driver", options.driver,
                                                       {.certificate = {"cert", options.cert},
                                                        .key = {"key", options.key},
                                                        .authority = {"ca", options.ca}}));
  if (options.rank < 0) return InvalidArgument("rank: must not be negative, got {}", options.rank);
  std::atomic<bool> running{false};
  Inbox inbox([&](const Incoming&) {
    if (running && options.on_driver_gone) options.on_driver_gone();
  });
  ASSIGN_OR_RETURN(const std::unique_ptr<MessageClient> client,
                   MessageClient::Connect(driver, kConnectSeconds, &inbox));
  const Status status = Worker(options, *client, inbox, running).Run();
  running = false;
  client->Send(EncodeToDriver(status));
  client->Finish();
  return status;
}

}  // namespace tokamak
