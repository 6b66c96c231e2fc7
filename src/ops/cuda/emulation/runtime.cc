// The runtime's API. Streams are queues that advance only when the host asks whether or until work
// is done: one operation at a time, from a stream that is drawn. So work is done as late as CUDA
// allows, and code that does not wait for it finds the old state.
#include <algorithm>
#include <chrono>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "ops/cuda/emulation/capability.h"
#include "ops/cuda/emulation/choice.h"
#include "ops/cuda/emulation/machine.h"
#include "ops/cuda/emulation/stream.h"

namespace emulation = tokamak::cuda::emulation;
using emulation::Operation;
using emulation::Recipe;
using tokamak::MutexLock;

struct EmulatedGraph {
  std::vector<Recipe> recipes;
  bool valid = true;
};
struct EmulatedStream {
  int device = 0;
  std::deque<Operation> queue;
  std::unique_ptr<EmulatedGraph> capture;
  std::thread::id capturer;
  bool closed = false;  // destroyed once the queue is empty
};
struct EmulatedEvent {
  struct Reached {  // outlives the event, as streams may wait for it
    uint64_t number = 0;
    std::chrono::steady_clock::time_point time;
  };
  uint64_t recorded = 0;
  const std::shared_ptr<Reached> reached = std::make_shared<Reached>();
};

namespace {

constexpr int kDevices = 4;
constexpr int kMultiprocessors = 6;
constexpr unsigned kMaxCluster = 8;
constexpr size_t kMemoryBytes = size_t{2} << 30;  // of a device
constexpr size_t kPoisonedBytes = 16 << 20;       // filled with 0xff; more would take long

struct Allocation {
  size_t bytes = 0;
  int device = 0;
};
using Allocations = std::map<const std::byte*, Allocation>;

tokamak::Mutex mutex;
EmulatedStream default_stream GUARDED_BY(mutex);  // no other stream waits for it
std::set<EmulatedStream*> streams GUARDED_BY(mutex) = {&default_stream};
Allocations device_memory GUARDED_BY(mutex);
Allocations pinned_memory GUARDED_BY(mutex);
size_t used_bytes[kDevices] GUARDED_BY(mutex) = {};
std::map<const void*, size_t> allowed_shared GUARDED_BY(mutex);  // of kernels that asked for more
const emulation::Grid* active GUARDED_BY(mutex) = nullptr;       // the kernel that has begun
thread_local cudaError_t last_error = cudaSuccess;
thread_local int current_device = 0;

cudaError_t Report(cudaError_t error) {
  if (error != cudaSuccess) last_error = error;
  return error;
}

// Does one operation of a stream that can go on. Returns false if no stream can.
bool Advance() REQUIRES(mutex) {
  std::vector<EmulatedStream*> busy;
  for (EmulatedStream* stream : streams) {
    if (!stream->queue.empty()) busy.push_back(stream);
  }
  while (!busy.empty()) {
    std::swap(busy[emulation::Choose(busy.size())], busy.back());
    EmulatedStream* const stream = busy.back();
    busy.pop_back();
    if (!stream->queue.front().go_on()) continue;
    stream->queue.pop_front();
    if (stream->closed && stream->queue.empty()) {
      streams.erase(stream);
      delete stream;
    }
    return true;
  }
  return false;
}

// If no stream can go on, lets other threads add what streams wait for: exchanges among devices.
void AdvanceOrYield() REQUIRES(mutex) {
  if (Advance()) return;
  mutex.Unlock();
  std::this_thread::yield();
  mutex.Lock();
}

void Drain(const EmulatedStream& stream) REQUIRES(mutex) {
  while (!stream.queue.empty()) AdvanceOrYield();
}

// Drains all streams of a device.
void DrainDevice(int device) REQUIRES(mutex) {
  for (bool busy = true; busy;) {
    busy = !default_stream.queue.empty();
    for (const EmulatedStream* stream : streams) {
      busy = busy || (stream->device == device && !stream->queue.empty());
    }
    if (busy) AdvanceOrYield();
  }
}

EmulatedStream& At(cudaStream_t stream) REQUIRES(mutex) {
  return stream != nullptr ? *stream : default_stream;
}

void Add(cudaStream_t to, Recipe recipe) REQUIRES(mutex) {
  EmulatedStream& stream = At(to);
  if (stream.capture != nullptr) {
    stream.capture->recipes.push_back(std::move(recipe));
    return;
  }
  Operation operation = recipe();
  if (operation.kernel != nullptr && !stream.queue.empty() &&
      stream.queue.back().kernel != nullptr) {
    stream.queue.back().kernel->SetKernelBehind(*operation.kernel);
  }
  stream.queue.push_back(std::move(operation));
}

// The recipe of an operation that is done at once and is always the same.
template <typename Work>
Recipe Always(Work work) {
  return [work] {
    return Operation{.go_on = [work] {
      work();
      return true;
    }};
  };
}

// Returns whether this thread is capturing a stream, during which the call is forbidden. If so,
// also spoils the capture, as CUDA does.
bool IsForbidden() REQUIRES(mutex) {
  bool forbidden = false;
  for (EmulatedStream* stream : streams) {
    if (stream->capture == nullptr || stream->capturer != std::this_thread::get_id()) continue;
    stream->capture->valid = false;
    forbidden = true;
  }
  return forbidden;
}

// Returns whether [memory, memory + bytes) lies in one of the allocations.
bool IsWithin(const Allocations& allocations, const void* memory, size_t bytes) {
  const auto* const first = static_cast<const std::byte*>(memory);
  auto after = allocations.upper_bound(first);
  if (after == allocations.begin()) return false;
  --after;
  return first + bytes <= after->first + after->second.bytes;
}

cudaError_t Allocate(void** memory, size_t bytes, Allocations& allocations) REQUIRES(mutex) {
  if (IsForbidden()) return Report(cudaErrorStreamCaptureUnsupported);
  // Allocates exactly this size, so that the address sanitizer sees its end.
  size_t& used = used_bytes[current_device];
  if (bytes > kMemoryBytes - used || ::posix_memalign(memory, 256, bytes) != 0) {
    return Report(cudaErrorMemoryAllocation);
  }
  std::memset(*memory, 0xff, std::min(bytes, kPoisonedBytes));  // NaN
  allocations[static_cast<std::byte*>(*memory)] = {.bytes = bytes, .device = current_device};
  used += bytes;
  return cudaSuccess;
}

cudaError_t Release(void* memory, Allocations& allocations) REQUIRES(mutex) {
  if (memory == nullptr) return cudaSuccess;
  if (IsForbidden()) return Report(cudaErrorStreamCaptureUnsupported);
  const auto found = allocations.find(static_cast<std::byte*>(memory));
  if (found == allocations.end()) return Report(cudaErrorInvalidValue);
  DrainDevice(found->second.device);
  used_bytes[found->second.device] -= found->second.bytes;
  allocations.erase(found);
  std::free(memory);
  return cudaSuccess;
}

cudaError_t CheckLaunch(const emulation::KernelLaunch& launch) REQUIRES(mutex) {
  const uint64_t threads = uint64_t{launch.block.x} * launch.block.y * launch.block.z;
  const dim3& grid = launch.grid;
  if (threads == 0 || threads > emulation::kMaxThreads || launch.block.z > 64 || grid.x == 0 ||
      grid.x > INT32_MAX || grid.y == 0 || grid.y > 65535 || grid.z == 0 || grid.z > 65535) {
    return cudaErrorInvalidConfiguration;
  }
  const auto allowed = allowed_shared.find(launch.kernel);
  const size_t limit =
      allowed == allowed_shared.end() ? emulation::kDefaultShared : allowed->second;
  if (launch.shared_bytes > limit) return cudaErrorInvalidValue;
  if (launch.cluster == 0 || launch.cluster > kMaxCluster || grid.x % launch.cluster != 0) {
    return cudaErrorInvalidConfiguration;
  }
  if ((launch.dependent || launch.cluster > 1) && emulation::kCapability < 90) {
    return cudaErrorInvalidConfiguration;
  }
  const uint64_t ctas = uint64_t{grid.x} * grid.y * grid.z;
  return launch.cooperative && ctas > kMultiprocessors ? cudaErrorCooperativeLaunchTooLarge
                                                       : cudaSuccess;
}

}  // namespace

namespace tokamak::cuda::emulation {

// Kernels of different streams run one after the other: while a kernel sleeps, no other stream's
// kernel begins.
cudaError_t Enqueue(const cudaLaunchConfig_t& config, const void* kernel,
                    std::function<void()> thread) {
  KernelLaunch launch = {.kernel = kernel,
                         .grid = config.gridDim,
                         .block = config.blockDim,
                         .shared_bytes = config.dynamicSmemBytes,
                         .thread = std::move(thread)};
  for (unsigned i = 0; i < config.numAttrs; ++i) {
    const auto& [id, value] = config.attrs[i];
    if (id == cudaLaunchAttributeCooperative) launch.cooperative = value.cooperative != 0;
    if (id == cudaLaunchAttributeProgrammaticStreamSerialization) {
      launch.dependent = value.programmaticStreamSerializationAllowed != 0;
    }
    if (id == cudaLaunchAttributeClusterDimension) {
      launch.cluster = value.clusterDim.x * value.clusterDim.y * value.clusterDim.z;
    }
  }
  MutexLock lock(mutex);
  if (config.stream != nullptr && config.stream->device != current_device) {
    return Report(cudaErrorInvalidResourceHandle);
  }
  if (const cudaError_t error = CheckLaunch(launch); error != cudaSuccess) return Report(error);
  Add(config.stream, [launch = std::move(launch)]() -> Operation {
    auto grid = std::make_shared<Grid>(launch);
    const auto run = [grid]() NO_THREAD_SAFETY_ANALYSIS {
      if (active != nullptr && active != grid.get()) return false;
      active = grid.get();
      if (!grid->Run()) return false;
      active = grid->OverlappingKernel();
      return true;
    };
    return {.go_on = run, .kernel = std::move(grid)};
  });
  return cudaSuccess;
}

bool AdvanceOne() {
  MutexLock lock(mutex);
  return Advance();
}

void EnqueueOperation(Recipe recipe, cudaStream_t stream) {
  MutexLock lock(mutex);
  Add(stream, std::move(recipe));
}

void EnqueueWork(std::function<void()> work, cudaStream_t stream) {
  MutexLock lock(mutex);
  Add(stream, Always(std::move(work)));
}

// Called while a kernel runs, which is while its OS thread holds the lock.
bool IsGlobal(const void* memory) NO_THREAD_SAFETY_ANALYSIS {
  return IsWithin(device_memory, memory, 1) || IsWithin(pinned_memory, memory, 1);
}

}  // namespace tokamak::cuda::emulation

cudaError_t cudaGetLastError() { return std::exchange(last_error, cudaSuccess); }

const char* cudaGetErrorName(cudaError_t error) {
  switch (error) {
    case cudaSuccess:
      return "cudaSuccess";
    case cudaErrorInvalidValue:
      return "cudaErrorInvalidValue";
    case cudaErrorMemoryAllocation:
      return "cudaErrorMemoryAllocation";
    case cudaErrorInvalidConfiguration:
      return "cudaErrorInvalidConfiguration";
    case cudaErrorInvalidDevice:
      return "cudaErrorInvalidDevice";
    case cudaErrorNoKernelImageForDevice:
      return "cudaErrorNoKernelImageForDevice";
    case cudaErrorSymbolNotFound:
      return "cudaErrorSymbolNotFound";
    case cudaErrorInvalidResourceHandle:
      return "cudaErrorInvalidResourceHandle";
    case cudaErrorIllegalState:
      return "cudaErrorIllegalState";
    case cudaErrorNotReady:
      return "cudaErrorNotReady";
    case cudaErrorCooperativeLaunchTooLarge:
      return "cudaErrorCooperativeLaunchTooLarge";
    case cudaErrorStreamCaptureUnsupported:
      return "cudaErrorStreamCaptureUnsupported";
    case cudaErrorStreamCaptureInvalidated:
      return "cudaErrorStreamCaptureInvalidated";
  }
  return "unrecognized error code";
}

const char* cudaGetErrorString(cudaError_t error) {
  return error == cudaErrorMemoryAllocation ? "out of memory" : cudaGetErrorName(error);
}

cudaError_t cudaGetDeviceCount(int* count) {
  *count = kDevices;
  return cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int* version) {
  *version = 13000;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int device) {
  if (device < 0 || device >= kDevices) return Report(cudaErrorInvalidDevice);
  current_device = device;
  return cudaSuccess;
}

cudaError_t cudaGetDevice(int* device) {
  *device = current_device;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
  switch (attribute) {
    case cudaDevAttrMultiProcessorCount:
      *value = kMultiprocessors;
      break;
    case cudaDevAttrL2CacheSize:
      *value = 16 << 10;
      break;
    case cudaDevAttrComputeCapabilityMajor:
      *value = emulation::kCapability / 10;
      break;
    case cudaDevAttrComputeCapabilityMinor:
      *value = emulation::kCapability % 10;
      break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
      *value = static_cast<int>(emulation::MaxShared(emulation::kCapability));
      break;
  }
  return cudaSuccess;
}

cudaError_t cudaDeviceSynchronize() {
  MutexLock lock(mutex);
  if (IsForbidden()) return Report(cudaErrorStreamCaptureUnsupported);
  DrainDevice(current_device);
  return cudaSuccess;
}

// A GPU's machine code does not run here.
cudaError_t cudaLibraryLoadData(cudaLibrary_t* library, const void* code, cudaJitOption*, void**,
                                unsigned, cudaLibraryOption*, void**, unsigned) {
  constexpr EmulatedCubin kEmpty;
  if (std::memcmp(code, kEmpty.magic, sizeof(kEmpty.magic)) != 0) {
    return Report(cudaErrorNoKernelImageForDevice);
  }
  *library = static_cast<const EmulatedCubin*>(code);
  return cudaSuccess;
}
cudaError_t cudaLibraryGetKernel(cudaKernel_t* kernel, cudaLibrary_t library, const char* name) {
  if (std::strcmp(library->kernel, name) != 0) return Report(cudaErrorSymbolNotFound);
  *kernel = library;
  return cudaSuccess;
}
cudaError_t cudaLibraryUnload(cudaLibrary_t) { return cudaSuccess; }
cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* config, const void* kernel,
                                void** arguments) {
  return emulation::Enqueue(*config, kernel,
                            static_cast<const EmulatedCubin*>(kernel)->bind(arguments));
}

cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  MutexLock lock(mutex);
  *total = kMemoryBytes;
  *free = kMemoryBytes - used_bytes[current_device];
  return cudaSuccess;
}

cudaError_t cudaMalloc(void** memory, size_t bytes) {
  MutexLock lock(mutex);
  return Allocate(memory, bytes, device_memory);
}
cudaError_t cudaHostAlloc(void** memory, size_t bytes, unsigned) {
  MutexLock lock(mutex);
  return Allocate(memory, bytes, pinned_memory);
}
cudaError_t cudaFree(void* memory) {
  MutexLock lock(mutex);
  return Release(memory, device_memory);
}
cudaError_t cudaFreeHost(void* memory) {
  MutexLock lock(mutex);
  return Release(memory, pinned_memory);
}

// Pinned memory is read or written when the copy's turn comes. Other host memory is read at once,
// or written before the call returns.
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  MutexLock lock(mutex);
  if (IsWithin(device_memory, to, bytes) != (kind != cudaMemcpyDeviceToHost) ||
      IsWithin(device_memory, from, bytes) != (kind != cudaMemcpyHostToDevice)) {
    return Report(cudaErrorInvalidValue);
  }
  const bool pageable = kind != cudaMemcpyDeviceToDevice &&
                        !IsWithin(pinned_memory, kind == cudaMemcpyHostToDevice ? from : to, bytes);
  if (pageable && At(stream).capture != nullptr) return Report(cudaErrorStreamCaptureUnsupported);
  if (pageable && kind == cudaMemcpyHostToDevice) {
    const auto* const first = static_cast<const std::byte*>(from);
    const auto staged = std::make_shared<std::vector<std::byte>>(first, first + bytes);
    Add(stream, Always([=] { std::copy_n(staged->data(), bytes, static_cast<std::byte*>(to)); }));
    return cudaSuccess;
  }
  Add(stream, Always([=] {
        // Unlike memcpy, copy_n takes null pointers if there is nothing to copy.
        std::copy_n(static_cast<const std::byte*>(from), bytes, static_cast<std::byte*>(to));
      }));
  if (pageable) Drain(At(stream));
  return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void* memory, int value, size_t bytes, cudaStream_t stream) {
  MutexLock lock(mutex);
  if (!IsWithin(device_memory, memory, bytes)) return Report(cudaErrorInvalidValue);
  Add(stream, Always([=] { std::memset(memory, value, bytes); }));
  return cudaSuccess;
}

cudaError_t cudaMemset(void* memory, int value, size_t bytes) {
  return cudaMemsetAsync(memory, value, bytes, nullptr);
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  MutexLock lock(mutex);
  *stream = *streams.insert(new EmulatedStream).first;
  (*stream)->device = current_device;
  return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  MutexLock lock(mutex);
  stream->closed = true;
  if (!stream->queue.empty()) return cudaSuccess;
  streams.erase(stream);
  delete stream;
  return cudaSuccess;
}

cudaError_t cudaStreamQuery(cudaStream_t stream) {
  MutexLock lock(mutex);
  if (stream->capture != nullptr) return Report(cudaErrorStreamCaptureUnsupported);
  if (!stream->queue.empty()) Advance();
  return stream->queue.empty() ? cudaSuccess : cudaErrorNotReady;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  MutexLock lock(mutex);
  if (stream->capture != nullptr) return Report(cudaErrorStreamCaptureUnsupported);
  Drain(*stream);
  return cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  MutexLock lock(mutex);
  Add(stream, [reached = event->reached, number = event->recorded]() -> Operation {
    return {.go_on = [=] { return reached->number >= number; }};
  });
  return cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  MutexLock lock(mutex);
  if (stream->capture != nullptr) return Report(cudaErrorIllegalState);
  stream->capture = std::make_unique<EmulatedGraph>();
  stream->capturer = std::this_thread::get_id();
  return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  MutexLock lock(mutex);
  *graph = nullptr;
  if (stream->capture == nullptr) return Report(cudaErrorIllegalState);
  const std::unique_ptr<EmulatedGraph> captured = std::move(stream->capture);
  if (!captured->valid) return Report(cudaErrorStreamCaptureInvalidated);
  *graph = new EmulatedGraph(*captured);
  return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* instance, cudaGraph_t graph, unsigned long long) {
  *instance = new EmulatedGraph(*graph);
  return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete graph;
  return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t instance) {
  delete instance;
  return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t instance, cudaStream_t stream) {
  MutexLock lock(mutex);
  std::deque<Operation>& queue = At(stream).queue;
  // A graph's kernels may overlap with each other, but not with kernels outside of the graph.
  const auto bound = [&] {
    if (!queue.empty()) queue.back().kernel = nullptr;
  };
  bound();
  for (const Recipe& recipe : instance->recipes) Add(stream, recipe);
  bound();
  return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  *event = new EmulatedEvent;
  return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  MutexLock lock(mutex);
  if (stream->capture != nullptr) return Report(cudaErrorStreamCaptureUnsupported);
  Add(stream, Always([reached = event->reached, number = ++event->recorded] {
        *reached = {.number = number, .time = std::chrono::steady_clock::now()};
      }));
  return cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  MutexLock lock(mutex);
  const uint64_t& reached = event->reached->number;
  if (reached < event->recorded) Advance();
  return reached == event->recorded ? cudaSuccess : cudaErrorNotReady;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  MutexLock lock(mutex);
  while (event->reached->number < event->recorded) AdvanceOrYield();
  return cudaSuccess;
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t from, cudaEvent_t to) {
  MutexLock lock(mutex);
  *milliseconds =
      std::chrono::duration<float, std::milli>(to->reached->time - from->reached->time).count();
  return cudaSuccess;
}

cudaError_t EmulatedFuncSetAttribute(const void* kernel, cudaFuncAttribute, int value) {
  MutexLock lock(mutex);
  if (value < 0 || static_cast<size_t>(value) > emulation::MaxShared(emulation::kCapability)) {
    return Report(cudaErrorInvalidValue);
  }
  allowed_shared[kernel] = static_cast<size_t>(value);
  return cudaSuccess;
}
