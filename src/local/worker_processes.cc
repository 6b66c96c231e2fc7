#include "local/worker_processes.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "base/numa.h"
#include "base/version.h"
#include "executor/ranks_agree.h"
#include "local/fingerprint.h"
#include "local/load_steps.h"
#include "ops/host/shared_memory.h"

namespace tokamak {
namespace {

using SteadyClock = std::chrono::steady_clock;

// Between looks whether a process has ended, or the engine ends.
constexpr std::chrono::milliseconds kLook{100};

SteadyClock::time_point After(double seconds) {
  return SteadyClock::now() +
         std::chrono::duration_cast<SteadyClock::duration>(std::chrono::duration<double>(seconds));
}

}  // namespace

WorkerProcesses::WorkerProcesses(const EngineOptions& options, int32_t replica, Hello expected)
    : options_(options), replica_(replica), expected_(std::move(expected)) {}

WorkerProcesses::~WorkerProcesses() { EndProcesses(); }

Result<std::unique_ptr<WorkerProcesses>> WorkerProcesses::Start(const Checkpoint& checkpoint,
                                                                const EngineOptions& options,
                                                                int32_t replica) {
  Hello expected;
  expected.version = VersionText();
  expected.model = NameOf(checkpoint);
  ASSIGN_OR_RETURN(expected.weights, CheckpointHash(checkpoint));
  std::unique_ptr<WorkerProcesses> group(
      new WorkerProcesses(options, replica, std::move(expected)));
  RETURN_IF_ERROR(group->Launch());
  group->options_.on_load_progress = nullptr;  // only the caller of Engine::Load waits for it
  return group;
}

Status WorkerProcesses::Launch() {
  const auto ranks = static_cast<size_t>(size());
  // A folder that the options name stays locked: a child that this program starts at the moment
  // could keep the lock if it were given up.
  if (!joined() || folder_ == nullptr) {
    ASSIGN_OR_RETURN(folder_, WorkerFolder::Make(options_));
  }
  if (ranks > 1) {
    RETURN_IF_ERROR(folder_->CreateMemory(SharedMemoryBytes(GroupOptions(options_))));
  }
  const TlsFiles files = {.certificate = {"worker_cert_file", options_.worker_cert_file},
                          .key = {"worker_key_file", options_.worker_key_file},
                          .authority = {"worker_ca_file", options_.worker_ca_file}};
  ASSIGN_OR_RETURN(const Endpoint endpoint,
                   MakeEndpoint("worker_address", folder_->address(), files));
  inbox_ = std::make_unique<Inbox>([this](const Incoming&) { alarm_.Ring(); });
  streams_.assign(ranks, -1);
  ASSIGN_OR_RETURN(server_, MessageServer::Listen(endpoint, inbox_.get()));
  if (joined()) {
    RETURN_IF_ERROR(AwaitJoins());
  } else {
    RETURN_IF_ERROR(StartProcesses(folder_->address()));
    RETURN_IF_ERROR(AwaitHellos());
  }
  server_->RefuseNew(EncodeToWorker(Unavailable("the driver has workers for all ranks")));
  for (int32_t rank = 0; rank < size(); ++rank) Send(rank, EncodeToWorker(LoadOf(rank)));
  ASSIGN_OR_RETURN(loaded_, AwaitAll<Loaded>());
  folder_->Close();
  // Ranks wait for each other's first exchange for a minute only, so all must have loaded.
  for (int32_t rank = 0; rank < size(); ++rank) Send(rank, EncodeToWorker(ConnectRank{}));
  ASSIGN_OR_RETURN(connected_, AwaitAll<Connected>());
  return Status();
}

std::vector<int64_t> WorkerProcesses::FreeDeviceMemory() const {
  std::vector<int64_t> free_bytes;
  if (options_.device == "cpu") return free_bytes;
  for (const Connected& rank : connected_) free_bytes.push_back(rank.free_device_bytes);
  return free_bytes;
}

LoadRank WorkerProcesses::LoadOf(int32_t rank) const {
  LoadRank load = {.options = options_};
  if (options_.device == "cpu") return load;
  const int32_t before = replica_ * size() + rank;  // ranks, which have GPUs too
  load.gpu = ParseDevice(options_.device)->index + before;
  load.num_gpus = NumRanks(options_) - before;
  return load;
}

Status WorkerProcesses::StartProcesses(const std::string& address) {
  const std::vector<CpuList> nodes = ReadNumaNodes();
  for (int32_t rank = 0; rank < size(); ++rank) {
    const OnCpus of_worker(CpusOfRank(nodes, replica_ * size() + rank, NumRanks(options_)));
    std::vector<std::string> arguments = {
        "worker",          options_.model,       "--dummy-dtype", options_.dummy_dtype,
        "--rank",          std::to_string(rank), "--driver",      address,
        "--ignore-signals"};
    if (!options_.mmproj.empty()) arguments.insert(arguments.end(), {"--mmproj", options_.mmproj});
    ASSIGN_OR_RETURN(ChildProcess process, ChildProcess::Start(options_.worker_program, arguments));
    processes_.push_back(std::move(process));
  }
  return Status();
}

Status WorkerProcesses::CheckHello(const Hello& hello) const {
  if (!hello.has_known_version()) {
    return Unimplemented("a worker speaks protocol {}.{}, but this driver {}.{}", hello.protocol,
                         hello.step_version, kWorkerProtocol, kStepVersion);
  }
  if (hello.rank < 0 || hello.rank >= size()) {
    return InvalidArgument("a worker has the rank {}, but there are {} ranks", hello.rank, size());
  }
  if (streams_[static_cast<size_t>(hello.rank)] >= 0) {
    return InvalidArgument("two workers have the rank {}", hello.rank);
  }
  if (hello.version != expected_.version) {
    return Unimplemented("the worker of rank {} is {}, but this driver is {}", hello.rank,
                         hello.version, expected_.version);
  }
  if (hello.model != expected_.model) {
    return InvalidArgument("the worker of rank {} has the model {}, but this driver has {}",
                           hello.rank, hello.model, expected_.model);
  }
  if (hello.weights != expected_.weights) {
    return InvalidArgument("the worker of rank {} has other weights of {} than this driver",
                           hello.rank, hello.model);
  }
  return Status();
}

Status WorkerProcesses::Welcome(const Incoming& incoming) {
  if (!incoming.message.ok()) {
    const auto found = std::ranges::find(streams_, incoming.stream);
    if (found == streams_.end()) return Status();  // it said nothing
    return Lost(static_cast<int32_t>(found - streams_.begin()));
  }
  Status status;
  ASSIGN_OR_RETURN(const ToDriver message, DecodeToDriver(*incoming.message, {}));
  if (const auto* const hello = std::get_if<Hello>(&message)) {
    status = CheckHello(*hello);
    if (status.ok()) streams_[static_cast<size_t>(hello->rank)] = incoming.stream;
  } else if (const auto* const error = std::get_if<Status>(&message)) {
    return error->WithContext("a worker");
  } else {
    status = Internal("a worker sent {} before a greeting", Describe(message));
  }
  if (!status.ok()) server_->Send(incoming.stream, EncodeToWorker(status));
  return status;
}

Status WorkerProcesses::AwaitHellos() {
  const SteadyClock::time_point deadline = After(options_.worker_load_timeout_seconds);
  for (;;) {
    const auto missing = std::ranges::find(streams_, -1);
    if (missing == streams_.end()) return Status();
    if (const std::optional<Incoming> incoming = inbox_->Take(SteadyClock::now() + kLook)) {
      RETURN_IF_ERROR(Welcome(*incoming));
      continue;
    }
    for (size_t rank = 0; rank < streams_.size(); ++rank) {
      if (streams_[rank] >= 0) continue;
      if (const std::optional<std::string> end = processes_[rank].End()) {
        return Unavailable("the worker of rank {} ended before it connected: {}", rank, *end);
      }
    }
    if (SteadyClock::now() < deadline) continue;
    return Unavailable("the worker of rank {} has not connected within {:.1f} s",
                       missing - streams_.begin(), options_.worker_load_timeout_seconds);
  }
}

Status WorkerProcesses::AwaitJoins() {
  const SteadyClock::time_point deadline = After(options_.worker_join_seconds);
  const auto missing = [this] {
    std::string ranks;
    for (size_t rank = 0; rank < streams_.size(); ++rank) {
      if (streams_[rank] < 0) ranks += fmt::format("{}{}", ranks.empty() ? "" : ", ", rank);
    }
    return ranks;
  };
  LogWarning("waiting at {} for the workers of these ranks: {}", options_.worker_address,
             missing());
  int32_t refused = -1;
  while (!missing().empty()) {
    const SteadyClock::time_point now = SteadyClock::now();
    const std::optional<Incoming> incoming = inbox_->Take(std::min(deadline, now + kLook));
    if (ending_) return Unavailable("the engine ends");
    if (!incoming && now < deadline) continue;
    if (!incoming) {
      return Unavailable("within {} s no worker has joined at {} for these ranks: {}",
                         options_.worker_join_seconds, options_.worker_address, missing());
    }
    if (!incoming->message.ok()) std::ranges::replace(streams_, incoming->stream, -1);
    if (incoming->stream == refused) continue;  // says that it has been refused
    const Status status = Welcome(*incoming);
    if (status.ok()) continue;
    LogWarning("a worker cannot join: {}", status.message());
    refused = incoming->stream;
  }
  return Status();
}

template <typename Answer>
Result<std::vector<Answer>> WorkerProcesses::AwaitAll() {
  std::vector<std::optional<Answer>> answers(streams_.size());
  std::vector<double> fractions(streams_.size(), 0);
  for (;;) {
    const auto missing = std::ranges::find_if(answers, [](const auto& answer) { return !answer; });
    if (missing == answers.end()) break;
    ASSIGN_OR_RETURN(const std::optional<Message> from,
                     Receive(After(options_.worker_load_timeout_seconds)));
    if (!from) {
      return Unavailable("the worker of rank {} has made no progress for {:.1f} s while loading",
                         missing - answers.begin(), options_.worker_load_timeout_seconds);
    }
    ASSIGN_OR_RETURN(ToDriver message, DecodeToDriver(from->bytes, {}));
    const auto rank = static_cast<size_t>(from->rank);
    if (const auto* const loading = std::get_if<Loading>(&message)) {
      fractions[rank] = std::clamp(loading->fraction, 0.0, 1.0);
      double all = 0;
      for (const double fraction : fractions) all += fraction / static_cast<double>(size());
      if (options_.on_load_progress) options_.on_load_progress(all);
    } else if (auto* const answer = std::get_if<Answer>(&message)) {
      answers[rank] = std::move(*answer);
    } else if (const auto* const error = std::get_if<Status>(&message)) {
      return error->WithContext(fmt::format("rank {}", from->rank));
    } else {
      return Internal("rank {} sent {} while it was starting", from->rank, Describe(message));
    }
  }
  std::vector<Answer> all;
  for (std::optional<Answer>& answer : answers) all.push_back(*std::move(answer));
  return all;
}

Result<ExecutorLimits> WorkerProcesses::Begin(const std::vector<RunnerMemory>& memory) {
  memory_ = memory;
  for (size_t rank = 0; rank < memory.size(); ++rank) {
    Send(static_cast<int32_t>(rank),
         EncodeToWorker(StartRank{memory[rank].arena_bytes, memory[rank].num_device_blocks,
                                  memory[rank].num_host_blocks}));
  }
  ASSIGN_OR_RETURN(const std::vector<ExecutorLimits> limits, AwaitAll<ExecutorLimits>());
  ASSIGN_OR_RETURN(limits_, JoinLimits(limits));
  return limits_;
}

void WorkerProcesses::Send(int32_t rank, std::string message) {
  const int32_t stream = streams_[static_cast<size_t>(rank)];
  if (stream >= 0) server_->Send(stream, std::move(message));
}

Result<std::optional<WorkerGroup::Message>> WorkerProcesses::Receive(
    SteadyClock::time_point deadline) {
  for (;;) {
    std::optional<Incoming> incoming = inbox_->Take(deadline);
    if (!incoming) return std::optional<Message>();
    const auto found = std::find(streams_.begin(), streams_.end(), incoming->stream);
    if (found == streams_.end()) continue;  // no worker of ours
    const auto rank = static_cast<int32_t>(found - streams_.begin());
    if (!incoming->message.ok()) return Lost(rank);
    return std::optional<Message>({rank, *std::move(incoming->message)});
  }
}

Status WorkerProcesses::Lost(int32_t rank) {
  if (joined()) return Unavailable("the connection to the worker of rank {} has ended", rank);
  ChildProcess& process = processes_[static_cast<size_t>(rank)];
  std::optional<std::string> end = process.End();
  // The connection ends a little before the process does.
  for (int i = 0; !end && i < 100; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    end = process.End();
  }
  return Unavailable("the worker process of rank {} (pid {}) {}", rank, process.pid(),
                     end ? "has ended: " + *end : "has closed its connection");
}

void WorkerProcesses::EndProcesses() {
  for (ChildProcess& process : processes_) process.Kill();
  processes_.clear();
  server_.reset();
}

void WorkerProcesses::OnLost(const std::function<void()>& wake) {
  ending_ = !wake;
  alarm_.Set(wake);
}

Status WorkerProcesses::Restart() {
  EndProcesses();
  // The engine relies on what the first workers had.
  const std::vector<Loaded> loaded = loaded_;
  const ExecutorLimits limits = limits_;
  Status status = Launch();
  const bool other_backends = status.ok() && loaded_ != loaded;
  if (status.ok() && !other_backends) status = Begin(memory_).status();
  const bool other_limits = status.ok() && limits_ != limits;
  loaded_ = loaded;
  limits_ = limits;
  if (!other_backends && !other_limits) return status;
  return Internal("the workers have other {} since they started again",
                  other_backends ? "backends" : "limits");
}

}  // namespace tokamak
