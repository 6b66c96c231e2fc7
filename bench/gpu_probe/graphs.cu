// How long it takes to capture, instantiate, update and launch CUDA graphs, by number of nodes; and
// how a step's input reaches a graph whose addresses never change. Decides how many graphs a runner
// may keep, whether they are updated or captured anew, and whether the first node of a graph
// fetches its input from a pinned ring or the host enqueues a copy before each launch.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>

#include "bench/gpu_probe/launch.h"
#include "bench/gpu_probe/probe.h"

namespace probe {
namespace {

double NowUs() {
  return std::chrono::duration<double, std::micro>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// Microseconds since `start`, or NaN if the call that was timed failed.
double Elapsed(double start, cudaError_t status) {
  const double now = NowUs();
  if (status == cudaSuccess) return now - start;
  (void)cudaGetLastError();
  return std::nan("");
}

// Does next to nothing, so that the time of a chain is that of its edges.
__global__ void Tiny(uint32_t* data, uint32_t add) {
  if (threadIdx.x == 0) data[blockIdx.x] += add;
}

// The same, started while the kernel before it still runs.
__global__ void TinyDependent(uint32_t* data, uint32_t add) {
  asm volatile("griddepcontrol.launch_dependents;");
  asm volatile("griddepcontrol.wait;" ::: "memory");
  if (threadIdx.x == 0) data[blockIdx.x] += add;
}

// Copies slot (*counter % slots) of a ring in pinned host memory to fixed device memory. The last
// block to finish advances the counter, for the next launch of the graph.
__global__ void FetchSlot(const uint4* __restrict__ ring, uint4* out, uint32_t slot_words,
                          uint32_t slots, uint32_t* counter, uint32_t* arrived) {
  const uint32_t step = *reinterpret_cast<volatile uint32_t*>(counter);
  const uint4* slot = ring + size_t{step % slots} * slot_words;
  for (uint32_t i = blockIdx.x * blockDim.x + threadIdx.x; i < slot_words;
       i += gridDim.x * blockDim.x) {
    out[i] = __ldcv(slot + i);
  }
  __syncthreads();
  if (threadIdx.x != 0) return;
  if (atomicAdd(arrived, 1) == gridDim.x - 1) {
    *arrived = 0;
    *counter = step + 1;
  }
}

// Counts words of `data` that are not the number of this step.
__global__ void CountWrong(const uint32_t* data, uint32_t words, uint32_t* step, uint32_t* wrong) {
  for (uint32_t i = threadIdx.x; i < words; i += blockDim.x) {
    if (data[i] != *step) atomicAdd(wrong, 1);
  }
  __syncthreads();
  if (threadIdx.x == 0) ++*step;
}

// Tells the host that everything before it has run.
__global__ void Signal(volatile uint32_t* flag, uint32_t* count) {
  *flag = ++*count;
  __threadfence_system();
}

enum class Edge { kPlain, kProgrammatic };

void LaunchTiny(cudaStream_t stream, uint32_t* data, int blocks, uint32_t add, Edge edge) {
  const bool dependent = edge == Edge::kProgrammatic;
  LaunchKernel({.grid = blocks, .block = 128, .dependent = dependent}, stream,
               dependent ? TinyDependent : Tiny, data, add);
}

cudaGraph_t CaptureChain(cudaStream_t stream, uint32_t* data, int nodes, int blocks, uint32_t add,
                         Edge edge) {
  cudaGraph_t graph = nullptr;
  PROBE_CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  for (int i = 0; i < nodes; ++i) LaunchTiny(stream, data, blocks, add, edge);
  PROBE_CHECK(cudaStreamEndCapture(stream, &graph));
  return graph;
}

void Costs(Report& report, cudaStream_t stream) {
  report.Table(
      "Costs of a graph: a chain of kernels of 132 blocks (medians of 15; host times; nan: "
      "refused)",
      "nodes | edges | capture us | instantiate us | upload us | update us (captured "
      "anew) | set one node us | launch call us | run us | us per node | device KB");
  const DeviceMemory data(4096);
  PROBE_CHECK(cudaMemsetAsync(data.As(), 0, data.bytes(), stream));
  for (const Edge edge : {Edge::kPlain, Edge::kProgrammatic}) {
    for (const int nodes : {100, 200, 400}) {
      if (!report.HasSeconds(5)) return;
      std::vector<double> capture, instantiate, upload, update, set, launch, run;
      size_t free_before = 0, free_after = 0, total = 0;
      std::vector<cudaGraphExec_t> kept;
      for (int i = 0; i < 15; ++i) {
        double start = NowUs();
        cudaGraph_t graph = CaptureChain(stream, data.As<uint32_t>(), nodes, 132, 1, edge);
        capture.push_back(NowUs() - start);
        cudaGraphExec_t exec = nullptr;
        if (i == 5) PROBE_CHECK(cudaMemGetInfo(&free_before, &total));
        start = NowUs();
        PROBE_CHECK(cudaGraphInstantiate(&exec, graph, 0));
        instantiate.push_back(NowUs() - start);
        start = NowUs();
        PROBE_CHECK(cudaGraphUpload(exec, stream));
        PROBE_CHECK(cudaStreamSynchronize(stream));
        upload.push_back(NowUs() - start);
        kept.push_back(exec);

        cudaGraph_t changed = CaptureChain(stream, data.As<uint32_t>(), nodes, 131, 2, edge);
        cudaGraphExecUpdateResultInfo info{};
        start = NowUs();
        cudaError_t status = cudaGraphExecUpdate(exec, changed, &info);
        update.push_back(Elapsed(start, status));

        size_t count = 1;
        cudaGraphNode_t root = nullptr;
        PROBE_CHECK(cudaGraphGetRootNodes(changed, &root, &count));
        cudaKernelNodeParams parameters{};
        PROBE_CHECK(cudaGraphKernelNodeGetParams(root, &parameters));
        // A node of `exec` is named by the corresponding node of the graph from which it was made.
        PROBE_CHECK(cudaGraphGetRootNodes(graph, &root, &count));
        start = NowUs();
        status = cudaGraphExecKernelNodeSetParams(exec, root, &parameters);
        set.push_back(Elapsed(start, status));

        for (int warm = 0; warm < 3; ++warm) PROBE_CHECK(cudaGraphLaunch(exec, stream));
        PROBE_CHECK(cudaStreamSynchronize(stream));
        start = NowUs();
        PROBE_CHECK(cudaGraphLaunch(exec, stream));
        launch.push_back(NowUs() - start);
        PROBE_CHECK(cudaStreamSynchronize(stream));
        run.push_back(Time(
                          stream, [&] { PROBE_CHECK(cudaGraphLaunch(exec, stream)); }, 5, 4)
                          .median_us);
        PROBE_CHECK(cudaGraphDestroy(changed));
        PROBE_CHECK(cudaGraphDestroy(graph));
      }
      PROBE_CHECK(cudaMemGetInfo(&free_after, &total));
      for (cudaGraphExec_t exec : kept) PROBE_CHECK(cudaGraphExecDestroy(exec));
      report.Row("%d | %s | %.0f | %.0f | %.0f | %.0f | %.1f | %.1f | %.1f | %.2f | %.0f", nodes,
                 edge == Edge::kPlain ? "full" : "programmatic", Median(capture),
                 Median(instantiate), Median(upload), Median(update), Median(set), Median(launch),
                 Median(run), Median(run) / nodes,
                 (static_cast<double>(free_before) - static_cast<double>(free_after)) / 1024 / 10);
    }
  }
}

// Steps back to back, each with new input of `bytes`: by a copy that the host enqueues before each
// launch, or by a first node that fetches its slot of a pinned ring.
void Inputs(Report& report, cudaStream_t stream) {
  report.Table(
      "A step's input: 100 tiny kernels in a graph, 200 steps back to back (us a step; wrong: "
      "words "
      "with another step's input)",
      "KB | no input | memcpy before launch | ring, 1 block | 4 | 16 | 64 | host us memcpy + "
      "launch "
      "| host us launch alone | wrong");
  constexpr int kSteps = 200, kSlots = 256, kNodes = 100;
  for (const uint32_t bytes : {1024U, 4096U, 16384U, 65536U, 262144U}) {
    if (!report.HasSeconds(15)) return;
    void* pinned = nullptr;
    PROBE_CHECK(cudaHostAlloc(&pinned, size_t{bytes} * kSlots, cudaHostAllocMapped));
    auto* words = static_cast<uint32_t*>(pinned);
    for (uint32_t i = 0; i < bytes / 4 * kSlots; ++i) words[i] = i / (bytes / 4);
    DeviceMemory input(bytes), data(4096), state(64);
    PROBE_CHECK(cudaMemsetAsync(state.As(), 0, state.bytes(), stream));
    auto* counters = state.As<uint32_t>();  // ring position, arrived blocks, step, wrong words

    // The graph: an optional fetch by `fetch_blocks`, the check of what arrived, the chain.
    const auto build = [&](int fetch_blocks, bool check) {
      cudaGraph_t graph = nullptr;
      cudaGraphExec_t exec = nullptr;
      PROBE_CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
      if (fetch_blocks > 0) {
        FetchSlot<<<fetch_blocks, 256, 0, stream>>>(static_cast<const uint4*>(pinned),
                                                    input.As<uint4>(), bytes / 16, kSlots, counters,
                                                    counters + 1);
      }
      if (check) {
        CountWrong<<<1, 1024, 0, stream>>>(input.As<uint32_t>(), bytes / 4, counters + 2,
                                           counters + 3);
      }
      for (int i = 0; i < kNodes; ++i)
        LaunchTiny(stream, data.As<uint32_t>(), 132, 1, Edge::kPlain);
      PROBE_CHECK(cudaStreamEndCapture(stream, &graph));
      PROBE_CHECK(cudaGraphInstantiate(&exec, graph, 0));
      PROBE_CHECK(cudaGraphDestroy(graph));
      return exec;
    };
    const auto time = [&](cudaGraphExec_t exec, bool copy, double* host_us) {
      std::vector<double> host;
      const Timing timing = Time(
          stream,
          [&] {
            const double start = NowUs();
            for (int step = 0; step < kSteps; ++step) {
              if (copy) {
                PROBE_CHECK(cudaMemcpyAsync(input.As(), words + size_t{bytes} / 4 * (step % kSlots),
                                            bytes, cudaMemcpyHostToDevice, stream));
              }
              PROBE_CHECK(cudaGraphLaunch(exec, stream));
            }
            host.push_back((NowUs() - start) / kSteps);
          },
          5);
      if (host_us != nullptr) *host_us = Median(host);
      PROBE_CHECK(cudaGraphExecDestroy(exec));
      return timing.median_us / kSteps;
    };
    double host_copy = 0, host_alone = 0;
    const double none = time(build(0, false), false, &host_alone);
    const double copied = time(build(0, false), true, &host_copy);
    double ring[4] = {};
    for (int i = 0; i < 4; ++i) ring[i] = time(build(1 << 2 * i, false), false, nullptr);

    // Each step must see its own slot.
    PROBE_CHECK(cudaMemsetAsync(state.As(), 0, state.bytes(), stream));
    cudaGraphExec_t checked = build(16, true);
    for (int step = 0; step < kSlots; ++step) PROBE_CHECK(cudaGraphLaunch(checked, stream));
    PROBE_CHECK(cudaStreamSynchronize(stream));
    PROBE_CHECK(cudaGraphExecDestroy(checked));
    uint32_t result[4] = {};
    PROBE_CHECK(cudaMemcpy(result, counters, sizeof(result), cudaMemcpyDeviceToHost));
    report.Row("%u | %.1f | %.1f | %.1f | %.1f | %.1f | %.1f | %.1f | %.1f | %u", bytes / 1024,
               none, copied, ring[0], ring[1], ring[2], ring[3], host_copy, host_alone, result[3]);
    PROBE_CHECK(cudaFreeHost(pinned));
  }
}

// Measures the time from the launch call until the host knows that the graph has run.
void RoundTrip(Report& report, cudaStream_t stream) {
  report.Table("Round trip of a graph of one kernel (median of 300)", "waiting by | us");
  void* pinned = nullptr;
  PROBE_CHECK(cudaHostAlloc(&pinned, 64, cudaHostAllocMapped));
  volatile auto* flag = static_cast<volatile uint32_t*>(pinned);
  *flag = 0;
  DeviceMemory count(64);
  PROBE_CHECK(cudaMemsetAsync(count.As(), 0, 64, stream));
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t exec = nullptr;
  PROBE_CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  Signal<<<1, 1, 0, stream>>>(flag, count.As<uint32_t>());
  PROBE_CHECK(cudaStreamEndCapture(stream, &graph));
  PROBE_CHECK(cudaGraphInstantiate(&exec, graph, 0));
  cudaEvent_t event = nullptr;
  PROBE_CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  for (const char* way : {"flag in pinned memory", "cudaEventQuery", "cudaEventSynchronize",
                          "cudaStreamSynchronize"}) {
    std::vector<double> times;
    for (int i = 0; i < 300; ++i) {
      const uint32_t before = *flag;
      const double start = NowUs();
      PROBE_CHECK(cudaGraphLaunch(exec, stream));
      if (std::strcmp(way, "flag in pinned memory") == 0) {
        while (*flag == before && NowUs() - start < 1e6) {
        }
      } else if (std::strcmp(way, "cudaStreamSynchronize") == 0) {
        PROBE_CHECK(cudaStreamSynchronize(stream));
      } else {
        PROBE_CHECK(cudaEventRecord(event, stream));
        if (std::strcmp(way, "cudaEventQuery") == 0) {
          while (cudaEventQuery(event) == cudaErrorNotReady) {
          }
        } else {
          PROBE_CHECK(cudaEventSynchronize(event));
        }
      }
      times.push_back(NowUs() - start);
      PROBE_CHECK(cudaStreamSynchronize(stream));
      (void)cudaGetLastError();  // cudaEventQuery's "not ready" is no error here
    }
    report.Row("%s | %.1f", way, Median(times));
  }
  PROBE_CHECK(cudaEventDestroy(event));
  PROBE_CHECK(cudaGraphExecDestroy(exec));
  PROBE_CHECK(cudaGraphDestroy(graph));
  PROBE_CHECK(cudaFreeHost(pinned));
}

}  // namespace

void RunGraphs(Report& report) {
  cudaStream_t stream = nullptr;
  PROBE_CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  Costs(report, stream);
  RoundTrip(report, stream);
  Inputs(report, stream);
  PROBE_CHECK(cudaStreamDestroy(stream));
}

}  // namespace probe
