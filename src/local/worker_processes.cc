#include "local/worker_processes.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "base/version.h"
#include "executor/ranks_agree.h"
#include "local/fingerprint.h"
#include "local/load_steps.h"
#include "local/worker.h"
#include "ops/host/shared_memory.h"

namespace tokamak {
namespace {

using SteadyClock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kLook{100};  // between looks whether a process has ended

// A new folder that only this user may enter, for a socket and the memory of the ranks. Files in
// /dev/shm are memory.
class PrivateFolder {
 public:
  static Result<PrivateFolder> Make() {
    std::string error;
    for (const char* parent : {"/dev/shm", "/tmp"}) {
      std::string path = fmt::format("{}/tokamak-XXXXXX", parent);
      if (::mkdtemp(path.data()) != nullptr) return PrivateFolder(std::move(path));
      error = fmt::format("{}: {}", path, std::strerror(errno));
    }
    return Unavailable("no folder for the workers' socket: {}", error);
  }
  PrivateFolder(PrivateFolder&& other) noexcept : path_(std::exchange(other.path_, "")) {}
  PrivateFolder& operator=(PrivateFolder&&) = delete;
  ~PrivateFolder() {
    if (path_.empty()) return;
    ::unlink(SharedMemoryPath(address()).c_str());
    ::unlink(fmt::format("{}/socket", path_).c_str());
    ::rmdir(path_.c_str());
  }
  std::string address() const { return fmt::format("unix:{}/socket", path_); }

 private:
  explicit PrivateFolder(std::string path) : path_(std::move(path)) {}
  std::string path_;
};

SteadyClock::time_point After(double seconds) {
  return SteadyClock::now() +
         std::chrono::duration_cast<SteadyClock::duration>(std::chrono::duration<double>(seconds));
}

}  // namespace

WorkerProcesses::WorkerProcesses(const EngineOptions& options, Hello expected)
    : options_(options), expected_(std::move(expected)) {}

WorkerProcesses::~WorkerProcesses() { EndProcesses(); }

Result<std::unique_ptr<WorkerProcesses>> WorkerProcesses::Start(const Checkpoint& checkpoint,
                                                                const EngineOptions& options) {
  Hello expected;
  expected.version = VersionText();
  expected.model = NameOf(checkpoint);
  ASSIGN_OR_RETURN(expected.weights, CheckpointHash(checkpoint));
  std::unique_ptr<WorkerProcesses> group(new WorkerProcesses(options, std::move(expected)));
  RETURN_IF_ERROR(group->Launch());
  group->options_.on_load_progress = nullptr;  // only the caller of Engine::Load waits for it
  return group;
}

Status WorkerProcesses::Launch() {
  const auto ranks = static_cast<size_t>(size());
  ASSIGN_OR_RETURN(const PrivateFolder folder, PrivateFolder::Make());
  RETURN_IF_ERROR(CreateSharedMemory(SharedMemoryPath(folder.address()),
                                     SharedMemoryBytes(GroupOptions(options_))));
  inbox_ = std::make_unique<Inbox>([this](const Incoming&) { alarm_.Ring(); });
  streams_.assign(ranks, -1);
  ASSIGN_OR_RETURN(server_, MessageServer::Listen({folder.address()}, inbox_.get()));
  RETURN_IF_ERROR(StartProcesses(folder.address()));
  RETURN_IF_ERROR(AwaitHellos());
  for (int32_t rank = 0; rank < size(); ++rank) Send(rank, EncodeToWorker(LoadRank{options_}));
  ASSIGN_OR_RETURN(loaded_, AwaitAll<Loaded>());
  return Status();
}

Status WorkerProcesses::StartProcesses(const std::string& address) {
  for (int32_t rank = 0; rank < size(); ++rank) {
    std::vector<std::string> arguments = {
        "worker", options_.model,       "--dummy-dtype", options_.dummy_dtype,
        "--rank", std::to_string(rank), "--connect",     address};
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

void WorkerProcesses::OnLost(std::function<void()> wake) { alarm_.Set(std::move(wake)); }

Status WorkerProcesses::Restart() {
  EndProcesses();
  RETURN_IF_ERROR(Launch());
  const ExecutorLimits before = limits_;
  RETURN_IF_ERROR(Begin(memory_).status());
  if (limits_ == before) return Status();
  return Internal("the workers have other limits since they started again");
}

}  // namespace tokamak
